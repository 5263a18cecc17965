"""Which prompts each training step samples, where the recipe's steps choose them.

    prompts of the run ──> the steps from the first that is of a training step on ──> an order
    a step takes the first ones, and its refills the next

The choice is a function of the prompts, the seed, the step and the history of the steps before, so
that a run that is resumed from a checkpoint chooses as if it had not been interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...operators.columns import flat, numbers
from ...operators.errors import DataError
from ...operators.groups import Array
from ...operators.mapper.history_mapper import VISITS, HistoryMapper
from ...operators.training_step import PROMPT_ROW, RANK, PerStepOperator, StepContext, last_visits
from ...pipelines.recipe.steps import Step
from ..run import TrainingRun
from .curation import Curated, curate, format_drop_counts
from .history import read_history

_PROGRESS = b"rejuice.progress"


def progress_of(schema: pa.Schema) -> float | None:
    """At which a stored choice was made; None: it is not known."""
    found = (schema.metadata or {}).get(_PROGRESS)
    return None if found is None else float(found)


class PromptOrder(NamedTuple):
    rows: Array  # int64[E], which of all prompts: those that no step has dropped
    curated: Curated  # what the steps made of them


def order(prompts: pa.Table, steps: Sequence[Step], context: StepContext) -> PromptOrder:
    """The order in which a training step samples prompts, of unique ids and with `prompt_row`.

    They come by `choice_rank`. Without one, and where it is equal, the one that was visited longest
    ago comes first, and then a random one.
    """
    curated = curate(steps, prompts)
    kept = curated.table
    if not kept.num_rows:
        return PromptOrder(np.zeros(0, np.int64), curated)
    rows = np.asarray(kept[PROMPT_ROW])
    if np.bincount(rows).max() > 1:
        right = "steps before the sampling drop prompts, and make none"
        raise DataError("a step has made several rows of one prompt", right)
    rank_E = numbers(kept, RANK) if RANK in kept.column_names else np.zeros(len(rows))
    rank_E = np.where(np.isnan(rank_E), np.inf, rank_E)  # Those without one come last.
    order_E = np.argsort(rank_E, kind="stable")
    sorted_E = rank_E[order_E]
    if (sorted_E[1:] == sorted_E[:-1]).any():
        # Of all prompts, so that what is random for one does not depend on which others are left.
        tie_P = np.random.default_rng([context.seed, context.number]).random(prompts.num_rows)
        order_E = np.lexsort([tie_P[rows], last_visits(context.visits, rows), rank_E])
    return PromptOrder(rows[order_E], curated)


class PromptChoice:
    def __init__(self, run: TrainingRun) -> None:
        self._run, prompts = run, run.prompts("train")
        self._names = flat(prompts["prompt_id"].cast(pa.string()))
        needed = {n for x in run.split.choosing for n in x.operator.needs_of(prompts.column_names)}
        needed = {*prompts.column_names} if "*" in needed else needed
        # A rank in the dataset is that of an earlier choice.
        own_rank = any(RANK in step.operator.writes() for step in run.split.before)
        needed -= {PROMPT_ROW} if own_rank else {PROMPT_ROW, RANK}
        needed |= {RANK} if own_rank else set()
        own = prompts.select(sorted({"prompt_id"} | (needed & {*prompts.column_names})))
        self.prompts = own.append_column(PROMPT_ROW, pa.array(np.arange(len(self._names))))
        self._visits, self._known = self._of_prompts(read_earlier(run)), 0
        self.step, self._progress = 0, 0.0  # of the step that has taken prompts last
        self._taken, self._left = list[int](), np.zeros(0, np.int64)
        self._order: PromptOrder | None = None
        self._ahead: tuple[int, float, PromptOrder] | None = None

    def take(self, step: int, n: int, without: Sequence[int] = ()) -> list[int]:
        """The rows of the next prompts that a step samples, from the first at its beginning.

        They are fewer than n where the recipe's steps have left no more. Those `without` are
        sampled already, for steps before it.
        """
        if step != self.step:
            self._progress, found = self._ordered(step)
            if not len(found.rows) and not without:
                counts = format_drop_counts(found.curated)
                right = "let the steps before the sampling drop less, or end training earlier"
                raise DataError(f"step {step}: no prompt is left to sample ({counts})", right)
            self._order, self.step, self._taken = found, step, []
            self._left = found.rows
            if without:
                self._left = self._left[~np.isin(self._left, np.array(without))]
        rows: list[int] = self._left[:n].tolist()
        self._left = self._left[n:]
        self._taken += rows
        return rows

    def used_up(self, step: int) -> str:
        """Why no prompt is left for a step; empty if some are."""
        _, found = self._ordered(step)
        return "" if len(found.rows) else format_drop_counts(found.curated)

    def _ordered(self, step: int) -> tuple[float, PromptOrder]:
        """The progress at a step, and its prompts; `used_up` and `take` compute them once."""
        if self._ahead is None or self._ahead[0] != step:
            context = self._context(step)
            found = order(self.prompts, self._steps(context), context)
            self._ahead = step, context.progress, found
        return self._ahead[1:]

    @property
    def taken(self) -> int:
        return len(self._taken)

    @property
    def left(self) -> int:
        return len(self._left)

    def steps(self, number: int, progress: float | None = None) -> tuple[Step, ...]:
        """By default the progress is by the recipe, whose number of steps may be another now."""
        context = self._context(number)
        return self._steps(context if progress is None else context._replace(progress=progress))

    def _steps(self, context: StepContext) -> tuple[Step, ...]:
        return tuple(
            step._replace(operator=step.operator.at_step(context))
            if isinstance(step.operator, PerStepOperator)
            else step
            for step in self._run.split.choosing
        )

    def _context(self, step: int) -> StepContext:
        while self._known < step - 1:
            self.add(self._known + 1, read_history(self._run, self._known + 1))
        run, config = self._run, self._run.config
        progress, prompts = run.progress(step), config.prompts_per_step
        return StepContext(step, progress, prompts, config.seed, self._visits)

    def add(self, step: int, visits: pa.Table) -> None:
        """Add the history of a step, which is not read from its file then."""
        self._visits = pa.concat_tables([self._visits, self._of_prompts(visits)])
        self._known = step

    def _of_prompts(self, visits: pa.Table) -> pa.Table:
        """The visits of prompts of the run, and which prompts they are of."""
        row_V = pc.index_in(flat(visits["prompt_id"]), value_set=self._names)
        own = visits.select(VISITS.names).append_column(PROMPT_ROW, row_V.cast(pa.int64()))
        return own.filter(row_V.is_valid())

    @property
    def table(self) -> pa.Table:
        """The prompts that the step has taken, in order, with what the steps wrote to them."""
        assert self._order is not None
        rows, kept = pa.array(self._taken, pa.int64()), self._order.curated.table
        written = {n for step in self._run.split.choosing for n in step.operator.writes()}
        at = pc.index_in(rows, value_set=flat(kept[PROMPT_ROW]))
        columns = {name: flat(kept[name]).take(at) for name in kept.column_names if name in written}
        table = pa.table({"prompt_id": self._names.take(rows), **columns})
        return table.replace_schema_metadata({_PROGRESS: repr(self._progress)})

    def figures(self) -> dict[str, float]:
        assert self._order is not None
        found = {"eligible": float(len(self._order.rows)), **self._order.curated.figures}
        return {f"choice/{name}": value for name, value in found.items()}


# --- The visits of an earlier run -----------------------------------------------------
# They are copied once, so that a run that is resumed has the same, whatever became of the other.

_EARLIER = "earlier-history.parquet"


def write_earlier(run: TrainingRun) -> None:
    file = run.folder / "prompts" / _EARLIER
    file.unlink(missing_ok=True)
    for step in run.split.choosing:
        if isinstance(step.operator, HistoryMapper) and step.operator.run is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            visits, _ = step.operator.earlier()
            pq.write_table(visits.select(VISITS.names), file)


def read_earlier(run: TrainingRun) -> pa.Table:
    file = run.folder / "prompts" / _EARLIER
    return pq.read_table(file) if file.exists() else VISITS.empty_table()
