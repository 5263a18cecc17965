"""A stored run as one thing, whichever command has made it.

    Stored ──sets──> StoredSet ──base(part)──> Frame ──applied(part)──> AppliedStep, step by step

Nothing is read before it is asked for, and long columns stay mapped from disk.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import xxhash

from ...operators import DataError, RejuiceError
from ...operators.disk import in_user_cache
from ..dataset.files import run_folder, write_file
from ..dataset.remote import AnyPath, RemotePath, to_path
from ..dataset.write import exported_rows
from ..engine.finished_export import read_manifest
from ..engine.frame import Frame
from ..engine.plan import Plan
from ..engine.report import Report, read_decisions
from ..engine.steps import AppliedStep, RunStep, iterate_steps
from ..recipe.recipe import RECIPES, Recipe, load_without_code
from ..recipe.steps import Step, StoredOperator, gives_responses
from ..recipe.trust import read_stored

IDS = ("response_id", "prompt_id")
StoredKind = Literal["export", "training run", "training step"]
SetKind = Literal["answers", "judgements", "replayed"]


class StoredSet(NamedTuple):
    """Rows that were processed together: an export, or answers or judgements of a training step."""

    name: str  # `step 12`, `step 12 judgements` or `step 12 replayed`; empty for an export
    training_step: int | None  # 12; None for an export
    # judgements are the policy's, of its own answers; replayed are answers of earlier steps
    kind: SetKind
    # as it ran; of a training step, the steps after sampling with weights as they were
    recipe: Recipe
    parts: int  # pieces of whole groups: the chunks of an export; 1 for a training step
    # of a part, the rows before the first step of `recipe`: those of the dataset; of a training
    # step, `base`
    source: Callable[[int], Frame]
    base: Callable[[int], Frame]  # of a part, its rows as sampled: before the first of `steps`
    # of a part, the `response_id` and `prompt_id` of `base`, as far as it has them
    ids: Callable[[int], pa.Table]
    # those after the last step that samples, in order, numbered as in `recipe`
    steps: tuple[Step, ...]
    # of a part, for `apply_steps`: what each step did, as it is on file
    results: Callable[[int], RunStep]
    # why what steps did is not on file; empty where it is. Then `results` raises, and of exports
    # `base` has the rows that are left.
    incomplete: str
    final: Callable[[], pa.Table]  # the rows that are left
    # row_id, step and reason of dropped rows, those that training itself drops (step `training`)
    # and those of steps before sampling included
    decisions: Callable[[], pa.Table]
    # the steps of another recipe that would run on `base`, with weights at this progress
    fit: Callable[[Recipe], tuple[Step, ...]]
    stale: frozenset[str] = (
        frozenset()
    )  # names of `steps` whose code is another than it was, or is not known
    # of the answers of a training step for which the recipe chose the prompts: all prompts before
    # it, and the steps that chose
    choice: Callable[[], StoredSet | None] = lambda: None

    def applied(self, part: int) -> Iterator[AppliedStep]:
        """The steps on a part, one after the other, as they ran; nothing is computed."""
        return iterate_steps(self.steps, self.base(part), self.results(part))


class Stored(NamedTuple):
    path: AnyPath  # as it was given
    title: str  # name of the project or of the run
    kind: StoredKind  # what it is
    sets: tuple[StoredSet, ...]  # by training step, answers before judgements; one for an export
    recipe: Path  # the file with the whole recipe, as it ran
    folder: Path  # of the run: of its code, only what the user trusts in this folder is imported
    report: Report | None = None  # of an export; None for training
    # of training, what was logged, a mapping for each step, which is under `step`
    points: tuple[Mapping[str, float], ...] = ()

    def read_recipe(self, overrides: Mapping[str, str] | None = None) -> Recipe:
        return read_stored(self.recipe, self.folder, overrides)

    @property
    def recipes(self) -> list[Path]:
        """The files of all its recipes: training keeps one for each step."""
        return list(dict.fromkeys((self.recipe, *(one.recipe.path for one in self.sets))))


def span_text(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def steps_after_sampling(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps after the last one that samples or reads responses; all, where none does."""
    at = [number for number, step in enumerate(steps, 1) if gives_responses(step.operator)]
    return tuple(steps[at[-1] if at else 0 :])


def not_on_file(why: str, right: str = "run it again") -> Callable[[int], RunStep]:
    """The `results` of a set that is incomplete."""

    def results(part: int) -> RunStep:
        raise DataError(why, f"{right} to see what each step did")

    return results


def with_written(
    recipe: Recipe, written: Sequence[tuple[Sequence[str], Mapping[str, str]]]
) -> Recipe:
    """A recipe whose operators without code know what they wrote, and why rows went."""
    steps = tuple(
        step._replace(operator=step.operator.with_written(names, reasons))
        if isinstance(step.operator, StoredOperator)
        else step
        for step, (names, reasons) in zip(recipe.steps, written, strict=True)
    )
    return recipe.replace(steps=steps)


