"""What another recipe would have made of the samples of a run."""

from __future__ import annotations

from ..figures.rows import row_table
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from ..stored.export import StoredExport, sampling_steps
from .comparison import Comparison, compare
from .replay import UNKNOWN, check_same_samples, replay


def whatif(run: StoredExport, recipe: Recipe) -> Comparison:
    """Process the responses of a run by another recipe, and compare.

    Args:
        run: a finished run.
        recipe: with the same steps up to sampling.

    Raises:
        RejuiceError: other responses would have to be sampled, or a step failed.
    """
    first = sampling_steps(recipe.steps)
    check_same_samples(run, recipe.steps[:first])
    return compared(run, recipe.steps[first:])


def compared(run: StoredExport, steps: tuple[Step, ...]) -> Comparison:
    """The comparison of a run with other steps after sampling."""
    found = replay(run, steps)
    before = row_table(found.base, found.before)
    after = row_table(found.base, found.after)
    return compare(before, after, found.base.num_rows, UNKNOWN)


def changed_fields(old: Recipe, new: Recipe) -> list[str]:
    """The steps and fields that differ, as `step.field old -> new`, in order of the new recipe."""
    lines = list[str]()
    before = {step.name: step.operator for step in old.steps}
    after = {step.name: step.operator for step in new.steps}
    lines += [f"{name} left out" for name in before if name not in after]
    for name, operator in after.items():
        if name not in before:
            lines.append(f"{name} added")
            continue
        own, other = (each.model_dump(mode="json") for each in (before[name], operator))
        for field in own.keys() | other.keys():
            lines += _differences(f"{name}.{field}", own.get(field), other.get(field))
    common = [[n for n in names if n in before and n in after] for names in (before, after)]
    if common[0] != common[1]:
        lines.append("the order of steps")
    return sorted(lines)


def _differences(path: str, old: object, new: object) -> list[str]:
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys(), key=str)
        found = [_differences(f"{path}.{key}", old.get(key), new.get(key)) for key in keys]
        return [line for lines in found for line in lines]
    return [f"{path} {old} -> {new}"]
