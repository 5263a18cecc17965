"""An operator, a tool or a flow from the fields of a recipe.

A wrong field is one line that says what is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .errors import RecipeError, shown, suggest
from .named import Named

_N = TypeVar("_N", bound=Named)


def build(kind: type[_N], fields: Mapping[str, Any]) -> _N:
    """An operator, a tool or a flow from recipe fields.

    Raises:
        RecipeError: a field is unknown (with a suggestion), missing or of the wrong type.
    """
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise _recipe_error(kind, error) from None


def _recipe_error(kind: type[BaseModel], error: ValidationError) -> RecipeError:
    """The first problem that pydantic found, in the words of a recipe."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:
        known = _subfields(kind, first["loc"][:-1])
        return RecipeError(f"unknown field {shown(field)}", suggest(str(first["loc"][-1]), known))
    if first["type"] == "extra_forbidden":
        known = list(kind.model_fields)
        near = suggest(field, known) or f"its fields are: {', '.join(known) or 'none'}"
        return RecipeError(f"unknown field {shown(field)}", near)
    if first["type"] == "missing":
        return RecipeError(f"field '{field}' is missing", "it has no default")
    message = first["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    if not field:
        return RecipeError(message)
    return RecipeError(
        f"field '{field}' is {shown(first['input'])}", message[0].lower() + message[1:]
    )


def _subfields(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of a field that is a model itself; none where it is not."""
    for name in path:
        info = model.model_fields.get(str(name))
        inner = info.annotation if info else None
        if not (inspect.isclass(inner) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
