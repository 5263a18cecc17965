"""What an operator of Data-Juicer needs at run time, found in its source before it runs.

Data-Juicer imports most packages when they are first used, and installs there and then what it
misses. So the code that an operator will run is followed from its methods into the functions and
models that they use. A condition that the fields decide, such as `if enable_vllm:`, is decided;
where they do not decide it, no branch counts. What is found is needed for certain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from . import catalogue
from .catalogue import Defined
from .constructor import SELF, UNKNOWN, Values, assign, bound, forget, parameters, value

_OF_OPERATORS = ("__init__", "run", "process", "process_single", "process_batched")
_OF_FILTERS = ("compute_stats_single", "compute_stats_batched", "compute_hash")
_METHODS = (*_OF_OPERATORS, *_OF_FILTERS, "__call__")
"""What is called of operators, and of models."""
_MODELS = "MODEL_FUNCTION_MAPPING"


class Needs(NamedTuple):
    """What an operator needs."""

    missing: tuple[str, ...]  # what `pip install` takes, of each package that is not installed
    models: frozenset[str]  # the kinds of models that it makes, by Data-Juicer's names for them

    @property
    def asks_server(self) -> bool:
        """Whether it sends requests to a model's server."""
        return "api" in self.models

    @property
    def loads_when_made(self) -> bool:
        """Whether a model is loaded, or fetched, as soon as the operator is made."""
        return not self.models <= {"api", "huggingface", "vllm"}


class Package(NamedTuple):
    """A package: the module that is imported, and what pip installs for it."""

    module: str
    pip: str

    def is_installed(self) -> bool:
        """Whether it can be imported; nothing is."""
        if self.module:
            return find_spec(self.module.split(".")[0]) is not None
        try:
            # `name[extra]>=1.0` or `name @ git+https://…`: the version is the user's choice.
            distribution(re.split(r"[^\w.-]", self.pip.strip(), maxsplit=1)[0])
        except (PackageNotFoundError, ValueError):
            return False
        return True


def needs(defined: Defined, fields: Mapping[str, Any]) -> Needs:
    """What the operator of a class needs with some fields."""
    search = _DependencySearch()
    search.follow_class(defined, deepcopy(dict(fields)))
    missing = {package.pip: None for package in search.packages if not package.is_installed()}
    return Needs(tuple(missing), frozenset(search.models))


