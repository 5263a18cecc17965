"""`--trust`: the code of a run folder is run once the user trusts it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...operators import RecipeError

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..dataset.remote import AnyPath
    from ..recipe.recipe import Recipe
    from ..recipe.trust import RecipeCode

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the code that the recipe of a run folder names. It is remembered for that folder "
        "and this code.",
    ),
]


def check_recipe_trusted(path: Path, trusted: bool) -> None:
    """Check that a recipe is the user's own or, if it is in a run folder, that its code is trusted.

    Raises:
        RecipeError: the code is not trusted, or the recipe cannot be read.
    """
    from ..recipe.trust import code_of, run_folder_of

    if _is_recipe(path) and (folder := run_folder_of(path)) is not None:
        check_trusted(folder, code_of([path]), trusted)


def check_run_trusted(stored: Stored, path: Path, trusted: bool) -> None:
    """Check that the code of a stored run is trusted, or is that of a recipe of the user's own.

    Raises:
        RecipeError: the code is not trusted, or a recipe cannot be read.
    """
    from ..recipe.trust import code_of

    trust_own(stored, path)
    check_trusted(stored.folder, code_of(stored.recipes), trusted)


def open_trusted(
    recipe: Path,
    run: Path | None,
    overrides: Mapping[str, str],
    steps: range | None,
    trusted: bool,
) -> tuple[Stored, Recipe]:
    """The stored run and the recipe that `compare.open.opened` gives, once their code is trusted.

    Raises:
        RejuiceError: the code is not trusted, or as `opened`.
    """
    from ..analysis.whatif import opened

    check_recipe_trusted(recipe, trusted)
    return opened(
        recipe, run, overrides, steps, trust=lambda each: check_run_trusted(each, recipe, trusted)
    )


def trust_own(stored: Stored, path: Path) -> None:
    """Trust the code of a stored run, in this process, if a recipe of the user's own has the same.

    Raises:
        RecipeError: a recipe cannot be read.
    """
    from ..recipe.trust import code_of, run_folder_of, trust

    if not _is_recipe(path) or run_folder_of(path) is not None:
        return
    own, code = code_of([path]), code_of(stored.recipes)
    same = {file.resolve() for file in code.files} <= {file.resolve() for file in own.files}
    if same and {*code.named} <= {*own.named}:
        trust(stored.folder, code, remember=False)


def check_trusted(folder: Path, code: RecipeCode, trusted: bool) -> None:
    """Check that the user trusts the code of a run folder; in a terminal, ask.

    Raises:
        RecipeError: the code is not trusted.
    """
    from ...operators.logs import visible
    from ..recipe.trust import is_trusted, trust

    named = ", ".join((*code.named, *code.others))
    if not named or is_trusted(folder, code):
        return
    found = f"{visible(str(folder))} makes code run: {named}"
    if not trusted and not _confirmed(found, [visible(str(file)) for file in code.files]):
        raise RecipeError(found, "add --trust if you trust whoever made it")
    trust(folder, code)


def _is_recipe(path: AnyPath) -> bool:
    from ..analysis.stored import RECIPES

    return isinstance(path, Path) and path.suffix in RECIPES and path.is_file()


def _confirmed(found: str, files: list[str]) -> bool:
    """The answer of the user; without a terminal, no."""
    if not _has_terminal():
        return False
    typer.echo("\n".join([found, *(f"  {file}" for file in files)]), err=True)
    return typer.confirm("Run it? The answer yes is remembered", default=False, err=True)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
