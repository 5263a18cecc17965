"""The run of Data-Juicer that a step of ours is called in."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


class CurrentRun(NamedTuple):
    """A run of Data-Juicer that is under way.

    Attributes:
        settings: its configuration.
        skipped: entries of `process` that it does not run again, as it goes on from a checkpoint.
        process: the entries that it runs.
        export_path: what it writes.
    """

    settings: Mapping[str, Any]
    skipped: list[dict[str, Any]]
    process: list[dict[str, Any]]
    export_path: str


def current_run() -> CurrentRun | None:
    """The run that called this function; None where none did, as when a step is used from Python.

    Data-Juicer's global configuration is no answer: it stays when the run has ended, and it is that
    of the last of several.
    """
    executor = next(_executors(inspect.currentframe()), None)
    if executor is None:
        return None
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_checkpoint.py::test_a_resumed_run_ends_as_if_it_had_never_stopped
    manager: Any = getattr(executor, "ckpt_manager", None)
    skipped = []
    # `ray_partitioned` has a manager of another kind, and begins with the first step.
    if getattr(manager, "ckpt_available", False):
        # The file still has what the run began with; the manager adds what the run has done.
        skipped = json.loads(Path(manager.ckpt_op_record).read_text("utf-8"))
    settings = executor.cfg
    return CurrentRun(settings, skipped, settings.process, str(executor.exporter.export_path))


def _executors(frame: FrameType | None) -> Iterator[Any]:
    """The executors of Data-Juicer whose methods are being called, the innermost first."""
    from data_juicer.core.executor.base import ExecutorBase

    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, ExecutorBase):
            yield owner
        frame = frame.f_back
