"""Values that the constructor of an operator of Data-Juicer's refuses, found in its source.

What the annotations do not say, the constructors check: `if lang not in ["en", "zh"]: raise …`. The
statements are followed from the first one, as far as the fields decide them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...operators import RecipeError
from . import catalogue
from .catalogue import Defined

# --- Expressions ----------------------------------------------------------------------
# The value of an expression in Data-Juicer's source, where the fields of an operator decide it.

UNKNOWN = object()
"""Stands for a value that is only known when the operator runs."""
SELF = "self."
"""In front of the names of attributes among the values."""
Values = dict[str, Any]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "str": str,
    "is_ray_mode": lambda: False,
}


def value(node: ast.expr, values: Values) -> Any:
    """The value of an expression; UNKNOWN where `values` do not decide it."""
    try:
        return _value(node, values)
    except Exception:
        # Whatever the expression does to values it was not written for, it is not known.
        return UNKNOWN


def _value(node: ast.expr, values: Values) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _known(values[node.id])
        case ast.Attribute(value=ast.Name(id="self")):
            return _known(values[SELF + node.attr])
        case ast.BoolOp():
            is_last = bool if isinstance(node.op, ast.Or) else operator.not_
            for part in node.values[:-1]:
                found = _value(part, values)
                if is_last(found):
                    return found
            return _value(node.values[-1], values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, values)
        case ast.IfExp():
            return _value(node.body if _value(node.test, values) else node.orelse, values)
        case ast.Compare(ops=[sign], comparators=[other]):
            return _COMPARISONS[type(sign)](_value(node.left, values), _value(other, values))
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _FUNCTIONS[name](*(_value(each, values) for each in node.args))
        case ast.Call(
            func=ast.Attribute(attr="get" | "pop" | "lower" | "upper" as name), keywords=[]
        ):
            base = _value(node.func.value, values)  # type: ignore[attr-defined]
            return getattr(base, name)(*(_value(each, values) for each in node.args))
        case _:
            return ast.literal_eval(node)


def _known(found: Any) -> Any:
    if found is UNKNOWN:
        raise LookupError
    return found


def forget(node: ast.AST, values: Values) -> None:
    """Take what the code of a node may assign for unknown."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store):
            assign(each, UNKNOWN, values)


def assign(target: ast.expr, found: Any, values: Values) -> None:
    """Keep the value of a name or of an attribute of `self`."""
    match target:
        case ast.Name():
            values[target.id] = found
        case ast.Attribute(value=ast.Name(id="self")):
            values[SELF + target.attr] = found
        case ast.Tuple() | ast.List():
            for each in target.elts:
                assign(each, UNKNOWN, values)


def bound(function: ast.FunctionDef, call: ast.Call, values: Values) -> Values:
    """The parameters of a function in a call of it."""
    arguments = function.args
    placed = [a.arg for a in (*arguments.posonlyargs, *arguments.args) if a.arg != "self"]
    given: Values = {
        name: value(argument, values) for name, argument in zip(placed, call.args, strict=False)
    }
    is_open = any(isinstance(argument, ast.Starred) for argument in call.args)
    for keyword in call.keywords:
        found = value(keyword.value, values)
        if keyword.arg is not None:
            given[keyword.arg] = found
        elif isinstance(found, dict):
            given.update(found)
        else:
            is_open = True
    return parameters(function, given, is_open=is_open)


def parameters(function: ast.FunctionDef, given: Values, *, is_open: bool = False) -> Values:
    """The parameters of a function that is given some values."""
    arguments = function.args
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(
        zip([a.arg for a in reversed(placed)], reversed(arguments.defaults), strict=False)
    )
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults |= {argument.arg: default for argument, default in named if default is not None}
    names = [argument.arg for argument in (*placed, *arguments.kwonlyargs)]
    found = dict.fromkeys(names, UNKNOWN)
    if not is_open:
        found |= {name: value(default, {}) for name, default in defaults.items()}
    found |= {name: given[name] for name in names if name in given}
    if arguments.kwarg:
        rest = {name: each for name, each in given.items() if name not in names}
        is_known = not is_open and UNKNOWN not in rest.values()
        found[arguments.kwarg.arg] = rest if is_known else UNKNOWN
    return found


# --- Constructor ----------------------------------------------------------------------


