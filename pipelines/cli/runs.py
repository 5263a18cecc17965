"""Open the stored runs that commands look at: exports and runs of training.

With `--trust`, the code of a run folder is run once the user trusts it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...operators import DataError, RecipeError

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..dataset.remote import AnyPath
    from ..recipe.recipe import Recipe
    from ..recipe.trust import RecipeCode

RUNS = Path("outputs")
"""Where training puts the run of a recipe, unless another folder is given."""
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the code that the recipe of a run folder names. It is remembered for that folder "
        "and this code.",
    ),
]


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
    from ..dataset.remote import to_path
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
