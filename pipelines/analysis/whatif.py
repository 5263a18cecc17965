"""What another recipe would have made of the samples of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import typer
from rich.table import Table
from rich.text import Text

from ...operators import Change, DataError, Operator, ResumableOperator
from ...operators.arrow_compute import pc
from ...operators.columns import columns_of
from ...operators.groups import Array, Groups
from ...operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import concatenate
from ...operators.schedule import Weight
from ..console import (
    Console,
    figures_table,
    number_text,
    path_text,
    print_lines,
    widen_log,
)
from ..dataset.remote import AnyPath
from ..engine.frame import Frame
from ..engine.plan import operator_key
from ..engine.steps import AppliedStep, StepResult, iterate_steps, run_step
from ..recipe.recipe import Recipe
from ..recipe.steps import Step, credit_step
from .comparison import (
    KINDS,
    UNKNOWN,
    Comparison,
    advantage_sizes,
    advantages_text,
    changed_fields,
    compare,
    details_lines,
    json_lines,
    masked_shares,
    reasons_text,
)
from .rows import RowTable, joined_rows, row_table
from .stored import Stored, StoredSet

# --- Replay ---------------------------------------------------------------------------
# Apply other steps to the rows of a stored run, without sampling or judging anything again.
#
# What a step wrote is taken from the file where an operator with the same fields and code read the
# same values in the same rows. Any other step is computed, as in a run, but for those that ask a
# model: of these the values of rows that they have seen are taken, and a group with a row that they
# have not seen is unknown. So what is found is what a run would find, or left out.


class Replayed(NamedTuple):
    """The rows of a stored set, and the same rows under other steps."""

    base: Frame  # rows as sampled
    before: list[AppliedStep]  # what the set's own steps did
    after: list[AppliedStep]  # what the other steps do


def whole(one: StoredSet) -> tuple[Frame, list[AppliedStep]]:
    """Return all rows of a set as sampled, in one frame, and what its steps did to them.

    Raises:
        DataError: there are no rows, or what the steps did is not on file.
    """
    parts = [list(one.applied(part)) for part in range(one.parts)]
    tables = [one.base(part).table() for part in range(one.parts)]
    if not sum(table.num_rows for table in tables):
        raise DataError("no row was sampled", "give a run with rows")
    base = Frame.of(pa.concat_tables(tables, promote_options="default"))
    joined = [_joined([applied[at].result for applied in parts]) for at in range(len(one.steps))]
    results = {step.number: result for step, result in zip(one.steps, joined, strict=True)}
    return base, list(iterate_steps(one.steps, base, lambda step, _: results[step.number]))


def _joined(parts: Sequence[StepResult]) -> StepResult:
    sizes = [part.rows_in for part in parts]
    change = concatenate([part.change for part in parts], sizes)
    return StepResult(change, sum(sizes), sum(part.seconds for part in parts), {})


def replay(base: Frame, before: Sequence[AppliedStep], steps: Sequence[Step]) -> Replayed:
    """Apply other steps to the rows of a set.

    Raises:
        RejuiceError: what a step raised.
    """
    stored = _KnownResults(before)
    return Replayed(base, list(before), list(iterate_steps(steps, base, stored.run)))


def check_same_samples(own: Sequence[Step], other: Sequence[Step]) -> None:
    """Whether other steps up to sampling are those of a run.

    Raises:
        DataError: a step differs, so that other responses would have to be sampled.
    """
    for step, another in zip(own, other, strict=False):
        if operator_key(step.operator) != operator_key(another.operator):
            found = f"{another.name} differs from the run's, so other responses would be sampled"
            raise DataError(found, "leave it as it was, or run the recipe")
    if len(own) != len(other):
        found = f"{len(other)} steps up to sampling, and {len(own)} in the run"
        raise DataError(found, "leave them as they were, or run the recipe")


class _KnownResults:
    """What was computed before, by the operator's fields and code."""

    def __init__(self, applied: Sequence[AppliedStep]) -> None:
        self._by_key: dict[str, list[AppliedStep]] = {}
        for each in applied:
            self._by_key.setdefault(operator_key(each.step.operator), []).append(each)

    def run(self, step: Step, frame: Frame) -> StepResult:
        """Return the change of a step: stored, aligned or computed."""
        known = self._by_key.get(operator_key(step.operator), [])
        for each in known:
            if _reads_the_same(step, frame, each.before):
                return each.result
        operator = step.operator
        if not isinstance(operator, ResumableOperator) and not operator.asks_server:
            return run_step(step, frame, summary=False)
        change = (
            _aligned(frame, known[0], step)
            if known
            else Change(reasons=pa.repeat(UNKNOWN, frame.num_rows))
        )
        return StepResult(change, frame.num_rows, 0.0, {})


