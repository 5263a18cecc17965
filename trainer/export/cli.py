"""`rejuice export`: prompts, rewards and datasets of a recipe, for other trainers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...pipelines.cli import AllowEmpty

app = typer.Typer(help="Write prompts, rewards and datasets for other trainers.")
"""The subcommand `export`."""


@app.command()
def verl(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in YAML.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave_out", metavar="STEP", help="Leave out a step; may be repeated."),
    ] = None,
) -> None:
    """Write a recipe's prompts and its reward function for stock verl, without rejuice's loop.

    verl's reward function is given one response at a time: a step that needs more is an error,
    unless it is left out.
    """
    from ...pipelines.recipe.read import load
    from .verl import export_verl, override_words

    made = export_verl(load(recipe), folder, leave_out or ())
    prompts = ", ".join(f"{count:,} {split} prompts" for split, count in made.prompts.items())
    typer.echo(f"{folder}: {prompts}, scored by {', '.join(s.name for s in made.scoring.steps)}.")
    if made.scoring.left_out:
        missing = ", ".join(made.scoring.components) or "none"
        typer.echo(
            f"Left out: {', '.join(made.scoring.left_out)}; reward components gone: {missing}."
        )
    typer.echo("Give verl:")
    for word in override_words(made.overrides):
        typer.echo(f"  {shlex.quote(word)}")


@app.command()
def hf(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="A run's export_path, or other rows.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    shape: Annotated[
        Literal["rows", "completions", "pairs"],
        typer.Option(
            "--as", help="Rows as they are; prompt and completion; or prompt, chosen, rejected."
        ),
    ] = "rows",
    allow_empty: AllowEmpty = False,
) -> None:
    """Write a curated dataset as a Hugging Face dataset, with a card."""
    from .huggingface import export_hf

    typer.echo(f"{folder}: {export_hf(dataset, folder, shape, allow_empty=allow_empty):,} rows.")
