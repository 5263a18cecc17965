"""Exports as stored runs: of `rejuice run` with what each step did, of `dj-process` without."""

from __future__ import annotations

import shlex
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from ...operators import DataError, RejuiceError
from ...operators.user_cache import in_user_cache
from ..dataset.exported import exported_rows
from ..dataset.files import write_file
from ..dataset.remote import AnyPath, RemotePath, to_path
from ..dataset.run_folder import run_folder
from ..engine.decision_files import read_decisions
from ..engine.export.finished import read_manifest
from ..engine.frame import Frame
from ..engine.plan import Plan
from ..engine.report import Report
from ..engine.steps import RunStep
from ..recipe.recipe import Recipe
from ..recipe.stored_operator import StoredOperator
from ..recipe.trust import read_stored
from .stored import IDS, Stored, StoredSet, not_on_file, steps_after_sampling, with_written

_NO_COMMITS = "dj-process saves no commits"


def open_export(path: AnyPath, export: AnyPath) -> Stored:
    """The stored run of an export.

    Args:
        path: as it was given.
        export: the file or folder with the rows that are left; its run folder is beside it.

    Raises:
        RejuiceError: nothing was run to that path, or what is there cannot be read.
    """
    report = Report.read(export)
    recipe = _recipe(report, run_folder(export))
    found: Plan | None = None
    incomplete = "" if report.cache else _NO_COMMITS
    if report.cache:
        try:
            found = plan_of_run(recipe, report, run_folder(export))
        except RejuiceError as error:  # The dataset may be gone as well, or a file of operators.
            incomplete = error.found
    one = _set(recipe, report, export, found, incomplete)
    folder = run_folder(export)
    local = folder if isinstance(folder, Path) else recipe.path.parent
    return Stored(path, report.project_name, "export", (one,), recipe.path, local, report)


def plan_of_run(recipe: Recipe, report: Report, folder: AnyPath) -> Plan:
    """The plan of a run, all of whose commits are there.

    Args:
        recipe: as it ran.
        report: of the run.
        folder: of the run. Where the code of an operator is missing, its manifest says where the
            commits are.

    Raises:
        ChangedSinceError: the recipe, its data or its operators are not those of the run.
        DataError: the cache is gone.
    """
    if not to_path(report.cache).exists():
        raise DataError(f"the cache of this run, {report.cache}, is gone", "run it again")
    cache, chunk_rows = to_path(report.cache), report.chunk_rows
    plan: Plan | None
    if any(isinstance(step.operator, StoredOperator) for step in recipe.steps):
        manifest = read_manifest(folder)
        plan = manifest and Plan.of_run(recipe, cache, chunk_rows, manifest.uses)
    else:
        plan = Plan.open(recipe, cache, chunk_rows)
    if plan is None or plan.keys[-1] != report.key or not all(map(plan.is_done, plan.steps)):
        raise ChangedSinceError(
            "the recipe, its data or its operators have changed since the run", "run it again"
        )
    return plan


class ChangedSinceError(DataError):
    """The recipe, its data or its operators are not those of the run."""


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
    return with_written(recipe, [step.written for step in report.steps])


def _set(
    recipe: Recipe, report: Report, export: AnyPath, plan: Plan | None, incomplete: str
) -> StoredSet:
    steps = steps_after_sampling(recipe.steps)
    final = cache(partial(exported_rows, export))
    shared: dict[str, Any] = {
        "name": "",
        "training_step": None,
        "kind": "answers",
        "recipe": recipe,
        "steps": steps,
        "incomplete": incomplete,
        "final": final,
        "decisions": partial(read_decisions, run_folder(export)),
        "fit": lambda other: steps_after_sampling(other.steps),
    }
    if plan is None:
        run = f"`rejuice run {shlex.quote(str(recipe.path))}`"
        right = "run it again" if report.cache else run
        return StoredSet(
            parts=1,
            source=lambda _: Frame.of(final()),
            base=lambda _: Frame.of(final()),
            ids=lambda _: final(),
            results=not_on_file(incomplete, right),
            **shared,
        )
    first = steps[0] if steps else None
    return StoredSet(
        parts=len(plan.source.rows),
        source=plan.source_frame,
        base=lambda part: plan.frame_before(part, first),
        ids=lambda part: _ids(plan.frame_before(part, first)),
        results=partial(_committed, plan),
        **shared,
    )


def _ids(frame: Frame) -> pa.Table:
    return frame.select([name for name in IDS if name in frame.column_names])


def _committed(plan: Plan, part: int) -> RunStep:
    return plan.committed(part)
