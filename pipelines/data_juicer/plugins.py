"""Operators for Data-Juicer of other distributions, by their entry points in `data_juicer.ops`.

An entry point names a module; Data-Juicer imports it, and so its operators are registered. Here the
module's file is found and parsed instead. Only where nobody's source has the name that a recipe
uses, the modules are imported: an operator may be registered by other means than a decorator.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from ...operators.registry import owner
from . import source
from .source import Defined

_GROUP = "data_juicer.ops"
_OURS = "rejuice."


class Plugin(NamedTuple):
    """A distribution with operators for Data-Juicer.

    Attributes:
        point: its entry point.
        files: its Python files; empty where they are not found.
    """

    point: EntryPoint
    files: tuple[Path, ...]

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
        return "" if self.point.dist is None else self.point.dist.name

    def digest(self) -> str:
        """A digest of its files: one that is being written keeps its version."""
        return _digest(self.files)

    def load(self) -> None:
        """Import it; Data-Juicer only warns of one that fails.

        Raises:
            ImportError: it cannot be imported.
        """
        try:
            self.point.load()
        except Exception as error:
            what = f"{owner(self.point)} cannot be imported: {type(error).__name__}: {error}"
            raise ImportError(what) from error


@cache
def plugins() -> tuple[Plugin, ...]:
    """The plug-ins of other distributions; nothing is imported."""
    points = sorted(entry_points(group=_GROUP), key=lambda point: (point.name, point.value))
    others = (point for point in points if not point.value.startswith(_OURS))
    return tuple(Plugin(point, tuple(_files(point.module))) for point in others)


def names() -> Iterator[str]:
    """The operators that the files of plug-ins register."""
    for plugin in plugins():
        for file in plugin.files:
            yield from (name for name, _ in source.registrations(file))


def find(name: str) -> tuple[Plugin, Defined] | None:
    """The class that a plug-in registers under a name, by its source."""
    for plugin in plugins():
        for file in plugin.files:
            defined = source.registered(file, name)
            if defined is not None:
                return plugin, defined
    return None


def find_by_import(name: str) -> tuple[Plugin, Defined] | None:
    """The class that a plug-in registers under a name, when the plug-ins are imported."""
    if not plugins():
        return None
    from loguru import logger

    logger.disable("data_juicer")
    from data_juicer.ops import OPERATORS

    for plugin in plugins():
        with suppress(ImportError):  # Another one may have the operator.
            plugin.load()
    kind: Any = OPERATORS.modules.get(name)
    file = None if kind is None else inspect.getsourcefile(kind)
    for plugin in plugins():
        top = plugin.point.module.split(".")[0]
        if file is not None and kind.__module__.split(".")[0] == top:
            defined = source.definition(Path(file), kind.__name__)
            return None if defined is None else (plugin, defined)
    return None


@cache
def _digest(files: tuple[Path, ...]) -> str:
    # Once for a process, which imports them once.
    return hashlib.sha256(b"\n".join(file.read_bytes() for file in files)).hexdigest()


def _files(module: str) -> Iterator[Path]:
    """The file of a module, or all files of the package that it is in."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)  # Without a dot it is looked up and not imported.
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None:
            yield Path(spec.origin)
        return
    for folder in spec.submodule_search_locations:
        path = Path(folder, *inner)
        yield from sorted((path if path.is_dir() else path.parent).rglob("*.py"))
