"""The files that are kept of a training step, and the figures that are logged of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...operators.columns import RIGHT, WRONG, right_and_wrong
from ...operators.groups import Groups
from ...pipelines.dataset.helper_columns import filled
from ...pipelines.dataset.write import mark_written
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.train import ONE_SET
from ..run import TrainingRun
from .curation import Curated
from .figures import missing_figures


class Clock:
    """Processor seconds of this thread, by what they were spent on."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, on: str) -> Iterator[None]:
        """Count the time that is spent inside."""
        start = time.thread_time()
        yield
        self._spent[on] = self._spent.get(on, 0.0) + time.thread_time() - start

    def read(self) -> dict[str, float]:
        """The time that was spent since the last reading."""
        spent, self._spent = self._spent, {}
        return spent


class StepFiles:
    """Rollouts, decisions and rewards of each step, as files.

    They are written while the policy is updated.

    Args:
        run: the run that they belong to; its `keep_rollouts` may be off.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rejuice-step-files")
        self._written: Future[None] | None = None

    def keep(self, step: int, part: str, tables: Mapping[str, pa.Table], recipe: str) -> None:
        """Write a step's folder; a step that is done again after a resume replaces it.

        Raises:
            OSError: the files of the step before could not be written.
        """
        if not self._run.config.keep_rollouts:
            return
        self.wait()
        folder = self._run.step_folder(step) / part
        # A replay of the step computes again what other steps of the recipe have written.
        names = [name for each in self._run.recipe.steps for name in each.operator.writes()]
        marked = {name: _marked(self._kept(name, table), names) for name, table in tables.items()}
        self._written = self._writer.submit(_write, folder, marked, recipe)

    def wait(self) -> None:
        """Wait until the last step is written.

        Raises:
            OSError: it could not be written.
        """
        if self._written:
            self._written.result()

    def validate(self, step: int, name: str, table: pa.Table) -> None:
        """Write the responses to the prompts of a validation set."""
        folder = self._run.folder / "validations"
        folder = folder if name == ONE_SET else folder / name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self._kept("", table), folder / f"{step:06d}.parquet")

    def _kept(self, name: str, table: pa.Table) -> pa.Table:
        """A table as it is written: with helper columns where an export has them.

        Rollouts are what the step's recipe begins with, and keep those of their prompts; values
        are read by what repeats the steps.
        """
        if name in ("rollouts", "values"):
            return table
        return filled(table.select(self._run.recipe.head.exported(table.column_names)))


def _marked(table: pa.Table, written: Sequence[str]) -> pa.Table:
    return table.replace_schema_metadata(mark_written(table.schema, written).metadata)


def _write(folder: Path, tables: Mapping[str, pa.Table], recipe: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "recipe.yaml").write_text(recipe, "utf-8")


def response_figures(
    curated: Curated, rollouts: pa.Table, steps: Sequence[Step]
) -> dict[str, float]:
    """The figures of responses, for the loggers."""
    table, found = curated.table, dict[str, float]()
    written = {name for step in steps for name in step.operator.writes()}
    for name in sorted(written & set(table.column_names)):
        if name == "reward" or (name.startswith("reward_") and not name.endswith("_missing")):
            mean = pc.mean(table[name]).as_py()
            if mean is not None:
                found[name] = mean
    # Failures to grade are neither right nor wrong.
    if graded := sum(curated.verdicts.get(verdict, 0) for verdict in (RIGHT, *WRONG)):
        found["pass_rate"] = curated.verdicts.get(RIGHT, 0) / graded
    if curated.verdicts and table.num_rows:
        right_N, wrong_N = right_and_wrong(table["verdict"])
        groups = Groups.of(table)
        mixed_G = (groups.sum(right_N) > 0) & (groups.sum(wrong_N) > 0)
        found["mixed_groups"] = float(mixed_G.mean())
    lengths = pc.list_value_length(rollouts["response_token_ids"])
    found["response_tokens"] = float(pc.mean(lengths).as_py() or 0.0)
    found["rows_sampled"] = rollouts.num_rows
    found["rows_trained"] = table.num_rows
    for count in curated.decisions["reason"].value_counts().to_pylist():
        found[f"dropped/{count['values']}"] = count["counts"]
    found.update(missing_figures(rollouts, steps, curated.written))
    found.update({f"note/{name}": float(n) for name, n in curated.notes.items()})
    return found
