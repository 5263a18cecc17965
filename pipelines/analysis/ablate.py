"""What each step of a recipe is worth: the recipe without it, over the responses of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ...operators import Operator
from ...operators.columns import columns_of
from ...operators.config import Weight
from ...operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..console import figures_table, number_text, widen_log
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import Comparison
from .replay import SetSamples
from .stored import StoredSet
from .whatif import compared


class Ablation(NamedTuple):
    """A recipe without one part."""

    left_out: str  # the name of the step, `weight NAME`, or "" for the whole recipe
    steps: tuple[Step, ...]  # those after sampling that are left
    needed_by: tuple[str, ...] = ()  # steps that read what it writes, so that it cannot be left out


def ablations(steps: tuple[Step, ...]) -> list[Ablation]:
    """Return all steps after sampling, then without each of them, and with each weight at 0."""
    found = [Ablation("", steps)]
    for at, step in enumerate(steps):
        rest = (*steps[:at], *steps[at + 1 :])
        found.append(Ablation(step.name, rest, _needed_by(step, steps[at + 1 :])))
    weights = [_weights(step.operator) for step in steps]
    for name in dict.fromkeys(name for each in weights if len(each) > 1 for name in each):
        found.append(Ablation(f"weight {name}", tuple(_unweighted(step, name) for step in steps)))
    return found


def ablated(
    sets: Sequence[StoredSet], recipe: Recipe
) -> Iterator[tuple[Ablation, Comparison | None]]:
    """Yield what each part of a recipe is worth, over the rows of one or more sets."""
    samples = [SetSamples.of(one) for one in sets]
    before = [each.rows(each.applied) for each in samples]
    of_sets = [ablations(one.fit(recipe)) for one in sets]  # Weights may have a schedule.
    for same in zip(*of_sets, strict=True):
        if same[0].needed_by:
            yield same[0], None
            continue
        pairs = zip(samples, same, strict=True)
        after = [each.rows(each.replay(ablation.steps)) for each, ablation in pairs]
        yield same[0], compared(zip(before, after, strict=True))


def _weights(operator: Operator) -> Mapping[str, Weight]:
    if isinstance(operator, RewardSumMapper | GdpoAdvantageMapper):
        return operator.weights
    return {}


def _unweighted(step: Step, name: str) -> Step:
    """Return a step that leaves a component out, if it weighs it beside others."""
    weights = _weights(step.operator)
    if name not in weights or len(weights) < 2:
        return step
    update = {"weights": {**weights, name: 0.0}}
    return step._replace(operator=step.operator.model_copy(update=update))


def _needed_by(step: Step, later: tuple[Step, ...]) -> tuple[str, ...]:
    """Later steps that cannot do without a column that only this step writes."""
    writes = set(step.operator.writes())
    reads = ((x.name, {*x.operator.reads(), *columns_of(x.operator.where or ())}) for x in later)
    return tuple(name for name, columns in reads if writes & columns)


def show_ablations(results: Sequence[tuple[Ablation, Comparison | None]], console: Console) -> None:
    """Print a line for each part that was left out."""
    widen_log(console)
    headings = ("rows kept", "groups", "mean reward", "sign flips", "rank", "unknown")
    table = figures_table("left out", *headings)
    table.add_column("shares of the advantages' variance", overflow="fold")
    for ablation, found in results:
        name = Text(ablation.left_out or "nothing")
        if found is None:
            needed = Text(f"needed by {', '.join(ablation.needed_by)}")
            table.add_row(name, *[""] * len(headings), needed)
            continue
        after = found.figures[1]
        shares = (f"{part} {number_text(x.variance)}" for part, x in after.shares.items())
        table.add_row(
            name,
            f"{after.kept:,}",
            f"{after.groups:,}",
            number_text(after.reward),
            f"{found.count('flipped'):,}",
            number_text(found.rank),
            f"{found.count('unknown'):,}",
            Text(", ".join(shares)),
        )
    console.print(table)
