"""What a recipe would train on, from stored responses: advantages, signal, gradient mass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ...operators import DataError
from ...operators.arrow_compute import pc
from ...operators.confidence import wilson_interval
from ...operators.groups import Array
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.sampling.rollout import RolloutMapper
from ..console import figures_table, print_lines, widen_log
from ..dataset.files import read_arrow, run_folder, write_arrow
from ..dataset.remote import AnyPath
from ..dataset.write import default_cache, mark_written, written_columns
from ..engine import run as engine
from ..engine.conditional_step import matching
from ..engine.progress import Progress
from ..engine.report import Report
from ..engine.steps import AppliedStep
from ..recipe.recipe import Recipe, load
from ..recipe.steps import gives_credit
from .figures import component_shares
from .rows import row_table
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
    unit: str  # of lengths, `tokens` or `characters`


def preview(found: Replayed) -> Preview:
    """The preview of a recipe whose steps were applied to stored responses.

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
    shares = component_shares(rows, length_N)
    return Preview(
        table.num_rows,
        len(left_G),
        int(kept_N.sum()),
        int(left_G.sum()),
        int((left_G & ~signal_G).sum()),
        _advantages(found.after, np.array(pc.fill_null(table["advantage"], np.nan))[kept_N]),
        {name: each.mass for name, each in shares.items() if np.isfinite(each.mass)},
        _length_mass(advantage_N, kept_N, length_N),
        _refill(int(left_G.sum()), len(left_G)),
        rows.unit,
    )


def _advantages(applied: Sequence[AppliedStep], advantage_N: Array) -> dict[str, AdvantageFigures]:
    """The figures of the recipe's advantages; of GRPO's, by each normalisation."""
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
    export, sample = folder / "curated.parquet", folder / "prompts.arrow"
    if not run_folder(export).is_dir():  # No preview has ended there.
        for file in (export, sample):
            if file.exists() and not (file == sample and _holds(sample, table)):
                raise DataError(f"{file} exists, and no preview wrote it", "move it away")
    folder.mkdir(parents=True, exist_ok=True)
    write_arrow(sample, table)
    paths = {"dataset_path": str(sample), "export_path": str(export)}
    cache = default_cache(head.export_path)  # Where a whole run looks for what was sampled.
    some = load(recipe.path, {**overrides, **paths})
    return engine.run(some, cache=cache, progress=progress, warn=warn, overwrite=True)


def _holds(path: AnyPath, table: pa.Table) -> bool:
    """Whether a file is this sample, which a preview wrote that was stopped."""
    try:
        return bool(read_arrow(path).equals(table))
    except (DataError, OSError):
        return False


# --- Print what training on a recipe would get ----------------------------------------

_ROUNDING = 0.005


def show_preview(title: str, found: Preview, console: Console, *, sampled: bool = False) -> None:
    """Print a preview."""
    widen_log(console)
    responses, prompts = f"{found.responses:,} responses", f"{found.prompts:,} prompts"
    how = "sampled for this preview" if sampled else "nothing is sampled or judged"
    print_lines([f"{title}: {responses} to {prompts}; {how}."], console)
    console.print(_advantage_table(found))
    print_lines(_lines(found), console)


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
    unit = found.unit if found.unit == "tokens" else "characters: there are no token ids"
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
