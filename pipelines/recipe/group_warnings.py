"""Warnings about steps that change a group between sampling and what is computed of it.

    sampling ──> verdict ──> a step that drops single responses ──> pass rate, advantage

The pass rate of a prompt, and the mean and the deviation of its rewards, estimate what the policy
gives. Of a group that has lost responses because of what is in them, they estimate something else;
docs/group-statistics.md has the figures. Operators declare both sides: `drops_within_groups` and
`estimates`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...operators import ALL, Kind, Operator, Scope
from ...operators.columns import SHARED_IN_GROUP
from ...operators.mapper.group_stats_mapper import GroupStatsMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..data_juicer.steps import ForeignOperator
from .recipe import Recipe
from .steps import Step

_DROPPED = {
    Kind.DEDUPLICATOR: "repeated responses, the policy's likeliest,",
    Kind.SELECTOR: "the responses that it does not choose",
}
_TRAINING = "the update"


def group_warnings(
    recipe: Recipe, columns: Collection[str] = (), *, training: bool = False
) -> list[str]:
    """One line for each step that drops responses by their content before a group is summarised.

    So may the run that made the dataset have done: also a line where its statistics are replaced.

    Args:
        recipe: the recipe.
        columns: those of its dataset, as far as they are known.
        training: whether it is about to be trained with; a recipe with a `train:` section always
            counts as one for training, in which dropped rows have no gradient either.
    """
    training = training or recipe.head.train is not None
    steps, known = recipe.steps, set(columns)
    sampling = [at for at, step in enumerate(steps) if "response" in step.operator.writes()]
    first = sampling[0] if sampling else -1
    # Responses that the dataset has, in whatever columns; all else that is there before sampling is
    # the prompt's.
    stored = {*steps[first].operator.reads()} - SHARED_IN_GROUP if sampling else set[str]()
    later = (name for step in steps[max(first, 0) :] for name in step.operator.writes())
    of_responses = {*stored, *later}
    lines = [] if sampling else _replaced_statistics(recipe, known)
    for at, step in enumerate(steps):
        sampled = at > first or not stored.isdisjoint(step.operator.reads())
        if sampled and _drops_within_groups(step.operator, bool(sampling), of_responses):
            affected = dict(_affected(steps[at + 1 :], known))
            if training and not any("advantage" in each.operator.writes() for each in steps):
                affected[_TRAINING] = GrpoAdvantageMapper.estimates
            if affected:
                uses = any(s.name in affected and s.operator.optional_reads() for s in steps)
                lines.append(_line(recipe, step, affected, uses, training))
        known.update(step.operator.writes())
    return lines


def _replaced_statistics(recipe: Recipe, columns: set[str]) -> list[str]:
    """A line for the step that computes statistics again which the dataset has already."""
    steps = (step for step in recipe.steps if isinstance(step.operator, GroupStatsMapper))
    return [
        f"{recipe.where(step)}: replaces pass_rate and group_n of the dataset; if the run that "
        "wrote it dropped single responses, they are then those of the rest, not of the group that "
        "was sampled; read what that run read instead"
        for step in steps
        if columns.issuperset(step.operator.writes())
    ][:1]


def _drops_within_groups(operator: Operator, samples: bool, of_responses: set[str]) -> bool:
    """Whether a step may drop some responses to a prompt and keep others."""
    reads = operator.reads()
    if isinstance(operator, ForeignOperator) and operator.text_column is not None:
        named = (value for value in (operator.model_extra or {}).values() if isinstance(value, str))
        reads = (operator.text_column, *named)
    if operator.scope is Scope.ROW and reads and reads != ALL:
        shared = SHARED_IN_GROUP | ({*reads} - of_responses if samples else set())
        if shared.issuperset(reads):
            return False  # All responses to a prompt have the same values, so the same fate.
    return operator.drops_within_groups()


def _affected(later: tuple[Step, ...], known: set[str]) -> Iterator[tuple[str, str]]:
    """The later steps that compute something of a group, and what."""
    known = set(known)
    for step in later:
        statistics = step.operator.optional_reads()
        if step.operator.estimates and not (statistics and known.issuperset(statistics)):
            yield step.name, step.operator.estimates
        known.update(step.operator.writes())


def _line(recipe: Recipe, step: Step, affected: dict[str, str], uses: bool, training: bool) -> str:
    """The warning; `uses`: an affected step would use statistics of the sample, were they there."""
    what = _DROPPED.get(step.operator.kind, "single responses by their content")
    computed = ", ".join(dict.fromkeys(affected.values()))
    line = f"{recipe.where(step)}: drops {what} before {' and '.join(affected)}: {computed}"
    line += " are then those of the rest, not of the group that was sampled"
    if training:
        return f"{line}, and what it drops has no gradient; leave it out of training"
    line += f"; put it after {list(affected)[-1]}"
    return f"{line}, or {GroupStatsMapper.name()} before it for the pass rate" if uses else line