@cache
def _lazy(file: Path) -> Mapping[str, Package]:
    """The names in a file of packages that are imported when they are used."""
    found = {}
    for node in ast.walk(catalogue.module(file)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target, call = node.targets[0], node.value
            if isinstance(target, ast.Name) and ast.unparse(call.func) == "LazyLoader":
                texts = [value(argument, {}) for argument in call.args]
                texts += [value(k.value, {}) for k in call.keywords if k.arg == "package_url"]
                names = [text for text in texts if isinstance(text, str)]
                if not names[0].startswith("data_juicer"):
                    top = names[0].split(".")[0]
                    found[target.id] = Package(
                        top, names[-1] if names[1:] else _pip_names().get(top, top)
                    )
    return found


@cache
def _pip_names() -> Mapping[str, str]:
    """Data-Juicer's own table of modules that pip knows by another name."""
    file = catalogue.package() / "utils" / "lazy_loader.py"
    for node in ast.walk(catalogue.module(file)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_module_to_package":
            return dict(ast.literal_eval(node.value))
    return {}


@cache
def _models() -> Mapping[str, Defined]:
    """The functions that make the kinds of models."""
    file = catalogue.package() / "utils" / "model_utils.py"
    found = {}
    for node in catalogue.module(file).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.targets[0]) == _MODELS:
            for key, function in zip(node.value.keys, node.value.values, strict=True):
                made = catalogue.definition(file, ast.unparse(function))
                if isinstance(key, ast.Constant) and made is not None:
                    found[str(key.value)] = made
    return found


def _does_without(handler: ast.ExceptHandler) -> bool:
    """Whether what is tried is not needed: it goes on without a word, or without a package."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    silent = all(isinstance(node, ast.Pass | ast.Continue) for node in handler.body)
    return silent or "ImportError" in caught or "ModuleNotFoundError" in caught


class _DependencySearch:
    """Follows the code of an operator, each function once.

    Attributes:
        packages: that it uses.
        models: the kinds of models that it makes.
    """

    def __init__(self) -> None:
        self.packages: dict[Package, None] = {}
        self.models: dict[str, None] = {}
        self._seen: set[tuple[Path, int]] = set()

    def follow_class(self, defined: Defined, given: Values, *, is_open: bool = False) -> None:
        """Follow what is called of a class that is made with the `given` values."""
        within = _Class(list(catalogue.lineage(defined)), {})
        for name in _METHODS:
            found = within.method(name)
            if found is not None:
                function, after = found
                values = given if name == "__init__" else {}
                called = is_open or name != "__init__"  # With a row and more, which nobody knows.
                self._follow(function, parameters(function.node, values, is_open=called), after)

    def _follow(self, function: _Function, values: Values, within: _Class | None = None) -> None:
        """Follow a function, or a method of a class, with the values of its parameters."""
        place = (function.file, function.node.lineno)
        if place not in self._seen:
            self._seen.add(place)
            if within is not None:
                values = {**within.attributes, **values}
            _Body(self, function.file, values, within).block(function.node.body)
            if within is not None:
                own = {name: each for name, each in values.items() if name.startswith(SELF)}
                within.attributes.update(own)

    def follow_name(self, defined: Defined, call: ast.Call | None, values: Values) -> None:
        """Follow a function or a class that is called, or that is passed on."""
        node = defined.node
        if isinstance(node, ast.FunctionDef):
            given = bound(node, call, values) if call else parameters(node, {}, is_open=True)
            self._follow(_Function(defined.file, node), given)
        elif (defined.file, node.lineno) not in self._seen:
            self._seen.add((defined.file, node.lineno))
            self.follow_class(defined, {}, is_open=True)

    def follow_method(
        self, found: tuple[_Function, _Class] | None, call: ast.Call, values: Values
    ) -> None:
        """Follow a method that is called."""
        if found is not None:
            function, within = found
            self._follow(function, bound(function.node, call, values), within)

    def follow_model(self, call: ast.Call, values: Values) -> None:
        """Follow `prepare_model(model_type=…)` into the function that makes such a model."""
        kinds = [value(k.value, values) for k in call.keywords if k.arg == "model_type"]
        kinds += [value(argument, values) for argument in call.args[:1]]
        made = _models().get(kinds[0]) if kinds and isinstance(kinds[0], str) else None
        if made is not None and isinstance(made.node, ast.FunctionDef):
            self.models[kinds[0]] = None
            rest = [k for k in call.keywords if k.arg != "model_type"]
            call = ast.Call(func=call.func, args=call.args[1:], keywords=rest)
            self._follow(_Function(made.file, made.node), bound(made.node, call, values))


class _Function(NamedTuple):
    file: Path
    node: ast.FunctionDef


class _Class(NamedTuple):
    """A class as a method of it sees it."""

    lineage: Sequence[Defined]  # the class and its bases
    attributes: Values  # of `self`, as far as they are known
    place: int = 0  # the class of the method, in the lineage

    def method(self, name: str, *, of_base: bool = False) -> tuple[_Function, _Class] | None:
        """A method, or that of `super()`, and the class as it sees it."""
        for place in range(self.place + 1 if of_base else 0, len(self.lineage)):
            file, node = self.lineage[place]
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return _Function(file, item), self._replace(place=place)
        return None


class _Body:
    """The statements of one function.

    Args:
        search: gets what they use.
        file: that they are in.
        values: of names.
        within: the class of a method.
    """

    def __init__(
        self, search: _DependencySearch, file: Path, values: Values, within: _Class | None
    ) -> None:
        self._search, self._file, self._values, self._within = search, file, values, within
        self._local: dict[str, ast.FunctionDef] = {}

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Follow statements; true where what comes after them may not run."""
        return any(self._statement(node) for node in body)

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.If():
                self._uses(node.test)
                decided = value(node.test, self._values)
                if decided is UNKNOWN:
                    return self._skip(node)
                return self.block(node.body if decided else node.orelse)
            case ast.Try():
                if any(map(_does_without, node.handlers)):
                    return self._skip(node)
                ends = self.block(node.body)
                return self.block(node.finalbody) or ends
            case ast.For() | ast.While():
                forget(node, self._values)
                self._uses(node.iter if isinstance(node, ast.For) else node.test)
                return self.block(node.body)
            case ast.With():
                for item in node.items:
                    self._uses(item.context_expr)
                return self.block(node.body)
            case ast.FunctionDef():
                self._local[node.name] = node
            case ast.ClassDef():
                self._values[node.name] = UNKNOWN
            case ast.Return() | ast.Raise():
                self._uses_within(node)
                return True
            case _:
                self._uses_within(node)
                self._assign(node)
        return False

    def _skip(self, node: ast.stmt) -> bool:
        forget(node, self._values)
        return any(isinstance(each, ast.Return) for each in ast.walk(node))

    def _assign(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            found = value(node.value, self._values)
            for target in node.targets:
                assign(target, found, self._values)
        else:
            forget(node, self._values)

    def _uses_within(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._uses(child)

    def _uses(self, node: ast.AST) -> None:
        match node:
            case ast.Lambda():
                return
            case ast.IfExp() | ast.BoolOp():
                for part in self._decided(node):
                    self._uses(part)
                return
            case ast.Attribute(value=ast.Name(id=name)) if name in _lazy(self._file):
                self._search.packages[_lazy(self._file)[name]] = None
            case ast.Call():
                self._call(node)
                for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                    self._uses(part)
                if not isinstance(node.func, ast.Name):
                    self._uses(node.func)
                return
            case ast.Name(id=name) if name not in self._values:
                self._name(name, None)
        self._uses_within(node)

    def _name(self, name: str, call: ast.Call | None) -> None:
        """Follow a function or a class of the file that is called, or passed on."""
        local = self._local.pop(name, None)
        if local is not None:
            forget(local, self._values)
            self.block(local.body)
            return
        defined = catalogue.definition(self._file, name)
        if defined is not None:
            self._search.follow_name(defined, call, self._values)

    def _decided(self, node: ast.IfExp | ast.BoolOp) -> Iterator[ast.expr]:
        """The parts of an expression that are evaluated for certain."""
        if isinstance(node, ast.IfExp):
            decided = value(node.test, self._values)
            yield node.test
            if decided is not UNKNOWN:
                yield node.body if decided else node.orelse
            return
        for part in node.values:
            yield part
            decided = value(part, self._values)
            if decided is UNKNOWN or bool(decided) is isinstance(node.op, ast.Or):
                return

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id="prepare_model"):
                self._search.follow_model(node, self._values)
            case ast.Name(id=name) if name not in self._values:
                self._name(name, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self._within:
                self._search.follow_method(self._within.method(name), node, self._values)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                if self._within is not None:
                    method = self._within.method(name, of_base=True)
                    self._search.follow_method(method, node, self._values)
            case ast.Attribute(value=ast.Name(id="LazyLoader"), attr="check_packages"):
                specs = value(node.args[0], self._values) if node.args else UNKNOWN
                for spec in specs if isinstance(specs, list) else ():
                    self._search.packages[Package("", spec)] = None
