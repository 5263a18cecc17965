"""Operator reference, written from the operators themselves."""

from __future__ import annotations

import inspect
import json
import shlex
from typing import Any

from pydantic import BaseModel, ValidationError

from ...operators import Kind, Operator, get, installed
from ...operators.registry import conflicts, load_all, owner
from ..data_juicer.reading import catalogue
from ..data_juicer.reading.catalogue import ForeignKind
from ..data_juicer.reading.needs import needs

_TITLES = {
    Kind.MAPPER: "Mappers add columns or expand rows",
    Kind.FILTER: "Filters keep or drop rows",
    Kind.DEDUPLICATOR: "Deduplicators drop repeated texts",
    Kind.SELECTOR: "Selectors choose which rows stay",
}
_OURS = "rejuice "
_HEADER = ("| field | type | default | meaning |", "|---|---|---|---|")


def listing() -> str:
    """One line for each installed operator, by kind; then those that cannot be used, and why.

    Operators of other distributions are listed with the name and version of theirs.
    """
    usable, unusable = load_all()
    lines: list[str] = []
    for kind, title in _TITLES.items():
        names = [name for name, operator in usable.items() if operator.kind is kind]
        lines += [title, *(_listed(name, usable[name]) for name in names), ""]
    if unusable:
        lines += ["Not usable", *(f"  {name:<28}{why}" for name, why in unusable.items()), ""]
    return "\n".join(lines)


def _listed(name: str, operator: type[Operator]) -> str:
    dist = owner(installed()[name])
    origin = "" if dist.startswith(_OURS) else f"  [{dist}]"
    return f"  {name:<28}{_first_line(operator)}{origin}"


def page() -> str:
    """`docs/operators.md`."""
    parts = [
        "# Operators",
        "",
        "Written by `rejuice ops --markdown`; the suite fails when this page is stale.",
        "",
    ]
    usable, _ = load_all()
    for kind, title in _TITLES.items():
        parts += [f"## {title}", ""]
        parts += [entry(name) for name, operator in usable.items() if operator.kind is kind]
    return "\n".join(parts)


def entry(name: str) -> str:
    """One operator in Markdown: what it does, its fields, columns and reasons.

    Raises:
        RejuiceError: no operator has that name, or it cannot be used.
    """
    theirs = None if name in installed() or name in conflicts() else catalogue.find(name)
    if theirs is not None:
        return _foreign_entry(name, theirs)
    kind = get(name)
    lines = [f"### {name}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
    lines += [f"Scope: {kind.scope.value}.{_columns(kind)}", ""]
    if kind.model_fields:
        lines += [*table(kind), ""]
    if kind.reasons:
        lines += ["| reason | meaning |", "|---|---|"]
        lines += [f"| `{slug}` | {meaning} |" for slug, meaning in kind.reasons.items()]
        lines.append("")
    return "\n".join(lines) + "\n"


def _foreign_entry(name: str, theirs: ForeignKind) -> str:
    """An operator of Data-Juicer's: its own words, the fields with their defaults, its needs."""
    lines = [f"### {name}", "", f"Data-Juicer's, of its kind {theirs.kind}.", ""]
    lines += [theirs.summary, ""] if theirs.summary else []
    missing = needs(theirs.defined, {}).missing
    if missing:
        lines += [f"Not installed, and needed by default: `pip install {shlex.join(missing)}`.", ""]
    lines += [*_HEADER]
    meanings = theirs.meanings()
    for field in theirs.fields:
        default = "required" if field.default is None else f"`{field.default}`"
        cells = (f"`{field.name}`", field.type or "any", default, meanings.get(field.name, ""))
        lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    return "\n".join([*lines, "", ""])


def table(model: type[BaseModel]) -> list[str]:
    """The fields of a model as a table in Markdown, those of its fields included."""
    lines = [*_HEADER]
    schema = model.model_json_schema()
    required = schema.get("required", ())
    nested = schema.get("$defs", {})
    for field, spec in schema["properties"].items():
        inner = nested.get(str(spec.get("$ref")).rsplit("/", 1)[-1], {}).get("properties")
        if inner:
            lines.append(f"| `{field}` | fields | `{{}}` | {_cell(spec)} |")
            lines += [_line(f"{field}.{name}", each) for name, each in inner.items()]
        else:
            lines.append(_line(field, spec, required=field in required))
    return lines


def _line(field: str, spec: dict[str, Any], *, required: bool = False) -> str:
    default = "required" if required else f"`{_shown(spec.get('default'))}`"
    return f"| `{field}` | {_type(spec)} | {default} | {_cell(spec)} |"


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


def _first_line(kind: type[Operator]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n")[0]


def _cell(spec: dict[str, Any]) -> str:
    return _escaped(str(spec.get("description", "")))


def _escaped(text: str) -> str:
    """A text as a cell of a table."""
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
