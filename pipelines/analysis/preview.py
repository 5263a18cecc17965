"""What a recipe would train on, from stored responses: advantages, signal, gradient mass, cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ...operators import DataError, ResumableOperator
from ...operators.arrow_compute import pc
from ...operators.confidence import wilson_interval
from ...operators.groups import Array
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.sampling.rollout import RolloutMapper
from ..console import figures_table, print_lines, widen_log
from ..dataset.files import write_arrow
from ..dataset.write import default_cache, mark_written, written_columns
from ..engine import run as engine
from ..engine.conditional_step import matching
from ..engine.progress import Progress
from ..engine.report import Report
from ..engine.steps import AppliedStep
from ..recipe.recipe import Recipe, load
from ..recipe.steps import gives_credit
from ..recipe.train import Train
from .figures import component_advantages
from .rows import RowTable, row_table
from .stored import Stored, StoredSet
from .whatif import Replayed

_NORMALISATIONS = {"std": "GRPO", "none": "without std", "leave_one_out": "leave-one-out"}
_QUARTERS = 4


class AdvantageFigures(NamedTuple):
    """Advantages of the kept rows under one normalisation: mean of |A|, greatest A, least A."""

    mean_size: float
    largest: float
    smallest: float


class Refill(NamedTuple):
    """How many prompts must be sampled for each one whose group is left, and its 95% interval.

    Infinite where no group is left.
    """

    factor: float
    low: float
    high: float


class Preview(NamedTuple):
    """What a step of training would get."""

    responses: int  # stored ones; `prompts` they answer
    prompts: int  # groups
    kept: int  # rows left
    groups_left: int  # with a row left; of these `without_signal` have advantages of 0 only
    without_signal: int  # groups
    advantages: dict[str, AdvantageFigures]  # by normalisation of GRPO, or by the step's name
    component_mass: dict[str, float]  # by component, its share of the gradient mass
    # of the kept rows by quarters of length, the shortest first, each one's share
    length_mass: tuple[float, ...]
    refill: Refill  # prompts to sample for one that is left
    tokens: float | None  # mean of a response; None without token ids
    judge_calls: float  # requests for each response, by the steps that ask a server
    seconds: float | None  # that the steps took in the run, for each response; None where unknown


def preview(found: Replayed) -> Preview:
    """Return the preview of a recipe whose steps were applied to stored responses.

    Raises:
        DataError: the recipe has no advantages, so nothing would be trained.
    """
    rows = row_table(found.base, found.after).first(found.base.num_rows)
    table, groups = rows.table, rows.groups
    kept_N = rows.kept_N
    advantage_N = np.nan_to_num(np.array(pc.fill_null(table["advantage"], np.nan)))
    left_G = groups.sum(kept_N.astype(np.int64)) > 0
    signal_G = groups.sum((kept_N & (advantage_N != 0)).astype(np.int64)) > 0
    length_N = np.array(pc.fill_null(table[rows.unit], 0), float)
    tokens = pc.mean(table["tokens"]).as_py() if rows.unit == "tokens" else None
    return Preview(
        table.num_rows,
        len(left_G),
        int(kept_N.sum()),
        int(left_G.sum()),
        int((left_G & ~signal_G).sum()),
        _advantages(found.after, np.array(pc.fill_null(table["advantage"], np.nan))[kept_N]),
        _component_mass(rows, kept_N, length_N),
        _length_mass(advantage_N, kept_N, length_N),
        _refill(int(left_G.sum()), len(left_G)),
        tokens,
        sum(_own_rows(each) for each in found.after if _asks(each)) / max(1, table.num_rows),
        _seconds(found.before, table.num_rows),
    )


def _own_rows(applied: AppliedStep) -> int:
    """Return how many rows a step is about."""
    return matching(applied.step.operator, applied.before).num_rows


def _advantages(applied: Sequence[AppliedStep], advantage_N: Array) -> dict[str, AdvantageFigures]:
    """Return the figures of the recipe's advantages; of GRPO's, by each normalisation."""
    last = [each for each in applied if gives_credit(each.step.operator)]
    if not last:
        raise DataError("no step writes the advantage", f"add {GrpoAdvantageMapper.name()}")
    operator, before = last[-1].step.operator, last[-1].before
    if not isinstance(operator, GrpoAdvantageMapper):
        return {last[-1].step.name: _advantage_figures(advantage_N)}
    before = matching(operator, before)
    view = before.select(operator.reads_of(before.column_names))
    found = {}
    for name, heading in _NORMALISATIONS.items():
        other = operator.model_copy(update={"normalise": name})
        values = np.array(pc.fill_null(other.apply(view).columns["advantage"], np.nan))
        found[heading] = _advantage_figures(values)
    return found


def _advantage_figures(advantage_N: Array) -> AdvantageFigures:
    values = advantage_N[np.isfinite(advantage_N)]
    if not len(values):
        return AdvantageFigures(*[float("nan")] * 3)
    return AdvantageFigures(*map(float, (np.abs(values).mean(), values.max(), values.min())))


def _component_mass(rows: RowTable, kept_N: Array, length_N: Array) -> dict[str, float]:
    advantage_N = np.nan_to_num(np.array(pc.fill_null(rows.table["advantage"], np.nan)))
    weight_N = np.where(kept_N, length_N, 0.0)
    whole = float((weight_N * np.abs(advantage_N)).sum())
    if not whole:
        return {}
    parts = component_advantages(rows)
    known_N = np.isfinite(np.sum([*parts.values()] or [np.zeros(len(weight_N))], axis=0))
    if (weight_N * np.abs(advantage_N))[~known_N].any():
        return {}
    return {
        name: float((weight_N * np.nan_to_num(part_N) * np.sign(advantage_N)).sum()) / whole
        for name, part_N in parts.items()
    }


def _length_mass(advantage_N: Array, kept_N: Array, length_N: Array) -> tuple[float, ...]:
    mass_N = (length_N * np.abs(advantage_N))[kept_N][np.argsort(length_N[kept_N], kind="stable")]
    if not mass_N.sum():
        return ()
    return tuple(float(part.sum() / mass_N.sum()) for part in np.array_split(mass_N, _QUARTERS))


def _refill(left: int, prompts: int) -> Refill:
    low, high = wilson_interval(left / prompts, prompts)
    share = left / prompts
    invert = [1 / each if each else float("inf") for each in (share, high, low)]
    return Refill(*invert)


def _asks(applied: AppliedStep) -> bool:
    operator = applied.step.operator
    return isinstance(operator, ResumableOperator) or operator.asks_server


def _seconds(before: Sequence[AppliedStep], rows: int) -> float | None:
    seconds = sum(each.result.seconds for each in before)
    return seconds / rows if rows and seconds else None


# --- Cost -----------------------------------------------------------------------------
# What a step of training is expected to take: prompts, tokens, requests and seconds.

_STEPS = 10_000
"""Training steps that are simulated."""
_MOST_REFILLS = 9
_ENOUGH = 0.05


class RefillFigures(NamedTuple):
    """Training steps that may sample more prompts so many times."""

    refills: int  # `train.refill`
    short: float  # the share of steps that have too few groups all the same
    prompts: float  # the mean number that a step samples


class StepCost(NamedTuple):
    """What a step of training is expected to take; None: not known."""

    # with the recipe's `train.refill`, then with more, until few steps are short
    refills: tuple[RefillFigures, ...]
    prompts: float  # that are sampled
    responses: float  # to them
    tokens: float | None  # of the responses
    judge_calls: float  # requests of the steps that ask a server
    sampling_s: float | None  # seconds to sample
    steps_s: float | None  # seconds in the steps of the recipe
    training_s: float | None  # seconds of the whole step, with the update


def step_cost(found: Preview, train: Train, stored: Stored, one: StoredSet) -> StepCost:
    """Return the cost of a step, if it goes as the stored responses went."""
    refills = tuple(refill_figures(found.groups_left / found.prompts, train))
    prompts = refills[0].prompts
    responses = prompts * found.responses / found.prompts
    tokens = None if found.tokens is None else found.tokens * responses
    logged = [_mean_metric(stored, f"timing_s/{name}") for name in ("gen", "step")]
    sampling = logged[0] if logged[0] is not None else _times(_sampling_s(stored, one), responses)
    judge_calls, steps_s = found.judge_calls * responses, _times(found.seconds, responses)
    return StepCost(refills, prompts, responses, tokens, judge_calls, sampling, steps_s, logged[1])


def refill_figures(share: float, train: Train) -> list[RefillFigures]:
    """Simulated steps, with the recipe's `refill` and with more, until few have too few groups.

    A group is left with probability `share`, whatever becomes of the others. Refills are sampled as
    training does: as many prompts as will fill the batch at the rate at which groups were left.
    """
    found = [_simulated(share, train.prompts_per_step, train.refill)]
    while found[-1].short > _ENOUGH and share > 0 and found[-1].refills < _MOST_REFILLS:
        found.append(_simulated(share, train.prompts_per_step, found[-1].refills + 1))
    return found


def _simulated(share: float, wanted: int, refills: int) -> RefillFigures:
    draw = np.random.default_rng(0)
    requested_N = np.full(_STEPS, wanted)
    left_N: Array = draw.binomial(requested_N, share)
    for _ in range(refills):
        missing_N = np.maximum(wanted - left_N, 0)
        more_N = np.minimum(wanted, -(-missing_N * requested_N // np.maximum(left_N, 1)))
        requested_N = requested_N + more_N
        left_N = left_N + draw.binomial(more_N, share)
    return RefillFigures(refills, float((left_N < wanted).mean()), float(requested_N.mean()))


def _mean_metric(stored: Stored, name: str) -> float | None:
    """Return the mean of a metric over training steps but the first, which compiles and loads."""
    values = [point[name] for point in stored.points if name in point]
    later: Sequence[float] = values[1:] or values
    return float(np.mean(later)) if later else None


def _sampling_s(stored: Stored, one: StoredSet) -> float | None:
    """Return seconds to sample a response of an export; None: nothing was sampled in that run."""
    if stored.report is None:
        return None
    names = {x.name for x in one.recipe.steps if isinstance(x.operator, RolloutMapper)}
    steps = [each for each in stored.report.steps if each.step in names]
    rows = sum(each.rows_out for each in steps)
    seconds = sum(each.seconds for each in steps)
    return seconds / rows if rows and seconds else None


def _times(each: float | None, n: float) -> float | None:
    return None if each is None else each * n


# --- Run a recipe on some of its prompts, beside its own export -----------------------


def run_on_some(
    recipe: Recipe,
    overrides: Mapping[str, str],
    prompts: int,
    *,
    progress: Progress,
    warn: Callable[[str], object],
) -> Report:
    """Run a recipe on a seeded sample of its dataset; what it samples is reused by a whole run.

    The export goes into a folder `preview` beside the recipe's own, of which nothing is touched.

    Raises:
        DataError: it samples nothing.
        RejuiceError: as `engine.run`.
    """
    sampling = (RolloutMapper, RecordedRolloutMapper)
    if not any(isinstance(step.operator, sampling) for step in recipe.steps):
        raise DataError("no step of the recipe samples responses", "run the recipe")
    head = recipe.head
    for path in head.write_missing(*head.dataset_spec.paths, *recipe.recordings()):
        progress.tell(f"{path} did not exist: it was written, as generated_datasets says")
    table = recipe.opened().table()
    if table.num_rows > prompts:
        rows = np.sort(np.random.default_rng(0).choice(table.num_rows, prompts, replace=False))
        table = table.take(pa.array(rows))
    table = table.cast(mark_written(table.schema, written_columns(head.dataset_spec)))
    folder = head.export_path.parent / "preview" / head.export_path.stem
    folder.mkdir(parents=True, exist_ok=True)
    write_arrow(folder / "prompts.arrow", table)
    export = folder / "curated.parquet"
    paths = {"dataset_path": str(folder / "prompts.arrow"), "export_path": str(export)}
    cache = default_cache(head.export_path)  # Where a whole run looks for what was sampled.
    some = load(recipe.path, {**overrides, **paths})
    return engine.run(some, cache=cache, progress=progress, warn=warn, overwrite=True)


# --- Print what training on a recipe would get ----------------------------------------

_ROUNDING = 0.005


def show_preview(
    title: str,
    found: Preview,
    train: Train | None,
    cost: StepCost | None,
    console: Console,
    *,
    sampled: bool = False,
) -> None:
    """Print a preview."""
    widen_log(console)
    responses, prompts = f"{found.responses:,} responses", f"{found.prompts:,} prompts"
    how = "sampled for this preview" if sampled else "nothing is sampled or judged"
    print_lines([f"{title}: {responses} to {prompts}; {how}."], console)
    console.print(_advantage_table(found))
    more = _training(cost, train) if train and cost else [_each(found)]
    print_lines([*_lines(found), *more], console)


def _advantage_table(found: Preview) -> Table:
    table = figures_table("advantages", *found.advantages)
    columns = found.advantages.values()
    for at, heading in enumerate(("mean |advantage|", "largest", "smallest")):
        table.add_row(heading, *(f"{column[at]:.3f}" for column in columns))
    return table


def _lines(found: Preview) -> list[str]:
    left, signal = found.groups_left, found.without_signal
    mass = dict(found.component_mass)
    if mass and abs(rest := 1 - sum(mass.values())) > _ROUNDING:
        mass["summed before sampling"] = rest  # Rewards that came with the responses.
    components = ", ".join(f"{name} {share:.0%}" for name, share in mass.items())
    nothing = "none: all advantages are 0"
    if found.groups_left > found.without_signal:
        nothing = "not known by component: advantages are not in proportion to rewards"
    quarters = ", ".join(f"{mass:.0%}" for mass in found.length_mass)
    unit = "tokens" if found.tokens is not None else "characters: there are no token ids"
    factor, low, high = found.refill
    lines = [
        f"rows left              {found.kept:,} of {found.responses:,}, in {left:,} groups",
        f"groups without signal  {signal:,} of the {left:,} left",
        f"gradient mass          {components or nothing}",
    ]
    if quarters:
        lines.append(f"  by length            {quarters} (quarters, the shortest first; {unit})")
    if math.isfinite(factor):
        prompts = f"{factor:.2f} prompts for each one left (95% {low:.2f} to {high:.2f})"
        lines.append(f"refill                 {prompts}")
    return lines


def _training(cost: StepCost, train: Train) -> list[str]:
    """Return what a step of training takes, and all of them."""
    own, *more = cost.refills
    tried = [f"{own.short:.0%} of steps with train.refill {own.refills}"]
    tried += [f"{each.short:.0%} with {each.refills}" for each in more]
    short = ", ".join(tried)
    seconds = [
        f"{_time(each)} {what}"
        for each, what in (
            (cost.sampling_s, "to sample"),
            (cost.steps_s, "in the recipe's steps"),
            (cost.training_s, "in all"),
        )
        if each is not None
    ]
    total = cost.training_s
    taken = "time unknown until a step was trained"
    if total is not None:
        taken = _time(train.steps * total)
    return [
        f"  of {train.prompts_per_step:<18,}too few groups are left in {short}",
        f"each step              {_counts(cost, 1)}",
        f"  time                 {', '.join(seconds) or 'unknown: the responses were recorded'}",
        f"{f'all {train.steps:,} steps':<23}{_counts(cost, train.steps)}; {taken}",
    ]


def _counts(cost: StepCost, steps: int) -> str:
    tokens = "tokens unknown" if cost.tokens is None else f"{steps * cost.tokens:,.0f} tokens"
    sampled = f"{steps * cost.prompts:,.0f} prompts, {steps * cost.responses:,.0f} responses"
    return f"{sampled}, {tokens}, {steps * cost.judge_calls:,.0f} judge calls"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _each(found: Preview) -> str:
    tokens = "tokens unknown" if found.tokens is None else f"{found.tokens:,.0f} tokens"
    seconds = "" if found.seconds is None else f", {1000 * found.seconds:.2f} ms in the steps"
    return f"for each response      {tokens}, {found.judge_calls:.2f} judge calls{seconds}"
