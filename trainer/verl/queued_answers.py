"""The queue of answers that are still to be judged.

It lies in the folders of the steps that sampled the answers: what is queued, and how old it is, is
the same for a run that was killed and resumed. What was judged is removed, once no resume needs it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from ...operators.groups import hash_each
from ..run import TrainingRun
from ..split import SAMPLES
from .curation import group_rows_by_prompt
from .schedule import plan_step
from .types import QueuedAnswers

SAMPLED_AT = "sampled_at_step"
"""Column of the training step that sampled an answer."""
_FILE = "answers.arrow"


class AnswerQueue:
    """The answers of a run that are still to be judged."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def keep(self, step: int, table: pa.Table) -> None:
        """Queue the graded answers of a step; what the step queued before a resume is replaced."""
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = table.drop_columns([name for name in table.column_names if name in SAMPLES])
        at = pa.repeat(pa.scalar(step, pa.int64()), table.num_rows)
        feather.write_feather(kept.append_column(SAMPLED_AT, at), path)

    def take(self, since: int, step: int) -> QueuedAnswers:
        """The answers of steps `since` to `step`, without those that are too old or too many.

        The newest ones stay; of the step that does not fit whole, whole prompts are drawn by a
        seeded random order. An answer that a prompt got at two steps is there once, as of the
        later step.
        """
        limits = self._run.config.verification
        steps = range(step, since - 1, -1)
        there = {at: self._read(at) for at in steps if self._path(at).exists()}
        oldest = since if limits.max_age is None else step - limits.max_age
        fresh = [table for at, table in there.items() if at >= oldest]
        stale = sum(table.num_rows for table in there.values()) - sum(map(len, fresh))
        table = pa.concat_tables(fresh, promote_options="permissive")
        unique = _drop_repeated_ids(table)
        kept = _newest(unique, limits.capacity)
        return QueuedAnswers(
            group_rows_by_prompt(kept),
            stale,
            repeated=len(table) - len(unique),
            over=len(unique) - len(kept),
            lacking=len(steps) - len(there),
        )

    def forget(self, step: int) -> None:
        """Remove the answers of all steps up to one that judges, but those that a resume needs.

        A resume repeats the steps after a checkpoint; if that is in the middle of a window, the
        answers of the steps of the window before it are judged again.
        """
        needed = set[int]()
        for saved in self._run.saved_steps():
            needed.update(range(plan_step(self._run.config, saved + 1).since, saved + 1))
        for path in self._path(step).parents[1].glob(f"*/{_FILE}"):
            at = int(path.parent.name)
            if at <= step and at not in needed:
                path.unlink()

    def _read(self, step: int) -> pa.Table:
        return feather.read_table(self._path(step))

    def _path(self, step: int) -> Path:
        return self._run.step_folder(step) / _FILE


def _drop_repeated_ids(table: pa.Table) -> pa.Table:
    """Drop rows whose id occurred before."""
    first = dict[str, int]()
    for row, name in enumerate(table["response_id"].to_pylist()):
        first.setdefault(name, row)
    return table.take(pa.array(first.values(), pa.int64()))


def _newest(table: pa.Table, capacity: int) -> pa.Table:
    """At most `capacity` rows of a table in which the newest step comes first.

    Nothing older than the step that does not fit whole is kept. Of that step, prompts are drawn in
    a seeded random order: if the last rows were cut off instead, the same late prompts would be
    lost each time, and one of them in half.
    """
    if table.num_rows <= capacity:
        return table
    steps_N = table[SAMPLED_AT].to_numpy()
    step = int(steps_N[capacity])
    first = int(np.flatnonzero(steps_N == step)[0])
    part = table.slice(first, int((steps_N == step).sum()))
    prompts = part["prompt_id"].combine_chunks().dictionary_encode()
    codes_N = prompts.indices.to_numpy()
    drawn_G = np.argsort(hash_each(prompts.dictionary, seed=step))
    fits_G = np.cumsum(np.bincount(codes_N)[drawn_G]) <= capacity - first
    kept_N = np.isin(codes_N, drawn_G[fits_G])
    return pa.concat_tables([table.slice(0, first), part.filter(pa.array(kept_N))])
