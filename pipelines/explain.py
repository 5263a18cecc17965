"""Tell what a recipe will do, and what a finished run did to one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ..operators import DataError
from ..operators.groups import Array
from .commit import Commit
from .frame import Frame, surviving_rows
from .plan import Plan, group_columns
from .recipe import Recipe
from .source import peek_schema, prepare

_WIDEST = 160
_MOST_STORIES = 20
_IDS = ("response_id", "prompt_id")


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
    """The story of a row, from the dataset to its end, out of the commits of a run.

    Args:
        recipe, chunk_rows, cache: as in the run.
        row: an id as in `decisions`: a response_id or prompt_id (or how one begins), or `row N`.

    Raises:
        DataError: the recipe has not been run, or no row has that id.
    """
    cache = cache or recipe.head.export_path.parent / ".rejuice"
    grouping = group_columns(recipe, peek_schema(recipe.head.dataset_path))
    source = prepare(recipe.head.dataset_path, cache, chunk_rows=chunk_rows, group_by=grouping)
    plan = Plan.of(recipe, source, cache)
    if not all(plan.is_done(step) for step in plan.steps):
        raise DataError("this recipe has not been run", f"`rejuice run {recipe.path}` first")
    for name in (*_IDS, "row"):
        stories = list(islice(_stories(recipe, plan, name, row), _MOST_STORIES + 1))
        if len(stories) > _MOST_STORIES:
            stories[-1] = "... and more rows whose id begins like this.\n"
        if stories:
            return "\n".join(stories)
    raise DataError(f"no row has an id that begins with '{row}'", "see the export's ids")


def _stories(recipe: Recipe, plan: Plan, name: str, row: str) -> Iterator[str]:
    first_row = 0
    for chunk, rows in enumerate(plan.source.rows):
        before, commits = zip(*plan.replay(chunk, plan.steps), strict=True)
        frames = (*before, before[-1].after(commits[-1].change))
        for at, frame in enumerate(frames):
            ends_N = _matching(frame, name, row, first_row)
            if at < len(commits):  # A row ends before the export only where a step drops it.
                reasons = commits[at].change.reasons
                ends_N &= False if reasons is None else np.asarray(reasons.is_valid())
            for end in np.flatnonzero(ends_N):
                yield _story(recipe, frames[: at + 1], commits, int(end), first_row)
        first_row += rows


def _matching(frame: Frame, name: str, row: str, first_row: int) -> Array:
    if name == "row":
        numbers_N = np.where(frame.source_rows < 0, 0, frame.source_rows + first_row + 1)
        return np.asarray([f"row {number}" == row for number in numbers_N], bool)
    if name not in frame.column_names:
        return np.zeros(frame.num_rows, bool)
    return np.array(pc.fill_null(pc.starts_with(frame.select([name])[name], row), False), bool)


def _story(
    recipe: Recipe, frames: Sequence[Frame], commits: Sequence[Commit], end: int, first_row: int
) -> str:
    """What became of row `end` of the last frame, which is where it ends."""
    path = [end]
    for commit in reversed(commits[: len(frames) - 1]):
        rows = surviving_rows(commit.change, commit.rows_in)
        path.insert(0, path[0] if rows is None or path[0] < 0 else int(rows[path[0]]))
    ids = [name for name in _IDS if name in frames[-1].column_names]
    lines = [f"{name} {_value(frames[-1], name, end)}" for name in ids]
    if path[0] >= 0:
        lines.append(f"{recipe.head.dataset_path}, row {first_row + path[0] + 1}")
        lines += _values(frames[0], path[0], set(frames[0].column_names))
    for at in range(len(frames) - 1):
        if path[at + 1] >= 0:
            lines.append(f"{recipe.steps[at].label}: {'kept' if path[at] >= 0 else 'added'}")
            lines += _values(frames[at + 1], path[at + 1], set(commits[at].change.columns))
    if len(frames) > len(commits):
        return "\n".join([*lines, f"kept: it is in {recipe.head.export_path}", ""])
    step, reasons = recipe.steps[len(frames) - 1], commits[len(frames) - 1].change.reasons
    slug = "" if reasons is None else reasons[end].as_py()
    why = step.operator.reasons.get(slug, "not explained")
    return "\n".join([*lines, f"{step.label}: dropped, {slug} ({why})", ""])


def _values(frame: Frame, row: int, names: set[str]) -> list[str]:
    values = {n: _value(frame, n, row) for n in frame.column_names if n in names and n not in _IDS}
    # Of a component's two columns one says something: the number, or why there is none.
    twins = {n for n in names if f"{n}_missing" in names}
    silent = {n for n in (*twins, *(f"{n}_missing" for n in twins)) if values.get(n) == "null"}
    return [f"   {name} = {value}" for name, value in values.items() if name not in silent]


def _value(frame: Frame, name: str, row: int) -> str:
    value: Any = frame.select([name])[name][row].as_py()
    if name == "prompt" and isinstance(value, list):
        value = " / ".join(f"{message['role']}: {message['content']}" for message in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}… ({len(text):,} characters)"
