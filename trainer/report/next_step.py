"""Which prompts the next step of a training run would sample, where the recipe chooses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from ...operators.columns import flat
from ...operators.logs import visible
from ...pipelines.console import figures_table, widen_log
from ...pipelines.recipe.recipe import Recipe
from ...pipelines.recipe.train import Train
from .. import saved
from ..metrics import read as read_metrics
from ..run import TrainingRun
from ..split import split_recipe
from ..verl.choice import PromptChoice
from ..verl.history import read_history

_MOST = 10
_ID = 12  # characters of an id
_SHOWN = {
    "history_visits": "visits",
    "history_age": "age",
    "history_mean_pass_rate": "mean pass rate",
    "estimated_pass_rate": "estimated",
    "drawn_pass_rate": "drawn",
    "choice_rank": "rank",
}
"""By column of the steps that choose, its heading."""


class NextStep(NamedTuple):
    number: int  # of the step
    taken: pa.Table  # the prompts that it samples, in order, with what the steps wrote to them
    eligible: int  # prompts that no step has dropped
    prompts: int  # all of the run
    # those that earlier steps have sampled ahead and none has trained on; None: it is not known
    under_way: int | None
    dropped: Mapping[str, int]  # by reason


def next_step(run: TrainingRun) -> NextStep | None:
    """None: all steps are trained."""
    trained = [point.step for point in read_metrics(run.folder) if point.trained]
    # A step of which a run was killed after its checkpoint may have no figures.
    number = 1 + max(*trained, saved.last(run.folder) or 0, 0)
    config = run.config
    if number > config.steps:
        return None
    choice, under_way = PromptChoice(run), _under_way(run, number)
    names = flat(choice.prompts["prompt_id"].cast(pa.string()))
    busy = pc.index_in(pa.array(under_way or (), pa.string()), value_set=names).drop_null()
    choice.take(number, _requested(config, number, len(busy)), busy.to_pylist())
    figures = choice.figures()
    start = "choice/dropped/"
    dropped = {k.removeprefix(start): int(v) for k, v in figures.items() if k.startswith(start)}
    eligible, prompts = int(figures["choice/eligible"]), choice.prompts.num_rows
    busy_now = None if under_way is None else len(under_way)
    return NextStep(number, choice.table, eligible, prompts, busy_now, dropped)


def _requested(config: Train, number: int, under_way: int) -> int:
    """How many prompts a step requests, if training is resumed before it.

    It fills up what is under way to the steps that are sampled ahead, as verl does at every start,
    and requests those of one step more, unless it is one of the last steps.
    """
    batch, left = config.prompts_per_step, config.steps - number + 1
    ahead = config.max_age if config.samples_ahead else 0
    missing = max(0, min(ahead, left) * batch - under_way)
    return missing + (batch if number + ahead <= config.steps else 0)


def _under_way(run: TrainingRun, number: int) -> list[str] | None:
    """Prompts that steps before `number` chose and did not train on; None: it is not known."""
    if not run.config.samples_ahead or number == 1:
        return []
    if not run.config.keep_rollouts:
        return None
    left = Counter[str]()
    for step in range(1, number):
        file = run.step_folder(step) / "choice.parquet"
        if file.is_file():  # The last steps of a run choose none.
            left.update(pq.read_table(file, columns=["prompt_id"])["prompt_id"].to_pylist())
        left.subtract(read_history(run, step)["prompt_id"].to_pylist())
    return [name for name, times in left.items() if times > 0]


def next_step_of(folder: Path, recipe: Recipe) -> NextStep | None:
    """That of a run under a recipe; None: its steps choose no prompts, or all is trained."""
    if not split_recipe(recipe).choosing:
        return None
    return next_step(TrainingRun.of(folder, recipe))


def show_next_step(folder: Path, recipe: Recipe, console: Console) -> None:
    if (found := next_step_of(folder, recipe)) is not None:
        _show(found, console)
    elif recipe.head.train is not None and split_recipe(recipe).choosing:
        steps = recipe.head.train.steps
        line = f"all {steps:,} steps are trained; the next one: --train.steps {steps + 1}"
        console.print(Text(line))


def _show(found: NextStep, console: Console) -> None:
    widen_log(console)
    lost = ", ".join(f"{reason} {n:,}" for reason, n in sorted(found.dropped.items()))
    dropped = f"; dropped: {lost}" if lost else ""
    taken = found.taken.num_rows
    line = f"step {found.number} samples {taken:,} of {found.eligible:,} eligible prompts"
    if found.under_way is None:
        line += " (without regard to those under way, which are not known: keep_rollouts is false)"
    elif found.under_way:
        line += f", besides {found.under_way:,} under way"
    console.print(Text(f"{line}, of {found.prompts:,}{dropped}"))
    names = [name for name in _SHOWN if name in found.taken.column_names]
    table = figures_table("prompt_id", *(_SHOWN[name] for name in names))
    for row in found.taken.slice(0, _MOST).to_pylist():
        values = ("" if row[x] is None else row[x] for x in names)
        cells = (f"{x:.3g}" if isinstance(x, float) else str(x) for x in values)
        table.add_row(Text(visible(row["prompt_id"], one_line=True)[:_ID]), *cells)
    console.print(table)
    if taken > _MOST:
        console.print(Text(f"{taken - _MOST:,} more"))
