"""The steps after sampling, run on the groups of a training step.

    begin ──> add(groups that are finished) ... ──> close ──> Curated

Row and group steps begin on groups that are finished while others are still sampled; from the
first step of dataset scope on, all wait for all. The rows that come out are the same, to the bit,
as those of `rejuice run` over the same rollouts, in whatever pieces they were added.

Few pieces compute at a time. A resumable operator waits for a server, which has its own limit
(`concurrency`): it is given the rows of every piece that has come to it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from threading import BoundedSemaphore
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators import Change, Operator, ResumableOperator, Scope
from ...operators.columns import NOT_APPLICABLE, flat
from ...operators.groups import Array
from ...operators.json_text import parse_json
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import drop
from ...operators.sampling.tokenizer import Encode, TemplateRefusedError
from ...pipelines.analysis.written import Lines
from ...pipelines.engine.conditional_step import MatchLog, matching_rows
from ...pipelines.engine.frame import Frame
from ...pipelines.engine.report import DECISIONS, decisions
from ...pipelines.engine.steps import StepResult, iterate_steps, run_step
from ...pipelines.recipe.steps import Step
from ..run import NO_PROMPT_LEFT

_COMPUTING = BoundedSemaphore(4)
_THREADS = 512  # pieces at once, which mostly wait: a group each reaches any server's limit


class Curated(NamedTuple):
    """What became of the rollouts of a step."""

    table: pa.Table  # the rows that are left, with every column of the steps
    decisions: pa.Table  # row_id, step, reason of each row that is not
    notes: Mapping[str, float]  # figures of the steps, as `step/note`, summed
    # how many responses had each verdict, those of dropped rows included
    verdicts: Mapping[str, int]
    seconds: Mapping[str, float]  # of processor time that each step took
    written: tuple[StepValues, ...] = ()  # what steps wrote, to dropped rows too; of responses only
    matches: Mapping[str, MatchLog] = {}  # by step, what its condition matches

    @property
    def figures(self) -> dict[str, float]:
        """For the loggers: how many rows were dropped, `dropped/REASON`, and `note/STEP/NOTE`."""
        counts = self.decisions["reason"].value_counts().to_pylist()
        dropped = {f"dropped/{each['values']}": float(each["counts"]) for each in counts}
        return dropped | {f"note/{name}": float(n) for name, n in self.notes.items()}


def at_progress(steps: Sequence[Step], progress: float) -> tuple[Step, ...]:
    """The steps as they are at `progress` in [0, 1] of training: weights follow their schedules."""
    return tuple(step._replace(operator=_at(step.operator, progress)) for step in steps)


def _at(operator: Operator, progress: float) -> Operator:
    if isinstance(operator, RewardSumMapper):
        return operator.model_copy(update={"progress": progress})
    return operator


class Curation:
    def __init__(self, steps: Sequence[Step], pool: ThreadPoolExecutor) -> None:
        barriers = [at for at, s in enumerate(steps) if s.operator.scope is Scope.DATASET]
        at = barriers[0] if barriers else len(steps)
        self._before_barrier, self._from_barrier = steps[:at], steps[at:]
        self._pool = pool
        self._parts: list[Future[Curated]] = []

    def add(self, rollouts: pa.Table) -> None:
        """Begin on whole groups, none of which was added before."""
        self._parts.append(self._pool.submit(curate, self._before_barrier, rollouts))

    def check(self) -> None:
        """Raise now what a step has raised so far, instead of when the last group is finished."""
        for part in self._parts:
            if part.done():
                part.result()

    def close(self, order: pa.Array) -> Curated:
        parts = [future.result() for future in self._parts]
        table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
        return _joined([*parts, curate(self._from_barrier, _ordered(table, order))])


def curate(steps: Sequence[Step], rollouts: pa.Table) -> Curated:
    notes, verdicts, seconds = Counter[str](), Counter[str](), dict[str, float]()
    decided, written = [DECISIONS.empty_table()], list[StepValues | None]()
    matches = dict[str, MatchLog]()

    def run(step: Step, frame: Frame) -> StepResult:
        # Nothing is held while a server is waited for.
        with nullcontext() if isinstance(step.operator, ResumableOperator) else _COMPUTING:
            # Processor time: a thread that waits for a judge costs the training step nothing.
            return run_step(step, frame, clock=time.thread_time)

    frame = Frame.of(rollouts)
    for step, before, result, after in iterate_steps(steps, frame, run):
        name, change, frame = step.name, result.change, after
        seconds[name] = result.seconds
        notes.update({f"{name}/{note}": n for note, n in change.notes.items()})
        decided.append(decisions(before, change, name))
        written.append(StepValues.of(name, before, change))
        if "verdict" in change.columns:
            verdicts.update(_own_values(step, before, change, "verdict"))
        if found := MatchLog.of(step.operator, before):
            matches[name] = found
    return Curated(
        frame.table(),
        pa.concat_tables(decided),
        notes,
        verdicts,
        seconds,
        tuple(each for each in written if each),
        matches,
    )


def continued(curated: Curated, steps: Sequence[Step]) -> Curated:
    if not (steps and curated.table.num_rows):
        return curated
    return _joined([curated, curate(steps, curated.table)])


def _joined(parts: Sequence[Curated]) -> Curated:
    notes, verdicts, seconds = Counter[str](), Counter[str](), Counter[str]()
    matches = dict[str, MatchLog]()
    for part in parts:
        for total, own in ((notes, part.notes), (verdicts, part.verdicts), (seconds, part.seconds)):
            total.update(own)
        for name, each in part.matches.items():
            if name in matches:
                matches[name].merge(each)
            else:
                matches[name] = deepcopy(each)
    decided = pa.concat_tables([part.decisions for part in parts])
    written = tuple(each for part in parts for each in part.written)
    return Curated(parts[-1].table, decided, notes, verdicts, seconds, written, matches)


def _own_values(step: Step, frame: Frame, change: Change, column: str) -> list[Any]:
    """Only of the rows that it is about: others have what they had before."""
    written = change.columns[column]
    if step.operator.where is not None and change.parents is None:
        written = written.take(pa.array(matching_rows(step.operator, frame)))
    values: list[Any] = written.to_pylist()
    return values


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="rejuice-curation")


def _ordered(table: pa.Table, order: pa.Array) -> pa.Table:
    place: dict[str, int] = {name: at for at, name in enumerate(order.to_pylist())}
    places_N = np.array([place[name] for name in table["prompt_id"].to_pylist()], np.int64)
    rows_N = np.argsort(places_N, kind="stable")
    return table if (rows_N == np.arange(len(rows_N))).all() else table.take(rows_N)


TRAINING = "training"
"""The step of what training itself drops, in the decisions."""


def drop_rows(curated: Curated, drop_N: Array, reason: str, step: str = TRAINING) -> Curated:
    """Drop rows for a reason of the trainer's own, or of the step that is named."""
    if not drop_N.any():
        return curated
    reasons = drop({reason: drop_N})
    frame, change = Frame.of(curated.table), Change(reasons=reasons)
    dropped = decisions(frame, change, step)
    return curated._replace(
        table=frame.after(change).table(), decisions=pa.concat_tables([curated.decisions, dropped])
    )


