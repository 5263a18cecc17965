"""A finished run of `rejuice run`: its own recipe, its report, and what every step did.

data ──prompts──> sampling ──base──> verify ──> rewards ──> filters ──> export
                             rows as sampled, and the commits of the steps after it
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError
from ...operators.change import concatenate
from ..apply.frame import Frame
from ..apply.report import Report
from ..apply.steps import AppliedStep, StepResult, iterate_steps
from ..dataset.write import run_folder
from ..engine.commit import load as load_commit
from ..engine.plan import Plan
from ..recipe.read import load
from ..recipe.recipe import Recipe
from ..recipe.steps import Step

_SUFFIXES = (".yaml", ".yml")
_RIGHT = "give the export_path of a finished run, the folder of a training run, or RUN/steps/NUMBER"


class StoredExport(NamedTuple):
    """A run whose commits are there.

    Attributes:
        path: of the export.
        report: of the run.
        plan: of the run's own recipe, with the place of every commit.
    """

    path: Path
    report: Report
    plan: Plan

    @property
    def recipe(self) -> Recipe:
        """As it was run."""
        return self.plan.recipe

    @property
    def steps_to_base(self) -> tuple[Step, ...]:
        """Steps up to the last one that samples responses."""
        return self.recipe.steps[: sampling_steps(self.recipe.steps)]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps after it: they work on rows as sampled."""
        return self.recipe.steps[sampling_steps(self.recipe.steps) :]

    def base(self) -> Frame:
        """The rows of the run as sampled, before the first of `steps`.

        Raises:
            DataError: the run had no rows.
        """
        first = self.steps[0] if self.steps else None
        chunks = [self.plan.frame_before(at, first).table() for at in range(self._chunks)]
        if not chunks:
            raise DataError(f"{self.path} was made of no row", "give a run with rows")
        return Frame.of(pa.concat_tables(chunks, promote_options="default"))

    def applied(self, base: Frame) -> list[AppliedStep]:
        """What `steps` did to the rows of `base`, by the commits."""
        return list(iterate_steps(self.steps, base, lambda step, _: self.result(step)))

    def result(self, step: Step) -> StepResult:
        """What a step did to all rows of the run."""
        parts = [load_commit(self.plan.path(step, chunk)) for chunk in range(self._chunks)]
        sizes = [part.rows_in for part in parts]
        change = concatenate([part.change for part in parts], sizes)
        return StepResult(change, sum(sizes), sum(part.seconds for part in parts), {})

    @property
    def _chunks(self) -> int:
        return len(self.plan.source.rows)


def sampling_steps(steps: tuple[Step, ...]) -> int:
    """How many steps there are up to the last one that writes responses."""
    writes = [at for at, step in enumerate(steps, 1) if "response" in step.operator.writes()]
    return max(writes, default=0)


def open_export(path: Path) -> StoredExport:
    """The run behind an export, its run folder, or a recipe that was run.

    Raises:
        DataError: it is none of these, its commits are gone, or its data or operators have
            changed since.
    """
    export = _export_of(path)
    report = Report.read(export)
    if not report.cache:
        found = f"{export} was made by dj-process, which saves no commits"
        raise DataError(found, "rejuice run its recipe first")
    if not Path(report.cache).exists():
        raise DataError(f"the cache of this run, {report.cache}, is gone", "run it again")
    own = run_folder(export) / "recipe.yaml"
    plan = Plan.open(load(own), Path(report.cache), report.chunk_rows)
    if plan.keys[-1] != report.key or not all(plan.is_done(step) for step in plan.steps):
        found = "the data or the operators of this recipe have changed since the run"
        raise DataError(found, f"rejuice run {shlex.quote(report.recipe)} first")
    return StoredExport(export, report, plan)


def _export_of(path: Path) -> Path:
    if path.suffix in _SUFFIXES and path.is_file():
        export = load(path).head.export_path
        if not run_folder(export).exists():
            raise DataError(
                f"{path} has not been run", f"rejuice run {shlex.quote(str(path))} first"
            )
        return export
    if path.suffix == ".run" and (path / "report.json").is_file():
        return Path(
            Report.model_validate_json((path / "report.json").read_text("utf-8")).export_path
        )
    if not (run_folder(path) / "report.json").is_file():
        raise DataError(f"{path} is neither an export, a training run nor a training step", _RIGHT)
    return path
