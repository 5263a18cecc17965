"""Explain what a recipe will do, and what a finished run did to one row."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel

from ...operators import DataError, Operator
from ...operators.change import surviving_rows
from ..apply.frame import Frame
from ..apply.report import Report
from ..apply.steps import StepResult, iterate_steps
from ..dataset.write import run_folder
from ..engine.plan import Plan
from ..recipe.recipe import Recipe
from ..stored.export import NO_COMMITS, ChangedSinceError, plan_of_run

_WIDEST = 160
_MOST = 20
_IDS = ("response_id", "prompt_id")


def explain_recipe(recipe: Recipe) -> str:
    """Each step with its scope, its fields and the columns it reads and writes."""
    lines = [f"{recipe.head.dataset_path} -> {recipe.head.export_path}", ""]
    for step in recipe.steps:
        operator = step.operator
        lines += [
            f"{step.number}. {step.name} ({operator.scope.value})",
            f"   fields  {json.dumps(_fields(operator), ensure_ascii=False)}",
            f"   reads   {', '.join(_reads(operator)) or '-'}",
            f"   writes  {', '.join(operator.writes()) or '-'}",
            *(f"   {name}: {_quoted(text)}" for name, text in operator.explain().items()),
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


def explain_row(recipe: Recipe, row: str) -> str:
    """What each step did to a row, from the dataset to its end, by the commits of a run.

    Args:
        recipe: as it was run.
        row: an id as in `decisions`: a response_id or prompt_id (or a prefix of one), or `row N`.

    Raises:
        DataError: the recipe has not been run, or no row has that id.
    """
    plan = _plan_of_run(recipe)
    for name in (*_IDS, "row"):
        histories = list(islice(_histories(plan, name, row), _MOST + 1))
        histories[_MOST:] = ["... and more rows with this prefix.\n"] if histories[_MOST:] else []
        ids = f"{name} {row}"
        exact = name == "row" or any(ids in s.splitlines()[: len(_IDS)] for s in histories)
        if len(histories) > 1 and not exact:
            return "".join(_brief(history) for history in histories)
        if histories:
            return "\n".join(histories)
    raise DataError(f"no row has an id that begins with '{row}'", "see the export's ids")


def _brief(history: str) -> str:
    lines = history.rstrip().splitlines()
    return f"{lines[0]}: {lines[-1]}\n" if len(lines) > 1 else history


def _plan_of_run(recipe: Recipe) -> Plan:
    path = shlex.quote(str(recipe.path))
    run = f"`rejuice run {path}`" if recipe.from_file else "run it"
    if not run_folder(recipe.head.export_path).exists():
        raise DataError("this recipe has not been run", f"{run} first")
    report = Report.read(recipe.head.export_path)
    if not report.cache:
        raise DataError(f"{NO_COMMITS} to explain rows from", f"{run} first")
    try:
        return plan_of_run(recipe, report)
    except ChangedSinceError as error:
        of_run = run_folder(recipe.head.export_path) / "recipe.yaml"
        if recipe.path.resolve() == of_run.resolve():
            raise
        right = f"give the recipe of the run, {of_run}"
        if report.recipe == str(recipe.path.resolve()):  # Another may not replace the export.
            right += f", or {run} first"
        raise DataError(error.found, right) from None


def _histories(plan: Plan, name: str, row: str) -> Iterator[str]:
    for chunk in range(len(plan.source.rows)):
        first_row = sum(plan.source.rows[:chunk])
        source = plan.source_frame(chunk)
        applied = list(iterate_steps(plan.steps, source, plan.committed(chunk)))
        results = [each.result for each in applied]
        frames = [source, *(each.after for each in applied)]
        for at, frame in enumerate(frames):
            ends_N = _matching(frame, name, row, first_row)
            if at < len(results):  # A row ends before the export only where a step drops it.
                reasons = results[at].change.reasons
                ends_N &= False if reasons is None else np.asarray(reasons.is_valid())
            for end in np.flatnonzero(ends_N):
                yield _history(plan.recipe, frames[: at + 1], results, int(end), first_row)


def _matching(frame: Frame, name: str, row: str, first_row: int) -> NDArray[np.bool_]:
    if name == "row":
        number = int(row[4:]) if row.startswith("row ") and row[4:].isdecimal() else 0
        return np.array((frame.source_rows >= 0) & (frame.source_rows + first_row + 1 == number))
    if name not in frame.column_names:
        return np.zeros(frame.num_rows, bool)
    return np.array(pc.fill_null(pc.starts_with(frame.select([name])[name], row), False), bool)


def _history(
    recipe: Recipe, frames: Sequence[Frame], results: Sequence[StepResult], end: int, first_row: int
) -> str:
    """What each step did to the row that is row `end` of the last frame."""
    path = [end]
    for result in reversed(results[: len(frames) - 1]):
        rows = surviving_rows(result.change, result.rows_in)
        path.insert(0, path[0] if rows is None or path[0] < 0 else int(rows[path[0]]))
    last = frames[-1]
    lines = [f"{name} {_value(last, name, end)}" for name in _IDS if name in last.column_names]
    if path[0] >= 0:
        lines.append(f"{recipe.head.dataset_path}, row {first_row + path[0] + 1}")
        lines += _values(frames[0], path[0], frames[0].column_names)
        lines += _turns(frames[0], path[0])
    for at in range(len(frames) - 1):
        if path[at + 1] >= 0:
            lines.append(f"{recipe.steps[at].label}: {'kept' if path[at] >= 0 else 'added'}")
            names = list(results[at].change.columns)
            was = _values(frames[at], path[at], names) if path[at] >= 0 else []
            new = [x for x in _values(frames[at + 1], path[at + 1], names) if x not in was]
            lines += new
            if new:  # Otherwise the step left the row as it was.
                lines += _explained(recipe.steps[at].operator, frames[at + 1], path[at + 1])
    if len(frames) > len(results):
        return "\n".join([*lines, f"kept: it is in {recipe.head.export_path}", ""])
    step, reasons = recipe.steps[len(frames) - 1], results[len(frames) - 1].change.reasons
    slug = "" if reasons is None else reasons[end].as_py()
    meaning = step.operator.reasons.get(slug, "not explained")
    return "\n".join([*lines, f"{step.label}: dropped, {slug} ({meaning})", ""])


def _explained(operator: Operator, frame: Frame, row: int) -> list[str]:
    names = [name for name in operator.writes() if name in frame.column_names]
    written = {name: frame.select([name])[name][row].as_py() for name in names}
    return [f"   {name}: {_quoted(text)}" for name, text in operator.explain(written).items()]


def _turns(dataset: Frame, row: int) -> list[str]:
    """The turns of a trajectory that comes with the dataset: no step is there to explain them."""
    if "turns" not in dataset.column_names:
        return []
    cell = dataset.select(["turns"])["turns"][row].as_py()
    from ...operators.agents.explained import holds_turns, turn_lines

    lines = turn_lines(cell) if holds_turns(cell) else {}
    return [f"   {name}: {_quoted(text)}" for name, text in lines.items()]


def _quoted(text: str) -> str:
    """On one line, with line breaks and spaces visible."""
    return json.dumps(text, ensure_ascii=False)


def _values(frame: Frame, row: int, names: Iterable[str]) -> list[str]:
    # A null is not shown: where a reward is missing, the column beside it gives the reason.
    present = [name for name in names if name in frame.column_names and name not in _IDS]
    values = [(name, _value(frame, name, row)) for name in present]
    return [f"   {name} = {value}" for name, value in values if value != "null"]


def _value(frame: Frame, name: str, row: int) -> str:
    value: Any = frame.select([name])[name][row].as_py()
    if name == "prompt" and isinstance(value, list):
        value = " / ".join(f"{message['role']}: {message['content']}" for message in value)
    if name == "turns" and isinstance(value, list):
        # They are listed one by one elsewhere. Not "turns": `turn_count` has only the policy's.
        value = f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}… ({len(text):,} characters)"
