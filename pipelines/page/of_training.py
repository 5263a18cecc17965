"""The page of a training run, or of some of its steps: rollouts, and what its recipe made of them.

    RUN/steps/000012/  rollouts  curated  decisions  recipe.yaml   and the same in verify/

The steps after sampling are computed again, which gives the values of dropped rows, too. A step
that samples or asks a server is never run again: what it wrote is read from `curated`, and is not
known of rows that were dropped later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ...operators import Change, DataError, RejuiceError, ResumableOperator
from ...operators.compute import pc
from ..apply.audit_log import AuditLog
from ..apply.frame import Frame
from ..apply.report import StepReport
from ..apply.steps import AppliedStep, StepResult, iterate_steps, run_step
from ..figures.rows import of_values
from ..figures.written import KEPT, WrittenValues
from ..recipe.read import load
from ..recipe.steps import Step
from .content import PageData, PageSet, PageStep
from .of_rows import page_set

TRAINING = "training"
"""The name in decisions of what training itself drops, such as groups that are too many."""
_PARTS = {"": "answers", "verify": "judgements"}
_MOST_ROWS = 100_000
_HEAVY = ("prompt_token_ids", "response_logprobs")


def is_training(path: Path) -> bool:
    """Whether a path is the folder of a training run, or of one of its steps."""
    return is_step(path) or (path / "metrics.jsonl").is_file() or (path / "steps").is_dir()


def is_step(path: Path) -> bool:
    """Whether a path is the folder of a training step."""
    return path.parent.name == "steps" and path.name.isdecimal() and path.is_dir()


def page_of_training(path: Path, steps: range | None = None) -> PageData:
    """The page of a run, or of a step.

    Args:
        path: its folder.
        steps: numbers of those to show; None: all, or as many as fit, evenly.

    Raises:
        DataError: the run has no step in that range, or nothing to show at all.
    """
    run = path.parent.parent if is_step(path) else path
    if is_step(path):
        folders = [path]
    else:
        folders = sorted(each for each in (path / "steps").glob("*") if is_step(each))
        folders = _chosen(path, folders, steps)
    sets = [each for folder in folders for each in _sets(folder)]
    points = _points(run)
    if not sets and not points:
        found = f"{path} has neither rollouts nor metrics"
        raise DataError(found, "give a training run that has made a step")
    recipe = run / "recipe.yaml"
    text = recipe.read_text("utf-8") if recipe.is_file() else ""
    title = f"{run.name}, step {int(path.name)}" if is_step(path) else run.name
    return PageData(title, tuple(sets), points=tuple(points), recipe=text)


def _chosen(path: Path, folders: Sequence[Path], steps: range | None) -> list[Path]:
    if steps is not None:
        chosen = [folder for folder in folders if int(folder.name) in steps]
        if not chosen:
            has = f"steps {int(folders[0].name)} to {int(folders[-1].name)}" if folders else "none"
            found = f"--steps {steps.start}:{steps.stop - 1}: {path} has {has}"
            raise DataError(found, "give a range in it")
        return chosen
    import pyarrow.parquet as pq

    files = [folder / "rollouts.parquet" for folder in folders]
    rows = sum(pq.read_metadata(file).num_rows for file in files if file.exists())
    every = max(1, -(-rows // _MOST_ROWS))
    kept = {*folders[::every], *folders[-1:]}
    return [folder for folder in folders if folder in kept]


def _sets(folder: Path) -> Iterator[PageSet]:
    for part, kind in _PARTS.items():
        if (folder / part / "rollouts.parquet").exists():
            step = int(folder.name)
            name = f"step {step}" if kind == "answers" else f"step {step} {kind}"
            yield _set(folder / part, name, kind, step)


def _set(folder: Path, name: str, kind: str, number: int) -> PageSet:
    rollouts, curated, decisions = (
        _read(folder / f"{each}.parquet") for each in ("rollouts", "curated", "decisions")
    )
    rollouts = rollouts.drop([name for name in _HEAVY if name in rollouts.column_names])
    recipe = load(folder / "recipe.yaml")
    log = AuditLog()
    stored = _Stored(curated, decisions)
    base, applied, banner = Frame.of(rollouts), list[AppliedStep](), ""
    try:
        for each in iterate_steps(recipe.steps, base, stored.run):
            applied.append(each)
            entry, result = log.step(each.step.name), each.result
            entry.count(result.rows_in, result.change, result.seconds, result.summary)
    except RejuiceError as error:
        # What cannot be computed again, such as with a model that is not here, was written once.
        base, applied, log = Frame.of(curated), [], AuditLog()
        banner = f"Only the rows that were kept are shown, because a step failed now: {error}. "
    values = WrittenValues.of(base, applied)
    own = _dropped_by_training(values, decisions, len(applied) + 1)
    values.written.update(name for step in recipe.steps for name in step.operator.writes())
    rows = of_values(values, applied)
    funnel = [entry.report() for entry in log.steps.values()]
    kept = int((values.fate_N == KEPT).sum())
    if own:
        left = funnel[-1].rows_out if funnel else len(rollouts)
        dropped = {slug: int(n) for slug, n in own.items()}
        funnel.append(_training_line(left, kept, dropped))
    if kept != len(curated):
        banner += _changed(folder, kept, len(curated))
    found = page_set(
        name, [values], rows, recipe.steps, funnel, kind=kind, step=number, banner=banner
    )
    if own:
        last = PageStep(len(applied) + 1, TRAINING, (), dict.fromkeys(own, "training's own"))
        found = found._replace(steps=(*found.steps, last))
    return found


def _changed(folder: Path, kept: int, trained: int) -> str:
    return (
        f"{folder}: the recipe's steps keep {kept:,} rows now, of which training kept {trained:,}: "
        "the code or the models of a step have changed since. "
    )


def _training_line(rows_in: int, rows_out: int, dropped: dict[str, int]) -> StepReport:
    return StepReport(
        step=TRAINING,
        rows_in=rows_in,
        rows_out=rows_out,
        added=0,
        dropped=dropped,
        seconds=0.0,
        cached=False,
        notes={},
        columns={},
        written=[],
    )


class _Stored:
    """Runs the steps of a training step again, but for those that sample or ask."""

    def __init__(self, curated: pa.Table, decisions: pa.Table) -> None:
        self._curated, self._decisions = curated, decisions

    def run(self, step: Step, frame: Frame) -> StepResult:
        if not isinstance(step.operator, ResumableOperator):
            return run_step(step, frame, summary=False)
        ids = frame.select(["response_id"])["response_id"]
        at = pc.index_in(ids, self._curated["response_id"])
        names = [n for n in step.operator.writes() if n in self._curated.column_names]
        columns = {name: self._curated[name].take(at) for name in names}
        mine = self._decisions.filter(pc.equal(self._decisions["step"], step.name))
        reasons = mine["reason"].take(pc.index_in(ids, mine["row_id"])).combine_chunks()
        return StepResult(Change(columns, reasons), frame.num_rows, 0.0, {})


def _dropped_by_training(values: WrittenValues, decisions: pa.Table, number: int) -> dict[str, int]:
    """Record what training itself dropped; how many rows, by reason."""
    mine = decisions.filter(pc.equal(decisions["step"], TRAINING))
    if not len(mine) or "response_id" not in values.names:
        return {}
    at = pc.index_in(values.column("response_id"), mine["row_id"])
    dropped_N = np.asarray(at.is_valid()) & (values.fate_N == KEPT)
    values.fate_N[dropped_N] = number
    reasons = np.array(mine["reason"].take(at).to_pylist(), object)
    values.reason_N[dropped_N] = reasons[dropped_N]
    slugs, counts = np.unique(reasons[dropped_N].astype(str), return_counts=True)
    return dict(zip(slugs.tolist(), counts.tolist(), strict=True))


def _read(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    if not path.exists():
        raise DataError(f"{path} does not exist", "give a training step that has ended")
    return pq.read_table(path)


def _points(run: Path) -> list[dict[str, float]]:
    """The metrics of each step, of lines that a resume set aside, too."""
    found: dict[int, dict[str, float]] = {}
    for name in ("metrics.earlier.jsonl", "metrics.jsonl"):
        file = run / name
        for line in file.read_bytes().splitlines() if file.exists() else ():
            try:
                point: dict[str, Any] = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # The last line of a run that is not over.
            numbers = {k: v for k, v in point["data"].items() if isinstance(v, (int, float))}
            found.setdefault(point["step"], {"step": point["step"]}).update(numbers)
    return [found[step] for step in sorted(found)]
