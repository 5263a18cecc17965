"""What commands share: options, messages, `--KEY VALUE` for a recipe, and the runs they look at.

With `--trust`, the code of a run folder is run once the user trusts it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ...operators import DataError, RecipeError, RejuiceError
from ..dataset.remote import to_path

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..console import Console
    from ..dataset.remote import AnyPath
    from ..recipe.recipe import Recipe
    from ..recipe.trust import RecipeCode

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in YAML.")]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache_dir",
        metavar="PATH",
        parser=to_path,
        help="Where finished chunks are saved; by default .rejuice beside the export.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]
AllowEmpty = Annotated[
    bool, typer.Option("--allow_empty", help="Exit with status 0 even if the result is empty.")
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="After an error, also print the traceback of what caused it."),
]
"""`main` looks for it, as it is what prints errors."""
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
TrainingSteps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Only these training steps, A to B with both."),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, with all digits; null is what is not known."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the code that the recipe of a run folder names. It is remembered for that folder "
        "and this code.",
    ),
]
_OVERRIDES = "rejuice.overrides"
EPILOG = (
    "Any key of a recipe can be set, such as --dataset_path, --export_path or --np, and any field "
    "of a step: --STEP.FIELD VALUE, such as --pass_rate_filter.max 0.9"
)
"""Shown below the help of commands that take overrides."""


def spelled(option: str) -> str:
    """The spelling by which an option is looked up: `--no-open` and `--no_open` are the same."""
    return option.replace("-", "_")


class OverridableCommand(TyperCommand):
    """A command that takes `--KEY VALUE`, anywhere on the line, for each key of a recipe.

    Click's own `ignore_unknown_options` with `ctx.args` does not know that an unknown option has
    a value. In `rejuice run --length_filter.max 50 recipe.yaml` it would take `--length_filter.max`
    for RECIPE, and in `--length_filter.column -q` it would take the value for an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {spelled(name) for parameter in self.get_params(ctx) for name in parameter.opts}
        overrides: dict[str, str] = {}
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":  # From here on there are no options.
                rest += [word, *words]
                break
            name, equals, value = word.partition("=")
            if spelled(name) in own or not name.startswith("--"):
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
    overrides: dict[str, str] = context.meta[_OVERRIDES]
    return overrides


class StoppedError(RejuiceError):
    """The user stopped the command: one line on stderr, and the exit status of Ctrl-C."""


def echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def warn(line: str) -> None:
    """Print what is allowed, but rarely meant, on stderr."""
    typer.echo(f"rejuice: warning: {line}", err=True)


def warn_of_steps(recipe: Recipe, columns: Collection[str] = (), *, training: bool = False) -> None:
    """Warn of what is rarely meant, and of what the first failed call would end."""
    from ..recipe.columns import step_warnings
    from ..recipe.steps import age_warnings, observation_warnings

    train, where = recipe.head.train, recipe.where
    recipe = recipe.in_training() if training else recipe.offline()
    steps, lines = recipe.steps, step_warnings(recipe, columns, training=training)
    if (train is None or train.replay is None) and any(step.operator.where for step in steps):
        from ..engine.trial import unmatched_warnings

        lines += unmatched_warnings(recipe)
    if train is not None:
        lines += [*age_warnings(steps, train), *observation_warnings(steps, where, train)]
    for line in lines:
        warn(line)


def tell_of_credit(recipe: Recipe, console: Console) -> None:
    from ..console import print_lines
    from ..recipe.steps import adds_credit, credit_line

    train = recipe.head.train
    if train is not None and adds_credit(steps := recipe.in_training().steps, train):
        print_lines([credit_line(steps, train)], console)


# --- Stored runs: exports and runs of training ----------------------------------------

RUNS = Path("outputs")
"""Where training puts the run of a recipe, unless another folder is given."""


def open_run(path: AnyPath, steps: range | None = None) -> Stored:
    """Open an export, its run folder, a recipe that was run, a training run or a step of one.

    Of a training run, only `steps` are wanted.
    """
    from ..analysis.stored import export_of, open_stored
    from ..recipe.recipe import RECIPES

    is_recipe = path.suffix in RECIPES
    if isinstance(path, Path) and path.exists() and (is_recipe or export_of(path) is None):
        from ...trainer.report.stored import open_training

        if (found := open_training(path, steps)) is not None:
            return found
        # A recipe that trains has a run where training puts it.
        default = RUNS / path.stem if is_recipe and export_of(path) is None else None
        if default is not None and (found := open_training(default, steps)) is not None:
            return found
    return open_stored(path)


