"""`rejuice export`: prompts, rewards and datasets of a recipe, for other trainers or the hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...operators.errors import RejuiceError
from ..dataset.remote import to_path
from .shared import Overwrite, Trust, check_recipe_trusted, echo_lines

if TYPE_CHECKING:
    from ...trainer.export.other_trainers import TrainerFiles
    from ...trainer.export.trl_formats import Format

app = typer.Typer(
    help="Write policies, prompts, rewards and datasets, for other trainers or the hub."
)

ExportArgument = Annotated[
    Path, typer.Argument(metavar="EXPORT", help="A run's export_path, or other rows.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")]
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


@app.command()
def hub(
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
    from ...trainer.export.huggingface import push

    found = push(export, repo, private=private or None)
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    typer.echo(f"{repo}: {found.rows:,} rows in {files}: {found.url}")


@app.command()
def verl(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RECIPE|EXPORT",
            help="A recipe in YAML, for all its prompts; or a run's export_path or other rows, for "
            "the prompts that are left.",
        ),
    ],
    folder: Folder,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave_out",
            metavar="STEP",
            help="Leave a step out of the reward function; may be repeated.",
        ),
    ] = None,
    val_rows: Annotated[
        int,
        typer.Option(
            "--val_rows", min=0, help="EXPORT: how many prompts to hold out for validation."
        ),
    ] = 0,
    overwrite: Overwrite = False,
    trust: Trust = False,
) -> None:
    """Write prompts and their reward function for stock verl, without rejuice's loop.

    verl's reward function sees one response at a time: leave out the steps that need more.
    """
    from ...trainer.export.verl import export_rows, export_verl, override_words, recipe_of
    from ..console import path_text
    from ..recipe.recipe import RECIPES, load

    is_recipe, skipped = source.suffix in RECIPES, leave_out or ()
    if is_recipe and val_rows:
        right = "set train.validation_path in the recipe"
        raise RejuiceError("--val_rows is an option of an export", right)
    if (recipe := source if is_recipe else recipe_of(source)) is not None:
        check_recipe_trusted(recipe, trust)
    if is_recipe:
        made = export_verl(load(source), folder, skipped, overwrite=overwrite)
    else:
        made = export_rows(source, folder, skipped, val_rows, overwrite=overwrite)
    prompts = ", ".join(f"{count:,} {split} prompts" for split, count in made.prompts.items())
    of = f" of {made.found.rows:,} rows" if made.found else ""
    typer.echo(f"{path_text(folder)}: {prompts}{of}.")
    words = (f"  {shlex.quote(word)}" for word in override_words(made.overrides))
    echo_lines([*made.sentences(), "Give verl:", *words])


@app.command()
def hf(
    dataset: ExportArgument,
    folder: Folder,
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
    overwrite: Overwrite = False,
) -> None:
    """Write rows as a Hugging Face dataset, with a card.

    Completions are for TRL's SFTTrainer, pairs for its DPOTrainer. Having none is an error.
    """
    from ...trainer.export.huggingface import export_hf
    from ..console import path_text

    format_ = _format(form, every, min_margin, pairs_per_group, match_length)
    made = export_hf(dataset, folder, format_, overwrite=overwrite)
    of = "" if format_ is None else f"{made.table.num_rows:,} {form} of "
    echo_lines([f"{path_text(folder)}: {of}{made.rows:,} rows.", *made.sentences()])


@app.command()
def openrlhf(
    dataset: ExportArgument,
    folder: Folder,
    form: Annotated[
        Literal["completions", "pairs", "prompts"],
        typer.Option(
            "--as",
            help="Correct completions for supervised training; chosen and rejected responses for "
            "DPO; or the prompts that are left, for reinforcement learning.",
        ),
    ],
    every: All = False,
    min_margin: MinMargin = 0.0,
    pairs_per_group: PairsPerGroup = 1,
    match_length: MatchLength = False,
    overwrite: Overwrite = False,
) -> None:
    """Write rows as a Parquet file for OpenRLHF, and print the options that read it."""
    from ...trainer.export.other_trainers import export_openrlhf

    format_ = _format(form, every, min_margin, pairs_per_group, match_length)
    _echo_written(folder, export_openrlhf(dataset, folder, format_, overwrite=overwrite))


@app.command("llama_factory")
def llama_factory(
    dataset: ExportArgument,
    folder: Folder,
    form: Annotated[
        Literal["completions", "pairs"],
        typer.Option(
            "--as",
            help="Correct completions for supervised training; or chosen and rejected responses "
            "for DPO.",
        ),
    ],
    every: All = False,
    min_margin: MinMargin = 0.0,
    pairs_per_group: PairsPerGroup = 1,
    match_length: MatchLength = False,
    overwrite: Overwrite = False,
) -> None:
    """Write rows in LLaMA-Factory's sharegpt format, with dataset_info.json."""
    from ...trainer.export.other_trainers import export_llama_factory

    format_ = _format(form, every, min_margin, pairs_per_group, match_length)
    assert format_ is not None  # There is no other choice.
    _echo_written(folder, export_llama_factory(dataset, folder, format_, overwrite=overwrite))


def _format(
    form: str, every: bool, min_margin: float, pairs_per_group: int, match_length: bool
) -> Format | None:
    from ...trainer.export.trl_formats import Completions, Pairs

    completions, pairs = Completions(not every), Pairs(min_margin, pairs_per_group, match_length)
    if form != "completions" and every:
        raise RejuiceError("--all is an option of completions", "add --as completions")
    if form != "pairs" and pairs != Pairs():
        found = "--min_margin, --pairs_per_group and --match_length are options of pairs"
        raise RejuiceError(found, "add --as pairs")
    forms: dict[str, Format] = {"completions": completions, "pairs": pairs}
    return forms.get(form)


def _echo_written(folder: Path, made: TrainerFiles) -> None:
    from ..console import path_text

    counts = f"{path_text(folder)}: {made.size:,} {made.what} of {made.rows:,} rows."
    settings = (f"  {setting}" for setting in made.settings)
    echo_lines([counts, *made.sentences, f"Give {made.used_by}:", *settings])
