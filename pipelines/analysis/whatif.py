"""What another recipe would have made of the samples of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...operators import DataError
from ..engine.frame import Frame
from ..engine.steps import AppliedStep
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import Comparison, compare
from .replay import UNKNOWN, check_same_samples, replay, whole
from .rows import row_table
from .stored import Stored, StoredSet


def whatif(one: StoredSet, recipe: Recipe) -> Comparison:
    """Process the responses of a set by another recipe, and compare.

    Args:
        one: of a stored run.
        recipe: with the same steps up to sampling.

    Raises:
        RejuiceError: other responses would have to be sampled, or a step failed.
    """
    steps = one.fit(recipe)
    if one.kind == "answers" and one.training_step is None:
        own = len(one.recipe.steps) - len(one.steps)
        check_same_samples(one.recipe.steps[:own], recipe.steps[: len(recipe.steps) - len(steps)])
    return compared(*whole(one), steps)


def whatif_of_sets(
    stored: Stored, recipe: Recipe
) -> Iterator[tuple[StoredSet, Comparison | DataError]]:
    """`whatif` of each set of a stored run, in order.

    Where the other recipe would have other judgements sampled, that is found instead.

    Raises:
        RejuiceError: other answers would have to be sampled, or a step failed.
    """
    own = stored.read_recipe()
    for one in stored.sets:
        if one.training_step is not None:
            try:
                check_same_samples(_before(one, own), _before(one, recipe))
            except DataError as error:
                if one.kind == "answers":
                    raise
                yield one, error
                continue
        yield one, whatif(one, recipe)


def _before(one: StoredSet, recipe: Recipe) -> Sequence[Step]:
    """The steps of a recipe of training whose result is what a set has as sampled."""
    fitted = one.fit(recipe)
    names = [step.name for step in recipe.steps]
    return recipe.steps[: names.index(fitted[0].name)] if fitted else recipe.steps


def compared(base: Frame, before: Sequence[AppliedStep], steps: Sequence[Step]) -> Comparison:
    """The comparison of what was done to some rows with what other steps do."""
    found = replay(base, before, steps)
    rows = [row_table(base, applied) for applied in (found.before, found.after)]
    return compare(rows[0], rows[1], base.num_rows, UNKNOWN)


def changes_of(stored: Stored, recipe: Recipe) -> list[str]:
    """`changed_fields` of all steps after sampling, with weights as they are in the recipes."""
    own = stored.read_recipe()
    found = dict[str, None]()
    for kind in dict.fromkeys(one.kind for one in stored.sets):
        one = next(one for one in stored.sets if one.kind == kind)
        found |= dict.fromkeys(changed_fields(_fitted(one, own), _fitted(one, recipe)))
    return list(found)


def _fitted(one: StoredSet, recipe: Recipe) -> list[Step]:
    """The steps that run on a set, as the recipe has them, schedules included."""
    names = [step.name for step in one.fit(recipe)]
    return [step for step in recipe.steps if step.name in names]


def changed_fields(old: Sequence[Step], new: Sequence[Step]) -> list[str]:
    """The steps and fields that differ, as `step.field old -> new`, sorted."""
    lines = list[str]()
    before = {step.name: step.operator for step in old}
    after = {step.name: step.operator for step in new}
    lines += [f"{name} left out" for name in before if name not in after]
    for name, operator in after.items():
        if name not in before:
            lines.append(f"{name} added")
            continue
        own, other = (each.model_dump(mode="json") for each in (before[name], operator))
        for field in own.keys() | other.keys():
            lines += differences(f"{name}.{field}", own.get(field), other.get(field))
    common = [[n for n in names if n in before and n in after] for names in (before, after)]
    if common[0] != common[1]:
        lines.append("the order of steps")
    return sorted(lines)


def differences(path: str, old: object, new: object) -> list[str]:
    """Two values of a field, as `field old -> new`, or those of the fields in it that differ."""
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys(), key=str)
        found = [differences(f"{path}.{key}", old.get(key), new.get(key)) for key in keys]
        return [line for lines in found for line in lines]
    return [f"{path} {old} -> {new}"]
