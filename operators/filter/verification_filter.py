"""Drop the responses that the policy itself judges to be wrong."""

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

    The criterion is the share of `Yes` among the well-formed judgements of a response. A response
    that was not judged itself takes the judgements of the responses to its prompt that have the
    same answer, since each distinct text of a prompt is judged once. This share is the
    `judged_right` of `self_verified_vote_mapper`, which need not be in the recipe.

    Only rows with `task: generate` are dropped. Verification rows stay, even if the response that
    they judge is dropped: to remove them, put a `column_value_filter` on `task` after this step.
    """

    min: float = Field(0.5, ge=0, le=1)
    """Smallest share of `Yes` to keep."""
    unjudged: Literal["keep", "drop"] = "keep"
    """What to do with a response without any judgement."""
    mode: judgements.Mode = "answer"
    """What was judged, as in `self_verification_mapper`. With `response`, a response that was not
    judged itself takes the judgements of the same text first, then those of the same answer."""

    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "rejected": "the share of `Yes` among the policy's judgements is below `min`",
        "not_judged": "the response has no judgement, and `unjudged` is `drop`",
    }

    def reads(self) -> Columns:
        return judgements.read(self.mode)

    def digest(self, table: pa.Table) -> pa.Table:
        return judgements.digest(table, self.mode)

    def decide(self, table: pa.Table) -> pa.Array:
        right_N = judgements.judged(table).right_N()
        unjudged_N = judgements.generated(table) & np.isnan(right_N)
        masks = {
            "not_judged": unjudged_N & (self.unjudged == "drop"),
            "rejected": right_N < self.min,
        }
        return drop(masks)
