"""Whether a value fits the annotation of a field, as Data-Juicer's own check has it, and more.

Its check looks at `int`, `float`, `bool` and `str` and takes everything else as it is, so a list of
numbers where texts are expected, or a number out of bounds, fails in the middle of a run. Here the
annotation is read from the source and given to pydantic. As in Data-Juicer, an integer may be
written 5.0, no text is a number, True is no number, and null fits everywhere. A value is checked
and never converted: it reaches the operator as `dj-process` hands it over.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError

from ...operators import RecipeError
from ...operators.errors import shown


def _no_text(value: Any) -> Any:
    if isinstance(value, bool | str | bytes):
        raise PydanticKnownError("int_type")
    return value


_Int = Annotated[int, BeforeValidator(_no_text)]
_Float = Annotated[float, Strict()]
_KNOWN: dict[str, Any] = {
    "Annotated": Annotated,
    "ClosedUnitInterval": Annotated[_Float, Field(ge=0, le=1)],
    "Dict": dict,
    "List": list,
    "Literal": Literal,
    "NonNegativeFloat": Annotated[_Float, Field(ge=0)],
    "NonNegativeInt": Annotated[_Int, Field(ge=0)],
    "OpenUnitInterval": Annotated[_Float, Field(gt=0, lt=1)],
    "Optional": Optional,
    "PositiveFloat": Annotated[_Float, Field(gt=0)],
    "PositiveInt": Annotated[_Int, Field(gt=0)],
    "Sequence": Sequence,
    "Tuple": tuple,
    "Union": Union,
    "bool": Annotated[bool, Strict()],
    "dict": dict,
    "float": _Float,
    "int": _Int,
    "list": list,
    "str": Annotated[str, Strict()],
    "tuple": tuple,
}
"""What the names in annotations mean; any other name stands for any value."""


def check_type(name: str, annotation: str, value: Any) -> None:
    """Check the value of a field against the field's annotation.

    Args:
        name: the field's.
        annotation: as its source has it; empty where there is none.
        value: as the recipe has it.

    Raises:
        RecipeError: it does not fit.
    """
    if value is None or not annotation:
        return
    errors = []
    for adapter in _adapters(annotation):
        try:
            adapter.validate_python(value)
            return
        except ValidationError as error:
            errors.append(error.errors(include_url=False)[0])
    if len(errors) == 1:
        place = ".".join((name, *map(str, errors[0]["loc"])))
        found, message = errors[0]["input"], errors[0]["msg"]
    else:
        place, found = name, value
        either = dict.fromkeys(error["msg"].removeprefix("Input should be ") for error in errors)
        message = f"Input should be {' or '.join(either)}"
    message = message[0].lower() + message[1:].replace("valid tuple", "list")
    raise RecipeError(f"field '{place}' is {shown(found)}", message)


@cache
def _adapters(annotation: str) -> tuple[TypeAdapter[Any], ...]:
    """One for each of the types that a value may have; none of them is for null."""
    try:
        kind = _resolved(ast.parse(annotation, mode="eval").body)
        kinds = typing.get_args(kind) if typing.get_origin(kind) is Union else (kind,)
        return tuple(TypeAdapter(each) for each in kinds if each is not NoneType)
    except Exception:
        # Anybody's source: whatever is no type for pydantic says nothing about values.
        return (TypeAdapter(Any),)


def _resolved(node: ast.expr) -> Any:
    """The type that an annotation stands for; `Any` for what is not known."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            return _resolved(ast.parse(text, mode="eval").body)
        case ast.Name(id=name):
            return _KNOWN.get(name, Any)
        case ast.Attribute(attr=name):
            return _KNOWN.get(name, Any)
        case ast.BinOp(op=ast.BitOr()):
            return Union[_resolved(node.left), _resolved(node.right)]  # noqa: UP007
        case ast.Subscript():
            return _subscripted(_resolved(node.value), node.slice)
    return Any


def _subscripted(outer: Any, inside: ast.expr) -> Any:
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if outer is Any:
        return Any
    if outer is Literal:
        return Literal[tuple(ast.literal_eval(part) for part in parts)]
    if outer is Annotated:
        limits = [limit for part in parts[1:] for limit in _limits(part)]
        return Annotated[(_resolved(parts[0]), *limits)]
    inner = tuple(
        ... if isinstance(part, ast.Constant) and part.value is ... else _resolved(part)
        for part in parts
    )
    return outer[inner if len(inner) > 1 else inner[0]]


def _limits(node: ast.expr) -> list[Any]:
    """`Field(ge=0, le=1)`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Field":
        return []
    return [Field(**{str(k.arg): ast.literal_eval(k.value) for k in node.keywords})]