def found_run(path: Path, steps: range | None = None) -> Stored | None:
    """The stored run of a path, as `open_run` opens it; None: it is a recipe that was not run."""
    from ..recipe.recipe import load_without_code

    if not _is_recipe(path):
        return open_run(path, steps)
    load_without_code(path)
    try:
        found = open_run(path)
    except DataError:
        return None
    return found if steps is None else open_run(path, steps)


def open_with_code(
    path: AnyPath, steps: range | None, given: Path, trusted: bool, *, needs_code: bool = True
) -> Stored:
    """A stored run, with the code of its operators as far as it is trusted.

    Code of a recipe of the user's own, the path `given`, is trusted. Other code that is not trusted
    is an error with `needs_code`, and is not run without.
    """
    from ..recipe.steps import StoredOperator
    from ..recipe.trust import code_of

    stored = open_run(path, steps)
    _trust_own(stored, given)
    if needs_code or trusted:
        check_trusted(stored.folder, code_of(stored.recipes), trusted)
    if any(isinstance(x.operator, StoredOperator) for one in stored.sets for x in one.recipe.steps):
        return open_run(path, steps)
    return stored


def open_with_recipe(
    recipe: Path,
    run: Path | None,
    overrides: Mapping[str, str],
    steps: range | None,
    trusted: bool,
) -> tuple[Stored, Recipe]:
    """A stored run, by default that of `recipe`, and a recipe to apply to it, with their code."""
    from ..recipe.recipe import RECIPES, load

    check_recipe_trusted(recipe, trusted)
    stored = open_with_code(run or recipe, steps, recipe, trusted)
    if recipe.suffix in RECIPES:
        return stored, load(recipe, overrides)
    own = stored if run is None else open_with_code(recipe, None, recipe, trusted)
    return stored, own.read_recipe(overrides)


# --- Trust ----------------------------------------------------------------------------


def check_recipe_trusted(path: Path, trusted: bool) -> None:
    """Check that a recipe is the user's own or, in a run folder, that its code is trusted."""
    from ..recipe.trust import code_of, run_folder_of

    if _is_recipe(path) and (folder := run_folder_of(path)) is not None:
        check_trusted(folder, code_of([path]), trusted)


def _trust_own(stored: Stored, path: Path) -> None:
    """Trust the code of a stored run, in this process, if a recipe of the user's own has it too."""
    from ..recipe.trust import code_of, run_folder_of, trust

    if not _is_recipe(path) or run_folder_of(path) is not None:
        return
    own, code = code_of([path]), code_of(stored.recipes)
    same = {file.resolve() for file in code.files} <= {file.resolve() for file in own.files}
    if same and {*code.named} <= {*own.named}:
        trust(stored.folder, code, remember=False)


def trust_made(export_path: str) -> None:
    """Trust the code of a run that the user has just made, as it is now; in a store, none."""
    from ..dataset.files import run_folder
    from ..recipe.trust import code_of, trust

    folder = run_folder(to_path(export_path))
    if isinstance(folder, Path):
        code = code_of([folder / "recipe.yaml"])
        if code.named:
            trust(folder, code)


def check_trusted(folder: Path, code: RecipeCode, trusted: bool) -> None:
    """Check that the user trusts the code of a run folder; in a terminal, ask."""
    from ...operators.logs import visible
    from ..recipe.trust import is_trusted, trust

    named = ", ".join((*code.named, *code.others))
    if not named or is_trusted(folder, code):
        return
    if gone := [visible(str(file)) for file in code.files if not file.exists()]:
        raise RecipeError(f"{gone[0]} is gone", "put it back: the run needs it")
    found = f"{visible(str(folder))} makes code run: {named}"
    if not trusted and not _confirmed(found, [visible(str(file)) for file in code.files]):
        raise RecipeError(found, f"if you made it, or trust whoever did, run {_with_trust()}")
    trust(folder, code)


def _with_trust() -> str:
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)  # After it come no options.
    after = "".join(f" {shlex.quote(word)}" for word in words[end:])
    return f"`rejuice {shlex.join(words[:end])} --trust{after}`"


def _is_recipe(path: AnyPath) -> bool:
    from ..recipe.recipe import RECIPES

    return isinstance(path, Path) and path.suffix in RECIPES and path.is_file()


def _confirmed(found: str, files: list[str]) -> bool:
    if not _has_terminal():
        return False
    typer.echo("\n".join([found, *(f"  {file}" for file in files)]), err=True)
    return typer.confirm("Run it? The answer yes is remembered", default=False, err=True)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
