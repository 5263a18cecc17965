"""Keep the responses of a group that differ most from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..groups import Array, Groups
from ..operator import Columns, Filter, Kind, Scope, drop
from ..text.embedding import EmbeddingFields, group_grams, usable_texts
from ..text.tokens import texts_of


class DiverseResponseSelector(EmbeddingFields, Filter):
    """Keep `k` responses per prompt, chosen to lie far apart.

    The first choice is the response farthest from the mean of the group; each further choice is the
    one whose nearest chosen response is farthest away (greedy farthest point, whose smallest
    distance is within a factor of two of the optimum: Gonzalez 1985,
    https://doi.org/10.1016/0304-3975(85)90224-5). Ties go to the earlier response. Null and blank
    responses are chosen last, in their order, so they never shrink a group below `k`. Groups of
    `k` or fewer stay unchanged.
    """

    k: int = Field(ge=1)
    """Responses to keep per prompt."""
    column: str = "response"
    """The text to compare."""

    kind: ClassVar[Kind] = Kind.SELECTOR
    scope: ClassVar[Scope] = Scope.GROUP
    depends_on: ClassVar[tuple[str, ...]] = ("sentence-transformers", "torch", "transformers")
    reasons: ClassVar[Mapping[str, str]] = {
        "less_diverse": "k other responses of the prompt differ more from each other"
    }

    def reads(self) -> Columns:
        return ("prompt_id", self.column)

    def decide(self, table: pa.Table) -> pa.Array:
        groups = Groups.of(table)
        texts = texts_of(table[self.column])
        usable_N = usable_texts(texts)
        crowded_G = groups.sum(usable_N) > self.k
        # If all usable ones fit, they come first; then the empty ones, in their order.
        kept_N = groups.rank((~usable_N).astype(np.int64)) < self.k
        choose_N = usable_N & crowded_G[groups.codes_N]
        if choose_N.any():
            kept_N[choose_N] = False
            embed = self.embedder()
            for rows_BM, grams_BMM in group_grams(texts, groups, choose_N, embed):
                chosen_BK = farthest_points(grams_BMM, self.k)
                kept_N[np.take_along_axis(rows_BM, chosen_BK, axis=1)] = True
        return drop({"less_diverse": ~kept_N})


def farthest_points(grams_BMM: Array, k: int) -> Array:
    """Greedy farthest points of each group by cosine distance, int64[B, k], in order of choice."""
    # Rounded, so that ties are exact and go to the earlier response.
    distance_BMM = np.round(1.0 - grams_BMM, 9)
    batch = np.arange(len(distance_BMM))
    chosen = [np.round(grams_BMM.sum(axis=2), 9).argmin(axis=1)]
    nearest_BM = np.full(distance_BMM.shape[:2], np.inf)
    for _ in range(1, k):
        nearest_BM = np.minimum(nearest_BM, distance_BMM[batch, chosen[-1]])
        nearest_BM[batch, chosen[-1]] = -np.inf
        chosen.append(nearest_BM.argmax(axis=1))
    return np.stack(chosen, axis=1)
