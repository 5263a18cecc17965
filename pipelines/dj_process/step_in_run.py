"""A step of ours in a run of `dj-process`: its place in the recipe, and its audit log."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from data_juicer.ops.base_op import OPERATORS
from loguru import logger

from ...operators import Operator, RejuiceError
from ..dataset.files import AUDIT, remove_folder, run_folder, write_file
from ..dataset.spec import DatasetSpec
from ..engine.report import Report, StepLog, StepReport, write_decisions
from ..recipe.head import DatasetBlock, dataset_paths, parts, position, selection
from ..recipe.recipe import YAMLError, parse_document
from ..recipe.steps import Step, step_names

# --- The run of Data-Juicer that a step of ours is called in --------------------------


class CurrentRun(NamedTuple):
    settings: Mapping[str, Any]  # its configuration
    # entries of `process` that it does not run again, as it goes on from a checkpoint
    skipped: list[dict[str, Any]]
    process: list[dict[str, Any]]  # the entries that it runs
    export_path: str  # what it writes


def current_run() -> CurrentRun | None:
    """The run that called this function; None where a step is used from Python."""
    from data_juicer.core.executor.base import ExecutorBase

    # Data-Juicer's global configuration stays when the run has ended, and is the last of several.
    frame = inspect.currentframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), ExecutorBase):
        frame = frame.f_back
    if frame is None:
        return None
    executor = frame.f_locals["self"]
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_checkpoint.py::test_a_resumed_run_ends_as_if_it_had_never_stopped
    manager: Any = getattr(executor, "ckpt_manager", None)
    skipped = []
    # `ray_partitioned` has a manager of another kind, and begins with the first step.
    if getattr(manager, "ckpt_available", False):
        # The file still has what the run began with; the manager adds what the run has done.
        skipped = json.loads(Path(manager.ckpt_op_record).read_text("utf-8"))
    settings = executor.cfg
    return CurrentRun(settings, skipped, settings.process, str(executor.exporter.export_path))


# --- What is ours among operators, and in the `process` of a recipe -------------------

ProcessEntry = dict[str, Any]
"""An entry of `process`: an operator's name and its fields."""


def operator_of(name: str) -> type[Operator] | None:
    """The operator of ours that Data-Juicer knows by a name; None where it is another's."""
    operator: type[Operator] | None = getattr(OPERATORS.modules.get(name), "operator_class", None)
    return operator


