"""What another recipe would have made of the samples of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, DataError, ResumableOperator
from ...operators.compute import pc
from ...operators.groups import Array, Groups
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import concatenate
from ..data_juicer.steps import asks_server
from ..dataset.remote import AnyPath
from ..engine.frame import Frame
from ..engine.plan import operator_key
from ..engine.steps import AppliedStep, StepResult, iterate_steps, run_step
from ..recipe.read import load, load_without_code
from ..recipe.recipe import Recipe
from ..recipe.steps import Step, StoredOperator
from .figures import column_values, variance_shares
from .rows import KEPT, RowTable, row_table
from .stored import RECIPES, Stored, StoredSet, open_stored

# --- Replay ---------------------------------------------------------------------------
# Apply other steps to the rows of a stored run, without sampling or judging anything again.
#
# What a step wrote is taken from the file where an operator with the same fields and code read the
# same values in the same rows. Any other step is computed, as in a run, but for those that ask a
# model: of these the values of rows that they have seen are taken, and a group with a row that they
# have not seen is unknown. So what is found is what a run would find, or left out.

UNKNOWN = "not_stored"
"""Why a row is unknown: a judge or model would have to be asked."""


class Replayed(NamedTuple):
    """The rows of a stored set, and the same rows under other steps."""

    base: Frame  # rows as sampled
    before: list[AppliedStep]  # what the set's own steps did
    after: list[AppliedStep]  # what the other steps do


def whole(one: StoredSet) -> tuple[Frame, list[AppliedStep]]:
    """All rows of a set as sampled, in one frame, and what its steps did to them.

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
        """The change of a step: stored, aligned or computed."""
        known = self._by_key.get(operator_key(step.operator), [])
        for each in known:
            if _reads_the_same(step, frame, each.before):
                return each.result
        operator = step.operator
        if not isinstance(operator, ResumableOperator) and not asks_server(operator):
            return run_step(step, frame, summary=False)
        change = (
            _aligned(frame, known[0], step)
            if known
            else Change(reasons=pa.repeat(UNKNOWN, frame.num_rows))
        )
        return StepResult(change, frame.num_rows, 0.0, {})


def _reads_the_same(step: Step, frame: Frame, other: Frame) -> bool:
    if frame.num_rows != other.num_rows:
        return False
    names = step.operator.reads_of(frame.column_names)
    if names != step.operator.reads_of(other.column_names):
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
    names = step.operator.reads_of(frame.column_names)
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


# --- What changed between two ways to process the same responses ----------------------

KINDS = ("gained", "lost", "flipped", "silenced", "woken", "unknown")
"""What may have happened to a row; one that is kept may also have changed sign."""


class Comparison(NamedTuple):
    """The rows of a base before and after, row by row."""

    # response_id, prompt_id, step_before and step_after (the number of the step that dropped it,
    # null where it is kept), reason_before, reason_after, reward_before, reward_after,
    # advantage_before, advantage_after, and a bool for each of `KINDS`: gained and lost in the rows
    # kept; flipped: the sign of the advantage; silenced, woken: to or from an advantage of 0;
    # unknown: a model would have to be asked
    rows: pa.Table
    kept_in_both: int  # rows
    # with a row kept before, after, and how many were gained and lost
    groups: tuple[int, int, int, int]
    # Spearman's correlation of rewards before and after within groups, mean over groups that have
    # spread in both; NaN without any
    rank: float
    ranked: int  # these groups
    mean_reward: tuple[float, float]  # of rows kept, before and after
    # by component, its share of the variance of advantages before and after, over rows kept in both
    variance: Mapping[str, tuple[float, float]]

    def count(self, kind: str) -> int:
        """How many rows are of one of `KINDS`."""
        return int(np.asarray(self.rows[kind]).sum())

    def reasons(self, kind: str) -> dict[str, int]:
        """Why gained rows were dropped, or lost ones are, the most frequent reason first."""
        column = self.rows[f"reason_{'before' if kind == 'gained' else 'after'}"]
        counted = column.filter(self.rows[kind]).value_counts().to_pylist()
        ordered = sorted(counted, key=lambda each: (-each["counts"], str(each["values"])))
        return {str(each["values"]): each["counts"] for each in ordered}


