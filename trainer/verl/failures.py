"""Why training failed, written down where it happens.

What fails in our code inside verl leaves RUN/error.json: the error in one line, as the command
reports it. Without it the command has only verl's log to search.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ...operators.errors import RejuiceError
from ...operators.json_text import parse_json
from ...operators.logs import redact

# --- Why an actor of Ray failed, in one line out of Ray's many ------------------------


def reason_of(error: Exception) -> str:
    """What `ray.get` raised for a call of an actor, as one line."""
    import ray  # Not above: `rejuice check` reads the names of this module, perhaps without Ray.

    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "its process was killed; the machine is out of memory"
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "its process could not be reached"
    if isinstance(error, ray.exceptions.RayActorError):
        if "node has died" in str(error):
            return "its node has died"
        return "its process was killed; the machine is probably out of memory"
    cause = getattr(error, "cause", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__


# --- Why training failed, written down where it happens -------------------------------

ERROR_FILE = "error.json"
"""File in the folder of a run."""
SAMPLER_FAILED = "rejuice: the sampler failed: "
"""Beginning of the line in verl's log where the sampler fails; the run may go on."""
NO_PROMPT_LEFT = "every prompt failed"
"""Part of the error where it cannot go on."""

_last_sampler_failure: str | None = None


class RecordedError(NamedTuple):
    """An error that our code inside verl has met."""

    message: str  # one line
    expected: bool  # it is an error of rejuice's own, which says what to do about it


def report_sampler_failure(reason: str) -> None:
    """Print why the sampler failed, and remember it: a step may find no prompt left for it."""
    global _last_sampler_failure  # The sampler is watched by another thread of this process.
    _last_sampler_failure = reason = redact(reason)
    # With its end, or lines of two threads would run into each other.
    print(f"{SAMPLER_FAILED}{reason}\n", end="", flush=True)


@contextmanager
def errors_recorded(folder: Path) -> Iterator[None]:
    """Write what is raised inside to `error.json` in the folder of the run, and raise it on."""
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # On a full disk, the log has to do.
            _write(folder, _recorded(error))
        raise


def recorded_error(folder: Path) -> RecordedError | None:
    """The error that the run has left, if any."""
    try:
        found = parse_json((folder / ERROR_FILE).read_text("utf-8"))
        return RecordedError(str(found["message"]), bool(found["expected"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _recorded(error: Exception) -> RecordedError:
    # Of an error in another process Ray gives its whole traceback as text, and the error as cause.
    error = getattr(error, "cause", None) or error
    line = redact(" ".join(str(error).split()))
    if not isinstance(error, RejuiceError):
        name = type(error).__name__
        return RecordedError(f"{name}: {line}" if line else name, expected=False)
    if NO_PROMPT_LEFT in line and _last_sampler_failure is not None:
        line = SAMPLER_FAILED.removeprefix("rejuice: ") + _last_sampler_failure
    return RecordedError(line, expected=True)


def _write(folder: Path, error: RecordedError) -> None:
    temporary = folder / f"{ERROR_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps(error._asdict()) + "\n", "utf-8")
    temporary.replace(folder / ERROR_FILE)
