"""The part of a recipe that other trainers can use: prompts, and rewards of answers to them."""

from __future__ import annotations

from ...operators.errors import RecipeError
from ...operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ...operators.mapper.self_verification_mapper import SelfVerificationMapper
from ...pipelines.recipe.recipe import Recipe
from ..split import SplitRecipe, split_recipe


def answers_only(recipe: Recipe) -> SplitRecipe:
    """The parts of a recipe in which the policy answers, and judges nothing.

    Raises:
        RecipeError: the recipe cannot be used for training, it is about agents, or the policy
            judges its own answers.
    """
    parts = split_recipe(recipe)
    if parts.agents is not None:
        raise RecipeError(
            f"{parts.agents.name()} samples trajectories, and to train on them is what only "
            "`rejuice train` does",
            f"sample one response to each prompt, by {PolicyRolloutMapper.name()}",
            where=str(recipe.path),
        )
    if parts.judging is not None:
        raise RecipeError(
            "the policy judges its own answers, which only `rejuice train` does",
            f"leave out {SelfVerificationMapper.name()} and what follows it",
            where=str(recipe.path),
        )
    return parts
