"""The steps behind sampling, run on the groups of a training step.

    begin ──> add(groups that are finished) ... ──> close ──> Curated

Row and group steps begin on groups that are finished while others are still sampled; from the
first step of dataset scope on, all wait for all. The rows that come out are the same, to the bit,
as those of `rejuice run` over the same rollouts, in whatever pieces they were added.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, Operator, RejuiceError, Scope
from ...operators.groups import Array
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import drop
from ...operators.sampling.tokenizer import Encode, TemplateRefusedError
from ...pipelines.apply.apply import change_of
from ...pipelines.apply.frame import Frame
from ...pipelines.engine.finish import DECISIONS, decisions
from ...pipelines.recipe.recipe import Step

_AT_ONCE = 4  # pieces in work; a step that waits for a server leaves the others to go on


class Curated(NamedTuple):
    """What became of the rollouts of a step.

    Attributes:
        table: the rows that are left, with every column of the steps.
        decisions: row_id, step, reason of each row that is not.
        notes: figures of the steps, as `step/note`, summed.
        verdicts: how many responses had each verdict, those of dropped rows included.
        seconds: of processor time that each step took.
    """

    table: pa.Table
    decisions: pa.Table
    notes: Mapping[str, float]
    verdicts: Mapping[str, int]
    seconds: Mapping[str, float]


class _Part(NamedTuple):
    frame: Frame
    decisions: list[pa.Table]
    notes: Counter[str]
    verdicts: Counter[str]
    seconds: dict[str, float]


def at_progress(steps: Sequence[Step], progress: float) -> tuple[Step, ...]:
    """The steps as they are at `progress` in [0, 1] of training: weights follow their schedules."""
    return tuple(step._replace(operator=_at(step.operator, progress)) for step in steps)


def _at(operator: Operator, progress: float) -> Operator:
    if isinstance(operator, RewardSumMapper):
        return operator.model_copy(update={"progress": progress})
    return operator


class Curation:
    """Runs steps on groups as they come.

    Args:
        steps: the steps behind sampling, in order.
        pool: threads to run them in.
    """

    def __init__(self, steps: Sequence[Step], pool: ThreadPoolExecutor) -> None:
        barriers = [at for at, s in enumerate(steps) if s.operator.scope is Scope.DATASET]
        at = barriers[0] if barriers else len(steps)
        self._apart, self._together = steps[:at], steps[at:]
        self._pool = pool
        self._parts: list[Future[_Part]] = []

    def add(self, rollouts: pa.Table) -> None:
        """Begin on whole groups, which no other piece has."""
        self._parts.append(self._pool.submit(_run, self._apart, rollouts))

    def check(self) -> None:
        """See whether all is well so far, rather than wait for the last group to hear of it.

        Raises:
            RejuiceError: what a step raised, with its name.
        """
        for part in self._parts:
            if part.done():
                part.result()

    def close(self, order: pa.Array) -> Curated:
        """The outcome, once everything is added.

        Args:
            order: string[G], the prompt_id of every group, in the order the rows are to have.

        Raises:
            RejuiceError: what a step raised, with its name.
        """
        parts = [future.result() for future in self._parts]
        tables = [part.frame.table() for part in parts]
        table = pa.concat_tables(tables, promote_options="permissive")
        parts.append(_run(self._together, _ordered(table, order)))
        return _closed(parts)


def curate(steps: Sequence[Step], rollouts: pa.Table) -> Curated:
    """Run steps on rows that are all there."""
    return _closed([_run(steps, rollouts)])


def _closed(parts: Sequence[_Part]) -> Curated:
    """The books of all parts; the rows are those of the last."""
    found = [each for part in parts for each in part.decisions]
    notes, verdicts = Counter[str](), Counter[str]()
    for part in parts:  # A sum of counters would leave out what is 0.
        notes.update(part.notes)
        verdicts.update(part.verdicts)
    seconds: dict[str, float] = {}
    for part in parts:
        for name, spent in part.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + spent
    books = pa.concat_tables([DECISIONS.empty_table(), *found])
    table = parts[-1].frame.table()
    return Curated(table, books, dict(notes), dict(verdicts), seconds)


def threads() -> ThreadPoolExecutor:
    """A pool for curations."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rejuice-curation")


def _ordered(table: pa.Table, order: pa.Array) -> pa.Table:
    place: dict[str, int] = {name: at for at, name in enumerate(order.to_pylist())}
    places_N = np.array([place[name] for name in table["prompt_id"].to_pylist()], np.int64)
    rows_N = np.argsort(places_N, kind="stable")
    return table if (rows_N == np.arange(len(rows_N))).all() else table.take(rows_N)


def _run(steps: Sequence[Step], rollouts: pa.Table) -> _Part:
    part = _Part(Frame.of(rollouts), [], Counter(), Counter(), {})
    frame = part.frame
    for step in steps:
        start = time.thread_time()
        try:
            change = change_of(step.operator, frame)
        except RejuiceError as error:
            raise error.at(f"step {step.number} {step.name}") from error.__cause__
        part.decisions.append(decisions(frame, change, step.name))
        frame = frame.after(change)
        part.notes.update({f"{step.name}/{note}": value for note, value in change.notes.items()})
        if "verdict" in change.columns:
            part.verdicts.update(change.columns["verdict"].to_pylist())
        part.seconds[step.name] = time.thread_time() - start
    return part._replace(frame=frame)


def without(curated: Curated, drop_N: Array, reason: str) -> Curated:
    """The outcome less some rows, which the trainer itself drops for a reason."""
    if not drop_N.any():
        return curated
    reasons = drop({reason: drop_N})
    frame, change = Frame.of(curated.table), Change(reasons=reasons)
    books = pa.concat_tables([curated.decisions, decisions(frame, change, "training")])
    return curated._replace(table=frame.after(change).table(), decisions=books)


def together(table: pa.Table) -> pa.Table:
    """Rows of a prompt next to each other, prompts in the order in which they first appear."""
    places = table["prompt_id"].combine_chunks().dictionary_encode().indices
    return table.take(pa.array(np.argsort(places.to_numpy(), kind="stable")))


def that_fit(
    curated: Curated, encode: Encode, longest: int, *, among_N: Array | None = None
) -> Curated:
    """Less prompts that the chat template refuses, or that have more tokens than `longest`.

    Args:
        curated: a prompt in each row.
        encode: token ids of a chat.
        longest: in tokens.
        among_N: which rows are looked at; None: all.
    """
    length_N = np.zeros(curated.table.num_rows, np.int64)
    rows = np.arange(len(length_N)) if among_N is None else np.flatnonzero(among_N)
    length_N[rows] = _lengths(curated.table["prompt"].take(pa.array(rows)), encode)
    refused_N = length_N == _REFUSED
    curated = without(curated, refused_N, "template_refused")
    return without(curated, length_N[~refused_N] > longest, "prompt_too_long")


_REFUSED = -1


def _lengths(prompts: pa.ChunkedArray, encode: Encode) -> Array:
    """Tokens of each prompt; `_REFUSED` where the chat template cannot say it."""

    def length(chat: list[dict[str, str]]) -> int:
        try:
            return len(encode(tuple((m["role"], m["content"]) for m in chat)))
        except TemplateRefusedError:
            return _REFUSED

    return np.array([length(chat) for chat in prompts.to_pylist()], np.int64)
