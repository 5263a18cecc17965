"""Options, messages and errors that commands share, and `--KEY VALUE` for the keys of a recipe."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from ...operators import RecipeError, RejuiceError
from ..dataset.remote import to_path

if TYPE_CHECKING:
    from ..recipe.recipe import Recipe

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in YAML.")]
DatasetPath = Annotated[
    str | None, typer.Option("--dataset_path", help="Read this instead of the recipe's dataset.")
]
ExportPath = Annotated[
    str | None, typer.Option("--export_path", help="Write here instead of the recipe's export.")
]
CustomFiles = Annotated[
    list[Path] | None,
    typer.Option("--custom", help="A Python file, or a folder of them, with your operators."),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache_dir",
        metavar="PATH",
        parser=to_path,
        help="Where finished chunks are saved; by default .rejuice beside the export.",
    ),
]
ChunkRows = Annotated[
    int | None,
    typer.Option(
        "--chunk_rows",
        min=1,
        help="Rows per chunk; by default 65,536, or 2,048 if a step is resumable, or 256 if a step "
        "of Data-Juicer's asks a server.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Read the bytes of the dataset, the export and its run folder, even if they seem "
        "unchanged.",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"] | None,
    typer.Option(
        "--engine",
        help="Where chunks are run: on this machine, or on Ray; by default as executor_type says.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="The Ray cluster, HOST:PORT, or local, to start Ray on this machine for the run; by "
        "default ray_address.",
    ),
]
RetryMissing = Annotated[
    str | None,
    typer.Option(
        "--retry_missing",
        metavar="STEP",
        help="Compute again what failed in this step, given by name or number: rewards that are "
        "missing because of a timeout, a malformed verdict and the like.",
    ),
]
AllowEmpty = Annotated[
    bool, typer.Option("--allow_empty", help="Exit with status 0 even if the result is empty.")
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="After an error, also print the traceback of what caused it."),
]
"""`main` looks for it, as it is what prints errors."""
TrainingSteps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Only these training steps, A to B with both."),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, with all digits; null is what is not known."),
]
_OVERRIDES = "rejuice.overrides"
EPILOG = "Any field of a step can be set: --STEP.FIELD VALUE, such as --pass_rate_filter.max 0.9"
"""Shown below the help of commands that take overrides."""


class OverridableCommand(TyperCommand):
    """A command that takes `--KEY VALUE`, anywhere on the line, for each key of a recipe.

    Click's own `ignore_unknown_options` with `ctx.args` does not know that an unknown option has
    a value. In `rejuice run --length_filter.max 50 recipe.yaml` it would take `--length_filter.max`
    for RECIPE, and in `--length_filter.column -q` it would take the value for an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        overrides: dict[str, str] = {}
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":  # From here on there are no options.
                rest += [word, *words]
                break
            name, equals, value = word.partition("=")
            if name in own or not name.startswith("--"):
                rest.append(word)
                continue
            overrides[name[2:]] = value if equals else next(words, "")
            if not equals and overrides[name[2:]] == "":
                raise RejuiceError(f"{name} has no value", f"write {name} VALUE")
        ctx.meta[_OVERRIDES] = overrides
        return super().parse_args(ctx, rest)


def range_of_steps(steps: str | None) -> range | None:
    """The training steps that `--steps` names; None: all."""
    if steps is None:
        return None
    first, colon, last = steps.partition(":")
    if not first.isdecimal() or (colon and not last.isdecimal()):
        raise RecipeError(f"--steps {steps} is no range", "write --steps A:B, such as 40:60")
    return range(int(first), int(last or first) + 1)


def overrides_of(context: typer.Context) -> dict[str, str]:
    """What was given as `--KEY VALUE` to a command that takes overrides."""
    overrides: dict[str, str] = context.meta[_OVERRIDES]
    return overrides


class StoppedError(RejuiceError):
    """The user stopped the command: one line on stderr, and the exit status of Ctrl-C."""


def warn(line: str) -> None:
    """Print what is allowed, but rarely meant, on stderr."""
    typer.echo(f"rejuice: warning: {line}", err=True)


def warn_of_steps(recipe: Recipe, columns: Collection[str] = (), *, training: bool = False) -> None:
    """Warn of what is rarely meant, and of what the first failed call would end."""
    from ..recipe.columns import group_warnings
    from ..recipe.steps import (
        age_warnings,
        observation_warnings,
        server_warnings,
        weight_warnings,
    )

    train, where = recipe.head.train, recipe.where
    recipe = recipe.in_training() if training else recipe.offline()
    steps = recipe.steps
    lines = [*weight_warnings(steps, where), *server_warnings(steps, where)]
    lines += group_warnings(recipe, columns, training=training)
    if (train is None or train.replay is None) and any(step.operator.where for step in steps):
        from ..engine.trial import unmatched_warnings

        lines += unmatched_warnings(recipe)
    if train is not None:
        lines += [*age_warnings(steps, train), *observation_warnings(steps, where, train)]
    for line in lines:
        warn(line)


def tell_of_credit(recipe: Recipe, *, quiet: bool, err: bool = False) -> None:
    """Print that training adds the step that gives the advantage, if it does."""
    from ..recipe.steps import adds_credit, credit_line

    train = recipe.head.train
    if quiet or train is None:
        return
    steps = recipe.in_training().steps
    if adds_credit(steps, train):
        typer.echo(credit_line(steps, train), err=err)
