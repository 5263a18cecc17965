"""What an operator needs with some fields, and what its constructor refuses, before it is made.

To make the operator would tell, too, but for a check that is too much: constructors download models
and lists of words, connect to servers, create folders, and install packages that are missing. What
Data-Juicer itself finds of an operator's requirements
(`ops.op_env.analyze_lazy_loaded_requirements`) is all that its file mentions, whatever the fields
are, and no model. So the source of its methods is followed into the functions and models that they
use. A condition that the fields decide, such as `if enable_vllm:`, is evaluated; where they do not
decide it, no branch counts. What is found is certain.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ...operators import RecipeError

Definition = ast.FunctionDef | ast.ClassDef
Values = dict[str, Any]
"""Values of names; those of attributes of `self` begin with `self.`."""

_UNKNOWN = object()
"""Stands for a value that is only known when the operator runs."""
_SELF = "self."
_CONSTRUCTOR = "__init__"
_OF_OPERATORS = (_CONSTRUCTOR, "run", "process", "process_single", "process_batched")
_OF_FILTERS = ("compute_stats_single", "compute_stats_batched", "compute_hash")
_METHODS = (*_OF_OPERATORS, *_OF_FILTERS, "__call__")
"""What is called of operators, and of models."""


class Package(NamedTuple):
    """A package: the module that is imported, and what pip installs for it."""

    module: str
    pip: str

    def is_installed(self) -> bool:
        """Return whether it can be imported; nothing is."""
        if self.module:
            return find_spec(self.module.split(".")[0]) is not None
        try:
            # `name[extra]>=1.0` or `name @ git+https://…`: the version is the user's choice.
            distribution(re.split(r"[^\w.-]", self.pip.strip(), maxsplit=1)[0])
        except (PackageNotFoundError, ValueError):
            return False
        return True


class Checked(NamedTuple):
    """What an operator needs with some fields, and whether its constructor takes them."""

    packages: tuple[Package, ...]  # that it uses
    models: frozenset[str]  # the kinds of models that it makes, by Data-Juicer's names for them
    refusal: RecipeError | None  # what its constructor raises, whatever else happens

    @property
    def missing(self) -> tuple[str, ...]:
        """What `pip install` takes, of each package that is not installed."""
        return tuple(dict.fromkeys(each.pip for each in self.packages if not each.is_installed()))

    @property
    def asks_server(self) -> bool:
        """Whether it sends requests to a model's server."""
        return "api" in self.models

    @property
    def loads_when_made(self) -> bool:
        """Whether a model is loaded, or fetched, as soon as the operator is made."""
        return not self.models <= {"api", "huggingface", "vllm"}


def check(kind: type[Any], fields: Mapping[str, Any]) -> Checked:
    """Return what is known of an operator of a class that is made with some fields."""
    search = _DependencySearch(kind, fields)
    search.follow_class(kind, deepcopy(dict(fields)))
    return Checked(tuple(search.packages), frozenset(search.models), search.refusal)


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of source; Python's warnings about it are for those who wrote it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


@cache
def definition(thing: Any) -> Definition | None:
    """Return the syntax tree of a function or a class; None where its source is not on disk."""
    with suppress(OSError, TypeError, SyntaxError):
        source = inspect.getsource(thing)
        node = parsed(f"if True:\n{source}" if source[0].isspace() else source).body[0]
        found = node.body[0] if isinstance(node, ast.If) else node
        return found if isinstance(found, Definition) else None
    return None


def _function(thing: Any) -> FunctionType | None:
    """Return the function behind a method, static or decorated, whose source can be followed."""
    if inspect.ismodule(thing):  # One that is imported, or installed, when it is asked.
        return None
    found = inspect.unwrap(getattr(thing, "__func__", thing))
    is_there = isinstance(found, FunctionType) and isinstance(definition(found), ast.FunctionDef)
    return found if is_there else None


# --- Expressions ----------------------------------------------------------------------

_FUNCTIONS = {each.__name__: each for each in (bool, dict, float, int, len, list, str)}
_METHODS_OF_VALUES = ("get", "pop", "lower", "upper")


class _NotKnownError(Exception):
    """An expression depends on what is only known when the operator runs."""