def format_drop_counts(curated: Curated) -> str:
    counts = curated.decisions["reason"].value_counts().to_pylist()
    by_count = sorted(((c["counts"], c["values"]) for c in counts), reverse=True)
    return ", ".join(f"{reason} {count}" for count, reason in by_count) or NO_PROMPT_LEFT


def group_rows_by_prompt(table: pa.Table) -> pa.Table:
    """Make the rows of each prompt contiguous; prompts stay in the order of their first rows."""
    places = table["prompt_id"].combine_chunks().dictionary_encode().indices
    return table.take(pa.array(np.argsort(places.to_numpy(), kind="stable")))


def first_rows(names: pa.ChunkedArray) -> Array:
    """The first row of each name, ascending."""
    codes_N = names.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.sort(np.unique(codes_N, return_index=True)[1])


def drop_overlong_prompts(
    curated: Curated, encode: Encode, longest: int, *, among_N: Array | None = None
) -> Curated:
    """Drop prompts that the chat template refuses, or that have more tokens than `longest`."""
    length_N = np.zeros(curated.table.num_rows, np.int64)
    rows = np.arange(len(length_N)) if among_N is None else np.flatnonzero(among_N)
    length_N[rows] = prompt_lengths(curated.table["prompt"].take(pa.array(rows)), encode)
    refused_N = length_N == _REFUSED
    curated = drop_rows(curated, refused_N, "template_refused")
    return drop_rows(curated, length_N[~refused_N] > longest, "prompt_too_long")


_REFUSED = -1


def prompt_lengths(prompts: pa.ChunkedArray, encode: Encode) -> Array:
    """Tokens of each prompt; `_REFUSED` where the chat template cannot say it."""

    def length(chat: list[dict[str, str]]) -> int:
        try:
            return len(encode(tuple((m["role"], m["content"]) for m in chat)))
        except TemplateRefusedError:
            return _REFUSED

    return np.array([length(chat) for chat in prompts.to_pylist()], np.int64)


# --- How often to look whether groups have ended --------------------------------------
# TransferQueue notifies nobody and counts nothing: to see one group end, all keys are listed.

_SHORTEST_S, _LONGEST_S = 0.02, 1.0
_DELAY_SHARE = 0.01
"""A group is seen this late at most, as a share of the time waited."""
_LISTING_SHARE = 0.1
"""Listing takes this share of the time at most."""