def _deciding(step: Step, frame: Frame) -> list[str]:
    """Return the columns of a frame that decide what a step makes of it."""
    operator, there = step.operator, frame.column_names
    # Rows that the condition does not match keep what they have in the columns that it writes.
    kept = [name for name in operator.writes() if name in there] if operator.where else []
    return list(dict.fromkeys((*operator.needs_of(there), *kept)))


def _reads_the_same(step: Step, frame: Frame, other: Frame) -> bool:
    if frame.num_rows != other.num_rows:
        return False
    names = _deciding(step, frame)
    if names != _deciding(step, other):
        return False
    ids = [name for name in ("response_id", "prompt_id") if name in frame.column_names]
    compared = list(dict.fromkeys([*ids, *names]))
    return bool(frame.select(compared).equals(other.select(compared)))


def _aligned(frame: Frame, stored: AppliedStep, step: Step) -> Change:
    """The values of rows that the stored step has seen; groups with another row are dropped."""
    if stored.result.change.parents is not None or "response_id" not in frame.column_names:
        raise DataError(
            f"{step.label} adds rows, and was given others in the run",
            "leave what precedes it as it was",
        )
    names = _deciding(step, frame)
    ids = frame.select(["response_id"])["response_id"]
    places = pc.index_in(ids, stored.before.select(["response_id"])["response_id"].combine_chunks())
    seen_N = np.array(places.is_valid())
    rows = pc.fill_null(places, 0)
    was, now = stored.before.select(names).take(rows), frame.select(names)
    for name in names:
        seen_N &= _equal_cells(was[name], now[name])
    groups = Groups.of(frame.select(["prompt_id"]))
    unknown_N = groups.sum((~seen_N).astype(np.int64))[groups.codes_N] > 0
    taken = pa.array(np.where(seen_N, np.asarray(rows), -1), mask=~seen_N)
    columns = {name: column.take(taken) for name, column in stored.result.change.columns.items()}
    reasons = stored.result.change.reasons
    dropped = pa.nulls(frame.num_rows, pa.string()) if reasons is None else reasons.take(taken)
    dropped = pc.if_else(pa.array(unknown_N), UNKNOWN, dropped)
    return Change(columns, dropped if dropped.null_count < frame.num_rows else None)


