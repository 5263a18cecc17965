"""Prepare a training run, and launch verl's own `main_ppo` on it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...operators.errors import RejuiceError
from ...operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ...pipelines.recipe.columns import checked_schema
from ...pipelines.recipe.recipe import Recipe
from ...pipelines.recipe.yaml_text import dump
from ..report import metrics
from ..run import MARK, WEIGHTS, TrainingRun, is_prepared
from . import checkpoints
from .overrides import environment, overrides, words
from .processes import end_all, of_run
from .prompts import write_prompts

_MAIN = ["-m", "verl.trainer.main_ppo"]
_MADE = (
    "steps", "validations", "tensorboard", "verl.log", "metrics.jsonl", "metrics.earlier.jsonl",
    "prompts",
)  # fmt: skip
"""What a run writes; last what tells that there is one."""
_POLL_S = 0.25


def prepare(recipe: Recipe, folder: Path, *, resume: bool = False) -> TrainingRun:
    """Make the folder of a run: the resolved recipe, and the prompts.

    Raises:
        RejuiceError: the recipe, a dataset or the folder is not what training needs.
    """
    run = TrainingRun.of(folder.resolve(), recipe)
    if run.config.replay is None:
        checked_schema(recipe)
    _check_folder(run, resume)
    run.folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        _clear(run.folder)
    with _as_before(run.folder / "recipe.yaml"):
        document = dump(_absolute(recipe))
        (run.folder / "recipe.yaml").write_text(document, "utf-8")
        run = TrainingRun.open(run.folder)  # As its processes will know it.
        write_prompts(run, anew=not resume)
    if resume:
        checkpoints.mend(run.folder)
        checkpoints.prune(run.folder, run.config.keep_checkpoints)
        metrics.keep(run.folder, checkpoints.last(run.folder) or 0)
    return run


@contextmanager
def _as_before(path: Path) -> Iterator[None]:
    """A file is what it was, if what is done then fails."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        if before is not None:
            path.write_bytes(before)
        raise


def command(run: TrainingRun, *, resume: bool = False) -> list[str]:
    """The command line that trains."""
    return [sys.executable, *_MAIN, *words(overrides(run, resume))]


def shown(run: TrainingRun, *, resume: bool = False) -> str:
    """The command line that trains and its variables, as a shell takes them, a key on each line."""
    python, *rest = command(run, resume=resume)
    main, keys = rest[: len(_MAIN)], rest[len(_MAIN) :]
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment(run).items()]
    return " \\\n  ".join([*variables, shlex.join([python, *main]), *map(shlex.quote, keys)])


def launch(
    run: TrainingRun, *, resume: bool = False, follow: Callable[[], None] = lambda: None
) -> int:
    """Train; verl's output goes to RUN/verl.log.

    Whatever ends it, an exception or a signal included, no process of the run is left.

    Args:
        run: as prepared.
        resume: from the newest checkpoint, if there is one.
        follow: called some times a second while verl runs.

    Returns:
        The exit status of verl; below 0 the signal that killed it.
    """
    line = command(run, resume=resume)
    (run.folder / "command.txt").write_text(shown(run, resume=resume) + "\n", "utf-8")
    with (run.folder / "verl.log").open("ab") as log, _signals_interrupt():
        child = subprocess.Popen(
            line,
            env={**os.environ, **environment(run), MARK: str(run.folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    return child.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    follow()
        finally:
            if child.poll() is None:
                child.terminate()  # Ray ends its processes then.
            end_all(run.folder)
            child.wait()
            (run.folder / WEIGHTS).unlink(missing_ok=True)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """What a batch system or a closed terminal sends ends a run as Ctrl-C does."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # With nohup it is not.
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_folder(run: TrainingRun, resume: bool) -> None:
    folder = run.folder
    busy = of_run(folder)
    if busy:
        raise RejuiceError(
            f"{folder} is being trained by process {busy[0].pid}", "wait for it, or end it"
        )
    there = is_prepared(folder)
    if resume and not there:
        raise RejuiceError(f"{folder} holds no run to resume", "leave --resume out")
    if resume and (checkpoints.last(folder) or 0) >= run.config.steps:
        raise RejuiceError(
            f"{folder} has trained its {run.config.steps} steps", "give --steps to train more"
        )
    if not resume and there and _is_begun(folder):
        raise RejuiceError(
            f"{folder} holds a run already", "give --resume to go on, or another --output"
        )


def _is_begun(folder: Path) -> bool:
    """Whether there is something to lose: a step was trained."""
    done = any(point.trained for point in metrics.read(folder))
    return done or checkpoints.last(folder) is not None


def _clear(folder: Path) -> None:
    """Remove what a run left that never trained a step."""
    if not is_prepared(folder):
        return
    for name in _MADE:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _absolute(recipe: Recipe) -> Mapping[str, Any]:
    """The resolved recipe, with paths that hold wherever it is read from."""
    document = recipe.resolved()
    train = document["train"]
    for fields in (document, train):
        for key in fields.keys() & {"dataset_path", "export_path", "validation_path", "replay"}:
            fields[key] = fields[key] and str(Path(fields[key]).resolve())
    paths = document["custom_operator_paths"]
    document["custom_operator_paths"] = [str(Path(path).resolve()) for path in paths]
    train["policy"] = train["policy"] and _found(train["policy"])
    for step in document["process"]:
        for name, fields in step.items():
            if name == PolicyRolloutMapper.name():
                fields["model"] = _found(fields["model"])
    return document


def _found(policy: str) -> str:
    """A policy by a name that holds everywhere: what is no folder is a name on the hub."""
    is_folder = policy != "embedded" and Path(policy).is_dir()
    return str(Path(policy).resolve()) if is_folder else policy