class _KnownNames(dict[str, Any]):
    """The names that an expression may use: known values, and constants of the module."""

    def __init__(self, values: Values, module: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._module = module

    def __getitem__(self, name: str) -> Any:
        if name == "self":
            return _Attributes(self)
        if name in self:
            return _known(super().__getitem__(name))
        if name == "is_ray_mode":
            return lambda: False
        found = self._module.get(name, _FUNCTIONS.get(name, _UNKNOWN))
        # An attribute of a module may be imported, or installed, when it is asked for; and None
        # stands for what is only made when it is used.
        return _known(_UNKNOWN if found is None or inspect.ismodule(found) else found)


class _Attributes:
    """`self` in an expression."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return _known(dict.get(self._values, _SELF + name, _UNKNOWN))


def _known(found: Any) -> Any:
    if found is _UNKNOWN:
        raise _NotKnownError
    return found


class _WithoutCalls(ast.NodeTransformer):
    """Leaves only calls that have no effect; any other one is an unknown value."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=[]) if (
                name in _FUNCTIONS or name == "is_ray_mode"
            ):
                return self.generic_visit(node)  # type: ignore[return-value]
            case ast.Call(func=ast.Attribute(attr=name), keywords=[]) if name in _METHODS_OF_VALUES:
                return self.generic_visit(node)  # type: ignore[return-value]
        return ast.Name(" unknown", ast.Load())


@cache
def _compiled(node: ast.expr) -> CodeType:
    expression = ast.Expression(_WithoutCalls().visit(deepcopy(node)))
    return compile(ast.fix_missing_locations(expression), "<expression>", "eval")


# --- Parameters -----------------------------------------------------------------------


def _parameters(function: FunctionType, given: Values, *, is_open: bool = False) -> Values:
    """Return the values of the parameters of a function that is given some values."""
    found: Values = {}
    signature = inspect.signature(function).parameters
    for name, each in signature.items():
        if each.kind is each.VAR_KEYWORD:
            rest = {key: value for key, value in given.items() if key not in signature}
            is_known = not is_open and all(value is not _UNKNOWN for value in rest.values())
            found[name] = rest if is_known else _UNKNOWN
        elif name in given:
            found[name] = given[name]
        else:
            has_default = each.default is not each.empty and not is_open
            found[name] = deepcopy(each.default) if has_default else _UNKNOWN
    return found


def _forget(node: ast.AST, values: Values) -> None:
    """Take what the code of a node may assign for unknown."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store):
            _assign(each, _UNKNOWN, values)


def _assign(target: ast.expr, found: Any, values: Values) -> None:
    """Keep the value of a name or of an attribute of `self`."""
    match target:
        case ast.Name():
            values[target.id] = found
        case ast.Attribute(value=ast.Name(id="self")):
            values[_SELF + target.attr] = found
        case ast.Tuple() | ast.List():
            for each in target.elts:
                _assign(each, _UNKNOWN, values)


# --- Packages that are imported when they are used ------------------------------------


@cache
def _lazy(file: str) -> Mapping[str, Package]:
    """Return the names in a file of packages that are imported when they are used."""
    # The objects themselves are replaced by the modules as soon as these are imported.
    from data_juicer.utils.lazy_loader import LazyLoader

    found = {}
    for node in ast.walk(parsed(Path(file).read_text("utf-8"))):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=str(name))],
                value=ast.Call(func=ast.Name("LazyLoader"), args=args, keywords=keywords),
            ):
                given = [*args, *(k.value for k in keywords if k.arg == "package_url")]
                texts = [str(each.value) for each in given if isinstance(each, ast.Constant)]
                top = texts[0].split(".")[0]
                if top != "data_juicer":
                    pip = texts[-1] if texts[1:] else LazyLoader.get_package_name(top)
                    found[name] = Package(top, pip)
    return found


def _does_without(handler: ast.ExceptHandler) -> bool:
    """Whether what is tried is not needed: it goes on without a word, or without a package."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    silent = all(isinstance(node, ast.Pass | ast.Continue) for node in handler.body)
    return silent or "ImportError" in caught or "ModuleNotFoundError" in caught


