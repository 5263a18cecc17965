"""What is kept of a training step, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...operators.groups import Groups
from ...pipelines.recipe import Step
from ..run import TrainingRun
from .curation import Curated


class Clock:
    """Processor seconds of this thread, by what they were spent on."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, on: str) -> Iterator[None]:
        """Count what is spent inside."""
        start = time.thread_time()
        yield
        self._spent[on] = self._spent.get(on, 0.0) + time.thread_time() - start

    def read(self) -> dict[str, float]:
        """What was spent since the last reading."""
        spent, self._spent = self._spent, {}
        return spent


class StepBooks:
    """Rollouts, decisions and rewards of each step, as files.

    They are written while the policy is updated.

    Args:
        run: whose they are; it may keep none.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rejuice-books")
        self._written: Future[None] | None = None

    def keep(self, step: int, part: str, rollouts: pa.Table, curated: Curated, recipe: str) -> None:
        """Write a step's folder; a step that is done again after a resume replaces it.

        Args:
            step: of training.
            part: the folder in it, for what is not the answers.
            rollouts: as sampled.
            curated: what became of them.
            recipe: that does it again.

        Raises:
            OSError: what was written before could not be.
        """
        if not self._run.config.keep_rollouts:
            return
        self.wait()
        folder = self._run.step_folder(step) / part
        self._written = self._writer.submit(self._write, folder, rollouts, curated, recipe)

    def wait(self) -> None:
        """Wait until the last step is written.

        Raises:
            OSError: it could not be.
        """
        if self._written:
            self._written.result()

    def _write(self, folder: Path, rollouts: pa.Table, curated: Curated, recipe: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rollouts, folder / "rollouts.parquet")
        pq.write_table(curated.table, folder / "curated.parquet")
        pq.write_table(curated.decisions, folder / "decisions.parquet")
        (folder / "recipe.yaml").write_text(recipe, "utf-8")

    def validate(self, step: int, table: pa.Table) -> None:
        """Write the responses of a validation."""
        folder = self._run.folder / "validations"
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{step:06d}.parquet")


def figures(curated: Curated, rollouts: pa.Table, steps: Sequence[Step]) -> dict[str, float]:
    """What a step is known by, for the loggers: numbers under `rejuice/`."""
    table, found = curated.table, dict[str, float]()
    written = {name for step in steps for name in step.operator.writes()}
    for name in sorted(written & set(table.column_names)):
        if name == "reward" or (name.startswith("reward_") and not name.endswith("_missing")):
            mean = pc.mean(table[name]).as_py()
            if mean is not None:
                found[f"rejuice/{name}"] = mean
    if curated.verdicts:
        verified = sum(curated.verdicts.values())
        found["rejuice/pass_rate"] = curated.verdicts.get("correct", 0) / verified
    if "verdict" in table.column_names and table.num_rows:
        right_N = np.asarray(pc.equal(table["verdict"], "correct"))
        groups = Groups.of(table)
        share_G = groups.sum(right_N) / groups.sizes_G
        found["rejuice/mixed_groups"] = float(((share_G > 0) & (share_G < 1)).mean())
    found["rejuice/response_tokens"] = float(
        pc.mean(pc.list_value_length(rollouts["response_token_ids"])).as_py()
    )
    found["rejuice/rows_sampled"] = rollouts.num_rows
    found["rejuice/rows_trained"] = table.num_rows
    for count in curated.decisions["reason"].value_counts().to_pylist():
        found[f"rejuice/dropped/{count['values']}"] = count["counts"]
    found.update({f"rejuice/note/{name}": float(n) for name, n in curated.notes.items()})
    return found
