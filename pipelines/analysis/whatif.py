"""What another recipe would have made of the samples of a run, and what each step is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from ...operators import DataError, Operator
from ...operators.columns import columns_of
from ...operators.config import Weight
from ...operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..console import Console, figures_table, number_text, path_text, print_lines, widen_log
from ..dataset.remote import AnyPath
from ..engine.plan import operator_key
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import (
    KINDS,
    Comparison,
    advantages_text,
    changed_fields,
    compare,
    details_lines,
    json_lines,
    reasons_text,
)
from .figures import RowFigures
from .replay import SetSamples
from .rows import RowTable, joined_rows
from .stored import Stored, StoredSet, span_text

Both = tuple[RowTable, RowTable]
"""The rows of a set as its own steps left them, and as other steps do."""
Found = Sequence[tuple[StoredSet, Both | DataError]]
"""By set; an error is why one could not be compared."""


def whatif(one: StoredSet, recipe: Recipe) -> Both:
    recipe = recipe.offline() if one.training_step is None else recipe.in_training()
    steps = one.fit(recipe)
    if one.kind == "answers" and one.training_step is None:
        own = len(one.recipe.steps) - len(one.steps)
        _check_same_samples(one.recipe.steps[:own], recipe.steps[: len(recipe.steps) - len(steps)])
    samples = SetSamples.of(one)
    return samples.rows(samples.applied), samples.rows(samples.replay(steps))


def whatif_of_sets(stored: Stored, recipe: Recipe) -> Iterator[tuple[StoredSet, Both | DataError]]:
    """Each set that was sampled; where other judgements would be sampled, why it is left out."""
    own = stored.read_recipe()
    answers(stored)
    for one in sampled_sets(stored):
        try:
            if one.training_step is not None:
                _check_same_samples(_before(one, own), _before(one, recipe))
        except DataError as error:
            if one.kind == "answers":
                raise
            yield one, error
        else:
            yield one, whatif(one, recipe)


def _check_same_samples(own: Sequence[Step], other: Sequence[Step]) -> None:
    for step, another in zip(own, other, strict=False):
        if operator_key(step.operator) != operator_key(another.operator):
            found = f"{another.name} differs from the run's, so other responses would be sampled"
            raise DataError(found, "leave it as it was, or run the recipe")
    if len(own) != len(other):
        found = f"{len(other)} steps up to sampling, and {len(own)} in the run"
        raise DataError(found, "leave them as they were, or run the recipe")


def _before(one: StoredSet, recipe: Recipe) -> Sequence[Step]:
    """The steps of a recipe of training whose result is what a set has as sampled."""
    fitted = one.fit(recipe)
    names = [step.name for step in recipe.steps]
    return recipe.steps[: names.index(fitted[0].name)] if fitted else recipe.steps


def compared(sets: Iterable[Both]) -> Comparison:
    before, after = zip(*sets, strict=True)
    return compare(joined_rows(before), joined_rows(after))


def changes_of(stored: Stored, recipe: Recipe) -> list[str]:
    """What differs in the steps after sampling, with weights as they are in the recipes."""
    found = dict[str, None]()
    for one in {one.kind: one for one in sampled_sets(stored)}.values():
        own, other = (
            [step for step in each.steps if step.name in {x.name for x in one.fit(each)}]
            for each in (stored.read_recipe(), recipe)
        )
        code = (f"the code of {step.name}" for step in other if step.name in one.stale)
        found |= dict.fromkeys((*changed_fields(own, other), *code))
    return list(found)


def sampled_sets(stored: Stored) -> tuple[StoredSet, ...]:
    """Those of a run: the rewards of replayed groups are those of the step that sampled them."""
    return tuple(one for one in stored.sets if one.kind != "replayed")


def answers(stored: Stored) -> tuple[StoredSet, ...]:
    found = tuple(one for one in stored.sets if one.kind == "answers")
    if not found:
        right = "give a training run that has ended a step, with `train.keep_rollouts: true`"
        raise DataError(f"{stored.path} has no responses on file", right)
    return found


# --- What each step of a recipe is worth: the recipe without it -----------------------


class LeftOut(NamedTuple):
    name: str  # of the step, `weight NAME`, or `nothing`: the whole recipe
    steps: tuple[Step, ...]  # those after sampling that are left
    needed_by: tuple[str, ...] = ()  # steps that read what it writes, so that it cannot be left out


def left_out(steps: tuple[Step, ...]) -> list[LeftOut]:
    """All steps after sampling, then without each of them, and with each weight at 0."""
    found = [LeftOut("nothing", steps)]
    for at, step in enumerate(steps):
        later = steps[at + 1 :]
        found.append(LeftOut(step.name, (*steps[:at], *later), _needed_by(step, later)))
    weights = [_weights(step.operator) for step in steps]
    for name in dict.fromkeys(name for each in weights if len(each) > 1 for name in each):
        found.append(LeftOut(f"weight {name}", tuple(_unweighted(step, name) for step in steps)))
    return found


def whatif_each(stored: Stored, recipe: Recipe) -> Iterator[tuple[LeftOut, Comparison | None]]:
    """Yield what each part of a recipe is worth, over all answers; None where others need it."""
    sets = answers(stored)
    samples = [SetSamples.of(one) for one in sets]
    before = [each.rows(each.applied) for each in samples]
    of_sets = [left_out(one.fit(recipe)) for one in sets]  # Weights may have a schedule.
    for same in zip(*of_sets, strict=True):
        found = None
        if not same[0].needed_by:
            pairs = zip(samples, same, strict=True)
            after = [each.rows(each.replay(part.steps)) for each, part in pairs]
            found = compared(zip(before, after, strict=True))
        yield same[0], found


def _weights(operator: Operator) -> Mapping[str, Weight]:
    if isinstance(operator, RewardSumMapper | GdpoAdvantageMapper):
        return operator.weights
    return {}


def _unweighted(step: Step, name: str) -> Step:
    """A step that leaves a component out, if it weighs it beside others."""
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


_MOST_LINES = 20
_IN_TABLE = ("gained", "lost", "flipped", "unknown")
_OFF_POLICY = "a policy trained this way would have sampled other responses from the second step on"


def show_whatif(
    path: AnyPath, changed: Sequence[str], found: Found, command: str, console: Console
) -> None:
    widen_log(console)
    known = [(one, each) for one, each in found if not isinstance(each, DataError)]
    whole = compared(each for _, each in known)
    changes = "; ".join(changed) or "nothing: RECIPE and the run are the same"
    found_rows = f"{path_text(path)}: {whole.rows.num_rows:,} stored rows"
    lines = [f"{found_rows}; nothing is sampled or judged.", f"changed      {changes}"]
    print_lines(lines, console)
    if len(known) > 1:
        console.print(_table(_pieces(known)))
    why_not = dict[str, list[str]]()
    for one, each in found:
        if isinstance(each, DataError):
            why_not.setdefault(each.found, []).append(one.name)
    print_lines(_lines(whole, command), console)
    print_lines((f"left out     {span_text(x)}: {why}" for why, x in why_not.items()), console)
    if any(one.training_step is not None for one, _ in known):
        console.print(_OFF_POLICY)


def facts(found: Found) -> dict[str, Any]:
    """For `--json`: all sets together, and each; of a set that is left out, why."""
    whole = compared(each for _, each in found if not isinstance(each, DataError))
    sets = {
        one.name: each.found if isinstance(each, DataError) else compare(*each)
        for one, each in found
    }
    return {**whole._asdict(), "sets": sets if len(found) > 1 else {}}


def show_each(found: Iterable[tuple[LeftOut, Comparison | None]], console: Console) -> None:
    widen_log(console)
    rows = [(p.name, each or f"needed by {', '.join(p.needed_by)}") for p, each in found]
    console.print(_table(rows, "left out"))


def show_rows(found: Found, kind: str) -> None:
    """Print the rows of one of `KINDS` as JSON lines, those of training with their set."""
    for one, each in found:
        if not isinstance(each, DataError):
            for line in json_lines(compare(*each), kind, one.name):
                typer.echo(line)


def _pieces(found: Sequence[tuple[StoredSet, Both]]) -> Iterator[tuple[str, Comparison]]:
    """Yield each set, or each of as many pieces of the run as fit on a screen."""
    per_line = math.ceil(len(found) / _MOST_LINES)
    for at in range(0, len(found), per_line):
        some = found[at : at + per_line]
        yield span_text([each.name for each, _ in some]), compared(each for _, each in some)


def _table(rows: Iterable[tuple[str, Comparison | str]], first: str = "") -> Table:
    """A line for each comparison; a text is why there is none."""
    headings = ("rows kept", "groups", *_IN_TABLE, "mean reward", "rank")
    table = figures_table(first, *headings)
    table.add_column("shares of the advantages' variance", overflow="fold")
    for name, each in rows:
        if isinstance(each, str):
            table.add_row(Text(name), *[""] * len(headings), Text(each))
            continue
        before, after = each.figures
        shares = (f"{part} {number_text(x.variance)}" for part, x in after.shares.items())
        table.add_row(
            Text(name),
            f"{after.kept:,}",
            f"{after.groups:,}",
            *(f"{each.counts[kind]:,}" for kind in _IN_TABLE),
            f"{number_text(before.reward)} -> {number_text(after.reward)}",
            number_text(each.rank),
            Text(", ".join(shares)),
        )
    return table


def _lines(found: Comparison, command: str) -> Iterator[str]:
    before, after = found.figures
    gained, lost = (
        f"{found.counts[kind]:,} {kind}{reasons_text(found, kind)}" for kind in ("gained", "lost")
    )
    yield (
        f"rows         {found.kept_in_both:,} kept in both, {gained}, {lost}, "
        f"{found.counts['unknown']:,} unknown"
    )
    changes = "{:,} gained, {:,} lost".format(*found.groups)
    yield f"groups       {before.groups:,} before, {after.groups:,} after: {changes}"
    yield f"mean reward  {number_text(before.reward)} -> {number_text(after.reward)}"
    yield f"advantages   {advantages_text(found)}"
    sizes = [number_text(side.advantage) for side in found.figures]
    if has_advantages := sizes != ["-", "-"]:
        yield f"size         mean |advantage| {' -> '.join(sizes)}"
    if np.nansum([before.masked, after.masked]):
        masked = f"{before.masked:.1%} -> {after.masked:.1%}"
        yield f"masked       {masked} of the tokens of a response, on average"
    yield f"rank         correlation of rewards within groups {number_text(found.rank)}"
    names = dict.fromkeys([*before.shares, *after.shares])
    shares = {name: [_share(side, name) for side in found.figures] for name in names}
    texts = [f"{name} {' -> '.join(map(number_text, both))}" for name, both in shares.items()]
    yield f"variance     {', '.join(texts) if has_advantages else 'no advantages'}"
    if found.counts["unknown"]:
        yield "unknown      a model would have to be asked: these groups are left out"
    yield from details_lines(command, [kind for kind in KINDS if found.counts[kind]])


def _share(side: RowFigures, name: str) -> float:
    return side.shares[name].variance if name in side.shares else math.nan