def compare(before: RowTable, after: RowTable, n: int, unknown: str) -> Comparison:
    """Compare the first `n` rows, those of the base, of two tables over it."""
    one, two = before.table.slice(0, n), after.table.slice(0, n)
    fates = [np.asarray(table["fate"]) for table in (one, two)]
    unknown_N = np.array(pc.fill_null(pc.equal(two["reason"].cast(pa.string()), unknown), False))
    kept = [fates[0] == KEPT, fates[1] == KEPT]
    both_N = kept[0] & kept[1]
    rewards = [column_values(table, "reward") for table in (one, two)]
    advantages = [column_values(table, "advantage") for table in (one, two)]
    signs = [np.sign(np.nan_to_num(each)) for each in advantages]
    kinds = {
        "gained": ~kept[0] & kept[1],
        "lost": kept[0] & ~kept[1] & ~unknown_N,
        "flipped": both_N & (signs[0] * signs[1] < 0),
        "silenced": both_N & (signs[0] != 0) & (signs[1] == 0),
        "woken": both_N & (signs[0] == 0) & (signs[1] != 0),
        "unknown": unknown_N,
    }
    groups = Groups.of(one)
    left = [groups.sum(each.astype(np.int64)) > 0 for each in kept]
    unknown_G = groups.sum(unknown_N.astype(np.int64)) > 0
    return Comparison(
        _rows(one, two, fates, kinds),
        int(both_N.sum()),
        (
            int(left[0].sum()),
            int(left[1].sum()),
            int((left[1] & ~left[0]).sum()),
            int((left[0] & ~left[1] & ~unknown_G).sum()),
        ),
        *rank_correlation(groups, rewards[0], rewards[1], both_N),
        (_mean(rewards[0][kept[0]]), _mean(rewards[1][kept[1]])),
        _variance(before, after, both_N),
    )


def combined(found: Sequence[Comparison]) -> Comparison:
    """One comparison of the rows of several, such as the steps of a training run."""
    rows = pa.concat_tables([each.rows for each in found], promote_options="permissive")
    before, after, gained, lost = (
        sum(of_all) for of_all in zip(*(x.groups for x in found), strict=True)
    )
    ranked = sum(each.ranked for each in found)
    ranks = sum(each.rank * each.ranked for each in found if each.ranked)
    kept = [pc.is_null(rows[f"step_{when}"]) for when in ("before", "after")]
    rewards = [column_values(rows, f"reward_{when}") for when in ("before", "after")]
    return Comparison(
        rows,
        sum(each.kept_in_both for each in found),
        (before, after, gained, lost),
        ranks / ranked if ranked else float("nan"),
        ranked,
        (_mean(rewards[0][np.asarray(kept[0])]), _mean(rewards[1][np.asarray(kept[1])])),
        _combined_variance(found),
    )


def _combined_variance(found: Sequence[Comparison]) -> dict[str, tuple[float, float]]:
    """Shares of the sum of squares over all rows: those of each part, weighted by its own sum."""
    names = dict.fromkeys(name for each in found for name in each.variance)
    sizes = [_squares(each) for each in found]
    shares = {}
    for name in names:
        sides = list[float]()
        for side in (0, 1):
            parts = [
                (each.variance[name][side] * size[side], size[side])
                for each, size in zip(found, sizes, strict=True)
                if name in each.variance and np.isfinite(each.variance[name][side])
            ]
            whole = sum(size for _, size in parts)
            sides.append(sum(part for part, _ in parts) / whole if whole else float("nan"))
        shares[name] = (sides[0], sides[1])
    return shares


def _squares(found: Comparison) -> tuple[float, float]:
    """Sums of squares of the advantages before and after, over rows kept in both."""
    both = pc.and_(pc.is_null(found.rows["step_before"]), pc.is_null(found.rows["step_after"]))
    rows = found.rows.filter(both)
    before, after = (column_values(rows, f"advantage_{when}") for when in ("before", "after"))
    return float(np.nansum(before**2)), float(np.nansum(after**2))


def rank_correlation(groups: Groups, x_N: Array, y_N: Array, used_N: Array) -> tuple[float, int]:
    """Spearman's correlation within groups, mean over groups with spread in both, and how many.

    NaN without any.
    """
    known_N = used_N & np.isfinite(x_N) & np.isfinite(y_N)
    codes_N = groups.codes_N[known_N]
    ranks = [_ranks(codes_N, values[known_N]) for values in (x_N, y_N)]
    sizes_G = np.bincount(codes_N, minlength=len(groups.starts_G))
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = [r - (np.bincount(codes_N, r, len(sizes_G)) / sizes_G)[codes_N] for r in ranks]
        sums = [
            np.bincount(codes_N, a * b, len(sizes_G))
            for a, b in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
        ]
        found_G = sums[0] / np.sqrt(sums[1] * sums[2])
    found_G = found_G[np.isfinite(found_G)]
    return float(found_G.mean()) if len(found_G) else float("nan"), len(found_G)


def _ranks(codes_N: Array, values_N: Array) -> Array:
    """Average ranks of values within groups; groups are consecutive."""
    order_N = np.lexsort((values_N, codes_N))
    codes, values = codes_N[order_N], values_N[order_N]
    new = np.ones(len(order_N), bool)
    new[1:] = (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order_N))
    middle = (starts + ends - 1) / 2
    ranks_N = np.empty(len(order_N))
    ranks_N[order_N] = np.repeat(middle, ends - starts)
    return ranks_N