def check_constructor(defined: Defined, fields: Mapping[str, Any]) -> None:
    """Check the fields as the constructor of a class does.

    Raises:
        RecipeError: it raises an error with these fields, whatever else happens.
    """
    given = deepcopy(dict(fields))
    for function, bases in _constructors(list(catalogue.lineage(defined))):
        _Constructor(function, bases, given, parameters(function, given)).run()
        return


class _Constructor:
    """The statements of one constructor.

    Args:
        function: the constructor.
        bases: of its class.
        fields: what the class is made with.
        values: of the names in the constructor.
    """

    def __init__(
        self,
        function: ast.FunctionDef,
        bases: Sequence[Defined],
        fields: Mapping[str, Any],
        values: Values,
    ) -> None:
        self._function, self._bases, self._fields = function, bases, fields
        self._values = values

    def run(self) -> Values:
        """Follow all statements; gives the attributes of `self` that are known then."""
        self._block(self._function.body)
        return self._attributes()

    def _block(self, body: Sequence[ast.stmt], test: ast.expr | None = None) -> bool:
        """Follow statements, under a condition that holds; true where later ones may not run."""
        return any(self._statement(node, test) for node in body)

    def _statement(self, node: ast.stmt, test: ast.expr | None) -> bool:
        match node:
            case ast.If():
                decided = value(node.test, self._values)
                if decided is not UNKNOWN:
                    return self._block(node.body if decided else node.orelse, node.test)
            case ast.Assert():
                decided = value(node.test, self._values)
                if decided is not UNKNOWN and not decided:
                    raise self._refusal(node.test, node.msg)
            case ast.Raise():
                call = node.exc
                is_call = isinstance(call, ast.Call) and bool(call.args)
                raise self._refusal(test, call.args[0] if is_call else call)  # type: ignore[union-attr]
            case ast.Assign():
                found = value(node.value, self._values)
                for target in node.targets:
                    assign(target, found, self._values)
                return False
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
                return False
        forget(node, self._values)
        return any(isinstance(each, ast.Return) for each in ast.walk(node))

    def _call(self, call: ast.Call) -> None:
        match call.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
                for function, bases in _constructors(self._bases):
                    values = {**self._attributes(), **bound(function, call, self._values)}
                    self._values |= _Constructor(function, bases, self._fields, values).run()
                    return
            case ast.Attribute(value=ast.Name(id="self")):
                # A method may change any attribute.
                self._values |= dict.fromkeys(self._attributes(), UNKNOWN)
            case ast.Attribute(value=ast.Name() | ast.Attribute() as changed):
                assign(changed, UNKNOWN, self._values)

    def _attributes(self) -> Values:
        return {name: each for name, each in self._values.items() if name.startswith(SELF)}

    def _refusal(self, test: ast.expr | None, message: ast.expr | None) -> RecipeError:
        names = [] if test is None else [ast.unparse(each) for each in ast.walk(test)]
        used = dict.fromkeys(name.removeprefix(SELF) for name in names)
        arguments = (*self._function.args.args, *self._function.args.kwonlyargs)
        values = {name: self._values.get(name, UNKNOWN) for name in (a.arg for a in arguments)}
        known = {k: v for k, v in {**values, **self._fields}.items() if v is not UNKNOWN}
        fields = [f"'{name}' is {known[name]!r}" for name in used if name in known]
        text = "" if message is None else _text(message, self._values)
        text = text or ("" if test is None else f"it wants {ast.unparse(test)}")
        if not fields:
            return RecipeError(f"its constructor refuses these fields: {text}")
        noun = "field" if len(fields) == 1 else "fields"
        return RecipeError(f"{noun} {' and '.join(fields)}", next(iter(text.splitlines()), ""))


def _constructors(
    lineage: Sequence[Defined],
) -> Iterator[tuple[ast.FunctionDef, Sequence[Defined]]]:
    """The constructors of some classes, each with the bases that come after its class."""
    for place, defined in enumerate(lineage):
        function = catalogue.constructor(defined)
        if function is not None:
            yield function, lineage[place + 1 :]


def _text(node: ast.expr, values: Values) -> str:
    """The message of an error, with the values in it that are known."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_text(part, values) for part in node.values)
        case ast.FormattedValue():
            found = value(node.value, values)
            return ast.unparse(node.value) if found is UNKNOWN else str(found)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            found = [value(each, values) for each in node.args]
            return text if UNKNOWN in found else text.format(*found)
    return ast.unparse(node)
