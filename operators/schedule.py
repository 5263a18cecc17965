"""Numbers of a recipe that change with the progress of training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, FiniteFloat, Tag

from .config import Config


class WeightSchedule(Config):
    """A weight that changes with the progress of training."""

    model_config = ConfigDict(serialize_by_alias=True)

    from_: FiniteFloat = Field(alias="from")
    """Weight at the start."""
    to: FiniteFloat
    """Weight at the end."""
    kind: Literal["linear", "cosine"] = "linear"
    """Linear, or slow at both ends as half a cosine."""

    def at(self, progress: float) -> float:
        """The weight at `progress` in [0, 1], exactly `from` and `to` at the ends."""
        cosine = self.kind == "cosine"
        share = (1 - math.cos(math.pi * progress)) / 2 if cosine else progress
        return (1 - share) * self.from_ + share * self.to


def _weight_tag(weight: Any) -> str:
    # Discriminated explicitly, so that an error is about the intended kind of weight.
    return "schedule" if isinstance(weight, (Mapping, WeightSchedule)) else "number"


Weight = Annotated[
    Annotated[FiniteFloat, Tag("number")] | Annotated[WeightSchedule, Tag("schedule")],
    Discriminator(_weight_tag),
]


def weight_at(weight: Weight, progress: float) -> float:
    return weight.at(progress) if isinstance(weight, WeightSchedule) else float(weight)
