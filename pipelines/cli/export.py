"""`rejuice export`: prompts, rewards and datasets of a recipe, for other trainers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...operators.errors import RejuiceError
from ..dataset.remote import to_path
from .runs import Trust, check_recipe_trusted

app = typer.Typer(help="Write prompts, rewards and datasets for other trainers.")
"""The subcommand `export`."""


All = Annotated[
    bool, typer.Option("--all", help="completions: write wrong and ungraded responses, too.")
]
MinMargin = Annotated[
    float,
    typer.Option(
        "--min_margin",
        min=0,
        help="pairs: how much higher the chosen response's reward is at least; equal rewards never "
        "make a pair.",
    ),
]
PairsPerGroup = Annotated[
    int,
    typer.Option(
        "--pairs_per_group",
        min=1,
        help="pairs: most pairs of a prompt; a response is in one of them at most.",
    ),
]
MatchLength = Annotated[
    bool,
    typer.Option(
        "--match_length",
        help="pairs: choose the responses that are closest in length, not those whose rewards "
        "differ most.",
    ),
]


def push(
    export: Annotated[
        Path,
        typer.Argument(
            metavar="EXPORT", parser=to_path, help="A run's export_path: a file or a folder."
        ),
    ],
    repo: Annotated[
        str, typer.Argument(metavar="REPO", help="A dataset of the hub, such as user/curated.")
    ],
    private: Annotated[
        bool,
        typer.Option("--private", help="A dataset that is made now is seen by its owner only."),
    ] = False,
) -> None:
    """Push an export to the Hugging Face hub, with a card: columns, figures, funnel and recipe."""
    from ...trainer.export.huggingface import push as pushed

    found = pushed(export, repo, private=private or None)
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    typer.echo(f"{repo}: {found.rows:,} rows in {files}: {found.url}")


@app.command()
def verl(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in YAML.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave_out", metavar="STEP", help="Leave out a step; may be repeated."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a recipe's prompts and its reward function for stock verl, without rejuice's loop.

    verl's reward function sees one response at a time: leave out the steps that need more.
    """
    from ...trainer.export.verl import export_verl, override_words
    from ..console import path_text
    from ..recipe.recipe import load

    check_recipe_trusted(recipe, trust)
    made = export_verl(load(recipe), folder, leave_out or ())
    prompts = ", ".join(f"{count:,} {split} prompts" for split, count in made.prompts.items())
    scored = ", ".join(step.name for step in made.scoring.steps)
    typer.echo(f"{path_text(folder)}: {prompts}, scored by {scored}.")
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
    form: Annotated[
        Literal["rows", "completions", "pairs"],
        typer.Option(
            "--as",
            help="The rows as they are; prompts with their correct completions; or prompts with a "
            "chosen and a rejected response.",
        ),
    ] = "rows",
    every: All = False,
    min_margin: MinMargin = 0.0,
    pairs_per_group: PairsPerGroup = 1,
    match_length: MatchLength = False,
) -> None:
    """Write rows as a Hugging Face dataset, with a card.

    Completions are for TRL's SFTTrainer, pairs for its DPOTrainer. Having none is an error.
    """
    from ...trainer.export.huggingface import export_hf
    from ...trainer.export.trl_formats import Completions, Format, Pairs
    from ..console import path_text

    completions = Completions(correct_only=not every)
    pairs = Pairs(min_margin, pairs_per_group, match_length)
    if form != "completions" and completions != Completions():
        raise RejuiceError("--all is an option of completions", "add --as completions")
    if form != "pairs" and pairs != Pairs():
        raise RejuiceError(
            "--min_margin, --pairs_per_group and --match_length are options of pairs",
            "add --as pairs",
        )
    forms: dict[str, Format] = {"completions": completions, "pairs": pairs}
    made = export_hf(dataset, folder, forms.get(form))
    of = "" if form == "rows" else f"{made.table.num_rows:,} {form} of "
    typer.echo(f"{path_text(folder)}: {of}{made.rows:,} rows.")
    for sentence in made.sentences():
        typer.echo(sentence)
