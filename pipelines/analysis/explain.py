"""Explain what a recipe will do, and what a finished run did to one row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel

from ...operators import DataError, Operator
from ...operators.visible import visible
from ..recipe.recipe import Recipe
from ..recipe.stored_operator import StoredOperator
from .row_lines import end_of, quoted, row_lines
from .row_path import ROW, RowPath, has_row, row_paths
from .stored import IDS, Stored, StoredSet

_MOST_ROWS = 20
_MOST_LINES = 40
_LAST_LINES = 8
"""Shown after the cut of a long history: they say where it ends."""


def explain_recipe(recipe: Recipe) -> str:
    """Each step with its scope, its fields and the columns it reads and writes."""
    lines = [f"{recipe.head.dataset_spec} -> {recipe.head.export_path}", ""]
    for step in recipe.steps:
        operator = step.operator
        if isinstance(operator, StoredOperator):
            lines += [
                f"{step.number}. {step.name} (its code is not run)",
                f"   fields  {json.dumps(_fields(operator), ensure_ascii=False)}",
                f"   writes  {', '.join(operator.writes()) or 'not known without its code'}",
            ]
            continue
        lines += [
            f"{step.number}. {step.name} ({operator.scope.value})",
            f"   fields  {json.dumps(_fields(operator), ensure_ascii=False)}",
            f"   reads   {', '.join(_reads(operator)) or '-'}",
            f"   writes  {', '.join(operator.writes()) or '-'}",
            *(f"   {name}: {quoted(text)}" for name, text in operator.explain().items()),
        ]
        if operator.reasons:
            lines.append(f"   drops   {', '.join(operator.reasons)}")
    return "\n".join(lines) + "\n"


def _reads(operator: Operator) -> list[str]:
    optional = (f"{name} where it is there" for name in operator.optional_reads())
    return [*operator.reads(), *optional]


def _fields(operator: Operator) -> dict[str, Any]:
    """All fields; of a field with fields of its own, those that differ from the defaults."""
    fields: dict[str, Any] = operator.model_dump(mode="json")
    for name, value in operator:
        if isinstance(value, BaseModel):
            fields[name] = value.model_dump(mode="json", exclude_defaults=True)
    return {name: value for name, value in fields.items() if value != {}}


def explain_row(stored: Stored, row: str, *, everything: bool = False) -> str:
    """What each step did to a row, from the dataset to its end.

    Of several rows there is a line for each. Of a training run, the last step that has it counts.

    Args:
        stored: the run.
        row: an id as in `decisions`: a response_id or prompt_id (or a prefix of one), or `row N`.
        everything: all rows, values and lines, whatever their length.

    Raises:
        DataError: what the steps did is not on file, or no row has that id.
    """
    latest = sorted(stored.sets, key=lambda one: (-(one.training_step or 0), one.kind))
    for name in (*IDS, ROW):
        with_row = [one for one in latest if has_row(one, name, row)]
        for one in with_row or latest:
            found = list(islice(row_paths(one, name, row), None if everything else _MOST_ROWS + 1))
            if found:
                others = [other.name for other in with_row if other is not one]
                text = _text(found, row if name == ROW else f"{name} {row}", everything)
                return "".join([text, *_also_in(others, one)])
    raise DataError(f"no row has an id that begins with '{visible(row)}'", "see the export's ids")


def _text(found: list[RowPath], row: str, everything: bool) -> str:
    if everything:
        return "\n".join(_history(path, everything) for path in found)
    if len(found) == 1:
        return _history(found[0], everything)
    lines = [f"{_name(path)}: {end_of(path)}" for path in found[:_MOST_ROWS]]
    more = "more than " if len(found) > _MOST_ROWS else ""
    lines += ["..."] if more else []
    rows = f"{more}{min(len(found), _MOST_ROWS):,} rows"
    lines.append(f"{rows} of {visible(row)}: give the id of one of them, or add --all")
    return "\n".join(lines) + "\n"


def _name(path: RowPath) -> str:
    named = ((name, path.id(name)) for name in IDS)
    return next(
        (f"{name} {visible(found)}" for name, found in named if found), f"row {path.number}"
    )


def _history(path: RowPath, everything: bool) -> str:
    lines = row_lines(path, everything=everything)
    if not everything and len(lines) > _MOST_LINES:
        first = _MOST_LINES - _LAST_LINES - 1
        left_out = len(lines) - first - _LAST_LINES
        cut = f"... {left_out:,} more lines: add --all"
        lines = [*lines[:first], cut, *lines[-_LAST_LINES:]]
    return "\n".join(lines) + "\n"


def _also_in(others: list[str], one: StoredSet) -> Iterator[str]:
    """Other training steps with a row of that id."""
    if others:
        listed = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        yield f"this is {one.name}; also in {listed}: add --steps NUMBER\n"
