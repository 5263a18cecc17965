"""A step of ours in a run of `dj-process`: its place in the recipe, and its audit log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...operators import Scope, get, installed
from ..apply.audit_log import StepLog
from ..apply.report import Report, StepReport
from ..dataset.arrow_files import write_arrow
from ..dataset.write import run_folder
from ..recipe.head import position
from ..recipe.steps import Step, step_names
from ..recipe.yaml_text import YAMLError, parse_document


class StepInRun:
    """A step of ours in a run of `dj-process`: its place in the recipe, and its audit log."""

    def __init__(
        self,
        step: Step,
        before: Sequence[str],
        resumed: bool,
        export_path: str | None,
        head: dict[str, str],
        process: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.step, self.export_path, self.head = step, export_path, head
        self.process = process
        ours = [get(name) for name in before if name in installed()]
        self.is_first = not ours and not resumed
        grouped = step.operator.scope is not Scope.ROW
        self.is_first_with_groups = grouped and all(kind.scope is Scope.ROW for kind in ours)

    @classmethod
    def of(cls, juicer: Any, exporter: Any) -> StepInRun:
        """The step of an operator, found in the configuration of the run."""
        from data_juicer.config import config

        # The executor for Ray passes no exporter; the configuration is a global of Data-Juicer.
        settings = getattr(config, "global_cfg", None) or {}
        process = settings.get("process") or []
        kinds = [next(iter(entry)) for entry in process]
        # An operator of Data-Juicer keeps the entry of `process` that it was built from.
        entry = getattr(juicer, "_op_cfg", None)
        at = next((at for at, other in enumerate(process) if other is entry), None)
        name = juicer.operator.name()
        step = Step(1, name, juicer.operator)
        if at is not None:
            step = Step(at + 1, step_names(kinds)[at], juicer.operator)
        path = getattr(exporter, "export_path", None) or settings.get("export_path")
        # A run that is resumed from a checkpoint has only the remaining steps in `process`.
        resumed = bool(settings.get("use_checkpoint"))
        head = {
            "project_name": str(settings.get("project_name")),
            "recipe": ", ".join(map(str, settings.get("config") or [])),
            "dataset_path": str(settings.get("dataset_path")),
            "export_path": str(path),
        }
        return cls(step, kinds[:at] if at else [], resumed, path, head, process)

    def where(self, step: Step) -> str:
        """Where a message about a step of the run points, as `Recipe.where`."""
        path, line = Path(self.head["recipe"]), None
        with suppress(OSError, YAMLError, LookupError):
            line = parse_document(path.read_text("utf-8")).item_lines["process"][step.number - 1]
        return position(path, line, f"step {step.number} {step.name}")

    def write(self, log: StepLog) -> None:
        """Write the decisions of the step, and add its line to the report."""
        if self.export_path is None or "://" in self.export_path:
            return  # No export (run from Python), or one in an object store, where no folder is.
        export_path = Path(self.export_path)
        folder = run_folder(export_path)
        if self.is_first:
            # The old files are about rows that are about to be replaced.
            shutil.rmtree(folder, ignore_errors=True)
        write_arrow(folder / self.step.label / "decisions.arrow", log.take_decisions())
        line = log.report()
        done = () if self.is_first else Report.read(export_path).steps
        Report.of(
            [*done, *_between(done, line), line], key="dj-process", chunk_rows=0, **self.head
        ).write(folder)


def _between(done: Sequence[StepReport], line: StepReport) -> Iterator[StepReport]:
    """What Data-Juicer's own operators did since our last step, as one line of the funnel."""
    change = line.rows_in - done[-1].rows_out if done else 0
    if change:
        dropped = {"data_juicer": -change} if change < 0 else {}
        before = done[-1].rows_out
        added = max(change, 0)
        yield StepReport(
            step="data_juicer",
            rows_in=before,
            rows_out=line.rows_in,
            added=added,
            dropped=dropped,
            seconds=0.0,
            cached=False,
            notes={},
            columns={},
        )
