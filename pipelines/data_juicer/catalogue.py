"""Which operators and settings Data-Juicer has, and the fields of each operator."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from ...operators.registry import owner

# --- Source ---------------------------------------------------------------------------
# Data-Juicer's source files, parsed: what is known of its operators without an import.
#
# Importing Data-Juicer takes more than a second; `rejuice check` needs none of it.

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


# --- Plugins --------------------------------------------------------------------------
# Operators for Data-Juicer of other distributions, by their entry points in `data_juicer.ops`.
#
# An entry point names a module; Data-Juicer imports it, and so its operators are registered. Here
# the module's file is found and parsed instead. Only where nobody's source has the name that a
# recipe uses, the modules are imported: an operator may be registered by other means than a
# decorator.

_GROUP = "data_juicer.ops"
_OURS = "rejuice."


class Plugin(NamedTuple):
    """A distribution with operators for Data-Juicer."""

    point: EntryPoint  # its entry point
    files: tuple[Path, ...]  # its Python files; empty where they are not found

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


def plugin_names() -> Iterator[str]:
    """The operators that the files of plug-ins register."""
    for plugin in plugins():
        for file in plugin.files:
            yield from (name for name, _ in registrations(file))


def find_plugin(name: str) -> tuple[Plugin, Defined] | None:
    """The class that a plug-in registers under a name, by its source."""
    for plugin in plugins():
        for file in plugin.files:
            defined = registered(file, name)
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
            defined = definition(Path(file), kind.__name__)
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


# --- Which operators and settings Data-Juicer has, and the fields of each operator ----

KINDS = ("mapper", "filter", "deduplicator", "selector")
"""Kinds that `rejuice run` can run: each of their rows comes from one row."""
OTHER_KINDS = ("aggregator", "grouper", "pipeline")


class ForeignField(NamedTuple):
    """A field of an operator of Data-Juicer's, as its source has it."""

    name: str
    type: str  # the annotation; empty where there is none
    default: str | None  # an expression; None: the field is required


class ForeignKind(NamedTuple):
    """An operator of Data-Juicer: its kind, its class and its fields."""

    kind: str  # `mapper`, `filter` and so on
    defined: Defined  # its class
    # those of the class, then those of its bases, as Data-Juicer's own check does
    fields: tuple[ForeignField, ...]
    plugin: Plugin | None = None  # the plug-in that brings it; None: Data-Juicer itself

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
        for base in lineage(self.defined):
            init = constructor(base)
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
    files = [path for kind in KINDS for path in (package() / "ops" / kind).rglob("*.py")]
    own = [path.stem for path in files if "register_module" in path.read_text("utf-8")]
    found = ((name, find(name)) for name in plugin_names())
    return sorted({*own, *(name for name, each in found if each and each.kind in KINDS)})


@cache
def settings() -> frozenset[str]:
    """The top-level keys of Data-Juicer's configuration. Nothing is imported."""
    file = package() / "config" / "config.py"
    text = file.read_text("utf-8") if file.is_file() else ""
    # Of keys with a dot, such as `partition.mode`, the part before it is the key of a recipe.
    keys = re.findall(r'add_argument\(\s*"--([\w-]+)', text)
    return frozenset(key.replace("-", "_") for key in keys) - {"config"}


@cache
def find(name: str) -> ForeignKind | None:
    """An operator of Data-Juicer or of a plug-in for it; None where there is none of that name."""
    for kind in (*KINDS, *OTHER_KINDS) if name.isidentifier() else ():
        folder = package() / "ops" / kind
        # A few stand in a folder of their kind's folder.
        for file in (folder / f"{name}.py", *folder.glob(f"*/{name}.py")):
            if not file.is_file():
                continue
            defined = registered(file, name)
            return None if defined is None else _of(defined, kind)
    for look_up in (find_plugin, find_by_import):
        found = look_up(name)
        if found is not None:
            plugin, defined = found
            base = _base(defined)
            if base is not None:
                return _of(defined, base, plugin)
    return None


def _of(defined: Defined, kind: str, plugin: Plugin | None = None) -> ForeignKind:
    fields: dict[str, ForeignField] = {}
    for base in lineage(defined):
        for field in _own_fields(base):
            fields.setdefault(field.name, field)
    return ForeignKind(kind, defined, tuple(fields.values()), plugin)


def _base(defined: Defined) -> str | None:
    """The kind of an operator, by the class of Data-Juicer's that it inherits from."""
    file = package() / "ops" / "base_op.py"
    known = (each.node.name.lower() for each in lineage(defined) if each.file == file)
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
    if isinstance(default, ast.Name) and default.id in constants(file):
        return repr(constants(file)[default.id])
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
