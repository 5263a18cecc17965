"""Find operators by name, built-in and third-party ones in the same way; tools and flows likewise.

Distributions register operators under the entry-point group `rejuice.operators` (see `setup.cfg`);
a recipe may add files with `custom_operator_paths`. A class is imported only when its name is used.
A name that two distributions register is refused when it is used, and so are two files that define
operators of the same name; all other operators stay usable.

    OPERATORS.get("length_filter")      # tools and flows: see `agents/flow.py`
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from .config import Named
from .errors import OperatorError, RecipeError, hint, shown, suggest
from .operator import Operator

# --- From the fields of a recipe ------------------------------------------------------

T = TypeVar("T", bound=Named)


def build(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Return an operator, a tool or a flow from recipe fields.

    Raises:
        RecipeError: a field is unknown (with a suggestion), missing or of the wrong type.
    """
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise _recipe_error(kind, error) from None


def _recipe_error(kind: type[BaseModel], error: ValidationError) -> RecipeError:
    """The first problem that pydantic found, in the words of a recipe."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:
        known = _subfields(kind, first["loc"][:-1])
        return RecipeError(f"unknown field {shown(field)}", suggest(str(first["loc"][-1]), known))
    if first["type"] == "extra_forbidden":
        every = list(kind.model_fields)
        own = kind.own_fields() if issubclass(kind, Operator) else every
        elsewhere = hint(field) if kind.__name__.endswith("RolloutMapper") else ""
        near = suggest(field, every) or f"its fields are: {', '.join(own) or 'none'}"
        return RecipeError(f"unknown field {shown(field)}", elsewhere or near)
    if first["type"] == "missing":
        return RecipeError(f"field '{field}' is missing", "it has no default")
    message = first["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    if not field:
        return RecipeError(message)
    if first["type"] in ("tuple_type", "list_type") and isinstance(first["input"], str):
        text = shown(first["input"])
        return RecipeError(f"field '{field}' is {text}, not a list", f"write [{text}]")
    return RecipeError(
        f"field '{field}' is {shown(first['input'])}", message[0].lower() + message[1:]
    )


def _subfields(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """None where the field is no model itself."""
    for name in path:
        info = model.model_fields.get(str(name))
        inner = info.annotation if info else None
        if not (inspect.isclass(inner) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


# --- Classes by name ------------------------------------------------------------------


class Registry(Generic[T]):
    """The classes of one kind that can be used, by name."""

    def __init__(self, base: type[T]) -> None:
        self._base = base
        self.group = f"rejuice.{base.noun}s"

    def installed(self) -> dict[str, EntryPoint]:
        """The entry points of all usable classes by name, sorted; nothing is imported. Names of
        `conflicts` are not among them."""
        found = registered(self.group).items()
        return {name: points[0] for name, points in found if len(points) == 1}

    def conflicts(self) -> dict[str, str]:
        """Names that are registered more than once, each with a message that says by whom."""
        return {
            name: f"{self._base.noun} '{name}' is registered by "
            + " and by ".join(f"{owner(point)} ({point.value})" for point in points)
            for name, points in registered(self.group).items()
            if len(points) > 1
        }

    def find(self, name: str, custom: Mapping[str, type[T]] | None = None) -> type[T] | None:
        """As `get`; None where nobody registered it."""
        if custom and name in custom:
            return custom[name]
        points = registered(self.group).get(name, ())
        if len(points) > 1:
            raise RecipeError(self.conflicts()[name], "uninstall all but one of them")
        return self._load(points[0]) if points else None

    def get(self, name: str, custom: Mapping[str, type[T]] | None = None) -> type[T]:
        """The class of that name, a recipe's key; `custom` are classes of files, by name.

        Raises:
            RecipeError: nobody registered the name (the message suggests the nearest one), or two
                distributions did.
            OperatorError: what was registered does not import, or is no such class.
        """
        found = self.find(name, custom)
        if found is None:
            known = sorted({*self.installed(), *(custom or {})})
            listed = f"the {self._base.noun}s are: {', '.join(known) or 'none'}"
            right = "see `rejuice ops`" if self._base is Operator else listed
            raise RecipeError(
                f"unknown {self._base.noun} {shown(name)}", suggest(name, known) or right
            )
        return found

    def load_all(self) -> tuple[dict[str, type[T]], dict[str, str]]:
        """All classes that can be used; and why the other registered ones cannot."""
        usable: dict[str, type[T]] = {}
        unusable = self.conflicts()
        for name, point in self.installed().items():
            try:
                usable[name] = self._load(point)
            except OperatorError as error:
                unusable[name] = str(error)
        return usable, unusable

    def load_files(self, paths: Iterable[Path]) -> dict[str, type[T]]:
        """The classes of this kind that Python files, or folders of them, define."""
        defined = (kind for path in paths for kind in _defined_in(path))
        found: dict[tuple[str, str], tuple[Path, type[Named]]] = {}
        for file, kind in defined:
            first, same = found.setdefault((kind.noun, kind.name()), (file, kind))
            if same is not kind:
                twice = f"'{kind.name()}' is defined in {first} and in {file}"
                raise _refused(twice, "give one of the classes another name")
        kinds = (kind for _, kind in found.values())
        return {kind.name(): kind for kind in kinds if issubclass(kind, self._base)}

    def _load(self, point: EntryPoint) -> type[T]:
        try:
            kind: Any = point.load()
        except Exception as error:
            # Anybody's package: the message names the one to update or to uninstall.
            what = f"{self._described(point)} does not import: {type(error).__name__}: {error}"
            raise OperatorError(what, "update or uninstall it") from error
        if not (inspect.isclass(kind) and issubclass(kind, self._base)):
            article = "an" if self._base is Operator else "a"
            right = f"name {article} {self._base.__name__}"
            raise OperatorError(f"{self._described(point)} is {kind!r}", right)
        if kind.name() != point.name:
            raise OperatorError(
                f"{self._described(point)} names {kind.__qualname__}", f"call it '{kind.name()}'"
            )
        return kind

    def _described(self, point: EntryPoint) -> str:
        return f"entry point '{point.name}' of {owner(point)} in {self.group}"


OPERATORS = Registry[Operator](Operator)  # type: ignore[type-abstract]
installed, conflicts = OPERATORS.installed, OPERATORS.conflicts
find, get, load_all = OPERATORS.find, OPERATORS.get, OPERATORS.load_all
load_files = OPERATORS.load_files


@cache
def all_entry_points() -> Any:
    """All distributions are read, as they are to find one group. `select(group=...)` of the result
    has one form in all versions of Python."""
    return entry_points()


@cache
def registered(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """All entry points of a group by name, sorted; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(all_entry_points().select(group=group), key=lambda point: point.name):
        found.setdefault(point.name, []).append(point)
    return {name: _distinct(points) for name, points in found.items()}