# --- Export ---------------------------------------------------------------------------
# Exports as stored runs: of `rejuice run` with what each step did, of `dj-process` without.


def stored_run(path: AnyPath, export: AnyPath, report: Report, recipe: Recipe) -> Stored:
    """By the recipe as it ran: from the folder, or the one of this process that was run."""
    folder, steps = run_folder(export), steps_after_sampling(recipe.steps)
    final = cache(partial(exported_rows, export))

    def rows_left(part: int) -> Frame:
        return Frame.of(final())

    one = StoredSet(
        name="",
        training_step=None,
        kind="answers",
        recipe=recipe,
        parts=1,
        source=rows_left,
        base=rows_left,
        ids=lambda _: final(),
        steps=steps,
        results=not_on_file(""),
        incomplete="",
        final=final,
        decisions=partial(read_decisions, folder),
        fit=lambda other: steps_after_sampling(other.offline().steps),
    )
    try:
        plan = _plan_of_run(recipe, report, folder)
    except RejuiceError as error:  # The dataset may be gone as well, or a file of operators.
        right = "run it again" if report.cache else error.right
        one = one._replace(incomplete=error.found, results=not_on_file(error.found, right))
    else:
        first = steps[0] if steps else None
        one = one._replace(
            parts=len(plan.source.rows),
            source=plan.source_frame,
            base=lambda part: plan.frame_before(part, first),
            ids=lambda part: _ids(plan.frame_before(part, first)),
            results=plan.committed,
            stale=plan.other_code(),
        )
    local = folder if isinstance(folder, Path) else recipe.path.parent
    return Stored(path, report.project_name, "export", (one,), recipe.path, local, report)


def _plan_of_run(recipe: Recipe, report: Report, folder: AnyPath) -> Plan:
    """The plan of a run, all of whose commits are where the manifest of its folder says."""
    if not report.cache:
        run = f"`rejuice run {shlex.quote(str(recipe.path))}`"
        raise DataError("dj-process saves no commits", run)
    cache, manifest = to_path(report.cache), read_manifest(folder)
    if not cache.exists():
        raise DataError(f"the cache of this run, {report.cache}, is gone", "run it again")
    plan = manifest and Plan.of_run(recipe, cache, manifest.uses)
    if not plan or plan.keys[-1] != report.key or not all(map(plan.is_done, plan.steps)):
        found = "the dataset of the run, or what is on file of its steps, has changed since"
        raise DataError(found, "run it again")
    return plan


def _recipe(report: Report, folder: AnyPath) -> Recipe:
    # A recipe of dj-process is nowhere but where the user has it; `rejuice run` keeps a copy.
    kept = folder / "recipe.yaml"
    if not kept.exists():
        kept = Path(report.recipe)
    if isinstance(kept, RemotePath):
        text = kept.read_text()
        kept = in_user_cache(f"recipes/{xxhash.xxh3_64_hexdigest(text.encode())}.yaml")
        write_file(kept, text)
    recipe = read_stored(kept, folder if isinstance(folder, Path) else kept.parent)
    if len(recipe.steps) != len(report.steps):
        return recipe
    return with_written(recipe, [(step.written, step.reasons) for step in report.steps])


def _ids(frame: Frame) -> pa.Table:
    return frame.select([name for name in IDS if name in frame.column_names])


def open_stored(path: AnyPath | str) -> Stored:
    """Open an export, its run folder, or a recipe that was run; see also `open_training`."""
    path = to_path(path)
    if not path.exists() and not run_folder(path).is_dir():
        raise DataError(f"{path} does not exist", "give an export, a run folder or a recipe")
    if (export := export_of(path)) is not None:
        report = Report.read(export)
        return stored_run(path, export, report, _recipe(report, run_folder(export)))
    if not isinstance(path, Path):
        raise DataError(f"{path} is not a stored run", "give an export or its .run folder")
    if path.suffix in RECIPES:
        run = f"`rejuice run {shlex.quote(str(path))}`"
        raise DataError(f"{path} has not been run", f"{run} first")
    raise DataError(
        f"{path} is not a stored run", "give an export, its .run folder, a recipe or a training run"
    )


def export_of(path: AnyPath) -> AnyPath | None:
    """The export that a path is, or whose run folder or recipe it is; None: nothing was run."""
    if _is_run_folder(path):
        # A report is found from its folder, too.
        return path.with_suffix(to_path(Report.read(path).export_path).suffix)
    if path.suffix in RECIPES and isinstance(path, Path):
        path = load_without_code(path).head.export_path
    elif path.suffix in RECIPES:
        return None
    return path if _is_run_folder(run_folder(path)) else None


def _is_run_folder(path: AnyPath) -> bool:
    return path.suffix == ".run" and (path / "report.json").is_file()
