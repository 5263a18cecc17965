"""What other trainers can have of a recipe: prompts, and rewards of the answers to them."""

from __future__ import annotations

from ...operators.errors import RecipeError
from ...operators.mapper.self_verification_mapper import SelfVerificationMapper
from ...pipelines.recipe.recipe import Recipe
from ..split import Cut, cut


def answers_only(recipe: Recipe) -> Cut:
    """The parts of a recipe in which the policy answers, and judges nothing.

    Raises:
        RecipeError: it is no recipe that can train, or the policy judges its own answers in it.
    """
    parts = cut(recipe)
    if parts.judging is not None:
        raise RecipeError(
            "the policy judges its own answers, which only `rejuice train` does",
            f"leave out {SelfVerificationMapper.name()} and what follows it",
            where=str(recipe.path),
        )
    return parts