# --- Search ---------------------------------------------------------------------------


class _Class(NamedTuple):
    """A class as a method of it sees it."""

    lineage: Sequence[type[Any]]  # the class of the method, and those that `super()` looks at
    whole: Sequence[type[Any]]  # the class of `self`, and its bases
    attributes: Values  # of `self`, as far as they are known

    def method(self, name: str, *, of_base: bool = False) -> tuple[FunctionType, _Class] | None:
        """Return a method, or that of `super()`, and the class as it sees it."""
        lineage = self.lineage[1:] if of_base else self.whole
        for place, kind in enumerate(lineage):
            function = _function(vars(kind).get(name))
            if function is not None:
                return function, self._replace(lineage=lineage[place:])
        return None


class _DependencySearch:
    """Follows the code of an operator, each function once.

    Args:
        kind: the class of the operator.
        fields: that it is made with.

    Attributes:
        packages: that it uses.
        models: the kinds of models that it makes.
        refusal: what its constructor raises.
    """

    def __init__(self, kind: type[Any], fields: Mapping[str, Any]) -> None:
        self._distributions = {"data_juicer", kind.__module__.partition(".")[0]}
        self.fields = fields
        self.packages: dict[Package, None] = {}
        self.models: dict[str, None] = {}
        self.refusal: RecipeError | None = None
        self._seen: set[Any] = set()

    def _is_followed(self, thing: Any) -> bool:
        module = str(getattr(thing, "__module__", ""))
        return module.partition(".")[0] in self._distributions

    def follow_class(self, kind: type[Any], given: Values, *, is_open: bool = False) -> None:
        """Follow what is called of a class that is made with the `given` values."""
        lineage = [each for each in kind.__mro__ if self._is_followed(each)]
        within = _Class(lineage, lineage, {})
        for name in _METHODS:
            found = within.method(name)
            if found is not None:
                function, after = found
                is_made = name == _CONSTRUCTOR
                called = is_open or not is_made  # With a row and more, which nobody knows.
                values = _parameters(function, given if is_made else {}, is_open=called)
                self.follow(function, values, after, is_made=is_made and not is_open)

    def follow(
        self,
        function: FunctionType,
        values: Values,
        within: _Class | None = None,
        *,
        is_made: bool = False,
    ) -> bool:
        """Follow a function, or a method of a class, with the values of its parameters.

        `is_made`: it is the constructor of the operator, whose errors are refusals. False where it
        is not followed, or was before.
        """
        node = definition(function)
        if function in self._seen or not isinstance(node, ast.FunctionDef):
            return False
        self._seen.add(function)
        if within is not None:
            values = {**within.attributes, **values}
        _Body(self, function, values, within, is_certain=is_made).block(node.body)
        if within is not None:
            own = {name: each for name, each in values.items() if name.startswith(_SELF)}
            within.attributes.update(own)
        return True

    def follow_thing(self, thing: Any, given: Values, *, is_open: bool) -> None:
        """Follow a function or a class of a module that is called, or that is passed on."""
        if inspect.ismodule(thing) or not self._is_followed(thing):
            return
        if inspect.isclass(thing):
            if thing not in self._seen:
                self._seen.add(thing)
                self.follow_class(thing, {}, is_open=True)
        elif (function := _function(thing)) is not None:
            self.follow(function, _parameters(function, given, is_open=is_open))