def _equal_cells(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Array:
    """bool[N], a null equal to a null."""
    if pa.types.is_nested(b.type):  # Arrow does not compare lists and structs.
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return np.array([one == other for one, other in pairs], bool)
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    return np.array(pc.or_(pc.fill_null(pc.equal(a, b), False), both_null))


# --- What another recipe would have made of the samples of a run ----------------------


class Both(NamedTuple):
    """The rows of a set as its own steps left them, and as other steps do."""

    before: RowTable
    after: RowTable


def whatif(one: StoredSet, recipe: Recipe) -> Both:
    """Process the responses of a set by another recipe.

    Raises:
        RejuiceError: other responses would have to be sampled, or a step failed.
    """
    recipe = recipe.offline() if one.training_step is None else recipe.in_training()
    steps = one.fit(recipe)
    if one.kind == "answers" and one.training_step is None:
        own = len(one.recipe.steps) - len(one.steps)
        check_same_samples(one.recipe.steps[:own], recipe.steps[: len(recipe.steps) - len(steps)])
    return both(*whole(one), steps)


def whatif_of_sets(stored: Stored, recipe: Recipe) -> Iterator[tuple[StoredSet, Both | DataError]]:
    """`whatif` of each set of a stored run that was sampled, in order.

    Where the other recipe would have other judgements sampled, that is found instead.

    Raises:
        RejuiceError: other answers would have to be sampled, or a step failed.
    """
    own = stored.read_recipe()
    for one in sampled_sets(stored):
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
    """Return the steps of a recipe of training whose result is what a set has as sampled."""
    fitted = one.fit(recipe)
    names = [step.name for step in recipe.steps]
    return recipe.steps[: names.index(fitted[0].name)] if fitted else recipe.steps


def both(base: Frame, before: Sequence[AppliedStep], steps: Sequence[Step]) -> Both:
    """Return what was done to some rows, and what other steps do; without rows that steps add."""
    found = replay(base, before, steps)
    tables = (row_table(base, applied) for applied in (found.before, found.after))
    return Both(*(table.first(base.num_rows) for table in tables))


def compared(sets: Sequence[Both]) -> Comparison:
    """Return the comparison of the rows of several sets."""
    before, after = zip(*sets, strict=True)
    return compare(joined_rows(before), joined_rows(after))


def changes_of(stored: Stored, recipe: Recipe) -> list[str]:
    """`changed_fields` of all steps after sampling, with weights as they are in the recipes."""
    own = stored.read_recipe()
    found = dict[str, None]()
    sets = sampled_sets(stored)
    for kind in dict.fromkeys(one.kind for one in sets):
        one = next(one for one in sets if one.kind == kind)
        found |= dict.fromkeys(changed_fields(_fitted(one, own), _fitted(one, recipe)))
    return list(found)


def _fitted(one: StoredSet, recipe: Recipe) -> list[Step]:
    """Return the steps that run on a set, as the recipe has them, schedules included."""
    names = [step.name for step in one.fit(recipe)]
    return [step for step in recipe.steps if step.name in names]


# --- What each step is worth: the recipe without it, over the responses of a run ------


class Ablation(NamedTuple):
    """A recipe without one part."""

    left_out: str  # the name of the step, `weight NAME`, or "" for the whole recipe
    steps: tuple[Step, ...]  # those after sampling that are left
    needed_by: tuple[str, ...] = ()  # steps that read what it writes, so that it cannot be left out


class AblationResult(NamedTuple):
    """An ablation and what it does; `comparison` is None where the step is needed."""

    ablation: Ablation
    comparison: Comparison | None


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


def measured(sets: Sequence[StoredSet], recipe: Recipe) -> Iterator[AblationResult]:
    """Yield what each part of a recipe is worth, over the rows of one or more sets.

    Raises:
        RejuiceError: a step failed, or what the steps did is not on file.
    """
    replayed = [whole(one) for one in sets]
    of_sets = [ablations(one.fit(recipe)) for one in sets]  # Weights may have a schedule.
    for same in zip(*of_sets, strict=True):
        if same[0].needed_by:
            yield AblationResult(same[0], None)
            continue
        found = [
            both(base, before, each.steps)
            for (base, before), each in zip(replayed, same, strict=True)
        ]
        yield AblationResult(same[0], compared(found))


def _needed_by(step: Step, later: tuple[Step, ...]) -> tuple[str, ...]:
    """Later steps that cannot do without a column that only this step writes."""
    writes = set(step.operator.writes())
    reads = ((x.name, {*x.operator.reads(), *columns_of(x.operator.where or ())}) for x in later)
    return tuple(name for name, columns in reads if writes & columns)


# --- Sets -----------------------------------------------------------------------------


def trained(stored: Stored, recipe: Recipe) -> tuple[StoredSet, ...]:
    """Return the sets of an export or of the last training step whose advantages a recipe computes.

    Raises:
        DataError: there are none.
    """
    last = answers(stored)[-1]
    sets = [one for one in sampled_sets(stored) if one.training_step == last.training_step]
    found = tuple(one for one in sets if credit_step(one.fit(recipe)))
    if not found:
        raise DataError("no step writes the advantage", f"add {GrpoAdvantageMapper.name()}")
    return found


def sampled_sets(stored: Stored) -> tuple[StoredSet, ...]:
    """Return the sets of a run that were sampled: the rewards of replayed groups are those of the
    step that sampled them."""
    return tuple(one for one in stored.sets if one.kind != "replayed")


def answers(stored: Stored) -> tuple[StoredSet, ...]:
    """Return its sets of answers.

    Raises:
        DataError: it has none.
    """
    found = tuple(one for one in stored.sets if one.kind == "answers")
    if not found:
        right = "give a training run with `train.keep_rollouts: true`"
        raise DataError(f"{stored.path} keeps no rollouts", right)
    return found


# --- Print what other settings would change -------------------------------------------

Item = TypeVar("Item")


def tracked(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Yield the same items, with a progress bar."""
    from rich.progress import track

    console = Console(stderr=True)
    quiet = not console.is_terminal
    yield from track(items, "steps", total, console=console, transient=True, disable=quiet)


_MOST_LINES = 20
_OFF_POLICY = "a policy trained this way would have sampled other responses from the second step on"


Found = Sequence[tuple[StoredSet, Both | DataError]]
"""By set; an error is why one could not be compared."""


def show_whatif(
    path: AnyPath, changed: Sequence[str], found: Found, command: str, console: Console
) -> None:
    """Print what other settings change."""
    widen_log(console)
    known = [(one, each) for one, each in found if isinstance(each, Both)]
    whole = compared([each for _, each in known])
    changes = "; ".join(changed) or "nothing: RECIPE and the run are the same"
    found_rows = f"{path_text(path)}: {whole.rows.num_rows:,} stored rows"
    lines = [f"{found_rows}; nothing is sampled or judged.", f"changed      {changes}"]
    print_lines(lines, console)
    if len(known) > 1:
        console.print(_steps_table(known))
    print_lines([*comparison_lines(whole, command), *_left_out(found)], console)
    if any(one.training_step is not None for one, _ in known):
        console.print(_OFF_POLICY)


def _left_out(found: Found) -> Iterator[str]:
    """Yield the sets that could not be compared, and why."""
    left_out = dict[str, list[str]]()
    for one, error in found:
        if isinstance(error, DataError):
            left_out.setdefault(error.found, []).append(one.name)
    for why, names in left_out.items():
        which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        yield f"left out     {which}: {why}"


def show_rows(found: Found, kind: str) -> None:
    """Print the rows of one of `KINDS` as JSON lines, those of training with their set."""
    for one, each in found:
        if isinstance(each, Both):
            for line in json_lines(compare(*each), kind, one.name):
                typer.echo(line)


def _steps_table(found: Sequence[tuple[StoredSet, Both]]) -> Table:
    """Return a line for each set, or for each of as many pieces of the run as fit on a screen."""
    table = figures_table("", "kept in both", *KINDS, "mean reward", "rank")
    per_line = math.ceil(len(found) / _MOST_LINES)
    for at in range(0, len(found), per_line):
        some = found[at : at + per_line]
        name = some[0][0].name if len(some) == 1 else f"{some[0][0].name} to {some[-1][0].name}"
        one = compared([each for _, each in some])
        reward = " -> ".join(map(number_text, one.mean_reward))
        kinds = (f"{one.count(kind):,}" for kind in KINDS)
        table.add_row(Text(name), f"{one.kept_in_both:,}", *kinds, reward, number_text(one.rank))
    return table


def comparison_lines(found: Comparison, command: str) -> Iterator[str]:
    """Yield the figures of a comparison, each on its line."""
    before, after, gained, lost = found.groups
    counts = {kind: f"{found.count(kind):,}" for kind in KINDS}
    why = {kind: reasons_text(found, kind) for kind in ("gained", "lost")}
    yield (
        f"rows         {found.kept_in_both:,} kept in both, "
        f"{counts['gained']} gained{why['gained']}, {counts['lost']} lost{why['lost']}, "
        f"{counts['unknown']} unknown"
    )
    yield f"groups       {before:,} before, {after:,} after: {gained:,} gained, {lost:,} lost"
    one, two = found.mean_reward
    yield f"mean reward  {number_text(one)} -> {number_text(two)}"
    yield f"advantages   {advantages_text(found)}"
    sizes = advantage_sizes(found)
    if np.isfinite(sizes).any():
        yield f"size         mean |advantage| {' -> '.join(map(number_text, sizes))}"
    masked = masked_shares(found)
    if np.nansum(masked):
        before_after = " -> ".join(f"{each:.1%}" for each in masked)
        yield f"masked       {before_after} of the tokens of a response, on average"
    yield f"rank         correlation of rewards within groups {number_text(found.rank)}"
    shares = [
        f"{name} {number_text(a)} -> {number_text(b)}" for name, (a, b) in found.variance.items()
    ]
    yield f"variance     {', '.join(shares) or 'no advantages'}{_dominant(found.variance)}"
    if found.count("unknown"):
        yield "unknown      a model would have to be asked: these groups are left out"
    yield from details_lines(command, [kind for kind in KINDS if found.count(kind)])


def show_ablations(results: Sequence[AblationResult], console: Console) -> None:
    """Print a line for each part that was left out."""
    widen_log(console)
    headings = ("rows kept", "groups", "mean reward", "sign flips", "rank")
    table = figures_table("left out", *headings)
    table.add_column("shares of the advantages' variance", overflow="fold")
    for ablation, found in results:
        name = Text(ablation.left_out or "nothing")
        if found is None:
            needed = Text(f"needed by {', '.join(ablation.needed_by)}")
            table.add_row(name, "", "", "", "", "", needed)
            continue
        kept = found.kept_in_both + found.count("gained")
        shares = [f"{component} {number_text(b)}" for component, (_, b) in found.variance.items()]
        table.add_row(
            name,
            f"{kept:,}",
            f"{found.groups[1]:,}",
            number_text(found.mean_reward[1]),
            f"{found.count('flipped'):,}",
            number_text(found.rank),
            Text(", ".join(shares)),
        )
    console.print(table)


def _dominant(variance: Mapping[str, tuple[float, float]]) -> str:
    tops = []
    for side in (0, 1):
        shares = {name: both[side] for name, both in variance.items() if not math.isnan(both[side])}
        ordered = sorted(shares, key=shares.__getitem__)
        tops.append(ordered[-1] if ordered else None)
    return f": {tops[1]} is dominant now" if tops[1] and tops[0] != tops[1] else ""
