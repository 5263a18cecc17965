"""Which code of run folders the user trusts, and how a recipe is read without it.

    ~/.local/state/rejuice/trusted/<hash>    one file for each recipe and Python file of a folder

The hash is of the folder, the file's path and its content, so a file that is moved or edited is not
trusted any more. It is kept outside of the run folder, which is whoever's who made it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..dataset.run_folder import RUN_SUFFIX
from .code import RecipeCode, code_of
from .read import load, load_without_code
from .recipe import Recipe
from .stored_operator import StoredOperator

_this_process: set[str] = set()
"""What is trusted until the process ends, and is in no file."""


def run_folder_of(recipe: Path) -> Path | None:
    """The folder of the run that a recipe is in; None: it is in none, so it is the user's own.

    Of an export it is `curated.run`, of training the folder with its prompts.
    """
    for path in (recipe.absolute(), recipe.resolve()):
        for parent in path.parents:
            if parent.suffix == RUN_SUFFIX:
                return parent
        for parent in path.parents[:4]:  # RUN/recipe.yaml to RUN/steps/000012/verify/recipe.yaml
            if (parent / "prompts" / "train.parquet").exists() or _has_steps(parent):
                return parent
    return None


def read_stored(path: Path, folder: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """The recipe of a run, with the operators of its own files only where the user trusts them.

    Args:
        path: of the recipe.
        folder: of the run.
        overrides: as those of `load`.

    Raises:
        RecipeError, MissingPackageError: as `load`.
    """
    recipe = load_without_code(path, overrides)
    if not any(isinstance(step.operator, StoredOperator) for step in recipe.steps):
        return recipe
    return load(path, overrides) if is_trusted(folder, code_of([path])) else recipe


def read_to_show(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """A recipe that the user names by its path: its own files are imported, but those of a run.

    Raises:
        RecipeError, MissingPackageError: as `load`.
    """
    folder = run_folder_of(path)
    return load(path, overrides) if folder is None else read_stored(path, folder, overrides)


def is_trusted(folder: Path, code: RecipeCode) -> bool:
    """Whether the user trusts all this code, as it is now, in this folder."""
    # One after the other: where the recipe itself is not trusted, no file that it names is read.
    keys = _keys(folder, code)
    return all(key in _this_process or (_folder() / key).is_file() for key in keys)


def trust(folder: Path, code: RecipeCode, *, remember: bool = True) -> None:
    """Note that the user trusts this code, as it is now, in this folder.

    Args:
        folder: of the run.
        code: what its recipes name.
        remember: beyond the end of this process.
    """
    keys = set(_keys(folder, code))
    _this_process.update(keys)
    if remember:
        with suppress(OSError):  # Then the next process asks again.
            _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            for key in keys:
                (_folder() / key).write_text(f"{folder.resolve()}\n", "utf-8", "surrogateescape")


def _has_steps(folder: Path) -> bool:
    if not (folder / "recipe.yaml").is_file():
        return False
    return any(each.name.isdecimal() for each in (folder / "steps").glob("*"))


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rejuice" / "trusted"


def _keys(folder: Path, code: RecipeCode) -> Iterator[str]:
    where = os.fsencode(folder.resolve())
    for path in (*code.recipes, *(file for each in code.files for file in _python_files(each))):
        yield _key(where, os.fsencode(path.resolve()), _digest(path))
    for name in code.others:
        yield _key(where, name.encode())


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    if path.is_file():  # Neither a device nor a pipe.
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.digest()


def _key(*parts: bytes) -> str:
    framed = (len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.sha256(b"".join(framed)).hexdigest()


def _python_files(path: Path) -> list[Path]:
    """A file, and those beside it, which it may import; or those of a folder."""
    beside = path if path.is_dir() else path.parent
    return sorted({path, *beside.glob("*.py")} - {beside})
