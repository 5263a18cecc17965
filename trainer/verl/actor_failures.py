"""Why an actor of Ray failed, in one line out of Ray's many."""

from __future__ import annotations

import ray


def reason_of(error: Exception) -> str:
    """What `ray.get` raised for a call of an actor, as one line."""
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
