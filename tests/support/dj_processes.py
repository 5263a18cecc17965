"""`dj-process` again and again in one process: Data-Juicer is imported, and Ray started, once."""

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NamedTuple

OFFLINE = {"RAY_USAGE_STATS_ENABLED": "0", "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
"""Environment variables of `dj-process`, by which nothing of it asks the network."""


class DjEnded(NamedTuple):
    """How `dj-process` ended.

    Attributes:
        returncode: its exit status.
        log: what it wrote to stdout and stderr.
    """

    returncode: int
    log: str


class _Run(NamedTuple):
    """What is to be run; see `DjProcesses.run`."""

    folder: Path
    words: tuple[str, ...]
    log: Path


class DjProcesses:
    """Runs `dj-process` with one command line after the other, in a process of their own.

    Args:
        folder: where it is started, and where the logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "dj-process.log"
        self._server, theirs = Pipe()
        file = theirs.fileno()
        code = f"import sys; sys.path = {sys.path!r}; from dj_processes import serve; serve({file})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, **OFFLINE},
            pass_fds=[file],
        )
        theirs.close()

    def run(self, folder: Path, *words: str) -> DjEnded:
        """Run the command with these words in a folder."""
        try:
            self._server.send(_Run(folder, words, self._log))
            status = self._server.recv()
        except (EOFError, OSError):
            log = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
            raise AssertionError(f"its process has died: {log[-3000:]}") from None
        return DjEnded(status, self._log.read_text("utf-8", "replace"))

    def close(self) -> None:
        """End the process, and Ray with it."""
        self._server.close()
        self._process.wait()


def serve(file: int) -> None:
    """Run the command whenever the tests ask for it, until they have ended.

    Args:
        file: the number of an open file, the server's end of the pipe.
    """
    tests = Connection(file)
    _keep_workers_of_ray()
    while True:
        try:
            asked = tests.recv()
        except EOFError:
            return
        tests.send(_status(asked))


def _keep_workers_of_ray() -> None:
    """Let a worker outlive a task that is cancelled.

    Data-Juicer looks at one row of a dataset to learn its columns. Ray Data then kills the worker
    that still reads, and the next one spends six seconds of processor time on imports.
    """
    # private: ray==2.60.0, tests/pipelines/dj_process/test_shipped_recipes.py::test_ray_gives_what_rejuice_gives
    from ray.data._internal.execution.interfaces.physical_operator import OpTask

    cancel = OpTask._cancel
    OpTask._cancel = lambda task, force: cancel(task, force=False)


def _status(run: _Run) -> int:
    from data_juicer.tools.process_data import main
    from loguru import logger

    os.chdir(run.folder)
    sys.argv = ["dj-process", *run.words]
    with _output_to(run.log):
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            logger.enable("data_juicer")  # Where a step of ours has ended a run, it is off.
            logger.complete()  # Data-Juicer's log is written by a thread.
    return 0


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """What is written to stdout and stderr, by whichever library, goes to a new file."""
    before = [os.dup(number) for number in (1, 2)]
    with path.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, each in zip((1, 2), before, strict=True):
            os.dup2(each, number)
            os.close(each)
