"""Find operators by name, built-in and third-party ones in the same way.

Distributions register operators under the entry-point group `rejuice.operators` (see `setup.cfg`);
a recipe may add files with `custom_operator_paths`. A class is imported only when its name is used.
A name that two distributions register is refused when it is used, and so are two files that define
operators of the same name; all other operators stay usable.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .errors import OperatorError, RecipeError, suggest
from .operator import Operator

GROUP = "rejuice.operators"
_WHERE = "custom_operator_paths"


@cache
def _registered() -> dict[str, tuple[EntryPoint, ...]]:
    """All entry points by name, sorted; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        found.setdefault(point.name, []).append(point)
    return {name: _distinct(points) for name, points in found.items()}


def _distinct(points: list[EntryPoint]) -> tuple[EntryPoint, ...]:
    """The entry points of one name, without those that a distribution has listed twice."""
    if len(points) == 1:  # Nearly always; to ask for the owner is to parse its metadata.
        return tuple(points)
    by_owner = {(owner(point), point.value): point for point in points}
    return tuple(by_owner[key] for key in sorted(by_owner))


@cache
def installed() -> dict[str, EntryPoint]:
    """Entry points of all usable operators by name, sorted; nothing is imported.

    Names that are registered more than once are not among them: see `conflicts`.
    """
    return {name: points[0] for name, points in _registered().items() if len(points) == 1}


@cache
def conflicts() -> dict[str, str]:
    """Operator names that are registered more than once, each with a message that says by whom."""
    return {
        name: f"operator '{name}' is registered by "
        + " and by ".join(f"{owner(point)} ({point.value})" for point in points)
        for name, points in _registered().items()
        if len(points) > 1
    }


def owner(point: EntryPoint) -> str:
    """The distribution of an entry point and its version, such as `rejuice 0.4.0`."""
    dist = point.dist
    return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"


def find(name: str, custom: Mapping[str, type[Operator]] | None = None) -> type[Operator] | None:
    """The operator class of that name, or None where nobody registered it.

    Raises:
        RecipeError: two distributions registered the name.
        OperatorError: what was registered does not import, or is no operator of that name.
    """
    if custom and name in custom:
        return custom[name]
    if name in conflicts():
        raise RecipeError(conflicts()[name], "uninstall all but one of them")
    point = installed().get(name)
    return None if point is None else _load(point)


def get(name: str, custom: Mapping[str, type[Operator]] | None = None) -> type[Operator]:
    """The operator class of that name.

    Raises:
        RecipeError: nobody registered the name (the message suggests the nearest one), or two
            distributions did.
        OperatorError: what was registered does not import, or is no operator of that name.
    """
    found = find(name, custom)
    if found is None:
        near = suggest(name, [*installed(), *(custom or {})])
        raise RecipeError(f"unknown operator '{name}'", near or "see `rejuice ops`")
    return found


def load_all() -> tuple[dict[str, type[Operator]], dict[str, str]]:
    """All operators that can be used, by name; and why the other registered ones cannot."""
    usable: dict[str, type[Operator]] = {}
    unusable = dict(conflicts())
    for name, point in installed().items():
        try:
            usable[name] = _load(point)
        except OperatorError as error:
            unusable[name] = str(error)
    return usable, unusable


def load_file(path: Path) -> dict[str, type[Operator]]:
    """Operators defined in a Python file (or in every .py file of a folder), by name.

    Raises:
        RecipeError: the file is missing, does not import, defines no operator, or one whose name
            is taken.
    """
    return load_files([path])


def load_files(paths: Iterable[Path]) -> dict[str, type[Operator]]:
    """Operators defined in several Python files, or folders of them, by name.

    Raises:
        RecipeError: a path is missing, does not import, defines no operator, or one whose name is
            taken, by an installed operator or in another file.
    """
    found: dict[str, tuple[Path, type[Operator]]] = {}
    for path in paths:
        defined = list(_defined_in(path))
        if not defined:
            raise RecipeError(
                f"no operator is defined in {path}",
                "define a subclass of rejuice.operators.Filter, Mapper or Operator there",
                where=_WHERE,
            )
        for file, operator_class in defined:
            name = operator_class.name()
            first, same = found.setdefault(name, (file, operator_class))
            if same is not operator_class:
                raise RecipeError(
                    f"'{name}' is defined in {first} and in {file}",
                    "give one of the classes another name",
                    where=_WHERE,
                )
    return {name: operator_class for name, (_, operator_class) in found.items()}


def _defined_in(path: Path) -> Iterable[tuple[Path, type[Operator]]]:
    for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
        module = _import_file(file)
        for value in vars(module).values():
            is_own = inspect.isclass(value) and value.__module__ == module.__name__
            if is_own and issubclass(value, Operator) and not inspect.isabstract(value):
                if value.name() in _registered():
                    raise RecipeError(
                        f"{file} defines '{value.name()}', which is installed already",
                        "give the class another name",
                        where=_WHERE,
                    )
                yield file, value


def _load(point: EntryPoint) -> type[Operator]:
    try:
        operator_class: Any = point.load()
    except Exception as error:
        # Anybody's package: the message names the one to update or to uninstall.
        what = f"{_described(point)} does not import: {type(error).__name__}: {error}"
        raise OperatorError(what, "update or uninstall it") from error
    if not (inspect.isclass(operator_class) and issubclass(operator_class, Operator)):
        raise OperatorError(f"{_described(point)} is {operator_class!r}", "name an Operator")
    if operator_class.name() != point.name:
        raise OperatorError(
            f"{_described(point)} names {operator_class.__qualname__}",
            f"call it '{operator_class.name()}'",
        )
    return operator_class


def _described(point: EntryPoint) -> str:
    return f"entry point '{point.name}' of {owner(point)} in {GROUP}"


class _SourceLoader(SourceFileLoader):
    """Compiles a file whenever it loads it.

    Bytecode is looked up by the file's size and its time in seconds: an edit within a second would
    run the code from before it, and its results would be kept as those of the new code.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        right = "give a .py file or a folder of them"
        raise RecipeError(f"{file} does not exist", right, where=_WHERE)
    # The name is made from path and content, so that workers, which import the file again, agree
    # on it, and an edited file is another module.
    identity = str(file.resolve()).encode() + file.read_bytes()
    digest = hashlib.sha256(identity).hexdigest()[:8]
    name = f"rejuice_custom_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    if file.suffix != ".py":
        raise RecipeError(f"{file} is not a Python file", "give a .py file", where=_WHERE)
    loader = _SourceLoader(name, str(file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RecipeError(
            f"{file} does not import: {type(error).__name__}: {error}", where=_WHERE
        ) from error
    return module
