"""Which function a recipe names, and a digest of its code.

    my_reward.py:compute_score                          a file
    verl.utils.reward_score:default_compute_score       a module that is installed

Nothing of either is run.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import NamedTuple

from ..cache_key import SITE, code_digest, file_state


class FunctionTarget(NamedTuple):
    """A function as a recipe names it."""

    file: str | None  # absolute; None: it is in a module
    module: str
    name: str

    @classmethod
    def parse(cls, text: str) -> FunctionTarget:
        """The function of a field such as `my_reward.py:compute_score`."""
        place, _, name = text.rpartition(":")
        if not place or not name.isidentifier():
            raise ValueError("write FILE.py:FUNCTION, or package.module:FUNCTION")
        if not place.endswith(".py"):
            if not all(part.isidentifier() for part in place.split(".")):
                raise ValueError("write FILE.py:FUNCTION, or package.module:FUNCTION")
            if module_file(place) is None:
                raise ValueError(f"there is no module {place}; install it, or name a .py file")
            return cls(None, place, name)
        file = Path(place).absolute()
        if not file.is_file():
            raise ValueError(f"{place} does not exist; give a .py file")
        return cls(str(file), file.stem, name)

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.name}"

    def digest(self) -> str:
        """A digest of its code: of its file and the files beside it that this imports.

        Of a module that is installed, the version of its distribution counts instead.
        """
        if self.file is not None:
            return code_digest(Path(self.file))
        file = module_file(self.module)
        if file is None:
            return ""  # It was there when the recipe was read.
        parent, _, _ = self.module.rpartition(".")
        if not SITE.isdisjoint(file.parts):
            return f"{_distributions(self.module.partition('.')[0])} {file_state(file)}"
        return code_digest(file, self.module if file.name == "__init__.py" else parent)


# --- Modules --------------------------------------------------------------------------


def module_file(module: str) -> Path | None:
    """The file of a module, without running anything of it or of its packages."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    name = top
    for part in parts:
        name = f"{name}.{part}"
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return Path(spec.origin)


@lru_cache(maxsize=64)
def _distributions(top: str) -> str:
    try:
        return f"{top}=={version(top)}"  # Mostly it is called the same, and then is found at once.
    except PackageNotFoundError:
        owners = packages_distributions().get(top, [])
        return " ".join(f"{name}=={version(name)}" for name in sorted(set(owners)))
