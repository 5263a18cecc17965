"""What a recipe would train on, from stored responses: advantages, signal, gradient mass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console

from ...operators import DataError
from ...operators.columns import numbers
from ...operators.confidence import wilson_interval
from ...operators.groups import Array
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.sampling.rollout import RolloutMapper
from ..console import figures_table, number_text, print_lines, widen_log
from ..dataset.files import run_folder
from ..dataset.write import default_cache, mark_written, writer, written_columns
from ..engine import run as engine
from ..engine.progress import Progress
from ..engine.steps import AppliedStep, run_step
from ..recipe.recipe import Recipe, load
from ..recipe.steps import Step, credit_step, gives_credit
from .figures import RowFigures, row_figures
from .replay import SetSamples
from .rows import RowTable
from .stored import Stored, StoredSet
from .whatif import answers, sampled_sets

_NORMALISATIONS = {"std": "GRPO", "none": "without std", "leave_one_out": "leave-one-out"}
_QUARTERS = 4


class Preview(NamedTuple):
    prompts: int  # groups
    figures: RowFigures  # of the rows as sampled, under the recipe
    without_signal: int  # of the groups with a row left, those with advantages of 0 only
    # by normalisation of GRPO, or by the step's name: of the kept rows mean |A|, largest, smallest
    advantages: Mapping[str, tuple[float, float, float]]
    # of the kept rows by quarters of length, the shortest first, each one's share
    length_mass: tuple[float, ...]
    # how many prompts must be sampled for one whose group is left, and the 95% interval; infinite
    # where none is
    refill: tuple[float, float, float]


def preview(samples: SetSamples, steps: Sequence[Step]) -> Preview:
    applied = samples.replay(steps)
    rows = samples.rows(applied)
    groups, kept_N, figures = rows.groups, rows.kept_N, row_figures(rows)
    advantage_N = _kept_advantages(rows)
    size_N = np.abs(np.nan_to_num(advantage_N))
    prompts = len(groups.starts_G)
    share = figures.groups / prompts
    low, high = wilson_interval(share, prompts)
    return Preview(
        prompts,
        figures,
        figures.groups - int((groups.sum(size_N) > 0).sum()),
        _advantages(samples, applied, advantage_N),
        _length_mass(size_N[kept_N], rows.lengths_N[kept_N]),
        (_inverse(share), _inverse(high), _inverse(low)),
    )


def _inverse(share: float) -> float:
    return 1 / share if share else math.inf


def _kept_advantages(rows: RowTable) -> Array:
    """float64[N]; NaN for a row that is dropped."""
    return np.where(rows.kept_N, numbers(rows.table, "advantage"), np.nan)


def _advantages(
    samples: SetSamples, applied: Sequence[AppliedStep], advantage_N: Array
) -> dict[str, tuple[float, float, float]]:
    """The figures of the recipe's advantages; of GRPO's, by each normalisation."""
    last = [each for each in applied if gives_credit(each.step.operator)][-1]
    step = last.step
    if not isinstance(step.operator, GrpoAdvantageMapper):
        return {step.name: _advantage_figures(advantage_N)}
    found = {}
    for name, heading in _NORMALISATIONS.items():
        other = step._replace(operator=step.operator.model_copy(update={"normalise": name}))
        credit = last._replace(step=other, result=run_step(other, last.before))
        rows = samples.rows(credit if each is last else each for each in applied)
        found[heading] = _advantage_figures(_kept_advantages(rows))
    return found


def _advantage_figures(advantage_N: Array) -> tuple[float, float, float]:
    known = advantage_N[np.isfinite(advantage_N)]
    if not len(known):
        return (math.nan,) * 3
    return float(np.abs(known).mean()), float(known.max()), float(known.min())


def _length_mass(size_K: Array, length_K: Array) -> tuple[float, ...]:
    mass_K = (np.maximum(length_K, 0) * size_K)[np.argsort(length_K, kind="stable")]
    quarters = np.array_split(mass_K, _QUARTERS) if mass_K.sum() else []
    return tuple(float(part.sum() / mass_K.sum()) for part in quarters)


def trained(stored: Stored, recipe: Recipe) -> tuple[StoredSet, ...]:
    """The sets of an export or of the last training step whose advantages a recipe computes."""
    last = answers(stored)[-1].training_step
    sets = [one for one in sampled_sets(stored) if one.training_step == last]
    found = tuple(one for one in sets if credit_step(one.fit(recipe)))
    if not found:
        raise DataError("no step writes the advantage", f"add {GrpoAdvantageMapper.name()}")
    return found


def run_on_some(path: Path, overrides: Mapping[str, str], prompts: int, progress: Progress) -> Path:
    """Run a recipe on a seeded sample of its dataset; what it samples is reused by a whole run.

    The export is in a folder `preview` beside the recipe's own, of which nothing is touched.
    """
    recipe = load(path, overrides)
    sampling = (RolloutMapper, RecordedRolloutMapper)
    if not any(isinstance(step.operator, sampling) for step in recipe.steps):
        raise DataError("no step of the recipe samples responses", "run the recipe")
    head = recipe.head
    for each in head.write_missing(*head.dataset_spec.paths, *recipe.recordings()):
        progress.tell(f"{each} did not exist: it was written, as generated_datasets says")
    table = recipe.opened().table()
    if table.num_rows > prompts:
        rows = np.sort(np.random.default_rng(0).choice(table.num_rows, prompts, replace=False))
        table = table.take(pa.array(rows))
    table = table.cast(mark_written(table.schema, written_columns(head.dataset_spec)))
    export = head.export_path.parent / "preview" / head.export_path.stem / "curated.parquet"
    sample = run_folder(export) / "prompts.arrow"
    if export.exists() and not sample.exists():
        raise DataError(f"{export} exists, and no preview wrote it", "move it away")
    sample.parent.mkdir(parents=True, exist_ok=True)
    with writer(sample, table.schema) as write:
        write(table)
    paths = {"dataset_path": str(sample), "export_path": str(export)}
    cache = default_cache(head.export_path)  # Where a whole run looks for what was sampled.
    some = load(path, {**overrides, **paths})
    ran = engine.run(some, cache=cache, progress=progress, overwrite=True)
    return Path(ran.export_path)


_ROUNDING = 0.005


def show_preview(title: str, found: Preview, console: Console, *, sampled: bool = False) -> None:
    widen_log(console)
    responses, prompts = f"{found.figures.rows:,} responses", f"{found.prompts:,} prompts"
    how = "sampled for this preview" if sampled else "nothing is sampled or judged"
    print_lines([f"{title}: {responses} to {prompts}; {how}."], console)
    table = figures_table("advantages", *found.advantages)
    for at, heading in enumerate(("mean |advantage|", "largest", "smallest")):
        table.add_row(heading, *(number_text(each[at]) for each in found.advantages.values()))
    console.print(table)
    print_lines(_lines(found), console)


def _lines(found: Preview) -> Iterator[str]:
    figures, signal = found.figures, found.without_signal
    left = figures.groups
    mass = {name: each.mass for name, each in figures.shares.items() if np.isfinite(each.mass)}
    if mass and abs(rest := 1 - sum(mass.values())) > _ROUNDING:
        mass["summed before sampling"] = rest  # Rewards that came with the responses.
    components = ", ".join(f"{name} {share:.0%}" for name, share in mass.items())
    nothing = "none: all advantages are 0"
    if left > signal:
        nothing = "not known by component: advantages are not in proportion to rewards"
    yield f"rows left              {figures.kept:,} of {figures.rows:,}, in {left:,} groups"
    yield f"groups without signal  {signal:,} of the {left:,} left"
    yield f"gradient mass          {components or nothing}"
    if found.length_mass:
        quarters = ", ".join(f"{mass:.0%}" for mass in found.length_mass)
        unit = figures.unit if figures.unit == "tokens" else "characters: there are no token ids"
        yield f"  by length            {quarters} (quarters, the shortest first; {unit})"
    factor, low, high = found.refill
    if math.isfinite(factor):
        prompts = f"{factor:.2f} prompts for each one left (95% {low:.2f} to {high:.2f})"
        yield f"refill                 {prompts}"
