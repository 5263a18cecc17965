"""Drop the answers that the policy itself rejects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from .. import judgements
from ..operator import Columns, Filter, Scope, drop


class VerificationFilter(Filter):
    """Drop responses that too few of the policy's own judgements call right.

    What counts is the share of `Yes` among the well-formed judgements of a response. A response
    that was not judged itself takes the judgements of those of its prompt with the same answer,
    since each distinct text of a prompt is judged once. It is the `judged_right` of
    `self_verified_vote_mapper`, which need not be in the recipe.

    Only rows with `task: generate` are dropped. Verification rows stay, also those about a response
    that goes: put a `column_value_filter` on `task` behind this where they are not wanted.
    """

    min: float = Field(0.5, ge=0, le=1)
    """Smallest share of `Yes` to keep."""
    unjudged: Literal["keep", "drop"] = "keep"
    """What to do with a response of which no judgement is known."""
    mode: judgements.Mode = "answer"
    """What was judged, as in `self_verification_mapper`. With `response`, a response that was not
    judged itself takes the judgements of the same text first, then those of the same answer."""

    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "rejected": "the share of `Yes` among the policy's judgements is below `min`",
        "not_judged": "no judgement of the response is known, and `unjudged` is `drop`",
    }

    def reads(self) -> Columns:
        return judgements.read(self.mode)

    def digest(self, table: pa.Table) -> pa.Table:
        return judgements.digest(table, self.mode)

    def decide(self, table: pa.Table) -> pa.Array:
        right_N = judgements.judged(table).right_N
        unjudged_N = judgements.generated(table) & np.isnan(right_N)
        return drop(
            {
                "not_judged": unjudged_N & (self.unjudged == "drop"),
                "rejected": right_N < self.min,
            }
        )
