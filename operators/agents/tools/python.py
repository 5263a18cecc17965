"""Python as a tool: a confined process for each call."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, ClassVar

from pydantic import Field, PrivateAttr

from ...sandbox.run import Execution, Sandbox, SandboxError, SandboxLimits, Stop, check_confinement
from ...workers import usable_cores
from ..tool import Observation, Tool, ToolError

_TRACEBACK_LINES = 6  # of an exception, as the policy sees it


class Python(Tool):
    """Run Python code and return what it prints, and the value of its last line. Only the standard
    library is there: no files, no network, no other processes, no threads. Each call starts anew.

    Calls run in processes that are confined: they can open no file and no connection, start no
    process or thread, and see no environment.
    """

    seconds: float = Field(5.0, gt=0)
    """Wall time of a call."""
    memory_mb: int = Field(512, ge=16)
    """MiB of memory of a call, beyond what Python itself needs."""
    max_output: int = Field(16_384, ge=1, le=2**30)
    """Bytes that a call may print; it is ended when it prints more."""
    is_local: ClassVar[bool] = True
    code: ClassVar[str | None] = "1"
    _running: tuple[Sandbox, ThreadPoolExecutor] | None = PrivateAttr(None)

    def check(self) -> None:
        check_confinement()

    async def call(self, code: Annotated[str, Field(description="Python source")]) -> Observation:
        if self._running is None:
            cores = usable_cores()
            # Not `asyncio.to_thread`: calls that wait would keep its threads from others.
            self._running = Sandbox(workers=cores), ThreadPoolExecutor(cores, "python-tool")
        sandbox, threads = self._running
        limits = SandboxLimits(self.seconds, self.memory_mb << 20, self.max_output)

        stop = Stop()

        def run() -> Execution:
            return sandbox.run(code, limits=limits, show_last=True, stop=stop)

        try:
            execution = await asyncio.get_running_loop().run_in_executor(threads, run)
        except SandboxError as error:
            raise ToolError(f"python: {error}") from error
        except asyncio.CancelledError:
            stop()  # Or it would keep its place from others until its own time is over.
            raise
        return self._observation(execution)

    async def close(self) -> None:
        if self._running:
            sandbox, threads = self._running
            self._running = None
            # First, or a call that waits for its turn would start the sandbox again.
            threads.shutdown(wait=False, cancel_futures=True)
            sandbox.close()

    def _observation(self, execution: Execution) -> Observation:
        printed = execution.stdout.rstrip("\n")
        if execution.status == "ok":
            parts = [printed, execution.stderr.rstrip("\n")]
            return Observation("\n".join(filter(None, parts)) or "The code printed nothing.")
        parts = [printed, self._problem(execution)]
        return Observation("\n".join(filter(None, parts)), "error")

    def _problem(self, execution: Execution) -> str:
        match execution.status:
            case "timeout":
                return f"The code was ended: it ran for more than {self.seconds:g} s."
            case "output":
                return f"The code was ended: it printed more than {self.max_output:,} bytes."
            case "memory":
                return f"The code was ended: it needed more than {self.memory_mb:,} MiB of memory."
        lines = execution.stderr.rstrip("\n").split("\n")[-_TRACEBACK_LINES:]
        code = execution.exit_code or 0
        if code < 0:
            lines.append(f"The code was ended by signal {-code}: {signal.strsignal(-code)}.")
        elif lines == [""]:
            lines = [f"The code ended with exit code {code}."]
        return "\n".join(filter(None, lines))