def _distinct(points: list[EntryPoint]) -> tuple[EntryPoint, ...]:
    """The entry points of one name, without those that a distribution has listed twice."""
    if len(points) == 1:  # Nearly always; to ask for the owner is to parse its metadata.
        return tuple(points)
    by_owner = {(owner(point), point.value): point for point in points}
    return tuple(by_owner[key] for key in sorted(by_owner))


def owner(point: EntryPoint) -> str:
    """The distribution and its version, such as `rejuice 0.4.0`."""
    dist = point.dist
    return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"


def load_file(path: Path) -> dict[str, type[Operator]]:
    return load_files([path])


def _defined_in(path: Path) -> list[tuple[Path, type[Named]]]:
    found = []
    for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
        module = _import_file(file)
        for value in vars(module).values():
            is_own = inspect.isclass(value) and value.__module__ == module.__name__
            if is_own and issubclass(value, Named) and not inspect.isabstract(value):
                if value.name() in registered(f"rejuice.{value.noun}s"):
                    taken = f"{file} defines '{value.name()}', which is installed already"
                    raise _refused(taken, "give the class another name")
                found.append((file, value))
    if not found:
        right = "define a subclass of Filter, Mapper or Operator of rejuice.operators there, or of "
        right += "Tool or Flow of rejuice.operators.agents"
        raise _refused(f"no operator, tool or flow is defined in {path}", right)
    return found


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise _refused(f"{file} does not exist", "give a .py file or a folder of them")
    # The name is made from path and content, so that workers, which import the file again, agree
    # on it, and an edited file is another module.
    content = file.read_bytes()
    digest = hashlib.sha256(str(file.resolve()).encode() + content).hexdigest()[:8]
    name = f"rejuice_custom_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    if file.suffix != ".py":
        raise _refused(f"{file} is not a Python file", "give a .py file")
    spec = spec_from_file_location(name, file)
    assert spec is not None  # As it is for each .py file.
    module = sys.modules[name] = module_from_spec(spec)
    try:
        # Not by a loader: it takes bytecode of the same second and size for that of the file.
        exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise _refused(f"{file} does not import: {type(error).__name__}: {error}") from error
    return module


def _refused(found: str, right: str = "") -> RecipeError:
    return RecipeError(found, right, where="custom_operator_paths")
