"""Why a run ended, read from its exit status and the log of verl."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from ..loop.failures import NO_PROMPT_LEFT, SAMPLER_FAILED
from .compose import wrong_key

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SPEAKER = re.compile(r"^\([A-Za-z_]\w* pid=\d+(?:, ip=[\d.]+)?\) ")
_ERROR = re.compile(r"^(?:[\w]+\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: (.*))?$")
_OURS = re.compile(r"^rejuice\.(?:\w+\.)+\w+Error: (.*)$")
_RAYS = ("RayTaskError", "RayActorError", "ActorDiedError", "ActorUnavailableError")
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


def lines_of(log: str) -> list[str]:
    """The lines of verl's log, without colours and without who says them."""
    return [_SPEAKER.sub("", line) for line in _COLOUR.sub("", log).splitlines()]


def last_error(log: str) -> str | None:
    """The last exception in a log, as Python names it, but for those of Ray about another one."""
    found = None
    for line in lines_of(log):
        match = _ERROR.match(line)
        if match and match[1] not in _RAYS:
            found = line.rsplit(".", 1)[-1] if match[2] is None else f"{match[1]}: {match[2]}"
    return found


def cause(log: str, status: int, folder: Path) -> str:
    """One line on why verl ended.

    Args:
        log: what it wrote since it was started.
        status: its exit status; below 0 the signal that killed it.
        folder: of the run.
    """
    lines = lines_of(log)
    ours = [match[1] for line in lines if (match := _OURS.match(line))]
    if ours:
        return _of_sampler(lines, ours[-1]) or ours[-1]
    if any(word in line for line in lines for word in _NO_SPACE):
        at = folder / "checkpoints" if _while_saving(lines) else folder
        return f"no space left on the disk of {at}"
    if any(word in line for line in lines for word in _NO_MEMORY):
        return _out_of_memory(lines)
    wrong = wrong_key(log)
    if wrong:
        return "; ".join(wrong)
    if folder.is_dir() and shutil.disk_usage(folder).free < _LEAST_SPACE:
        return f"no space left on the disk of {folder}"  # Nor for the log to say so.
    if status < 0:
        return f"verl was killed by {signal.Signals(-status).name}"
    died = _DIED.findall("\n".join(lines))
    if died:
        return f"verl's process {died[-1]} was killed, perhaps for want of memory"
    return last_error(log) or f"verl ended with exit status {status}"


def _of_sampler(lines: list[str], error: str) -> str | None:
    """Why every prompt failed, where that is the error."""
    told = [line for line in lines if line.startswith(SAMPLER_FAILED)]
    if told and NO_PROMPT_LEFT in error:
        return told[-1].removeprefix("rejuice: ")
    return None


def _while_saving(lines: list[str]) -> bool:
    """Whether a checkpoint was begun and not ended."""
    told = [line for line in lines if "Saving checkpoint to" in line or "step:" in line[:5]]
    return bool(told) and "Saving checkpoint to" in told[-1]


def _out_of_memory(lines: list[str]) -> str:
    if any("CUDA out of memory" in line for line in lines):
        return "a GPU is out of memory; lower train.gpu.tokens_per_gpu or train.gpu.memory"
    return "out of memory; lower train.prompts_per_step, or the n of policy_rollout_mapper"
