"""Why a run failed: from error.json if our code inside verl wrote one, else from verl's log."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from ..run import early_end, recorded_error

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS_PREFIX = re.compile(r"^\([A-Za-z_]\w* pid=\d+(?:, ip=[\d.]+)?\) ")
_ERROR = re.compile(
    r"^(?:[\w]+\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit)|Exception)(?:: (.*))?$"
)
_RAY_ERRORS = ("RayTaskError", "RayActorError", "ActorDiedError", "ActorUnavailableError")
_DIED = re.compile(r"The actor died unexpectedly[^\n]*\n\s*class_name: (?:.*\.)?(\w+)")
_NO_SPACE = (
    "No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing",
    "unexpected pos",
)  # fmt: skip
_LEAST_SPACE = 1 << 16  # bytes; the log is written in smaller pieces
_NO_MEMORY = (
    "CUDA out of memory", "OutOfMemoryError", "running low on memory", "Cannot allocate memory",
    "DefaultCPUAllocator: can't allocate memory", "std::bad_alloc",
)  # fmt: skip
_LATE = "The current node timed out during startup"


def lines_of(log: str) -> list[str]:
    """Without colours, and without Ray's prefix of each process."""
    return [_PROCESS_PREFIX.sub("", line) for line in _COLOUR.sub("", log).splitlines()]


def last_error(log: str) -> str | None:
    """The last exception in a log, as Python prints it, except Ray's wrappers of another one."""
    found = None
    for line in lines_of(log):
        match = _ERROR.match(line)
        if match and match[1] not in _RAY_ERRORS:
            found = match[1] if match[2] is None else f"{match[1]}: {match[2]}"
            if line.startswith("rejuice."):  # It says what to do about it.
                found = match[2] or found
    return found


def cause(log: str, status: int, folder: Path, least_free: int | None = None) -> str:
    """One line on why verl ended.

    `least_free` are the bytes that were free at least on its disk while verl ran, if it is known.
    """
    recorded = recorded_error(folder)
    if recorded is not None and recorded.expected:
        return recorded.message
    lines = lines_of(log)
    if any(word in line for line in lines for word in _NO_SPACE):
        at = folder / "checkpoints" if _while_saving(lines) else folder
        return f"no space left on the disk of {at}"
    if any(word in line for line in lines for word in _NO_MEMORY):
        return _out_of_memory(lines)
    if any(_LATE in line for line in lines):
        return "Ray has not started in time: the machine is very busy; start again when it is not"
    if least_free is None and folder.is_dir():
        least_free = shutil.disk_usage(folder).free
    if least_free is not None and least_free < _LEAST_SPACE:
        return f"no space left on the disk of {folder}"  # The log could not be written either.
    if status < 0:
        return f"verl was killed by {signal.Signals(-status).name}"
    died = _DIED.findall("\n".join(lines))
    if died:
        return f"verl's process {died[-1]} was killed; the machine is probably out of memory"
    if recorded is not None:
        return recorded.message
    return last_error(log) or f"verl ended with exit status {status}"


def why_ended(folder: Path) -> str:
    early, log = early_end(folder), folder / "verl.log"
    if early is not None:
        return early.why
    return cause(log.read_text("utf-8", "replace") if log.is_file() else "", 1, folder)


def _while_saving(lines: list[str]) -> bool:
    progress = [line for line in lines if "Saving checkpoint to" in line or "step:" in line[:5]]
    return bool(progress) and "Saving checkpoint to" in progress[-1]


def _out_of_memory(lines: list[str]) -> str:
    if any("CUDA out of memory" in line for line in lines):
        return "a GPU is out of memory; lower train.gpu.tokens_per_gpu or train.gpu.memory"
    return (
        "out of memory; lower train.cpu.tokens, train.prompts_per_step or the n of"
        " policy_rollout_mapper"
    )
