"""What another recipe would have made of the samples of a run: `rejuice whatif`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from ...operators import DataError
from ..console import Console, figures_table, number_text, path_text, print_lines, widen_log
from ..dataset.remote import AnyPath
from ..engine.plan import operator_key
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import (
    KINDS,
    Comparison,
    advantages_text,
    compare,
    details_lines,
    json_lines,
    reasons_text,
)
from .figures import RowFigures
from .recipe_words import changed_fields
from .replay import SetSamples
from .rows import RowTable, joined_rows
from .stored import Stored, StoredSet

Both = tuple[RowTable, RowTable]
"""The rows of a set as its own steps left them, and as other steps do."""
Found = Sequence[tuple[StoredSet, Both | DataError]]
"""By set; an error is why one could not be compared."""


def whatif(one: StoredSet, recipe: Recipe) -> Both:
    """Process the responses of a set by another recipe."""
    recipe = recipe.offline() if one.training_step is None else recipe.in_training()
    steps = one.fit(recipe)
    if one.kind == "answers" and one.training_step is None:
        own = len(one.recipe.steps) - len(one.steps)
        _check_same_samples(one.recipe.steps[:own], recipe.steps[: len(recipe.steps) - len(steps)])
    samples = SetSamples.of(one)
    return samples.rows(samples.applied), samples.rows(samples.replay(steps))


def whatif_of_sets(stored: Stored, recipe: Recipe) -> Iterator[tuple[StoredSet, Both | DataError]]:
    """`whatif` of each set of a stored run that was sampled, in order.

    Where the other recipe would have other judgements sampled, that is found instead.
    """
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
    """Return the steps of a recipe of training whose result is what a set has as sampled."""
    fitted = one.fit(recipe)
    names = [step.name for step in recipe.steps]
    return recipe.steps[: names.index(fitted[0].name)] if fitted else recipe.steps


def compared(sets: Iterable[Both]) -> Comparison:
    """Return the comparison of the rows of several sets."""
    before, after = zip(*sets, strict=True)
    return compare(joined_rows(before), joined_rows(after))


def changes_of(stored: Stored, recipe: Recipe) -> list[str]:
    """`changed_fields` of all steps after sampling, with weights as they are in the recipes."""
    found = dict[str, None]()
    for one in {one.kind: one for one in sampled_sets(stored)}.values():
        own, other = (
            [step for step in each.steps if step.name in {x.name for x in one.fit(each)}]
            for each in (stored.read_recipe(), recipe)
        )
        found |= dict.fromkeys(changed_fields(own, other))
    return list(found)


def sampled_sets(stored: Stored) -> tuple[StoredSet, ...]:
    """Return the sets of a run that were sampled: the rewards of replayed groups are those of the
    step that sampled them."""
    return tuple(one for one in stored.sets if one.kind != "replayed")


def answers(stored: Stored) -> tuple[StoredSet, ...]:
    """Return its sets of answers."""
    found = tuple(one for one in stored.sets if one.kind == "answers")
    if not found:
        right = "give a training run that has ended a step, with `train.keep_rollouts: true`"
        raise DataError(f"{stored.path} has no responses on file", right)
    return found


# --- Print ----------------------------------------------------------------------------

_MOST_LINES = 20
_OFF_POLICY = "a policy trained this way would have sampled other responses from the second step on"


def show_whatif(
    path: AnyPath, changed: Sequence[str], found: Found, command: str, console: Console
) -> None:
    """Print what other settings change."""
    widen_log(console)
    known = [(one, each) for one, each in found if not isinstance(each, DataError)]
    whole = compared(each for _, each in known)
    changes = "; ".join(changed) or "nothing: RECIPE and the run are the same"
    found_rows = f"{path_text(path)}: {whole.rows.num_rows:,} stored rows"
    lines = [f"{found_rows}; nothing is sampled or judged.", f"changed      {changes}"]
    print_lines(lines, console)
    if len(known) > 1:
        console.print(_steps_table(known))
    left_out = dict[str, list[str]]()
    for one, each in found:
        if isinstance(each, DataError):
            left_out.setdefault(each.found, []).append(one.name)
    print_lines(_lines(whole, command), console)
    print_lines((f"left out     {_names(x)}: {why}" for why, x in left_out.items()), console)
    if any(one.training_step is not None for one, _ in known):
        console.print(_OFF_POLICY)


def show_rows(found: Found, kind: str) -> None:
    """Print the rows of one of `KINDS` as JSON lines, those of training with their set."""
    for one, each in found:
        if not isinstance(each, DataError):
            for line in json_lines(compare(*each), kind, one.name):
                typer.echo(line)


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _steps_table(found: Sequence[tuple[StoredSet, Both]]) -> Table:
    """Return a line for each set, or for each of as many pieces of the run as fit on a screen."""
    table = figures_table("", "kept in both", *KINDS, "mean reward", "rank")
    per_line = math.ceil(len(found) / _MOST_LINES)
    for at in range(0, len(found), per_line):
        some = found[at : at + per_line]
        one = compared(each for _, each in some)
        reward = " -> ".join(number_text(side.reward) for side in one.figures)
        kinds = (f"{one.count(kind):,}" for kind in KINDS)
        name = Text(_names([each.name for each, _ in some]))
        table.add_row(name, f"{one.kept_in_both:,}", *kinds, reward, number_text(one.rank))
    return table


def _lines(found: Comparison, command: str) -> Iterator[str]:
    """Yield the figures of a comparison, each on its line."""
    before, after = found.figures
    gained, lost = (
        f"{found.count(kind):,} {kind}{reasons_text(found, kind)}" for kind in ("gained", "lost")
    )
    yield (
        f"rows         {found.kept_in_both:,} kept in both, {gained}, {lost}, "
        f"{found.count('unknown'):,} unknown"
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
    known = [{n: x[at] for n, x in shares.items() if np.isfinite(x[at])} for at in (0, 1)]
    tops = [max(each, key=each.__getitem__, default="") for each in known]
    dominant = f": {tops[1]} is dominant now" if tops[1] and tops[0] != tops[1] else ""
    yield f"variance     {', '.join(texts) if has_advantages else 'no advantages'}{dominant}"
    if found.count("unknown"):
        yield "unknown      a model would have to be asked: these groups are left out"
    yield from details_lines(command, [kind for kind in KINDS if found.count(kind)])


def _share(side: RowFigures, name: str) -> float:
    return side.shares[name].variance if name in side.shares else math.nan
