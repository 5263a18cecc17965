"""A recipe, cut at the step that samples.

before ──> prompts of the trainer      (run once, offline)
rollout    verl's rollouts take its place
after  ──> runs on each training step's complete groups, before the update
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..operators.errors import RecipeError
from ..operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ..operators.mapper.reward_sum_mapper import RewardSumMapper
from ..operators.mapper.self_verification_mapper import SelfVerificationMapper
from ..operators.operator import Filter, Mapper, Scope
from ..pipelines.recipe import Recipe, Step

ACCURACY = "reward_accuracy"
"""The column by which validation grades."""
_GRADE = "add a verifier, such as math_verify_mapper, or leave validation_path out"


class Cut(NamedTuple):
    """The parts of a recipe.

    Attributes:
        source: its project's name, by which verl reports.
        before: makes prompts.
        rollout: samples.
        after: rewards and filters.
    """

    source: str
    before: tuple[Step, ...]
    rollout: PolicyRolloutMapper
    after: tuple[Step, ...]


def cut(recipe: Recipe) -> Cut:
    """Cut a recipe at its `policy_rollout_mapper`.

    Raises:
        RecipeError: there is not exactly one, or what stands behind it gives no reward.
    """
    where = str(recipe.path)
    places = [
        at for at, step in enumerate(recipe.steps) if isinstance(step.operator, PolicyRolloutMapper)
    ]
    if len(places) != 1:
        found = f"{len(places)} steps sample responses" if places else "no step samples responses"
        raise RecipeError(found, "training needs one policy_rollout_mapper", where=where)
    at = places[0]
    rollout = recipe.steps[at].operator
    assert isinstance(rollout, PolicyRolloutMapper)
    after = recipe.steps[at + 1 :]
    if not any("reward" in step.operator.writes() for step in after):
        raise RecipeError(
            "no step behind policy_rollout_mapper writes the column reward",
            f"add a {RewardSumMapper.name()}",
            where=where,
        )
    compared = False
    for step in after:
        if compared and isinstance(step.operator, Filter):
            raise RecipeError(
                f"{step.name} drops rows that were compared with their group already",
                f"put it before {GrpoAdvantageMapper.name()}",
                where=f"{where}, step {step.number}",
            )
        compared = compared or isinstance(step.operator, GrpoAdvantageMapper)
        if isinstance(step.operator, SelfVerificationMapper):
            raise RecipeError(
                f"{step.name} makes prompts, and training answers prompts of the dataset only",
                "leave the step out",
                where=f"{where}, step {step.number}",
            )
    return Cut(recipe.head.project_name, recipe.steps[:at], rollout, after)


def grading(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that grade a response, for validation: nothing is dropped there.

    Raises:
        RecipeError: none does, or one needs to see more than a response.
    """
    wanted, kept = {ACCURACY}, list[Step]()
    for step in reversed(steps):
        operator = step.operator
        if wanted.isdisjoint(operator.writes()):
            continue
        if not isinstance(operator, Mapper) or operator.scope is not Scope.ROW:
            raise RecipeError(f"{step.name} does not grade responses one by one", _GRADE)
        wanted.update(operator.reads())
        kept.append(step)
    if not kept:
        raise RecipeError(f"no step writes {ACCURACY}, by which validation grades", _GRADE)
    return tuple(reversed(kept))
