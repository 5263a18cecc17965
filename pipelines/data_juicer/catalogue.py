"""Which operators and settings Data-Juicer has, and the fields of each operator."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import plugins, source
from .plugins import Plugin
from .source import Defined

KINDS = ("mapper", "filter", "deduplicator", "selector")
"""Kinds that `rejuice run` can run: each of their rows comes from one row."""
OTHER_KINDS = ("aggregator", "grouper", "pipeline")


class ForeignField(NamedTuple):
    """A field of an operator of Data-Juicer's, as its source has it.

    Attributes:
        type: the annotation; empty where there is none.
        default: an expression; None: the field is required.
    """

    name: str
    type: str
    default: str | None


class ForeignKind(NamedTuple):
    """An operator of Data-Juicer: its kind, its class and its fields.

    Attributes:
        kind: `mapper`, `filter` and so on.
        defined: its class.
        fields: those of the class, then those of its bases, as Data-Juicer's own check does.
        plugin: the plug-in that brings it; None: Data-Juicer itself.
    """

    kind: str
    defined: Defined
    fields: tuple[ForeignField, ...]
    plugin: Plugin | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The names of its fields."""
        return tuple(field.name for field in self.fields)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the fields of the class itself that have no default."""
        return tuple(f.name for f in _own_fields(self.defined) if f.default is None)

    @property
    def summary(self) -> str:
        """The docstring of its class."""
        return inspect.cleandoc(ast.get_docstring(self.defined.node) or "")

    def meanings(self) -> dict[str, str]:
        """What the docstrings of the class and of its bases say about the fields."""
        from docstring_parser import DocstringStyle, parse

        found: dict[str, str] = {}
        for base in source.lineage(self.defined):
            init = source.constructor(base)
            text = ast.get_docstring(init) if init else None
            for parameter in parse(text or "", DocstringStyle.REST).params:
                found.setdefault(
                    parameter.arg_name, " ".join((parameter.description or "").split())
                )
        return found


def exists(name: str) -> bool:
    """Whether Data-Juicer has an operator of that name. Nothing is imported."""
    return find(name) is not None


def names() -> list[str]:
    """Operators of Data-Juicer that can stand in a recipe. Nothing is imported."""
    files = [path for kind in KINDS for path in (source.package() / "ops" / kind).rglob("*.py")]
    own = [path.stem for path in files if "register_module" in path.read_text("utf-8")]
    found = ((name, find(name)) for name in plugins.names())
    return sorted({*own, *(name for name, each in found if each and each.kind in KINDS)})


@cache
def settings() -> frozenset[str]:
    """The top-level keys of Data-Juicer's configuration. Nothing is imported."""
    file = source.package() / "config" / "config.py"
    text = file.read_text("utf-8") if file.is_file() else ""
    # Of keys with a dot, such as `partition.mode`, the part before it is the key of a recipe.
    keys = re.findall(r'add_argument\(\s*"--([\w-]+)', text)
    return frozenset(key.replace("-", "_") for key in keys) - {"config"}


@cache
def find(name: str) -> ForeignKind | None:
    """An operator of Data-Juicer or of a plug-in for it; None where there is none of that name."""
    for kind in (*KINDS, *OTHER_KINDS) if name.isidentifier() else ():
        folder = source.package() / "ops" / kind
        # A few stand in a folder of their kind's folder.
        for file in (folder / f"{name}.py", *folder.glob(f"*/{name}.py")):
            if not file.is_file():
                continue
            defined = source.registered(file, name)
            return None if defined is None else _of(defined, kind)
    for look_up in (plugins.find, plugins.find_by_import):
        found = look_up(name)
        if found is not None:
            plugin, defined = found
            base = _base(defined)
            if base is not None:
                return _of(defined, base, plugin)
    return None


def _of(defined: Defined, kind: str, plugin: Plugin | None = None) -> ForeignKind:
    fields: dict[str, ForeignField] = {}
    for base in source.lineage(defined):
        for field in _own_fields(base):
            fields.setdefault(field.name, field)
    return ForeignKind(kind, defined, tuple(fields.values()), plugin)


def _base(defined: Defined) -> str | None:
    """The kind of an operator, by the class of Data-Juicer's that it inherits from."""
    file = source.package() / "ops" / "base_op.py"
    known = (each.node.name.lower() for each in source.lineage(defined) if each.file == file)
    return next((name for name in known if name in (*KINDS, *OTHER_KINDS)), None)


def _own_fields(defined: Defined) -> Iterator[ForeignField]:
    """The fields that a class itself names, in the order in which it does."""
    file, node = defined
    for item in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args
            placed = [*arguments.posonlyargs, *arguments.args][1:]
            free = [None] * (len(placed) - len(arguments.defaults))
            pairs = [
                *zip(placed, [*free, *arguments.defaults], strict=True),
                *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
            ]
            for argument, default in pairs:
                kind = ast.unparse(argument.annotation) if argument.annotation else ""
                shown = None if default is None else _shown(file, default)
                yield ForeignField(argument.arg, kind, shown)
        elif isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "_BASE_PARAMS":
            yield from _base_fields(file, item.value)


def _shown(file: Path, default: ast.expr) -> str:
    """An expression as it is written; the value of a constant of the file."""
    if isinstance(default, ast.Name) and default.id in source.constants(file):
        return repr(source.constants(file)[default.id])
    return ast.unparse(default)


def _base_fields(file: Path, value: ast.expr) -> Iterator[ForeignField]:
    """The fields of all operators: `{"text_key": (str, "text"), …}`."""
    if not isinstance(value, ast.Dict):
        return
    for key, pair in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(pair, ast.Tuple):
            kind = ast.unparse(pair.elts[0])
            default = _shown(file, pair.elts[1])
            yield ForeignField(str(key.value), "" if kind == "None" else kind, default)
