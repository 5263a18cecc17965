"""Explain what a recipe will do, and what a finished run did to one row."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel
from rich.cells import cell_len, set_cell_size

from ...operators import DataError, Operator, RejuiceError, Scope
from ...operators.arrow_compute import pc
from ...operators.columns import (
    NOT_APPLICABLE,
    columns_of,
    component_columns,
    is_list,
    numbers,
)
from ...operators.condition import described
from ...operators.groups import Array
from ...operators.logs import visible
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import COMMON_FIELDS, surviving_rows
from ..console import Console, number_text, path_text, widen_log
from ..engine.conditional_step import matching_rows
from ..engine.frame import Frame
from ..engine.steps import AppliedStep, iterate_steps
from ..recipe.recipe import Recipe
from ..recipe.steps import PLACES, StoredOperator
from .evidence import evidence_of_rows
from .page.build import last_text
from .stored import IDS, Stored, StoredSet

_MOST_SEARCHED = 20_000
"""Rows that are compared with a dropped one; of more, only those of its prompt."""


def evidence_lines(applied: AppliedStep, row: int, *, most: int = 300) -> list[str]:
    """What a step's values of a row rest on, a line for each; none where there is nothing."""
    own = matching_rows(applied.step.operator, applied.before)
    if row not in own:
        return []
    rows = np.intersect1d(_compared_with(applied, row), own)
    found = evidence_of_rows([applied], [rows])
    at = int(np.searchsorted(rows, row))
    values = {name: column[at].as_py() for name, column in found.items()}
    return [
        f"   {name}: {_cut(f'{value:.3f}' if isinstance(value, float) else str(value), most)}"
        for name, value in values.items()
        if value is not None
    ]


def _compared_with(applied: AppliedStep, row: int) -> Array:
    """int64[M]: the row, and those that the step compares it with, ascending."""
    operator, frame = applied.step.operator, applied.before
    if operator.scope is Scope.ROW:
        return np.array([row])
    beyond = getattr(operator, "within", None) == "all" or getattr(operator, "unit", "") == "prompt"
    if beyond and frame.num_rows <= _MOST_SEARCHED:
        return np.arange(frame.num_rows)
    return same_prompt(frame, row)


def same_prompt(frame: Frame, row: int) -> Array:
    """int64[M]: the rows of the prompt that a row belongs to, ascending."""
    if "prompt_id" not in frame.column_names:
        return np.array([row])
    ids = frame.select(["prompt_id"])["prompt_id"]
    same = pc.fill_null(pc.equal(ids, ids[row]), False)
    rows: Array = np.flatnonzero(np.asarray(same))
    return rows if len(rows) else np.array([row])


def _cut(text: str, most: int | None) -> str:
    shown = visible(text, one_line=True)
    is_long = most is not None and len(shown) > most
    return f"{shown[:most]}… ({len(text):,} characters)" if is_long else shown


def sum_lines(applied: AppliedStep, row: int) -> list[str]:
    """The terms of a reward, or the rewards that an advantage compares; else nothing."""
    operator = applied.step.operator
    if row not in matching_rows(operator, applied.before):
        return []
    if isinstance(operator, RewardSumMapper):
        return _terms(operator, *_group(applied, row))
    if isinstance(operator, GrpoAdvantageMapper):
        return _compared(*_group(applied, row))
    return []


def _group(applied: AppliedStep, row: int) -> tuple[pa.Table, int]:
    """The rows of the same prompt with what the step reads, and the place of the row in it."""
    before, operator = applied.before, applied.step.operator
    rows = np.intersect1d(same_prompt(before, row), matching_rows(operator, before))
    table = before.select(operator.reads_of(before.column_names)).take(pa.array(rows))
    return table, int(np.searchsorted(rows, row))


def _terms(operator: RewardSumMapper, table: pa.Table, at: int) -> list[str]:
    terms = []
    for name, added_N in operator.contributions(table).items():
        added, weight = added_N[at], operator.weight(name)
        value_column, reason_column = component_columns(name)
        value = numbers(table, value_column)[at]
        reasons = table[reason_column] if reason_column in table.column_names else None
        if reasons is not None and reasons[at].as_py() == NOT_APPLICABLE:
            continue
        if np.isnan(added):
            return []
        if np.isfinite(value) and added == weight * value:
            terms.append(f"{name} {weight:g} x {value:g}")
        else:  # A closed gate, or a substitute for what is missing.
            terms.append(f"{name} {added:g} ({_why(operator, name, value)})")
    return [f"   reward: {' + '.join(terms)}"] if terms else []


