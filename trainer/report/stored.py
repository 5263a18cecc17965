"""Runs and steps of training as stored runs: `open_training`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...operators import Change, DataError
from ...operators.columns import flat
from ...operators.groups import Array
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...pipelines.analysis.stored import IDS, SetKind, Stored, StoredSet, not_on_file, with_written
from ...pipelines.engine.frame import Frame
from ...pipelines.engine.report import DECISIONS
from ...pipelines.engine.steps import RunStep, StepResult, run_step
from ...pipelines.recipe.recipe import Recipe
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.trust import read_stored
from ..metrics import json_figures
from ..metrics import read as read_metrics
from ..run import TrainingRun, is_prepared
from ..split import REPLAYED, grading_and_credit, split_recipe
from ..verl.choice import PromptChoice, progress_of
from ..verl.curation import RecordedStep, at_progress, recorded_steps

_NEEDED = {"decisions": ("step", "row_id", "reason"), "values": ("response_id",)}
_FOLDERS: dict[SetKind, str] = {"answers": "", "judgements": "verify", "replayed": REPLAYED}


def open_training(path: Path, steps: range | None = None) -> Stored | None:
    """By the folder of a training run, its recipe.yaml, or the folder of a step; else None."""
    if path.name == "recipe.yaml" and is_prepared(path.parent):
        path = path.parent
    step = path.resolve()
    if step.parent.name == "steps" and (sets := _sets(path)):
        run, recipe = step.parents[1], step.parents[1] / "recipe.yaml"
        points = tuple(point for point in _points(run) if point["step"] == int(step.name))
        title = f"{run.name}, step {int(step.name)}"
        return Stored(path, title, "training step", sets, recipe, run, points=points)
    if not (path / "recipe.yaml").is_file() or not is_prepared(path):
        return None
    folders = sorted(each for each in (path / "steps").glob("*") if each.name.isdecimal())
    wanted = [each for each in folders if steps is None or int(each.name) in steps]
    if folders and not wanted and steps:
        found = f"{path} has no training step from {steps.start} to {steps.stop - 1}"
        right = f"it has steps {int(folders[0].name)} to {int(folders[-1].name)}"
        raise DataError(found, right)
    sets = tuple(each for folder in wanted for each in _sets(folder))
    points = tuple(point for point in _points(path) if steps is None or point["step"] in steps)
    title, recipe = path.resolve().name, path / "recipe.yaml"
    return Stored(path, title, "training run", sets, recipe, path, points=points)


def open_so_far(run: Path) -> Stored:
    """A run that may still go on: the curves of all its steps, and its last whole step."""
    folders = sorted(each for each in (run / "steps").glob("*") if each.name.isdecimal())
    whole = next((sets for each in reversed(folders) if (sets := _sets(each))), ())
    first = open_training(run, range(0))
    if first is None or first.kind != "training run":
        raise DataError(f"{run} holds no training run", "give the --output of one")
    return first._replace(sets=whole, points=tuple(_points(run)))


def _points(run: Path) -> list[dict[str, Any]]:
    return [{"step": point.step, **json_figures(point)} for point in read_metrics(run)]


def _sets(folder: Path) -> tuple[StoredSet, ...]:
    folder = folder.resolve()
    if not folder.name.isdecimal():
        return ()
    # The recipe is written last: without it, the other files are not complete.
    kinds = [kind for kind, part in _FOLDERS.items() if (folder / part / "recipe.yaml").is_file()]
    return tuple(_set(folder, kind) for kind in kinds)


def _set(step_folder: Path, kind: SetKind) -> StoredSet:
    number, folder = int(step_folder.name), step_folder / _FOLDERS[kind]
    recipe = read_stored(folder / "recipe.yaml", step_folder.parents[1])
    recorded = _recorded(folder)
    incomplete = ""
    if not recorded:
        incomplete = f"step {number} has no values.parquet"
    elif len(recorded) != len(recipe.steps):
        found = f"{len(recorded)} steps, and recipe.yaml beside it has {len(recipe.steps)}"
        incomplete = f"{folder / 'values.parquet'} has {found}"
    elif None in recorded:
        incomplete = f"a step of {folder / 'recipe.yaml'} made rows, whose values are not kept"
    if not incomplete:
        # Named as the decisions have it, and counted as in the run: those that choose come first.
        known = [each for each in recorded if each is not None]
        steps = tuple(
            step._replace(name=each.name, number=each.number)
            for step, each in zip(recipe.steps, known, strict=True)
        )
        written = [(tuple(each.columns), each.reasons) for each in known]
        recipe = with_written(recipe.replace(steps=steps), written)
    steps = recipe.steps
    table = partial(_table, folder)
    rollouts = cache(partial(table, "rollouts"))
    return StoredSet(
        name=f"step {number}" if kind == "answers" else f"step {number} {kind}",
        training_step=number,
        kind=kind,
        recipe=recipe,
        parts=1,
        source=lambda _: Frame.of(rollouts()),
        base=lambda _: Frame.of(rollouts()),
        ids=lambda _: table("rollouts", IDS),
        steps=steps,
        results=not_on_file(incomplete, "leave the step out by --steps, or train it again")
        if incomplete
        else lambda _: _run_step(folder, recorded),
        incomplete=incomplete,
        final=partial(table, "curated"),
        decisions=partial(table, "decisions"),
        fit=partial(_fit, step_folder, kind, steps),
        choice=partial(_choice, step_folder) if kind == "answers" else lambda: None,
    )


def _choice(step_folder: Path) -> StoredSet | None:
    if not (step_folder / "choice.parquet").is_file():
        return None
    run_folder, number = step_folder.parents[1], int(step_folder.name)
    run = TrainingRun.of(run_folder, read_stored(run_folder / "recipe.yaml", run_folder))
    choice = PromptChoice(run)
    prompts = Frame.of(choice.prompts)
    steps = choice.steps(number, progress_of(pq.read_schema(step_folder / "choice.parquet")))
    return StoredSet(
        name=f"the prompts before step {number}",
        training_step=number,
        kind="answers",
        recipe=run.recipe.replace(steps=steps),
        parts=1,
        source=lambda _: prompts,
        base=lambda _: prompts,
        ids=lambda _: choice.prompts.select(["prompt_id"]),
        steps=steps,
        results=lambda _: run_step,
        incomplete="",
        final=partial(pq.read_table, step_folder / "choice.parquet"),
        decisions=DECISIONS.empty_table,
        fit=lambda _: steps,
    )


def _table(
    folder: Path, name: str, columns: Sequence[str] | None = None, needed: Sequence[str] = ()
) -> pa.Table:
    """A file of a set, or some columns of it."""
    path = folder / f"{name}.parquet"
    with _readable(path):
        table = pq.read_table(path, columns=columns and list(columns))
        table.validate(full=True)
        # Each file is asked for those by name.
        table.select([*_NEEDED.get(name, ()), *needed])
        return table


def _recorded(folder: Path) -> list[RecordedStep | None]:
    path = folder / "values.parquet"
    if not path.is_file():
        return []
    with _readable(path):
        return recorded_steps(pq.read_schema(path))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} cannot be read", "train the step again") from error


def _steps_of(recipe: Recipe, kind: SetKind) -> tuple[Step, ...]:
    split = split_recipe(recipe)
    if kind == "answers":
        return split.after
    if kind == "replayed":
        return grading_and_credit(split.after)[1]
    if split.judging is None:
        raise DataError(f"{recipe.path} has no judgements", "compare it with the answers of a step")
    return split.judging.after


def _fit(folder: Path, kind: SetKind, steps: tuple[Step, ...], other: Recipe) -> tuple[Step, ...]:
    sums = [x.operator for x in steps if isinstance(x.operator, RewardSumMapper)]
    if sums:
        progress = sums[0].progress
    else:  # Only the sum keeps it in the recipe of the step.
        run = folder.parents[1]
        whole = read_stored(run / "recipe.yaml", run)
        progress = TrainingRun.of(run, whole).progress(int(folder.name))
    return at_progress(_steps_of(other, kind), progress)


def _run_step(folder: Path, recorded: list[RecordedStep | None]) -> RunStep:
    """For `apply_steps`: what a step did, by values.parquet and the decisions."""
    by_name = {each.name: each for each in recorded if each is not None}
    kept = [name for each in by_name.values() for name in each.columns.values()]
    values, decisions = _table(folder, "values", needed=kept), _table(folder, "decisions")
    reasons_of = cache(partial(_reasons, flat(values["response_id"]), decisions))

    def run(step: Step, frame: Frame) -> StepResult:
        found = by_name[step.name]
        rows = pa.array(frame.source_rows)
        columns = {name: values[kept].take(rows) for name, kept in found.columns.items()}
        reasons = reasons_of(step.name)
        if reasons is not None:
            reasons = reasons.take(rows)
        change = Change(columns, reasons, without=tuple(found.without))
        return StepResult(change, frame.num_rows)

    return run


def _reasons(ids: pa.Array, decisions: pa.Table, step: str) -> pa.Array | None:
    """Why a step dropped each row as sampled, string[N]; None: it dropped none."""
    of_step = decisions.filter(pc.equal(decisions["step"], step))
    if not of_step.num_rows:
        return None
    place_N: Array = np.asarray(
        pc.fill_null(pc.index_in(ids, value_set=flat(of_step["row_id"])), -1)
    ).astype(np.int64)
    return flat(of_step["reason"]).take(pa.array(place_N, mask=place_N < 0))
