"""What comes of a step of training; where it cannot go on, an error is raised instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ..run import UPDATE


class Outcome(NamedTuple):
    """What came of a step, of which too many alike in a row end training."""

    kind: Literal["trained", "no_signal", "outage", "nan"]  # all but the first leave the policy
    why: str = ""  # it did not train
    right: str = ""  # what to do, if training ends by it


TRAINED = Outcome("trained")
NO_SIGNAL = Outcome(
    "no_signal",
    "no group has a signal",
    "take harder prompts if all responses are right, and easier ones if none is",
)


def not_finite(figures: Mapping[str, Any], learning_rate: float) -> Outcome | None:
    """The outcome of a step whose gradient or loss is no number; None where they are."""
    found = [name for name in UPDATE if not math.isfinite(figures.get(name, 0.0))]
    if not found:
        return None
    return Outcome(
        "nan",
        f"{' and '.join(name.removeprefix('actor/') for name in found)} is nan or infinite: no "
        "update was made, and no checkpoint saved",
        f"go back to one before, with a learning_rate below {learning_rate:g}, or look for "
        "rewards and weights that are too large",
    )