def _why(operator: RewardSumMapper, name: str, value: float) -> str:
    if np.isfinite(value) or operator.on_missing != "group_mean":
        return f"gate {operator.gates[name]} is closed" if name in operator.gates else "weight 0"
    return "missing: mean of the group"


def _compared(table: pa.Table, at: int) -> list[str]:
    rewards = numbers(table, "reward")
    rewards = rewards[np.isfinite(rewards)]
    if len(rewards) < 2:
        return []
    mean, std = rewards.mean(), rewards.std(ddof=1)
    return [
        f"   advantage: of {len(rewards)} rewards, mean {mean:.4g}, standard deviation {std:.4g}"
    ]


# --- The path of one row through the steps of a stored set ----------------------------
# id ──ids of each part──> part ──source, results──> AppliedStep... ──> RowPath

ROW = "row"
"""What may identify a row beside its ids: `row 5`, its number in the dataset."""


class RowPath(NamedTuple):
    one: StoredSet  # the set that it belongs to
    # its row in the dataset, or among the rollouts of a training step, from 1; None where a step
    # made it
    number: int | None
    source: Frame  # the rows before the first step
    steps: Sequence[AppliedStep]  # all steps of the set
    # its place in the rows before each step, as far as it got, and after the last where it is left;
    # -1 where it was not there yet
    places: tuple[int, ...]

    @property
    def dropped_by(self) -> AppliedStep | None:
        last = len(self.places) - 1
        return self.steps[last] if last < len(self.steps) else None

    @property
    def end(self) -> Frame:
        last = len(self.places) - 1
        return self.steps[last - 1].after if last else self.source

    def value(self, name: str) -> Any:
        """What it has in a column at its end; None where the column is not there."""
        if name not in self.end.column_names:
            return None
        return self.end.select([name])[name][self.places[-1]].as_py()


def row_paths(one: StoredSet, name: str, row: str) -> Iterator[RowPath]:
    # A row that a step added may be in any part.
    for part in _parts(one, name, row) or range(one.parts):
        first_row = sum(one.source(before).num_rows for before in range(part))
        source = one.source(part)
        steps = list(iterate_steps(one.recipe.steps, source, one.results(part)))
        frames = [source, *(each.after for each in steps)]
        for at, frame in enumerate(frames):
            ends_N = np.ones(frame.num_rows, bool)
            if at < len(steps):  # A row ends before the last frame only where a step drops it.
                reasons = steps[at].result.change.reasons
                if reasons is None:
                    continue
                ends_N = np.asarray(reasons.is_valid())
            if ends_N.any():
                ends_N = ends_N & _matching(frame, name, row, first_row)
            for end in np.flatnonzero(ends_N):
                places = _places(steps[:at], int(end))
                number = None if places[0] < 0 else first_row + places[0] + 1
                yield RowPath(one, number, source, steps, places)


def _parts(one: StoredSet, name: str, row: str) -> list[int]:
    """Those that were sampled with a row of that id, before steps added any; none for a number."""
    ids = (one.ids(part) if name != ROW else pa.table({}) for part in range(one.parts))
    columns = (each[name].cast(pa.string()) if name in each.column_names else [] for each in ids)
    return [at for at, x in enumerate(columns) if len(x) and pc.any(pc.starts_with(x, row)).as_py()]


def _matching(frame: Frame, name: str, row: str, first_row: int) -> NDArray[np.bool_]:
    if name == ROW:
        number = _number(row) or 0
        return np.array((frame.source_rows >= 0) & (frame.source_rows + first_row + 1 == number))
    if name not in frame.column_names:
        return np.zeros(frame.num_rows, bool)
    return np.array(pc.fill_null(pc.starts_with(frame.select([name])[name], row), False), bool)


def _number(row: str) -> int | None:
    """The number in `row 5`; None: it is no such text."""
    return int(row[4:]) if row.startswith(f"{ROW} ") and row[4:].isdecimal() else None