def poll_interval(waited_s: float, listing_s: float) -> float:
    """Seconds until keys are listed again."""
    by_delay = min(max(_SHORTEST_S, waited_s * _DELAY_SHARE), _LONGEST_S)
    return max(by_delay, listing_s / _LISTING_SHARE)


# --- What the recipe's steps wrote to the rollouts of a training step: values.parquet ---
# curated.parquet has the rows that are left. A judge's score of a row that a filter drops later was
# paid for as well, and explains why it was dropped: here every row as sampled has what every step
# wrote to it.
#
#     response_id, prompt_id     of each row of rollouts.parquet, in that order
#     COLUMN                     what the last step that wrote it has written
#     STEP/COLUMN                what an earlier step has written, where several write one column
#
# Token ids and logprobs are in rollouts.parquet only. The metadata of the schema lists the steps.

IDS = ("response_id", "prompt_id")
_STEPS = b"rejuice.steps"
_TOKENS = frozenset({"prompt_token_ids", "response_token_ids", "response_logprobs", "turns"})


class StepValues(NamedTuple):
    step: str  # its name
    response_ids: pa.ChunkedArray  # string[N], of the rows that it saw
    columns: Mapping[str, Any]  # what it wrote, each of N rows
    without: tuple[str, ...]  # columns that it took away
    added_rows: bool  # whether it made rows; then its columns are those of rows that no file has

    @classmethod
    def of(cls, step: str, before: Frame, change: Change) -> StepValues | None:
        """What a change writes; None for rows that are no responses, such as prompts."""
        if "response_id" not in before.column_names:
            return None
        ids = before.select(["response_id"])["response_id"]
        columns = {name: each for name, each in change.columns.items() if name not in _TOKENS}
        return cls(step, ids, columns, change.without, change.parents is not None)


class RecordedStep(NamedTuple):
    name: str  # of the step, as the decisions have it
    columns: Mapping[str, str]  # what it wrote, and the column of the file in which that is
    without: Sequence[str]  # columns that it took away
    number: int  # in the recipe of the run
    reasons: Mapping[str, str]  # what they mean, as its operator says


def values_table(
    rollouts: pa.Table, steps: Sequence[Step], written: Iterable[StepValues]
) -> pa.Table:
    # Where nothing was sampled, rollouts have no columns.
    none = pa.nulls(rollouts.num_rows, pa.string())
    ids = {name: flat(rollouts[name]) if name in rollouts.column_names else none for name in IDS}
    known, lines = ids["response_id"], Lines(rollouts.num_rows)
    by_name = {step.name: step for step in steps}
    pieces_of: dict[str, list[StepValues]] = {name: [] for name in by_name}
    for each in written:
        pieces_of[each.step].append(each)
    recorded: list[dict[str, Any] | None] = []
    for name, pieces in pieces_of.items():
        if any(piece.added_rows for piece in pieces):
            break  # Neither it nor what follows is about the rows as sampled only.
        own = dict.fromkeys(column for piece in pieces for column in piece.columns)
        rest = list(pieces_of.values())[len(recorded) + 1 :]
        later = {column for each in rest for piece in each for column in piece.columns}
        columns = {each: f"{name}/{each}" if each in later else each for each in own}
        for piece in pieces:
            line_N = np.asarray(pc.index_in(flat(piece.response_ids), value_set=known))
            for column, values in piece.columns.items():
                for target in {column, columns[column]}:
                    lines.write(line_N.astype(np.int64), target, values)
        without = sorted({column for piece in pieces for column in piece.without})
        of = by_name[name].number, dict(by_name[name].operator.reasons)
        recorded.append(RecordedStep(name, columns, without, *of)._asdict())
    recorded += [None] * (len(steps) - len(recorded))
    found = {name: lines.column(name) for name in lines.names if name not in ids}
    return pa.table({**ids, **found}).replace_schema_metadata({_STEPS: json.dumps(recorded)})


def recorded_steps(schema: pa.Schema) -> list[RecordedStep | None]:
    """The steps of values.parquet, in order; None for one that made rows, and for all after it."""
    found = parse_json((schema.metadata or {}).get(_STEPS, b"[]"))
    return [None if each is None else RecordedStep(**each) for each in found]


_REWARD, _MISSING = "reward_", "_missing"


def missing_figures(values: pa.Table) -> dict[str, float]:
    """How many rows lack a reward component, as `missing/COMPONENT/REASON`; dropped ones count.

    Rows that a component is not meant for lack nothing.
    """
    found = dict[str, float]()
    for name in values.column_names:
        if not (name.startswith(_REWARD) and name.endswith(_MISSING)):
            continue
        component = name.removeprefix(_REWARD).removesuffix(_MISSING)
        reasons = values[name].filter(pc.not_equal(values[name], NOT_APPLICABLE))
        for count in reasons.value_counts().to_pylist():
            found[f"missing/{component}/{count['values']}"] = float(count["counts"])
    return found
