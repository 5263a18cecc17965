"""The value of an expression in Data-Juicer's source, where the fields of an operator decide it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

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
    """The value of an expression; UNKNOWN where `values` do not decide it.

    Args:
        node: the expression.
        values: of the names in it, and of attributes of `self`.
    """
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
    """The parameters of a function that is given some values.

    Args:
        function: the function.
        given: values by name.
        is_open: whether it may be given others, too.
    """
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
