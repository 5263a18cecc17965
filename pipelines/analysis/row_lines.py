"""The history of a row in lines: what each step read, wrote and decided."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...operators import Operator
from ...operators.visible import visible
from ..engine.frame import Frame
from .row_path import RowPath
from .row_sums import sum_lines
from .show_evidence import evidence_lines
from .stored import IDS

_WIDEST = 160
_PACKED = 120
_SHORT = re.compile(r"\S+(?: =|:) \S{1,40}")


def row_lines(path: RowPath, *, everything: bool = False) -> list[str]:
    """Where a row comes from, what each step wrote, on what that rests, and where the row ends.

    Args:
        path: of the row.
        everything: also token ids and log-probabilities, and texts at their full length.
    """
    widest, pack = (None, list) if everything else (_WIDEST, _packed)
    ids = ((name, path.id(name)) for name in IDS)
    lines = [f"{name} {visible(found, one_line=True)}" for name, found in ids if found is not None]
    if path.number is not None:
        origin = str(path.one.recipe.head.dataset_spec)
        if path.one.training_step is not None:
            origin = f"rollouts of {path.one.name}"
        lines.append(f"{origin}, row {path.number:,}")
        lines += pack(_values(path.source, path.places[0], path.source.column_names, widest))
        lines += _turns(path.source, path.places[0])
    for each, before, after in zip(path.steps, path.places, path.places[1:], strict=False):
        if after < 0:
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
    if path.dropped_by is not None:
        lines += evidence_lines(path.dropped_by, path.places[-1])
    return [*lines, end_of(path)]


def end_of(path: RowPath) -> str:
    """Where a row is, or what dropped it and why."""
    if (last := path.dropped_by) is not None:
        reasons = last.result.change.reasons
        slug = "" if reasons is None else reasons[path.places[-1]].as_py()
        meaning = last.step.operator.reasons.get(slug, "not explained")
        return f"{last.step.label}: dropped, {slug} ({meaning})"
    if path.one.training_step is None:
        return f"kept: it is in {path.one.recipe.head.export_path}"
    reason = _by_training(path)
    step = path.one.training_step
    return f"training: dropped, {reason}" if reason else f"kept: step {step} trains on it"


def quoted(text: str) -> str:
    """On one line, with line breaks and spaces visible."""
    return visible(json.dumps(text, ensure_ascii=False))


def _by_training(path: RowPath) -> str:
    """Why training itself dropped a row that all steps have left; empty: it did not."""
    decisions = path.one.decisions()
    steps = {each.step.name for each in path.steps}
    own = decisions.filter(pc.equal(decisions["row_id"], pa.scalar(path.id("response_id"))))
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
    from ...operators.agents.explained import holds_turns, turn_lines

    lines = turn_lines(cell) if holds_turns(cell) else {}
    return [f"   {name}: {quoted(text)}" for name, text in lines.items()]


def _packed(lines: Iterable[str]) -> list[str]:
    """The same lines, with numbers and words that follow one another on one line."""
    found: list[str] = []
    for line in lines:
        if found and _is_short(line) and _is_short(found[-1].rpartition(", ")[2]):
            joined = f"{found[-1]}, {line.strip()}"
            if len(joined) <= _PACKED:
                found[-1] = joined
                continue
        found.append(line)
    return found


def _is_short(line: str) -> bool:
    """Whether a value is a number or a word; a text has a line of its own."""
    return bool(_SHORT.fullmatch(line.strip()))


def _values(frame: Frame, row: int, names: Iterable[str], widest: int | None) -> Iterator[str]:
    for name in names:
        if name in IDS or name not in frame.column_names:
            continue
        if widest is not None and _is_list_of_numbers(frame.schema.field(name).type):
            continue  # Token ids say nothing to a reader, and fill the screen.
        value = _value(frame, name, row, widest)
        # A null is not shown: where a reward is missing, the column beside it gives the reason.
        if value != "null":
            yield f"   {visible(name)} = {value}"


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def _value(frame: Frame, name: str, row: int, widest: int | None) -> str:
    value: Any = frame.select([name])[name][row].as_py()
    if name == "prompt" and isinstance(value, list):
        value = " / ".join(f"{message['role']}: {message['content']}" for message in value)
    if name == "turns" and isinstance(value, list):
        # They are listed one by one elsewhere. Not "turns": `turn_count` has only the policy's.
        value = f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if widest is None:
        return visible(text, one_line=True)
    text = visible(" ".join(text.split()))
    return text if len(text) <= widest else f"{text[:widest]}… ({len(text):,} characters)"
