"""Which operators Data-Juicer has, and their fields, read from its source files.

Importing Data-Juicer takes more than a second; `rejuice check` needs none of it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

KINDS = ("mapper", "filter", "deduplicator", "selector")
"""Kinds that `rejuice run` can run: each of their rows comes from one row."""
OTHER_KINDS = ("aggregator", "grouper", "pipeline")


class ForeignKind(NamedTuple):
    """An operator of Data-Juicer: its kind, its fields and those that have no default."""

    kind: str
    known: tuple[str, ...]
    required: tuple[str, ...]


def exists(name: str) -> bool:
    """Whether Data-Juicer has an operator of that name. Nothing is imported."""
    return find(name) is not None


def names() -> list[str]:
    """Operators of Data-Juicer that can stand in a recipe. Nothing is imported."""
    files = [path for kind in KINDS for path in (_root() / kind).glob("*.py")]
    return sorted(path.stem for path in files if "register_module" in path.read_text("utf-8"))


@cache
def settings() -> frozenset[str]:
    """The top-level keys of Data-Juicer's configuration. Nothing is imported."""
    file = _root().parent / "config" / "config.py"
    text = file.read_text("utf-8") if file.is_file() else ""
    # Of keys with a dot, such as `partition.mode`, the part before it is the key of a recipe.
    names = re.findall(r'add_argument\(\s*"--([\w-]+)', text)
    return frozenset(name.replace("-", "_") for name in names) - {"config"}


@cache
def _root() -> Path:
    # `find_spec` of a package without a dot looks it up and does not import it.
    spec = importlib.util.find_spec("data_juicer")
    if spec is None or spec.origin is None:
        return Path("data_juicer-is-not-installed")
    return Path(spec.origin).parent / "ops"


@cache
def find(name: str) -> ForeignKind | None:
    """An operator of Data-Juicer, or None where there is none of that name."""
    for kind in (*KINDS, *OTHER_KINDS):
        file = _root() / kind / f"{name}.py"
        if name.isidentifier() and file.is_file():
            node = _registered(_module(file), name)
            if node is None:
                return None
            # As Data-Juicer's own check does: the fields of the class, then those of its bases.
            known = tuple(dict.fromkeys(_fields(file, node)))
            return ForeignKind(kind, known, tuple(_own_fields(node, required=True)))
    return None


@cache
def _module(file: Path) -> ast.Module:
    with warnings.catch_warnings():
        # Python's warnings about their source are theirs to fix.
        warnings.simplefilter("ignore")
        return ast.parse(file.read_text("utf-8"))


def _registered(module: ast.Module, name: str) -> ast.ClassDef | None:
    """The class under `@OPERATORS.register_module(name)`; the name may be a constant's."""
    constants = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in _classes(module.body):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "OPERATORS.register_module":
                argument = call.args[0]
                if isinstance(argument, ast.Constant) and argument.value == name:
                    return node
                if isinstance(argument, ast.Name) and constants.get(argument.id) == name:
                    return node
    return None


def _classes(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node
        elif isinstance(node, ast.With | ast.If | ast.Try):
            yield from _classes(node.body)


def _fields(file: Path, node: ast.ClassDef) -> Iterator[str]:
    yield from _own_fields(node)
    for base in node.bases:
        found = _class(file, base.id) if isinstance(base, ast.Name) else None
        if found is not None:
            yield from _fields(*found)


def _class(file: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """Where a class that a file knows by `name` is defined, as far as that is in Data-Juicer."""
    module = _module(file)
    for node in _classes(module.body):
        if node.name == name:
            return file, node
    for imported in module.body:
        if isinstance(imported, ast.ImportFrom) and name in (a.name for a in imported.names):
            source = _source(file, imported)
            return None if source is None else _class(source, name)
    return None


def _own_fields(node: ast.ClassDef, *, required: bool = False) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args
            placed = [*arguments.posonlyargs, *arguments.args][1:]
            with_default = len(arguments.defaults)
            free = placed[: len(placed) - with_default] if required else placed
            named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            yield from (argument.arg for argument in free)
            yield from (a.arg for a, default in named if not required or default is None)
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Dict) and not required:
            if ast.unparse(item.targets[0]) != "_BASE_PARAMS":
                continue
            keys = (key for key in item.value.keys if isinstance(key, ast.Constant))
            yield from (str(key.value) for key in keys)


def _source(file: Path, node: ast.ImportFrom) -> Path | None:
    parts = (node.module or "").split(".")
    if node.level:
        folder = file.parents[node.level - 1]
    elif parts[0] == "data_juicer":
        folder, parts = _root().parent, parts[1:]
    else:
        return None
    path = folder.joinpath(*parts)
    package = path / "__init__.py"
    return package if package.is_file() else path.with_suffix(".py")
