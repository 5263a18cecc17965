"""Values that the constructor of an operator of Data-Juicer's refuses, found in its source.

What the annotations do not say, the constructors check: `if lang not in ["en", "zh"]: raise …`. The
statements are followed from the first one, as far as the fields decide them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...operators import RecipeError
from . import source
from .expressions import SELF, UNKNOWN, Values, assign, bound, forget, parameters, value
from .source import Defined


def check_constructor(defined: Defined, fields: Mapping[str, Any]) -> None:
    """Check the fields as the constructor of a class does.

    Args:
        defined: the class.
        fields: what it is made with.

    Raises:
        RecipeError: it raises an error with these fields, whatever else happens.
    """
    given = deepcopy(dict(fields))
    for function, bases in _constructors(list(source.lineage(defined))):
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
        function = source.constructor(defined)
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