def _places(steps: Sequence[AppliedStep], end: int) -> tuple[int, ...]:
    """Before each of the steps, of the row that is at `end` after the last, and that."""
    places = [end]
    for each in reversed(steps):
        rows = surviving_rows(each.result.change, each.result.rows_in)
        last = places[0]
        places.insert(0, last if rows is None or last < 0 else int(rows[last]))
    return tuple(places)


# --- The history of a row in lines: what each step read, wrote and decided ------------

_WIDEST = 160
_PACKED = 120
_SHORT = re.compile(r"\S+(?: =|:) \S{1,40}")


def row_lines(path: RowPath, *, everything: bool = False, dataset: bool = True) -> list[str]:
    """Where a row comes from, what each step wrote, on what that rests, and where the row ends.

    Without `dataset`, what its row there has was shown for another response.
    """
    ids = ((name, path.value(name)) for name in IDS)
    lines = [f"{name} {visible(found, one_line=True)}" for name, found in ids if found is not None]
    widest, pack = (None, list) if everything else (_WIDEST, _packed)
    if path.number is not None:
        lines.append(f"{_origin(path.one)}, row {path.number:,}")
    if path.number is not None and dataset:
        lines += pack(_values(path.source, path.places[0], path.source.column_names, widest))
        lines += _turns(path.source, path.places[0])
        lines += _choice_lines(path, everything)
    lines += [*_step_lines(path, everything), end_of(path)]
    if path.dropped_by is not None:
        lines += evidence_lines(path.dropped_by, path.places[-1])
    return lines


def _choice_lines(path: RowPath, everything: bool) -> list[str]:
    """How a training step came to sample the prompt of a row, if its recipe chooses prompts."""
    prompt = path.value("prompt_id")
    try:
        one = path.one.choice()
        paths = () if one is None or prompt is None else row_paths(one, "prompt_id", prompt)
        found = [each for each in paths if each.value("prompt_id") == prompt]
        return [line for chosen in found for line in _step_lines(chosen, everything)]
    except (RejuiceError, OSError, pa.ArrowException) as error:
        # What it takes may be gone, or is not trusted.
        return [f"how it was chosen is not known: {error}"]


def _step_lines(path: RowPath, everything: bool) -> list[str]:
    widest, pack = (None, list) if everything else (_WIDEST, _packed)
    lines = list[str]()
    for each, before, after in zip(path.steps, path.places, path.places[1:], strict=False):
        if after < 0:
            continue
        where = each.step.operator.where
        if where and before >= 0 and before not in matching_rows(each.step.operator, each.before):
            lines.append(f"{each.step.label}: is not about it, but where {described(where)}")
            continue
        lines.append(f"{each.step.label}: {'kept' if before >= 0 else 'added'}")
        names = list(each.result.change.columns)
        was = [*_values(each.before, before, names, widest)] if before >= 0 else []
        new = [x for x in _values(each.after, after, names, widest) if x not in was]
        lines += pack(new)
        if new:  # Otherwise the step left the row as it was.
            lines += _explained(each.step.operator, each.after, after)
            if before >= 0:
                lines += pack([*evidence_lines(each, before), *sum_lines(each, before)])
    return lines


def _origin(one: StoredSet) -> str:
    if one.training_step is not None:
        return f"rollouts of {one.name}"
    return path_text(one.recipe.head.dataset_spec)


def end_of(path: RowPath) -> str:
    if (last := path.dropped_by) is not None:
        slug = _reason(path)
        meaning = last.step.operator.reasons.get(slug)
        return f"{last.step.label}: dropped, {slug}{f' ({meaning})' if meaning else ''}"
    if path.one.training_step is None:
        return f"kept: it is in {path_text(path.one.recipe.head.export_path)}"
    reason = _by_training(path)
    step = path.one.training_step
    return f"training: dropped, {reason}" if reason else f"kept: step {step} trains on it"


def _reason(path: RowPath) -> str:
    reasons = None if path.dropped_by is None else path.dropped_by.result.change.reasons
    return "" if reasons is None else str(reasons[path.places[-1]].as_py())


def quoted(text: str) -> str:
    return visible(json.dumps(text, ensure_ascii=False))


def _by_training(path: RowPath) -> str:
    """Why training itself dropped a row that all steps have left; empty: it did not."""
    decisions = path.one.decisions()
    steps = {each.step.name for each in path.steps}
    own = decisions.filter(pc.equal(decisions["row_id"], pa.scalar(path.value("response_id"))))
    return next((x["reason"] for x in own.to_pylist() if x["step"] not in steps), "")


