"""Data-Juicer's source files, parsed: what is known of its operators without an import.

Importing Data-Juicer takes more than a second; `rejuice check` needs none of it.
"""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_REGISTER = "OPERATORS.register_module"
Definition = ast.ClassDef | ast.FunctionDef


class Defined(NamedTuple):
    """A class or a function, and the file that defines it."""

    file: Path
    node: Definition


@cache
def package() -> Path:
    """The folder of Data-Juicer; one that does not exist where it is not installed."""
    # `find_spec` of a package without a dot looks it up and does not import it.
    spec = importlib.util.find_spec("data_juicer")
    if spec is None or spec.origin is None:
        return Path("data_juicer-is-not-installed")
    return Path(spec.origin).parent


@cache
def module(file: Path) -> ast.Module:
    """A file of theirs."""
    with warnings.catch_warnings():
        # Python's warnings about their source are theirs to fix.
        warnings.simplefilter("ignore")
        return ast.parse(file.read_text("utf-8"))


@cache
def constants(file: Path) -> Mapping[str, Any]:
    """The texts and numbers that a file gives a name to."""
    return {
        target.id: node.value.value
        for node in module(file).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def registered(file: Path, name: str) -> Defined | None:
    """The class under `@OPERATORS.register_module(name)`; the name may be a constant's."""
    return next((found for known, found in registrations(file) if known == name), None)


def registrations(file: Path) -> Iterator[tuple[str, Defined]]:
    """The classes that a file registers as operators, by name."""
    for node in definitions(module(file).body):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(_REGISTER):
                given = [*call.args, *(k.value for k in call.keywords if k.arg == "module_name")]
                match given[:1]:
                    case []:
                        yield node.name, Defined(file, node)
                    case [ast.Constant(value=str(name))]:
                        yield name, Defined(file, node)
                    case [ast.Name(id=constant)] if constant in constants(file):
                        yield str(constants(file)[constant]), Defined(file, node)


def definitions(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    """The classes and functions of a module."""
    for node in _statements(body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.With | ast.If | ast.Try):
            yield from _statements(node.body)


@cache
def definition(file: Path, name: str) -> Defined | None:
    """What a file knows by `name`, as far as that is a class or function of Data-Juicer's."""
    for node in definitions(module(file).body):
        if node.name == name:
            return Defined(file, node)
    for statement in _statements(module(file).body):
        if not isinstance(statement, ast.ImportFrom):
            continue
        if name in (alias.name for alias in statement.names):
            source = _imported(file, statement)
            return None if source is None else definition(source, name)
    return None


def lineage(defined: Defined) -> Iterator[Defined]:
    """A class and the classes that it inherits from, the nearest first."""
    yield defined
    if isinstance(defined.node, ast.ClassDef):
        for base in defined.node.bases:
            found = definition(defined.file, base.id) if isinstance(base, ast.Name) else None
            if found is not None:
                yield from lineage(found)


def constructor(defined: Defined) -> ast.FunctionDef | None:
    """The constructor that a class itself defines."""
    body = defined.node.body if isinstance(defined.node, ast.ClassDef) else []
    inits = (f for f in body if isinstance(f, ast.FunctionDef) and f.name == "__init__")
    return next(inits, None)


def _imported(file: Path, node: ast.ImportFrom) -> Path | None:
    parts = (node.module or "").split(".")
    if node.level:
        folder = file.parents[node.level - 1]
    elif parts[0] == "data_juicer":
        folder, parts = package(), parts[1:]
    elif parts[0] == _root(file).name:
        folder, parts = _root(file), parts[1:]
    else:
        return None
    path = folder.joinpath(*parts)
    init = path / "__init__.py"
    found = init if init.is_file() else path.with_suffix(".py")
    return found if found.is_file() else None


def _root(file: Path) -> Path:
    """The folder of the outermost package that a file is in."""
    folder = file.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder
