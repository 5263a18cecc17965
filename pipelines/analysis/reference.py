"""Reference of operators, flows and tools, written from the classes themselves."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ...operators import Kind, Operator, RecipeError
from ...operators.agents.flow import FLOWS, TOOLS
from ...operators.config import Named
from ...operators.errors import suggest
from ...operators.operator import COMMON_FIELDS, ScopeByField
from ...operators.registry import OPERATORS, Registry, load_all, owner
from ..console import path_text
from ..data_juicer import catalogue
from ..data_juicer.catalogue import ForeignKind
from ..data_juicer.settings import KEYS, description
from ..recipe.head import Head


def recipe_schema(custom: Mapping[str, type[Operator]] | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe with every usable operator."""
    head = Head.model_json_schema()
    definitions: dict[str, Any] = head.pop("$defs", {})
    steps: list[dict[str, Any]] = []
    usable = {**load_all()[0], **(custom or {})}
    for name, operator in usable.items():
        fields = operator.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= fields.pop("$defs", {})
        for common in COMMON_FIELDS:  # Of all operators the same: defined once.
            definitions[common] = fields["properties"].pop(common)
            fields["properties"][common] = {"$ref": f"#/$defs/{common}"}
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
            **{key: {"description": description(key)} for key in sorted(KEYS)},
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


_TITLES = {
    Kind.MAPPER: "Mappers add columns or expand rows",
    Kind.FILTER: "Filters keep or drop rows",
    Kind.DEDUPLICATOR: "Deduplicators drop repeated texts",
    Kind.SELECTOR: "Selectors choose which rows stay",
}
_PARTS: dict[str, Registry[Any]] = {"Flows of agents": FLOWS, "Tools of agents": TOOLS}
_REGISTRIES: tuple[Registry[Any], ...] = (OPERATORS, *_PARTS.values())
_OURS = "rejuice "
_CONDITION = "map of columns, each to a value, a list of values, or `{min, max}`"
_COMMON = (
    "They are carried out by whatever runs the step, and are listed here only; see "
    "[Recipes](recipes.md#several-tasks-in-one-dataset)."
)
_HEADER = ("| field | type | default | meaning |", "|---|---|---|---|")


def sections(custom: Sequence[Path] = ()) -> dict[str, dict[str, str]]:
    """What each usable operator does, by kind, and each flow and tool; then why others are no use.

    Those of other distributions are listed with the name and version of theirs, and those of
    `custom`, Python files or folders of them, with their file.
    """
    found = {
        title: {name: _listed(name, each, registry) for name, each in usable.items()}
        for title, registry, usable in _sections(custom)
    }
    unusable = {name: why for each in _REGISTRIES for name, why in each.load_all()[1].items()}
    return {**found, "Not usable": unusable} if unusable else found


def listing(custom: Sequence[Path] = ()) -> str:
    found = sections(custom)
    width = max(len(name) for texts in found.values() for name in texts)
    lines: list[str] = []
    for title, texts in found.items():
        lines += [title, *(f"  {name:<{width}}  {text}" for name, text in texts.items()), ""]
    return "\n".join(lines)


def _sections(
    custom: Sequence[Path] = (),
) -> Iterator[tuple[str, Registry[Any], dict[str, type[Named]]]]:
    """Yield the usable classes under their titles: operators by kind, then flows and tools."""
    operators = {**OPERATORS.load_all()[0], **OPERATORS.load_files(custom)}
    for kind, title in _TITLES.items():
        yield (
            title,
            OPERATORS,
            {name: each for name, each in operators.items() if each.kind is kind},
        )
    for title, registry in _PARTS.items():
        yield title, registry, {**registry.load_all()[0], **registry.load_files(custom)}


def _listed(name: str, kind: type[Named], registry: Registry[Any]) -> str:
    point = registry.installed().get(name)
    origin = path_text(inspect.getfile(kind)) if point is None else owner(point)
    shown = "" if point is not None and origin.startswith(_OURS) else f"  [{origin}]"
    paragraph = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
    sentence = re.split(r"(?<=[.?])\s", paragraph, maxsplit=1)[0].replace("\n", " ")
    return f"{sentence}{shown}"


def page(custom: Sequence[Path] = ()) -> str:
    """`docs/operators.md`; with what `custom` defines, as in `listing`."""
    parts = [
        "# Operators",
        "",
        "Written by `rejuice ops --markdown`; the suite fails when this page is stale.",
        "",
    ]
    parts += ["## Every operator has two fields more", "", _COMMON, "", *_common_fields(), ""]
    for title, _, usable in _sections(custom):
        parts += [f"## {title}", "", *(_entry(name, kind) for name, kind in usable.items())]
    return "\n".join(parts)


def _common_fields() -> list[str]:
    lines = {field: line for field, line in _schema_rows(Operator) if _is_common(field)}
    meaning = lines["where"].partition(" | `null` | ")[2]
    lines["where"] = f"| `where` | {_CONDITION} | `null` | {meaning}"
    return [*_HEADER, *lines.values()]


def _is_common(field: str) -> bool:
    return field.partition(".")[0] in COMMON_FIELDS


def entry(name: str, custom: Sequence[Path] = ()) -> str:
    """One operator, flow or tool in Markdown: what it does, its fields, columns and reasons."""
    found = [each.find(name, each.load_files(custom)) for each in _REGISTRIES]
    if ours := [_entry(name, kind) for kind in found if kind is not None]:
        return "\n".join(ours)
    if (theirs := catalogue.find(name)) is not None:
        return _foreign_entry(name, theirs)
    every = [{**each.installed(), **each.load_files(custom)} for each in _REGISTRIES]
    known = [each for names in every for each in names]
    if not catalogue.is_installed():
        raise catalogue.not_installed(name, known)
    near = suggest(name, known)
    right = near or "see `rejuice ops`; give the file of one of your own with --custom FILE"
    raise RecipeError(f"unknown operator, flow or tool '{name}'", right)


def _entry(name: str, kind: type[Named]) -> str:
    lines = [f"### {name}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
    operator = kind if issubclass(kind, Operator) else None
    if operator is not None:
        lines += [f"Scope: {_scope(operator)}.{_columns(operator)}", ""]
    own = kind.model_fields if operator is None else operator.own_fields()
    if own:
        lines += [*table(kind, nested_last=True), ""]
    if operator is not None and operator.reasons:
        lines += ["| reason | meaning |", "|---|---|"]
        lines += [f"| `{slug}` | {meaning} |" for slug, meaning in operator.reasons.items()]
        lines.append("")
    return "\n".join(lines) + "\n"


def _scope(operator: type[Operator]) -> str:
    declared = inspect.getattr_static(operator, "scope")
    others = declared.scopes if isinstance(declared, ScopeByField) else {}
    cases = [f"{each.value} with `{declared.field}: {value}`" for value, each in others.items()]
    return ", ".join([operator.scope.value, *cases])


def _foreign_entry(name: str, theirs: ForeignKind) -> str:
    """An operator of Data-Juicer's: its own words, and the fields with their defaults."""
    lines = [f"### {name}", "", f"Data-Juicer's, of its kind {theirs.kind}.", ""]
    summary = inspect.cleandoc(vars(theirs.cls).get("__doc__") or "")
    lines += [summary, ""] if summary else []
    lines += [*_HEADER]
    meanings = theirs.meanings()
    for field in theirs.fields.values():
        default = "required" if field.is_required else f"`{field.default!r}`"
        cells = (f"`{field.name}`", field.type, default, meanings.get(field.name, ""))
        lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    return "\n".join([*lines, "", ""])


def table(model: type[BaseModel], *, nested_last: bool = False) -> list[str]:
    """The fields of a model as a table in Markdown, those of its fields included.

    Those that every operator has are left out.
    """
    rows = _schema_rows(model)
    if issubclass(model, Operator):
        rows = [(field, line) for field, line in rows if not _is_common(field)]
    if nested_last:  # A stable sort keeps the rest of the order.
        nested = {field for field, line in rows if " | fields | " in line}
        rows.sort(key=lambda row: row[0].partition(".")[0] in nested)
    return [*_HEADER, *(line for _, line in rows)]


def _schema_rows(model: type[BaseModel]) -> list[tuple[str, str]]:
    schema = model.model_json_schema()
    return list(_rows(schema, schema.get("$defs", {})))


def _rows(
    schema: Mapping[str, Any], models: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, str]]:
    """The fields of a schema, each with its line; after a field that has fields come these."""
    for name, spec in schema["properties"].items():
        field, inner = f"{above}{name}", _model(spec, models)
        named = _model(spec.get("additionalProperties"), models)
        kind, default = _type(spec), f"`{_shown(spec.get('default'))}`"
        if inner.get("properties") and not named.get("properties"):
            kind, default = "fields", "`null`" if spec.get("default", {}) is None else "`{}`"
        default = "required" if name in schema.get("required", ()) else default
        meaning = _escaped(str(spec.get("description", "")))
        yield field, f"| `{field}` | {kind} | {default} | {meaning} |"
        if named.get("properties"):
            yield from _rows(named, models, f"{field}.NAME.")
        elif inner.get("properties"):
            yield from _rows(inner, models, f"{field}.")


def _model(spec: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model that a value is, unless it is a plain value; empty where there is none."""
    if not isinstance(spec, dict):
        return {}
    if "anyOf" in spec:
        return next(filter(None, (_model(each, definitions) for each in spec["anyOf"])), {})
    if "$ref" in spec:
        return _model(definitions[spec["$ref"].rsplit("/", 1)[-1]], definitions)
    return spec if "properties" in spec else {}


def _columns(kind: type[Operator]) -> str:
    try:
        operator = kind()
    except ValidationError:
        return ""  # It has no default: what it reads and writes is for its fields to say.
    listed = []
    for verb, names in (("Reads", operator.reads()), ("Writes", operator.writes())):
        if names:
            listed.append(f" {verb} {', '.join(f'`{name}`' for name in names)}.")
    if optional := operator.optional_reads():
        listed.insert(1, f" Reads {', '.join(f'`{name}`' for name in optional)} where it is there.")
    return "".join(listed)


def _escaped(text: str) -> str:
    """As a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _shown(default: Any) -> str:
    text = default if isinstance(default, str) and default else json.dumps(default)
    return text.replace("|", "\\|")


def _type(spec: dict[str, Any]) -> str:
    if "enum" in spec:
        return ", ".join(f"`{value}`" for value in spec["enum"])
    if "const" in spec:
        return f"`{spec['const']}`"
    if "anyOf" in spec:
        return " or ".join(dict.fromkeys(_type(part) for part in spec["anyOf"]))
    if spec.get("type") == "array":
        return f"list of {_type(spec['items'])}" if spec.get("items") else "list"
    if spec.get("type") == "object" and isinstance(spec.get("additionalProperties"), dict):
        return f"map to {_type(spec['additionalProperties'])}"
    return str(spec.get("type") or spec.get("$ref", "any").rsplit("/", 1)[-1])
