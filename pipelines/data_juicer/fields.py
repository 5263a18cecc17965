"""The fields of an operator of Data-Juicer's: checked, and as its class takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...operators import RecipeError
from ...operators.errors import shown, suggest
from .catalogue import ForeignKind
from .field_types import check_type

PROCESS_FIELDS = frozenset({"auto_op_parallelism", "num_proc"})
"""How many processes work: fields for `dj-process`, as `rejuice run` has workers of its own."""


def arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What Data-Juicer's class is made with: it works in this process, and hides no error."""
    given = {key: value for key, value in fields.items() if key not in PROCESS_FIELDS}
    return {**given, "skip_op_error": False, "auto_op_parallelism": False, "num_proc": None}


def check_fields(found: ForeignKind, fields: Mapping[str, Any]) -> None:
    """Check the fields that a recipe gives an operator.

    Raises:
        RecipeError: one is unknown or missing, or has a value that cannot work here.
    """
    types = {field.name: field.type for field in found.fields}
    for name, value in fields.items():
        if name not in types:
            near = suggest(name, found.known) or f"its fields are: {', '.join(found.known)}"
            raise RecipeError(f"unknown field {shown(name)}", near)
        check_type(name, types[name], value)
        if name == "skip_op_error" and value:
            raise RecipeError(
                f"field 'skip_op_error' is {shown(value)}, which loses rows silently",
                "leave it out",
            )
    for name in found.required:
        if name not in fields:
            raise RecipeError(f"field '{name}' is missing", "it has no default")


def texts(value: Any) -> Iterator[str]:
    """All texts in the value of a field, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)
