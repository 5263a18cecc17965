"""Prefer prompts whose pass rate is near a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from ..columns import numbers
from ..operator import Change, Columns, Kind, Scope, drop
from ..training_step import RANK, PerStepOperator, mixed, ranks


class DifficultySelector(PerStepOperator):
    """Prefer prompts whose estimated pass rate is near a target.

    It follows `history_mapper`, before the sampling. With r right ones among n graded responses
    (`history_discounted_right` and `history_discounted_graded`), the pass rate of a prompt has the
    posterior Beta(a + r, b + n - r). A number is drawn from it, so that a prompt of which little is
    known comes up now and then (Thompson sampling), and prompts are in the order of
    |draw - target|. Prompts that were never graded are mixed in at random, `explore` of any number
    that is taken; prompts that were visited within `cooldown_steps` come last.

    It writes `choice_rank`, by which a training step takes its prompts; `estimated_pass_rate`, the
    mean of the posterior; `drawn_pass_rate`, null where nothing is known; and `in_cooldown`.

    Sources: Thompson, Biometrika 25 (1933); for prompts, Qu et al., https://arxiv.org/abs/2507.04632,
    and Chen et al., https://arxiv.org/abs/2506.09016.
    """

    target_pass_rate: float = Field(0.5, ge=0, le=1)
    """The pass rate that is wanted. At 0.5, accuracies within a group have the largest variance."""
    explore: float = Field(0.2, ge=0, le=1)
    """Share of the prompts of a step that have no known pass rate, as long as there are both kinds.
    At 0.2 and 512 prompts a step, about 100 new prompts a step."""
    cooldown_steps: NonNegativeInt = 5
    """For so many training steps after a visit, a prompt is taken only where there are too few
    others, the one visited longest ago first: the same few would else come up again and again."""
    prior: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.0)
    """The Beta prior (a, b) of a pass rate; (1, 1) is uniform."""
    keep: PositiveInt | None = None
    """Prompts to keep. Null: all; a training step takes the first of them."""
    seed: NonNegativeInt = 0
    """Another seed draws other numbers. In training those of the run and the step are added."""

    kind: ClassVar[Kind] = Kind.SELECTOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {"over_keep": "`keep` prompts are preferred"}

    def reads(self) -> Columns:
        return ("history_discounted_right", "history_discounted_graded", "history_age")

    def writes(self) -> Columns:
        return (RANK, "estimated_pass_rate", "drawn_pass_rate", "in_cooldown")

    def replaces(self) -> Columns:
        return (RANK,)

    def apply(self, table: pa.Table) -> Change:
        right_P, graded_P, age_P = (numbers(table, name) for name in self.reads())
        random, (a, b) = self.random(self.seed), self.prior
        wrong_P = np.maximum(graded_P - right_P, 0)
        drawn_P = random.beta(a + right_P, b + wrong_P)
        tie_P, known_P = random.random(len(drawn_P)), graded_P > 0
        distance_P = np.where(known_P, np.abs(drawn_P - self.target_pass_rate), tie_P)
        by_distance_P = np.argsort(distance_P, kind="stable")
        rests_P = age_P < self.cooldown_steps  # Not where there is no age.
        kinds = (known_P & ~rests_P, ~known_P & ~rests_P, rests_P)
        known, unknown, resting = (by_distance_P[each[by_distance_P]] for each in kinds)
        resting = resting[np.argsort(-age_P[resting], kind="stable")]
        chosen = mixed((known, unknown), (1 - self.explore, self.explore))
        order_P = np.concatenate([chosen, resting])
        rank_P = ranks(order_P)
        columns = {
            RANK: rank_P,
            "estimated_pass_rate": pa.array((a + right_P) / (a + b + graded_P)),
            "drawn_pass_rate": pa.array(drawn_P, mask=~known_P),
            "in_cooldown": pa.array(rests_P),
        }
        if self.keep is None:
            return Change(columns=columns)
        return Change(columns=columns, reasons=drop({"over_keep": np.asarray(rank_P) >= self.keep}))

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None or row.get(RANK) is None:
            return {}
        rank, estimated, drawn, rests = (row[name] for name in self.writes())
        if rests:
            return {"choice": f"visited within {self.cooldown_steps} steps: rank {rank}"}
        if drawn is None:
            return {"choice": f"never graded: among the {self.explore:.0%} to explore, rank {rank}"}
        known = f"pass rate estimated {estimated:.3f}, drawn {drawn:.3f}"
        return {"choice": f"{known}, target {self.target_pass_rate:g}: rank {rank}"}
