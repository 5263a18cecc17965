"""JSON Schema of recipes, made from the operators: completion and checks in an editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...operators import Operator
from ...operators.registry import load_all
from ..data_juicer import catalogue
from ..data_juicer.settings import description
from ..recipe.head import Head, data_juicer_only


def recipe_schema(custom: Mapping[str, type[Operator]] | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe with every usable operator.

    Args:
        custom: operators of files, by name, that are to be in it too.
    """
    head = Head.model_json_schema()
    definitions: dict[str, Any] = head.pop("$defs", {})
    steps: list[dict[str, Any]] = []
    usable = {**load_all()[0], **(custom or {})}
    for name, operator in usable.items():
        fields = operator.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= fields.pop("$defs", {})
        definitions[name] = fields
        steps.append(_step(name, {"$ref": f"#/$defs/{name}"}))
    steps += [_step(name, {"type": "object"}) for name in catalogue.names()]
    named = {"enum": [*usable, *catalogue.names()]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **head,
        "title": "rejuice recipe",
        "properties": {
            **head["properties"],
            **{key: {"description": description(key)} for key in sorted(data_juicer_only())},
            "process": {"type": "array", "minItems": 1, "items": {"anyOf": [named, *steps]}},
        },
        "required": [*head.get("required", ()), "process"],
        "$defs": definitions,
    }


def _step(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"anyOf": [fields, {"type": "null"}]}},
        "required": [name],
        "additionalProperties": False,
    }
