"""Reward responses for differing from the others of their group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from ..columns import component, component_columns, right_and_wrong
from ..groups import Array, Groups
from ..operator import Columns, Mapper, Scope, drop
from ..text.embedding import EmbeddingFields, group_grams, usable_texts
from ..text.tokens import texts_of

DiversityMeasure = Literal["centroid", "pairwise", "vendi", "dra"]
DiversityGate = Literal["none", "only_correct", "mixed_groups_only"]


class DiversityRewardMapper(EmbeddingFields, Mapper):
    """Write `reward_diversity`: how much a response differs from its group.

    A blank response has no embedding and adds no diversity: it has 0, and the others are compared
    without it. Alone among blank ones, a response has 0, too, and 1 by `dra`, which compares it
    with none. Without a second response in the group, the reward is missing: `group_too_small`.

    A closed gate withholds the bonus: the reward is then 0.0, which is a value and not a failure,
    because by definition a response with a closed gate gets no bonus, whatever its text. If the
    gate depends on a missing verdict, the reward is missing.
    """

    measure: DiversityMeasure = "centroid"
    """The measure of diversity; e are unit vectors, s_ij = cos(e_i, e_j), n responses:
    `centroid` 1 - cos(e_i, mean e), in [0, 2];
    `pairwise` mean over the others of 1 - s_ij, in [0, 2];
    `vendi` Vendi score of the group minus that of the group without the response: how many
    effective responses it adds to the group; below 0 for a repetition;
    `dra` 1 / (1 + sum over the others of max(s_ij, 0)), in [1 / n, 1]: with gate `only_correct`
    and without a further reward for accuracy this is DRA-GRPO's adjusted reward."""
    gate: DiversityGate = "none"
    """Which responses get it: all (`none`); `only_correct` responses, still compared with the whole
    group; those of `mixed_groups_only`, with right and wrong responses. In a group where all are
    right or all wrong, diversity would be the only signal, and GRPO would scale it up."""
    column: str = "response"
    """The text to embed."""

    scope: ClassVar[Scope] = Scope.GROUP
    depends_on: ClassVar[tuple[str, ...]] = ("sentence-transformers", "torch", "transformers")
    reasons: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null",
        "group_too_small": "fewer than two responses of the group are not null",
        "zero_mean": "the embeddings of the group cancel out, so there is no angle to their mean",
        "not_graded": "the gate needs a verdict, which is missing",
    }

    def reads(self) -> Columns:
        verdict = () if self.gate == "none" else ("verdict",)
        return ("prompt_id", self.column, *verdict)

    def writes(self) -> Columns:
        return component_columns("diversity")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        groups = Groups.of(table)
        texts = texts_of(table[self.column])
        usable_N = usable_texts(texts)
        open_N, ungraded_N = self._gates(table, groups)
        wanted_G = groups.sum(open_N) > 0
        there_N = np.asarray(texts.is_valid())
        small_G = groups.sum(there_N) < 2
        used_N = usable_N & (wanted_G & ~small_G)[groups.codes_N]
        values_N = np.zeros(table.num_rows)
        if used_N.any():
            embed = self.embedder()
            for rows_BM, grams_BMM in group_grams(texts, groups, used_N, embed):
                values_N[rows_BM] = _MEASURES[self.measure](grams_BMM)
        masks = {
            "not_graded": ungraded_N,
            "no_response": open_N & ~there_N,
            "group_too_small": open_N & small_G[groups.codes_N],
            "zero_mean": open_N & np.isnan(values_N),
        }
        missing = drop(masks)
        return component("diversity", np.where(open_N, values_N, 0.0), missing)

    def _gates(self, table: pa.Table, groups: Groups) -> tuple[Array, Array]:
        """Rows with an open gate, and rows whose gate cannot be decided, bool[N] each."""
        none_N = np.zeros(table.num_rows, bool)
        if self.gate == "none":
            return ~none_N, none_N
        correct_N, wrong_N = right_and_wrong(table["verdict"])
        if self.gate == "only_correct":
            return correct_N, ~(correct_N | wrong_N)
        right_G, wrong_G = groups.sum(correct_N), groups.sum(wrong_N)
        mixed_G = (right_G > 0) & (wrong_G > 0)
        # A response without a verdict could still make the group a mixed one.
        unclear_G = ~mixed_G & (right_G + wrong_G < groups.sizes_G)
        return mixed_G[groups.codes_N], unclear_G[groups.codes_N]


def from_centroid(grams_BMM: Array) -> Array:
    """1 - cos(e_i, c) with c the mean of the group's e, float64[B, M]; nan where c is zero.
    The diversity reward of Trinity-RFT, https://arxiv.org/abs/2505.17826."""
    n = grams_BMM.shape[-1]
    # The cosines suffice: e_i . c = sum_j s_ij / n and |c|^2 = sum_ij s_ij / n^2.
    square_B1 = grams_BMM.sum(axis=(1, 2))[:, None] / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine_BM = grams_BMM.sum(axis=2) / n / np.sqrt(square_B1)
    return np.where(square_B1 > 1e-12, _without_rounding_noise(1.0 - cosine_BM, 0.0), np.nan)


def from_each_other(grams_BMM: Array) -> Array:
    """Mean of 1 - s_ij over the other responses j, float64[B, M]."""
    others = grams_BMM.shape[-1] - 1
    return _without_rounding_noise((others - _others(grams_BMM)) / max(others, 1), 0.0)


def vendi_gain(grams_BMM: Array) -> Array:
    """Vendi score of the group minus that of the group without response i, float64[B, M]."""
    n = grams_BMM.shape[-1]
    all_B = vendi(grams_BMM)
    rest = [np.delete(np.arange(n), i) for i in range(n)]
    without = [vendi(grams_BMM[:, keep[:, None], keep]) for keep in rest]
    return _without_rounding_noise(all_B[:, None] - np.stack(without, axis=1), -np.inf)


def vendi(grams_BMM: Array) -> Array:
    """The effective number of different responses, float64[B], from 1 to M: exp of the Shannon
    entropy of the eigenvalues of K / M, with K the cosines. https://arxiv.org/abs/2210.02410"""
    values = np.linalg.eigvalsh(grams_BMM / grams_BMM.shape[-1])
    # An eigenvalue below rounding noise is 0, and 0 log 0 is 0.
    values = np.where(values > 1e-15, values, 1.0)
    scores_B: Array = np.exp(-(values * np.log(values)).sum(axis=1))
    return scores_B


def diversity_adjusted(grams_BMM: Array) -> Array:
    """1 / (1 + sum over the others of max(s_ij, 0)), float64[B, M].

    Source: DRA-GRPO, https://arxiv.org/abs/2505.09655, graph-cut form; a negative cosine counts
    as 0, so that the sum cannot reach -1.
    """
    return _without_rounding_noise(1.0 / (1.0 + _others(np.maximum(grams_BMM, 0.0))), 0.0)


def _others(grams_BMM: Array) -> Array:
    own_BM = np.diagonal(grams_BMM, axis1=1, axis2=2)
    sums_BM: Array = grams_BMM.sum(axis=2) - own_BM
    return sums_BM


def _without_rounding_noise(values: Array, least: float) -> Array:
    """Round off the last digits, which are noise, so that equal responses get exactly 0."""
    return np.maximum(np.round(values, 12), least) + 0.0


_MEASURES = {
    "centroid": from_centroid,
    "pairwise": from_each_other,
    "vendi": vendi_gain,
    "dra": diversity_adjusted,
}