class _Body:
    """The statements of one function.

    Args:
        search: gets what they use.
        function: that they are of.
        values: of names.
        within: the class of a method.
        is_certain: whether an error that they raise refuses the fields.
    """

    def __init__(
        self,
        search: _DependencySearch,
        function: FunctionType,
        values: Values,
        within: _Class | None,
        *,
        is_certain: bool,
    ) -> None:
        self._search, self._function, self._values = search, function, values
        self._within, self._is_certain = within, is_certain
        self._local: dict[str, ast.FunctionDef] = {}

    def block(self, body: Sequence[ast.stmt], test: ast.expr | None = None) -> bool:
        """Follow statements, under a condition that holds; true where later ones may not run."""
        return any(self._statement(node, test) for node in body)

    def _statement(self, node: ast.stmt, test: ast.expr | None) -> bool:
        match node:
            case ast.If():
                self._uses(node.test)
                decided = self._value(node.test)
                if decided is _UNKNOWN:
                    return self._skip(node)
                return self.block(node.body if decided else node.orelse, node.test)
            case ast.Try():
                if any(map(_does_without, node.handlers)):
                    return self._skip(node)
                return self._uncertain(node.body) or self._uncertain(node.finalbody)
            case ast.For() | ast.While():
                _forget(node, self._values)
                self._uses(node.iter if isinstance(node, ast.For) else node.test)
                return self._uncertain(node.body)
            case ast.With():
                for item in node.items:
                    self._uses(item.context_expr)
                return self._uncertain(node.body)
            case ast.FunctionDef():
                self._local[node.name] = node
            case ast.ClassDef():
                self._values[node.name] = _UNKNOWN
            case ast.Assert():
                self._uses_within(node)
                decided = self._value(node.test)
                if decided is not _UNKNOWN and not decided:
                    self._refuse(node.test, node.msg)
            case ast.Raise():
                self._uses_within(node)
                call = node.exc
                is_call = isinstance(call, ast.Call) and bool(call.args)
                self._refuse(test, call.args[0] if is_call else call)  # type: ignore[union-attr]
                return True
            case ast.Return():
                self._uses_within(node)
                return True
            case _:
                self._uses_within(node)
                self._assign(node)
        return False

    def _uncertain(self, body: Sequence[ast.stmt]) -> bool:
        """Follow statements that may not run, or whose errors may be caught."""
        before, self._is_certain = self._is_certain, False
        ends = self.block(body)
        self._is_certain = before
        return ends

    def _skip(self, node: ast.stmt) -> bool:
        _forget(node, self._values)
        return any(isinstance(each, ast.Return) for each in ast.walk(node))

    def _assign(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                found = self._value(node.value)
                for target in node.targets:
                    _assign(target, found, self._values)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
                if self._within is None or self._within.method(name) is None:
                    # It may change any of them.
                    self._values.update(dict.fromkeys(self._attributes(), _UNKNOWN))
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed)) as call):
                if self._value(call) is _UNKNOWN:
                    _assign(changed, _UNKNOWN, self._values)
            case _:
                _forget(node, self._values)

    def _value(self, node: ast.expr) -> Any:
        """Return the value of an expression; UNKNOWN where the values do not decide it."""
        try:
            names = _KnownNames(self._values, self._function.__globals__)
            return eval(_compiled(node), {"__builtins__": {}}, names)
        except Exception:
            # Whatever the expression does to values it was not written for, it is not known.
            return _UNKNOWN

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
            case ast.Attribute(value=ast.Name(id=name)) if name in self._packages:
                self._search.packages[self._packages[name]] = None
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

    @property
    def _packages(self) -> Mapping[str, Package]:
        return _lazy(self._function.__code__.co_filename)

    def _name(self, name: str, call: ast.Call | None) -> None:
        """Follow a function or a class of the module that is called, or passed on."""
        local = self._local.pop(name, None)
        if local is not None:
            _forget(local, self._values)
            self._uncertain(local.body)
            return
        found = self._function.__globals__.get(name)
        given, is_open = ({}, True) if call is None else self._given(found, call)
        self._search.follow_thing(found, given, is_open=is_open)

    def _given(self, function: Any, call: ast.Call) -> tuple[Values, bool]:
        """The values that a call gives by name, and whether it gives more that nobody knows."""
        found = _function(function)
        every = {} if found is None else inspect.signature(found).parameters
        names = [name for name in every if name != "self"]
        values: Values = dict(zip(names, map(self._value, call.args), strict=False))
        is_open = any(isinstance(argument, ast.Starred) for argument in call.args)
        for keyword in call.keywords:
            value = self._value(keyword.value)
            if keyword.arg is not None:
                values[keyword.arg] = value
            elif isinstance(value, dict):
                values.update(value)
            else:
                is_open = True
        return values, is_open

    def _decided(self, node: ast.IfExp | ast.BoolOp) -> Iterator[ast.expr]:
        """Yield the parts of an expression that are evaluated for certain."""
        if isinstance(node, ast.IfExp):
            decided = self._value(node.test)
            yield node.test
            if decided is not _UNKNOWN:
                yield node.body if decided else node.orelse
            return
        for part in node.values:
            yield part
            decided = self._value(part)
            if decided is _UNKNOWN or bool(decided) is isinstance(node.op, ast.Or):
                return

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id="prepare_model"):
                self._model(node)
            case ast.Name(id=name) if name not in self._values:
                self._name(name, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self._within:
                self._method(self._within.method(name), node)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                if self._within is not None:
                    self._method(self._within.method(name, of_base=True), node)
            case ast.Attribute(value=ast.Name(id="LazyLoader"), attr="check_packages"):
                specs = self._value(node.args[0]) if node.args else _UNKNOWN
                for spec in specs if isinstance(specs, list) else ():
                    self._search.packages[Package("", spec)] = None

    def _method(self, found: tuple[FunctionType, _Class] | None, call: ast.Call) -> None:
        if found is None:
            return
        function, within = found
        within.attributes.update(self._attributes())
        given, is_open = self._given(function, call)
        values = _parameters(function, given, is_open=is_open)
        is_made = self._is_certain and function.__name__ == _CONSTRUCTOR
        if self._search.follow(function, values, within, is_made=is_made):
            self._values.update(within.attributes)

    def _attributes(self) -> Values:
        return {name: each for name, each in self._values.items() if name.startswith(_SELF)}

    def _model(self, call: ast.Call) -> None:
        """Follow `prepare_model(model_type=…)` into the function that makes such a model."""
        from data_juicer.utils.model_utils import MODEL_FUNCTION_MAPPING

        kinds = [self._value(k.value) for k in call.keywords if k.arg == "model_type"]
        kinds += [self._value(argument) for argument in call.args[:1]]
        if kinds and kinds[0] in MODEL_FUNCTION_MAPPING:
            self._search.models[kinds[0]] = None
            function = _function(MODEL_FUNCTION_MAPPING[kinds[0]])
            if function is not None:
                rest = [k for k in call.keywords if k.arg != "model_type"]
                call = ast.Call(func=call.func, args=call.args[1:], keywords=rest)
                given, is_open = self._given(function, call)
                self._search.follow(function, _parameters(function, given, is_open=is_open))

    # --- Refusals ---------------------------------------------------------------------

    def _refuse(self, test: ast.expr | None, message: ast.expr | None) -> None:
        """Note the error that the constructor raises where a test holds."""
        if not self._is_certain or self._search.refusal is not None:
            return
        names = [] if test is None else [ast.unparse(each) for each in ast.walk(test)]
        used = dict.fromkeys(name.removeprefix(_SELF) for name in names)
        own = inspect.signature(self._function).parameters
        values = {name: self._values.get(name, _UNKNOWN) for name in own}
        every = {**values, **self._search.fields}
        fields = [
            f"'{name}' is {every[name]!r}"
            for name in used
            if every.get(name, _UNKNOWN) is not _UNKNOWN
        ]
        text = "" if message is None else self._text(message)
        text = text or ("" if test is None else f"it wants {ast.unparse(test)}")
        if fields:
            noun = "field" if len(fields) == 1 else "fields"
            right = next(iter(text.splitlines()), "")
            self._search.refusal = RecipeError(f"{noun} {' and '.join(fields)}", right)
        else:
            self._search.refusal = RecipeError(f"its constructor refuses these fields: {text}")

    def _text(self, node: ast.expr) -> str:
        """Return the message of an error, with the values in it that are known."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr():
                return "".join(self._text(part) for part in node.values)
            case ast.FormattedValue():
                found = self._value(node.value)
                return ast.unparse(node.value) if found is _UNKNOWN else str(_ordered(found))
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                found = [self._value(each) for each in node.args]
                return text if _UNKNOWN in found else text.format(*map(_ordered, found))
        return ast.unparse(node)


def _ordered(value: Any) -> Any:
    """Return a value for a message; a set, which has no order of its own, as a sorted text."""
    if isinstance(value, set | frozenset) and value:
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    return value
