"""Find operators by name: built-in and third-party ones enter by the same door.

The door is the entry-point group `rejuice.operators` (see `setup.cfg`); a recipe may add files
with `custom_operator_paths`. A class is imported only when its name is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ValidationError

from ._version import __version__
from .errors import OperatorError, RecipeError, suggest
from .operator import Operator

GROUP = "rejuice.operators"


@cache
def installed() -> dict[str, EntryPoint]:
    """Entry points of all installed operators by name, sorted; nothing is imported."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def find(name: str, custom: Mapping[str, type[Operator]] | None = None) -> type[Operator] | None:
    """The operator class of that name, or None where nobody registered it."""
    if custom and name in custom:
        return custom[name]
    point = installed().get(name)
    return None if point is None else _checked(name, point.load())


def get(name: str, custom: Mapping[str, type[Operator]] | None = None) -> type[Operator]:
    """The operator class of that name.

    Raises:
        RecipeError: nobody registered the name; the message suggests the nearest one.
    """
    found = find(name, custom)
    if found is None:
        near = suggest(name, [*installed(), *(custom or {})])
        raise RecipeError(f"unknown operator '{name}'", near or "see `rejuice ops`")
    return found


def build(kind: type[Operator], fields: Mapping[str, Any]) -> Operator:
    """An operator from recipe fields.

    Raises:
        RecipeError: a field is unknown (with a suggestion), missing or of the wrong type.
    """
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise _plain(kind, error) from None


def load_file(path: Path) -> dict[str, type[Operator]]:
    """Operators defined in a Python file (or in every .py file of a folder), by name.

    Raises:
        RecipeError: the file is missing, does not import, or defines no operator.
    """
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    found: dict[str, type[Operator]] = {}
    for file in files:
        module = _import_file(file)
        for kind in vars(module).values():
            here = inspect.isclass(kind) and kind.__module__ == module.__name__
            if here and issubclass(kind, Operator) and not inspect.isabstract(kind):
                if kind.name() in installed():
                    raise RecipeError(
                        f"{file} defines '{kind.name()}', which is installed already",
                        "give the class another name",
                        where="custom_operator_paths",
                    )
                found[kind.name()] = kind
    if not found:
        raise RecipeError(
            f"no operator is defined in {path}",
            "define a subclass of rejuice.operators.Filter, Mapper or Operator there",
            where="custom_operator_paths",
        )
    return found


@cache
def code_version(kind: type[Operator]) -> str:
    """A digest of the code behind an operator: every file of its top folder, or its own file,
    and the versions of what it depends on.

    It is part of the key under which results are kept, so that edited code is never answered
    with old results. An operator may say itself what state its code is in.
    """
    if kind.code is not None:
        return kind.code
    package = sys.modules.get(_folder(kind.__module__))
    own = sys.modules[kind.__module__].__file__
    folders = [Path(path) for path in getattr(package, "__path__", ())]
    files = sorted({file for folder in folders for file in folder.rglob("*.py")})
    digest = hashlib.sha256(__version__.encode())
    for name in kind.depends_on:
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            digest.update(f"{name}=={version(name)}".encode())
    for file in files or ([Path(own)] if own else []):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _folder(module: str) -> str:
    """`rejuice.operators` for what is in there; else the top-level package of the module."""
    parts = module.split(".")
    return ".".join(parts[:2] if parts[0] == "rejuice" else parts[:1])


def config_json(operator: Operator) -> str:
    """The operator's name and what decides its result, as canonical JSON."""
    return json.dumps({operator.name(): operator.identity()}, sort_keys=True)


def _fields_within(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of a field."""
    for name in path:
        info = kind.model_fields.get(str(name))
        inner = info.annotation if info else None
        if not (inspect.isclass(inner) and issubclass(inner, BaseModel)):
            return []
        kind = inner
    return list(kind.model_fields)


def _checked(name: str, kind: Any) -> type[Operator]:
    if not (inspect.isclass(kind) and issubclass(kind, Operator)):
        raise OperatorError(f"entry point '{name}' of {GROUP} is {kind!r}", "name an Operator")
    if kind.name() != name:
        raise OperatorError(
            f"entry point '{name}' of {GROUP} names {kind.__qualname__}",
            f"call it '{kind.name()}'",
        )
    return kind


def _import_file(file: Path) -> ModuleType:
    where = "custom_operator_paths"
    if not file.is_file():
        right = "give a .py file or a folder of them"
        raise RecipeError(f"{file} does not exist", right, where=where)
    # The name is made from path and content, so that workers, which import the file again, agree
    # on it, and an edited file is another module.
    identity = str(file.resolve()).encode() + file.read_bytes()
    digest = hashlib.sha256(identity).hexdigest()[:8]
    name = f"rejuice_custom_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{file} is not a Python file", "give a .py file", where=where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RecipeError(
            f"{file} does not import: {type(error).__name__}: {error}", where=where
        ) from error
    return module


def _plain(kind: type[Operator], error: ValidationError) -> RecipeError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:
        known = _fields_within(kind, first["loc"][:-1])
        return RecipeError(f"unknown field '{field}'", suggest(str(first["loc"][-1]), known))
    if first["type"] == "extra_forbidden":
        known = list(kind.model_fields)
        near = suggest(field, known) or f"its fields are: {', '.join(known) or 'none'}"
        return RecipeError(f"unknown field '{field}'", near)
    if first["type"] == "missing":
        return RecipeError(f"field '{field}' is missing", "it has no default")
    message = first["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    if not field:
        return RecipeError(message)
    return RecipeError(f"field '{field}' is {first['input']!r}", message[0].lower() + message[1:])
