"""The page of an export: its run's own recipe, and the commits of every step."""

from __future__ import annotations

from pathlib import Path

from ...operators import DataError
from ..apply.frame import Frame
from ..apply.report import Report
from ..apply.steps import iterate_steps
from ..dataset.read import read_all
from ..dataset.write import run_folder
from ..engine.plan import Plan
from ..figures.rows import of_values
from ..figures.written import WrittenValues
from ..recipe.read import load
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .content import PageData, PageSet
from .of_rows import joined_rows, page_set

_SUFFIXES = (".yaml", ".yml")
_UNKNOWN = (
    "give the export_path of a finished run, the folder of a training run, or RUN/steps/NUMBER"
)


def page_of_export(path: Path) -> PageData:
    """The page of an export, given by itself, by its run folder, or by a recipe that was run.

    Raises:
        DataError: it is none of these, or its commits are gone.
    """
    export = _export_of(path)
    report = Report.read(export)
    own = run_folder(export) / "recipe.yaml"
    recipe = load(own)
    return PageData(report.project_name or export.name, (_set(recipe, report),), recipe=_text(own))


def _export_of(path: Path) -> Path:
    if path.suffix in _SUFFIXES and path.is_file():
        export = load(path).head.export_path
        if not run_folder(export).exists():
            raise DataError(f"{path} has not been run", f"rejuice run {path} first")
        return export
    if path.suffix == ".run" and (path / "report.json").is_file():
        return Path(Report.model_validate_json((path / "report.json").read_text()).export_path)
    if not (run_folder(path) / "report.json").is_file():
        raise DataError(
            f"{path} is neither an export, a training run nor a training step", _UNKNOWN
        )
    return path


def _text(path: Path) -> str:
    return path.read_text("utf-8")


def _set(recipe: Recipe, report: Report) -> PageSet:
    first = 1 + max((at for at, step in enumerate(recipe.steps) if _samples(step)), default=-1)
    steps = recipe.steps[first:]
    plan, gone = _plan(recipe, report)
    values, tables = list[WrittenValues](), []
    if plan is None:
        values.append(WrittenValues(Frame.of(read_all(Path(report.export_path)))))
        values[-1].written.update(name for step in steps for name in step.operator.writes())
        tables.append(of_values(values[-1], ()))
    else:
        for chunk in range(len(plan.source.rows)):
            base = plan.frame_before(chunk, steps[0] if steps else None)
            applied = list(iterate_steps(steps, base, plan.committed(chunk)))
            values.append(WrittenValues.of(base, applied))
            tables.append(of_values(values[-1], applied))
    return page_set("", values, joined_rows(tables), steps, report.steps, banner=gone)


def _samples(step: Step) -> bool:
    """Whether rows come from this step as they were sampled; steps before it have prompts."""
    return "response" in step.operator.writes()


def _plan(recipe: Recipe, report: Report) -> tuple[Plan | None, str]:
    """The commits of a run; without them None, and the line that says what is missing.

    Raises:
        DataError: neither they nor the export is there.
    """
    gone = ""
    if not report.cache:
        gone = "dj-process saves no commits"
    elif not Path(report.cache).exists():
        gone = f"the cache of this run, {report.cache}, is gone"
    else:
        plan = Plan.open(recipe, Path(report.cache), report.chunk_rows)
        if plan.keys[-1] == report.key and all(plan.is_done(step) for step in plan.steps):
            return plan, ""
        gone = "the data or the operators of the recipe have changed since the run"
    if not Path(report.export_path).exists():
        raise DataError(f"{report.export_path} does not exist, and {gone}", "run the recipe again")
    missing = "only the rows that were kept are shown, without what components added to the reward"
    return None, f"{gone[0].upper()}{gone[1:]}: {missing}; the funnel is that of all rows. "
