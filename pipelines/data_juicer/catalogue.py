"""Which operators and settings Data-Juicer has, and the class and the fields of each operator.

Names are read from its files; an operator is looked up in Data-Juicer itself, whose import takes
seconds: recipes that have none of its operators do without.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

from ...operators import RecipeError
from ...operators.registry import all_entry_points, owner
from .static_checks import definition

KINDS = ("mapper", "filter", "deduplicator", "selector")
"""Kinds that `rejuice run` can run: each of their rows comes from one row."""
OTHER_KINDS = ("aggregator", "grouper", "pipeline")
_CONSTANT = re.compile(r"^(\w+)\s*=\s*[\"'\d]", re.MULTILINE)
OF_ALL = "data_juicer.ops.base_op"
"""The module of the classes that all operators inherit from."""

# --- Names, for which nothing is imported ---------------------------------------------

_REGISTERED = re.compile(
    r"@(?:\w+\.)*OPERATORS\.register_module\(\s*(?:module_name\s*=\s*)?(?:(\w+)|[\"'](\w+)[\"'])?"
    r"[^)]*\)\s*(?:@[^\n]*\s+)*class\s+(\w+)"
)


@cache
def package() -> Path:
    """Return the folder of Data-Juicer; one that does not exist where it is not installed."""
    # `find_spec` of a package without a dot looks it up and does not import it.
    spec = importlib.util.find_spec("data_juicer")
    if spec is None or spec.origin is None:
        return Path("data_juicer-is-not-installed")
    return Path(spec.origin).parent


def names() -> list[str]:
    """Operators of Data-Juicer, and of plug-ins for it, that can stand in a recipe."""
    plugged = {name for plugin in plugins() for name in plugin.names}
    return sorted({*_own_names(KINDS), *plugged})


def exists(name: str) -> bool:
    """Return whether Data-Juicer, or a plug-in for it, has an operator of that name.

    Only where no file has a name and there are plug-ins, Data-Juicer is imported: an operator may
    be registered by other means than a decorator.
    """
    known = name in _own_names((*KINDS, *OTHER_KINDS)) or any(name in p.names for p in plugins())
    return known or (bool(plugins()) and find(name) is not None)


@cache
def settings() -> frozenset[str]:
    """Return the top-level keys of Data-Juicer's configuration."""
    file = package() / "config" / "config.py"
    text = file.read_text("utf-8") if file.is_file() else ""
    # Of keys with a dot, such as `partition.mode`, the part before it is the key of a recipe.
    keys = re.findall(r'add_argument\(\s*"--([\w-]+)', text)
    return frozenset(key.replace("-", "_") for key in keys) - {"config"}


@cache
def _own_names(kinds: tuple[str, ...]) -> frozenset[str]:
    # Each operator has a file of its name; a few stand in a folder of their kind's folder.
    files = [path for kind in kinds for path in (package() / "ops" / kind).rglob("*.py")]
    return frozenset(path.stem for path in files if "register_module" in path.read_text("utf-8"))


# --- Plug-ins: operators of other distributions, by their entry points ----------------

_GROUP = "data_juicer.ops"
_OURS = "rejuice."


class Plugin(NamedTuple):
    """A distribution with operators for Data-Juicer."""

    point: EntryPoint  # its entry point, which names a module that registers them when imported
    files: tuple[Path, ...]  # its Python files; empty where they are not found

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
        return "" if self.point.dist is None else self.point.dist.name

    @property
    def names(self) -> frozenset[str]:
        """The operators that decorators in its files register."""
        return frozenset[str]().union(*map(_registered, self.files))

    def digest(self) -> str:
        """Return a digest of its files: one that is being written keeps its version."""
        return _digest(self.files)

    def load(self) -> None:
        """Import it; Data-Juicer only warns of one that fails.

        Raises:
            RecipeError: it cannot be imported.
        """
        try:
            self.point.load()
        except Exception as error:
            found = f"{owner(self.point)} cannot be imported: {type(error).__name__}: {error}"
            raise RecipeError(found) from error


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins of other distributions; nothing is imported."""
    points = sorted(
        all_entry_points().select(group=_GROUP), key=lambda point: (point.name, point.value)
    )
    others = (point for point in points if not point.value.startswith(_OURS))
    return tuple(Plugin(point, tuple(_files(point.module))) for point in others)


@cache
def _registered(file: Path) -> frozenset[str]:
    """Return the names under which a file registers operators; a name may be that of a constant."""
    text = file.read_text("utf-8")
    constants = dict(re.findall(r"^(\w+)\s*=\s*[\"'](\w+)[\"']", text, re.MULTILINE))
    found = _REGISTERED.findall(text)
    return frozenset(constants.get(name, "") or given or kind for name, given, kind in found)


@cache
def _digest(files: tuple[Path, ...]) -> str:
    # Once for a process, which imports them once.
    return hashlib.sha256(b"\n".join(file.read_bytes() for file in files)).hexdigest()


def _files(module: str) -> Iterator[Path]:
    """Yield the file of a module, or all files of the package that it is in."""
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


# --- Operators, for which Data-Juicer is imported -------------------------------------


class ForeignField(NamedTuple):
    """A field of an operator of Data-Juicer's."""

    name: str
    hint: Any  # its type; None: any value
    value: Any  # its default
    type: str  # the annotation as it is written; empty where there is none
    default: str | None  # the default as it is written; None: the field is required