def _rows(one: pa.Table, two: pa.Table, fates: list[Array], kinds: Mapping[str, Array]) -> pa.Table:
    columns = {name: one[name] for name in ("response_id", "prompt_id")}
    for when, table, fate_N in (("before", one, fates[0]), ("after", two, fates[1])):
        columns[f"step_{when}"] = pa.array(fate_N, mask=fate_N == KEPT)
        for name in ("reason", "reward", "advantage"):
            columns[f"{name}_{when}"] = table[name]
    return pa.table({**columns, **{name: pa.array(each) for name, each in kinds.items()}})


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _variance(before: RowTable, after: RowTable, both_N: Array) -> dict[str, tuple[float, float]]:
    shares = [variance_shares(rows, both_N) for rows in (before, after)]
    names = dict.fromkeys([*shares[0], *shares[1]])
    nothing = float("nan")
    return {name: (shares[0].get(name, nothing), shares[1].get(name, nothing)) for name in names}


# --- What another recipe would have made of the samples of a run ----------------------


def whatif(one: StoredSet, recipe: Recipe) -> Comparison:
    """Process the responses of a set by another recipe, and compare.

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
    """All steps after sampling, then without each of them, and with each weight at 0."""
    found = [Ablation("", steps)]
    for at, step in enumerate(steps):
        rest = (*steps[:at], *steps[at + 1 :])
        found.append(Ablation(step.name, rest, _needed_by(step, steps[at + 1 :])))
    for at, step in enumerate(steps):
        if isinstance(step.operator, RewardSumMapper) and len(step.operator.weights) > 1:
            for name in step.operator.weights:
                weights = {**step.operator.weights, name: 0.0}
                operator = step.operator.model_copy(update={"weights": weights})
                others = (*steps[:at], step._replace(operator=operator), *steps[at + 1 :])
                found.append(Ablation(f"weight {name}", others))
    return found


def measured(sets: Sequence[StoredSet], recipe: Recipe) -> Iterator[AblationResult]:
    """What each part of a recipe is worth, over the rows of one or more sets.

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
            compared(base, before, each.steps)
            for (base, before), each in zip(replayed, same, strict=True)
        ]
        yield AblationResult(same[0], combined(found))


def _needed_by(step: Step, later: tuple[Step, ...]) -> tuple[str, ...]:
    """Later steps that cannot do without a column that only this step writes."""
    writes = set(step.operator.writes())
    return tuple(each.name for each in later if writes & set(each.operator.reads()))


# --- A stored run, and the recipe that is compared with it ----------------------------


def opened(
    recipe: Path,
    run: Path | None,
    overrides: Mapping[str, str],
    steps: range | None = None,
    *,
    trust: Callable[[Stored], None],
) -> tuple[Stored, Recipe]:
    """The stored run, and the recipe with other fields, with the code of their operators.

    Args:
        recipe: in YAML, or a stored run, whose own recipe is meant.
        run: the stored run; None: that of the recipe.
        overrides: by `step.field`.
        steps: of a training run, those that are wanted; None: all.
        trust: called with each stored run before its code is imported; raises an error where the
            user does not trust it.

    Raises:
        RejuiceError: either cannot be read, or the overrides do not fit.
    """
    stored = open_with_code(run or recipe, steps, trust)
    if recipe.suffix in RECIPES:
        return stored, load(recipe, overrides)
    own = stored if run is None else open_with_code(recipe, None, trust)
    return stored, own.read_recipe(overrides)


def open_with_code(path: AnyPath, steps: range | None, trust: Callable[[Stored], None]) -> Stored:
    """A stored run, with the code of its operators as far as it is trusted.

    Raises:
        RejuiceError: it cannot be read, or what `trust` raises.
    """
    stored = open_stored(path, steps=steps)
    trust(stored)
    if any(isinstance(x.operator, StoredOperator) for one in stored.sets for x in one.recipe.steps):
        return open_stored(path, steps=steps)
    return stored


def has_run(path: Path) -> bool:
    """Whether there is a stored run of a recipe, or a path is one.

    Raises:
        RejuiceError: the recipe cannot be read.
    """
    if path.suffix not in RECIPES or not path.is_file():
        return True  # Or what is wrong will be found when it is opened.
    load_without_code(path)
    try:
        open_stored(path)
    except DataError:
        return False
    return True


def trained(stored: Stored, recipe: Recipe) -> tuple[StoredSet, ...]:
    """The sets of an export or of the last training step whose advantages a recipe computes.

    Raises:
        DataError: there are none.
    """
    last = answers(stored)[-1]
    sets = [one for one in stored.sets if one.training_step == last.training_step]
    found = tuple(one for one in sets if any(map(_is_advantage, one.fit(recipe))))
    if not found:
        raise DataError("the recipe has no grpo_advantage_mapper", "add one as the last step")
    return found


def _is_advantage(step: Step) -> bool:
    return isinstance(step.operator, GrpoAdvantageMapper)


def answers(stored: Stored) -> tuple[StoredSet, ...]:
    """Its sets of answers.

    Raises:
        DataError: it has none.
    """
    found = tuple(one for one in stored.sets if one.kind == "answers")
    if not found:
        right = "give a training run with `train.keep_rollouts: true`"
        raise DataError(f"{stored.path} keeps no rollouts", right)
    return found