def is_skipped(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of `process` is a step of ours that exists only in training."""
    ((name, fields),) = entry.items()
    return operator_of(name) is not None and (fields or {}).get("on") == "train"


def is_ours(op: Any) -> bool:
    return hasattr(op, "operator_class")


def has_ours(process: Iterable[Mapping[str, Any]]) -> bool:
    return any(operator_of(name) is not None for entry in process for name in entry)


# --- How a failure of ours ends a run of Data-Juicer ----------------------------------

_COMMANDS = frozenset({"dj-process", "dj-analyze", "process_data", "analyze_data"})
"""The command line, also as a module or a script."""


def stop(error: RejuiceError) -> NoReturn:
    """Raise the error; from Data-Juicer's command line, end the process with its one line.

    Data-Juicer's executors would print three traces of it; `SystemExit` passes them. Who calls
    Data-Juicer from Python, as `dj-mcp` does, has handlers of exceptions.
    """
    if Path(sys.argv[0]).stem not in _COMMANDS:
        raise error
    logger.error(str(error))
    logger.disable("data_juicer")
    raise SystemExit(1)


# --- The step -------------------------------------------------------------------------


class StepInRun:
    """A step of ours in a run of `dj-process`: its place in the recipe, and its audit log."""

    def __init__(self, operator: Operator, entry: Any, run: CurrentRun | None) -> None:
        """Find the place of a step by the entry of `process` that it was built from.

        A step that is used without a run, or is none of its entries, counts as the first and writes
        nothing.
        """
        process = [*run.skipped, *run.process] if run else []
        # The same object: equal entries may stand in `process` twice.
        at = next((at for at, each in enumerate(process) if each is entry), None)
        self.run, process = (None, []) if at is None else (run, process)
        names = step_names([next(iter(each)) for each in process])
        name = operator.name() if at is None else names[at]
        self.step = Step((at or 0) + 1, name, operator)
        before = zip(names[:at], process[:at], strict=True)
        self._before = [n for n, each in before if has_ours([each]) and not is_skipped(each)]
        self.is_first = not self._before

    @property
    def head(self) -> dict[str, str]:
        settings = self.run.settings if self.run else {}
        return {
            "project_name": str(settings.get("project_name")),
            "recipe": ", ".join(map(str, settings.get("config") or [])),
            "dataset_path": str(settings.get("dataset_path")),
            "export_path": self.run.export_path if self.run else "",
        }

    @property
    def dataset(self) -> DatasetSpec:
        """What the run reads; without parts where it is not known, or no dataset of ours."""
        settings = self.run.settings if self.run else {}
        path, block = settings.get("dataset_path"), settings.get("dataset")
        with suppress(ValueError):  # Data-Juicer reads more kinds of them, such as its formatters'.
            paths = dataset_paths(path) if path else None
            found = parts(paths, DatasetBlock.model_validate(block) if block and not path else None)
            columns = selection(settings.get("columns"))
            return DatasetSpec(found, selection=columns, split=settings.get("split"))
        return DatasetSpec(())

    def where(self, step: Step) -> str:
        """Where a message about a step of the run points, as `Recipe.where`."""
        return self._position(step.number, f"step {step.number} {step.name}")

    def located(self, error: RejuiceError) -> RejuiceError:
        """An error of the step, with the recipe's file and line in front."""
        known = self.run is None or not error.where.startswith("step ")
        return error if known else error.at(self._position(self.step.number))

    def _position(self, number: int, place: str = "") -> str:
        path, line = Path(self.head["recipe"]), None
        with suppress(OSError, YAMLError, LookupError):
            line = parse_document(path.read_text("utf-8")).lines[f"process.{number - 1}"]
        return position(path, line, place)

    def write(self, log: StepLog) -> None:
        """Write the decisions of the step, and add its line to the report."""
        if self.run is None or "://" in self.run.export_path:
            return  # Used from Python, or an export to an object store, where no folder is.
        export_path = Path(self.run.export_path)
        folder = run_folder(export_path)
        if self.is_first:
            # The old files are about rows that are about to be replaced; labels are a person's.
            labels = folder / AUDIT
            text = labels.read_text("utf-8") if labels.is_file() else None
            remove_folder(folder)
            if text is not None:
                write_file(labels, text)
        done = self._done(export_path)
        write_decisions(folder / self.step.label, log.take_decisions())
        line = log.report()
        Report.of(
            [*done, *_between(done, line), line], key="dj-process", chunk_rows=0, **self.head
        ).write(folder)

    def _done(self, export_path: Path) -> Sequence[StepReport]:
        """The lines of the report up to our last step before this one."""
        # A run that was stopped may have written more of them than its checkpoint has steps.
        if self.is_first:
            return ()
        lines = tuple[StepReport, ...]()
        with suppress(RejuiceError):
            lines = Report.read(export_path).steps
        ends = [at for at, line in enumerate(lines, 1) if line.step == self._before[-1]]
        return lines[: ends[-1]] if ends else ()


def _between(done: Sequence[StepReport], line: StepReport) -> Iterator[StepReport]:
    """Yield what Data-Juicer's own operators did since our last step, as one line of the funnel."""
    change = line.rows_in - done[-1].rows_out if done else 0
    if change:
        yield StepReport(
            step="data_juicer",
            rows_in=done[-1].rows_out,
            rows_out=line.rows_in,
            added=max(change, 0),
            dropped={"data_juicer": -change} if change < 0 else {},
            seconds=0.0,
            cached=False,
            notes={},
            columns={},
        )
