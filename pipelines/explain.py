"""Tell what a recipe will do, and what a finished run did to one row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..operators import DataError
from .commit import Commit
from .frame import Frame
from .plan import Plan, group_columns
from .recipe import Recipe
from .source import peek_schema, prepare

_WIDEST = 100


def explain_recipe(recipe: Recipe) -> str:
    """Each step with its scope, its fields and the columns it reads and writes."""
    lines = [f"{recipe.head.dataset_path} -> {recipe.head.export_path}", ""]
    for step in recipe.steps:
        operator = step.operator
        lines += [
            f"{step.number}. {step.name} ({operator.scope.value})",
            f"   fields  {json.dumps(operator.model_dump(mode='json'), ensure_ascii=False)}",
            f"   reads   {', '.join(operator.reads()) or '-'}",
            f"   writes  {', '.join(operator.writes()) or '-'}",
        ]
        if operator.reasons:
            lines.append(f"   drops   {', '.join(operator.reasons)}")
    return "\n".join(lines) + "\n"


def explain_row(recipe: Recipe, row: str, *, chunk_rows: int, cache: Path | None) -> str:
    """What each step wrote for a row, or why it dropped it, from the commits of a run.

    Args:
        recipe: the recipe that was run.
        row: a response_id or prompt_id, or how one begins.
        chunk_rows: as in the run.
        cache: as in the run.

    Raises:
        DataError: the recipe has not been run, or no row has that id.
    """
    cache = cache or recipe.head.export_path.parent / ".rejuice"
    grouping = group_columns(recipe, peek_schema(recipe.head.dataset_path))
    source = prepare(recipe.head.dataset_path, cache, chunk_rows=chunk_rows, group_by=grouping)
    plan = Plan.of(recipe, source, cache)
    if not all(plan.is_done(step) for step in plan.steps):
        raise DataError("this recipe has not been run", f"`rejuice run {recipe.path}` first")
    lines: list[str] = []
    for chunk in range(len(source.rows)):
        for step, (frame, commit) in zip(plan.steps, plan.replay(chunk, plan.steps), strict=True):
            told = _told(frame, commit, row)
            lines += [f"{step.number}. {step.name}", *told] if told else []
    if not lines:
        raise DataError(f"no row has an id that begins with '{row}'", "see the export's ids")
    return "\n".join(lines) + "\n"


def _told(frame: Frame, commit: Commit, row: str) -> list[str]:
    change = commit.change
    lines = []
    if change.reasons is not None:
        for at in _matching(frame, row):
            if (reason := change.reasons[at].as_py()) is not None:
                lines.append(f"   dropped: {reason}")
    after = frame.after(change)
    written = after.select([name for name in change.columns if name in after.column_names])
    for at in _matching(after, row):
        lines += [f"   {name} = {_short(written[name][at])}" for name in written.column_names]
    return lines


def _matching(frame: Frame, row: str) -> list[int]:
    """Rows by response_id; where none matches, by prompt_id."""
    for name in ("response_id", "prompt_id"):
        if name in frame.column_names:
            mask = pc.starts_with(frame.select([name])[name], row)
            found = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
            if len(found):
                return [int(at) for at in found]
    return []


def _short(value: pa.Scalar) -> str:
    shown: Any = value.as_py()
    text = json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