class ForeignKind(NamedTuple):
    """An operator of Data-Juicer: its kind, its class and its fields."""

    kind: str  # `mapper`, `filter` and so on
    cls: type[Any]  # its class
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
        return tuple(each.name for each in _own_fields(self.cls) if each.default is None)

    @property
    def needs_ray(self) -> bool:
        """Whether it runs under Ray only."""
        # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_with_ray.py::test_operators_for_ray_are_known_by_their_class
        return "default" not in self.cls._supported_exec_modes

    @property
    def summary(self) -> str:
        """The docstring of its class."""
        return inspect.cleandoc(vars(self.cls).get("__doc__") or "")

    def meanings(self) -> dict[str, str]:
        """Return what the docstrings of the class and of its bases say about the fields."""
        from docstring_parser import DocstringStyle, parse

        found: dict[str, str] = {}
        for base in self.cls.__mro__:
            text = getattr(vars(base).get("__init__"), "__doc__", None)
            for each in parse(inspect.cleandoc(text or ""), DocstringStyle.REST).params:
                found.setdefault(each.arg_name, " ".join((each.description or "").split()))
        return found


@cache
def find(name: str) -> ForeignKind | None:
    """An operator of Data-Juicer or of a plug-in for it; None where there is none of that name.

    Raises:
        RecipeError: Data-Juicer, or the plug-in, cannot be imported.
    """
    named = [plugin for plugin in plugins() if name in plugin.names]
    if not named and not plugins() and name not in _own_names((*KINDS, *OTHER_KINDS)):
        return None
    modules = _imported()
    for plugin in named:
        plugin.load()
    if name not in modules:
        for plugin in plugins():
            try:
                plugin.load()
            except RecipeError:
                continue  # Another one may have the operator.
    cls = modules.get(name)
    if cls is None or hasattr(cls, "operator_class"):  # It stands for one of ours.
        return None
    # Its folder tells, or else its base class: some deduplicators for Ray inherit from `Filter`.
    folder = cls.__module__.removeprefix("data_juicer.ops.").partition(".")[0]
    bases = (base.__name__.lower() for base in cls.__mro__ if base.__module__ == OF_ALL)
    kind = next((each for each in (folder, *bases) if each in (*KINDS, *OTHER_KINDS)), None)
    if kind is None:
        return None
    fields: dict[str, ForeignField] = {}
    for base in cls.__mro__[:-1]:
        for field in _own_fields(base):
            fields.setdefault(field.name, field)
    top = cls.__module__.partition(".")[0]
    own = (each for each in plugins() if each.point.module.partition(".")[0] == top)
    return ForeignKind(kind, cls, tuple(fields.values()), next(own, None))


def _imported() -> dict[str, type[Any]]:
    """Return the classes of all operators, by name."""
    from loguru import logger

    logger.disable("data_juicer")  # It would log what it imports.
    try:
        from data_juicer.ops import OPERATORS
    except ImportError as error:
        raise RecipeError(f"Data-Juicer cannot be imported: {error}") from error
    found: dict[str, type[Any]] = OPERATORS.modules
    return found


def _own_fields(cls: type[Any]) -> Iterator[ForeignField]:
    """Yield the fields that a class itself names, in the order in which it does."""
    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_steps.py::test_fields_are_those_that_data_juicer_checks
    inherited = {name for base in cls.__mro__[1:] for name in vars(base).get("_BASE_PARAMS", ())}
    for name, (kind, value) in vars(cls).get("_BASE_PARAMS", {}).items():
        if name not in inherited:
            text = "" if kind is None else kind.__name__
            yield ForeignField(name, kind, value, text, repr(value))
    init = vars(cls).get("__init__")
    if init is None:
        return
    annotations, defaults = _written(init)
    try:
        hints = typing.get_type_hints(init, include_extras=True)
    except Exception:  # A name that only a type checker imports.
        hints = {}
    for name, each in list(inspect.signature(init).parameters.items())[1:]:
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            is_required = each.default is each.empty
            yield ForeignField(
                name,
                hints.get(name),
                None if is_required else each.default,
                annotations.get(name, ""),
                None if is_required else defaults.get(name, repr(each.default)),
            )


def _written(init: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the annotations and the defaults of a constructor as they are written.

    The type itself tells no more that it was written `PositiveInt`.
    """
    node = definition(init)
    if not isinstance(node, ast.FunctionDef):
        return {}, {}
    placed = [*node.args.posonlyargs, *node.args.args]
    every = [*placed, *node.args.kwonlyargs]
    annotations = {a.arg: ast.unparse(a.annotation) for a in every if a.annotation}
    given = {
        **dict(zip(reversed([a.arg for a in placed]), reversed(node.args.defaults), strict=False)),
        **dict(zip((a.arg for a in node.args.kwonlyargs), node.args.kw_defaults, strict=True)),
    }
    # Of a constant of the module its value is shown, which says more.
    constants = _CONSTANT.findall(inspect.getsource(sys.modules[init.__module__]))
    written = {
        name: ast.unparse(each)
        for name, each in given.items()
        if each is not None and not (isinstance(each, ast.Name) and each.id in constants)
    }
    return annotations, written