def _explained(operator: Operator, frame: Frame, row: int) -> list[str]:
    names = [name for name in operator.writes() if name in frame.column_names]
    written = {name: frame.select([name])[name][row].as_py() for name in names}
    return [f"   {name}: {quoted(text)}" for name, text in operator.explain(written).items()]


def _turns(dataset: Frame, row: int) -> list[str]:
    """The turns of a trajectory that comes with the dataset: no step is there to explain them."""
    if "turns" not in dataset.column_names:
        return []
    cell = dataset.select(["turns"])["turns"][row].as_py()
    from ...operators.agents.trajectory import holds_turns, turn_lines

    lines = turn_lines(cell) if holds_turns(cell) else {}
    return [f"   {name}: {quoted(text)}" for name, text in lines.items()]


def _packed(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        last = found[-1].rpartition(", ")[2].strip() if found else ""
        short = _SHORT.fullmatch(line.strip()) and _SHORT.fullmatch(last)
        if short and len(found[-1]) + len(line.strip()) + 2 <= _PACKED:
            found[-1] += f", {line.strip()}"
        else:
            found.append(line)
    return found


def _values(frame: Frame, row: int, names: Iterable[str], widest: int | None) -> Iterator[str]:
    for name in names:
        if name in IDS or name not in frame.column_names:
            continue
        kind = frame.schema.field(name).type
        if widest is not None and is_list(kind) and pa.types.is_primitive(kind.value_type):
            continue  # Token ids say nothing to a reader, and fill the screen.
        value = _value(frame, name, row, widest)
        # A null is not shown: where a reward is missing, the column beside it gives the reason.
        if value != "null":
            yield f"   {visible(name)} = {value}"


def _value(frame: Frame, name: str, row: int, widest: int | None) -> str:
    value: Any = frame.select([name])[name][row].as_py()
    if name == "prompt" and isinstance(value, list):
        value = " / ".join(f"{message['role']}: {message['content']}" for message in value)
    if name == "turns" and isinstance(value, list):
        # They are listed one by one elsewhere. Not "turns": `turn_count` has only the policy's.
        value = f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _cut(text if widest is None else " ".join(text.split()), widest)


# --- Several rows, such as the responses to a prompt, as a table ----------------------

_SHOWN = ("verdict", "reward", "advantage")
_ID_LENGTH = 8
_NARROWEST = 20


def _table(found: Sequence[RowPath], ids: Sequence[str]) -> Iterator[str]:
    terminal = Console()
    widen_log(terminal)
    there = {name for path in found for name in path.end.column_names}
    there.update(
        name for path in found for each in path.steps[-1:] for name in each.after.column_names
    )
    names = [name for name in _SHOWN if name in there]
    columns = {"id": list(ids), **{n: [_cell(path.value(n)) for path in found] for n in names}}
    columns["fate"] = [_fate(path) for path in found]
    lines = [""] * (1 + len(found))
    for name, cells in columns.items():
        width = max(map(cell_len, (name, *cells)))
        is_number = name in ("reward", "advantage")
        for at, cell in enumerate((name, *cells)):
            space = " " * (width - cell_len(cell))
            lines[at] += f"{space}{cell}  " if is_number else f"{cell}{space}  "
    if "response" in there:
        room = max(_NARROWEST, terminal.width - cell_len(lines[0]))
        texts = ("response", *(str(path.value("response") or "") for path in found))
        lines = [line + _shortened(text, room) for line, text in zip(lines, texts, strict=True)]
    yield from map(str.rstrip, lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int | float):
        return number_text(round(float(value), 3) + 0.0)  # No -0.000.
    return _shortened(str(value), _NARROWEST)


def _fate(path: RowPath) -> str:
    if path.dropped_by is not None:
        return f"{path.dropped_by.step.name}: {_reason(path)}"
    by_training = "" if path.one.training_step is None else _by_training(path)
    return f"training: {by_training}" if by_training else "kept"


def _shortened(text: str, room: int) -> str:
    line = visible(" ".join(text.split()), one_line=True)
    return line if cell_len(line) <= room else f"{set_cell_size(line, room - 1)}…"


def _prompt_line(found: Sequence[RowPath]) -> Iterator[str]:
    prompt = found[0].value("prompt")
    if prompt is not None and len({path.value("prompt_id") for path in found}) == 1:
        first, *others = last_text(prompt).strip().splitlines() or [""]
        yield f"prompt: {_shortened(first, _WIDEST)}{' …' if others else ''}"


def _meanings(found: Sequence[RowPath]) -> Iterator[str]:
    dropped = {_reason(path): path.dropped_by for path in found if path.dropped_by is not None}
    for slug, last in dropped.items():
        if slug in last.step.operator.reasons:
            yield f"{slug}: {last.step.operator.reasons[slug]}"


def _short_ids(found: Sequence[RowPath]) -> list[str]:
    """As much of the id of each row as tells them apart."""
    ids = [str(path.value("response_id") or path.value("prompt_id") or "") for path in found]
    short = [each[:_ID_LENGTH] for each in ids]
    return [visible(x, one_line=True) for x in (short if len({*short}) == len(ids) else ids)]


_MOST_ROWS = 64


def explain_recipe(recipe: Recipe) -> str:
    lines = [f"{path_text(recipe.head.dataset_spec)} -> {path_text(recipe.head.export_path)}", ""]
    for step in recipe.steps:
        operator, has_code = step.operator, not isinstance(step.operator, StoredOperator)
        writes = ", ".join(operator.writes()) or ("-" if has_code else "not known without its code")
        scope = operator.scope.value if has_code else "its code is not run"
        lines += [
            f"{step.number}. {step.name} ({scope})",
            *([f"   only    {PLACES[operator.on]}"] if operator.on else []),
            *([f"   rows    {described(operator.where)}"] if operator.where else []),
            f"   fields  {json.dumps(_fields(operator), ensure_ascii=False)}",
            *([f"   reads   {', '.join(_reads(operator)) or '-'}"] if has_code else []),
            f"   writes  {writes}",
            *(f"   {name}: {quoted(text)}" for name, text in operator.explain().items()),
            *([f"   drops   {', '.join(operator.reasons)}"] if operator.reasons else []),
        ]
    return "\n".join(lines) + "\n"


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """For `--json`: each step; of operators whose code is not run, what is on file."""
    found = dict[str, Any]()
    for step in recipe.steps:
        operator, has_code = step.operator, not isinstance(step.operator, StoredOperator)
        found[step.name] = {
            "scope": operator.scope if has_code else None,
            "fields": operator,
            "reads": operator.reads() if has_code else None,
            "optional_reads": operator.optional_reads() if has_code else None,
            "writes": operator.writes() if has_code or operator.writes() else None,
            "drops": operator.reasons,
        }
    return found


def _reads(operator: Operator) -> list[str]:
    optional = (f"{name} where it is there" for name in operator.optional_reads())
    of_where = columns_of(operator.where or ())
    return list(dict.fromkeys((*operator.reads(), *optional, *of_where)))


def _fields(operator: Operator) -> dict[str, Any]:
    fields: dict[str, Any] = operator.model_dump(mode="json")
    for name, value in operator:
        if isinstance(value, BaseModel):
            fields[name] = value.model_dump(mode="json", exclude_defaults=True)
    own = {name: value for name, value in fields.items() if name not in COMMON_FIELDS}
    return {name: value for name, value in own.items() if value != {}}


def explain_row(
    stored: Stored, row: str, *, everything: bool = False, in_python: bool = False
) -> str:
    """What each step did to a row, from the dataset to its end.

    Of several rows there is a line for each. Of a training run, the last step that has it counts.

    Args:
        stored: the run.
        row: a `response_id` or `prompt_id`, or the beginning of one, or `row 4`.
        everything: all rows, values and lines, whatever their length.
        in_python: recommend `result.explain`, not the command.

    Raises:
        DataError: what the steps did is not on file, or no row has that id.
    """
    found, others = _named(stored, row, None if everything else _MOST_ROWS + 1)
    if not found:
        return "\n".join(_not_chosen(stored, row, everything)[1]) + "\n"
    text = _text(stored, found, everything, in_python)
    if others:
        listed = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        text += f"this is {found[0].one.name}; also in {listed}: add --steps NUMBER\n"
    return text


def explain_facts(stored: Stored, row: str) -> list[dict[str, Any]]:
    """For `--json`: each row that an id names, with its history in lines."""
    found, _ = _named(stored, row, None)
    if found:
        return [_facts(path, _fate(path), row_lines(path, everything=True)) for path in found]
    path, lines = _not_chosen(stored, row, everything=True)
    return [_facts(path, lines[-1], lines)]


def _facts(path: RowPath, fate: str, history: list[str]) -> dict[str, Any]:
    values = {name: path.value(name) for name in (*IDS, *_SHOWN, "response")}
    return {**values, "set": path.one.name, "row": path.number, "fate": fate, "history": history}


def _latest(stored: Stored) -> list[StoredSet]:
    return sorted(stored.sets, key=lambda one: (-(one.training_step or 0), one.kind))


def _named(stored: Stored, row: str, most: int | None) -> tuple[list[RowPath], list[str]]:
    """The rows of a set that an id names, and the other sets that have them."""
    latest = _latest(stored)
    if not latest:
        raise DataError(f"{stored.path} has no step on file", "give a run that has ended a step")
    for name in IDS if _number(row) is None else (ROW,):
        with_row = [one for one in latest if _parts(one, name, row)]
        for one in with_row or latest:
            if found := list(islice(row_paths(one, name, row), most)):
                return found, [other.name for other in with_row if other is not one]
    if _number(row) is not None:
        n = sum(int(latest[0].source(part).num_rows) for part in range(latest[0].parts))
        found_rows = f"{_origin(latest[0])} has {n:,} rows, and no {row}"
        raise DataError(found_rows, f"give a number from 1 to {n:,}")
    return [], []


def _not_chosen(stored: Stored, row: str, everything: bool) -> tuple[RowPath, list[str]]:
    """A prompt of which the last step has no response, as its recipe chose others; its history."""
    with suppress(RejuiceError, OSError, pa.ArrowException):  # What it takes may be gone.
        chosen = _latest(stored)[0].choice()
        if chosen is not None and _parts(chosen, "prompt_id", row):
            for path in row_paths(chosen, "prompt_id", row):
                return path, _lines_of_prompt(path, everything)
    raise DataError(f"no row has an id that begins with '{visible(row)}'", "see the export's ids")


def _lines_of_prompt(path: RowPath, everything: bool) -> list[str]:
    prompt, taken = path.value("prompt_id"), path.one.final()["prompt_id"].to_pylist()
    lines = [f"prompt_id {prompt}", *_step_lines(path, everything)]
    if path.dropped_by is not None:
        return [*lines, end_of(path)]
    step = f"step {path.one.training_step}"
    if prompt in taken:
        return [*lines, f"sampled: {step} took it, and every response failed"]
    return [*lines, f"not sampled: {step} took the first {len(taken):,} prompts"]


def _text(stored: Stored, found: list[RowPath], everything: bool, in_python: bool) -> str:
    if everything:
        numbers = [path.number for path in found]
        texts = [
            row_lines(path, everything=True, dataset=path.number not in numbers[:at])
            for at, path in enumerate(found)
        ]
        return "\n".join("\n".join(lines) + "\n" for lines in texts)
    if len(found) == 1:
        return "\n".join(row_lines(found[0])) + "\n"
    shown = sorted(found[:_MOST_ROWS], key=lambda path: (path.number or math.inf, path.places))
    ids = _short_ids(shown)
    of_one = len({path.value("prompt_id") for path in shown}) == 1
    choice = _choice_lines(shown[0], everything=False) if of_one else []
    lines = [*_prompt_line(shown), *choice, *_table(shown, ids), *_meanings(shown)]
    more = "more than " if len(found) > _MOST_ROWS else ""
    rows = f"{more}{len(shown):,} rows"
    if in_python:
        others = f"result.explain({json.dumps(ids[0], ensure_ascii=False)}), all: everything=True"
    else:
        others = f"{_command(stored, shown[0], ids[0])}, all: --all"
    lines.append(f"{rows}; one of them in full: {others}")
    return "\n".join(lines) + "\n"


def _command(stored: Stored, path: RowPath, row: str) -> str:
    words = [path_text(stored.path)]
    if stored.kind == "training run":
        words += ["--steps", str(path.one.training_step)]
    words += ["--", row] if row.startswith("-") else [row]
    return f"rejuice explain {shlex.join(words)}"
