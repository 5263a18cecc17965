"""The checkpoints that verl has saved of a run, and which of them are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..pipelines.recipe.train import Train
from . import metrics
from .metrics import Point

_NAME = "global_step_"  # of verl's checkpoints, before the number of the step
LAST_SAVED = "latest_checkpointed_iteration.txt"
"""File of verl beside its checkpoints that names the last one, written after all others."""


def _folders(run: Path) -> dict[int, Path]:
    """verl's folders by their step, the oldest first; copies under other names are none."""
    found = (run / "checkpoints").glob(f"{_NAME}*")
    named = {each.name.removeprefix(_NAME): each for each in found}
    return dict(sorted((int(step), each) for step, each in named.items() if step.isdecimal()))


def folder_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"{_NAME}{step}"


def last(run: Path) -> int | None:
    """The step of the newest complete checkpoint, from which a resume continues."""
    try:
        text = (run / "checkpoints" / LAST_SAVED).read_text("utf-8")
    except FileNotFoundError:
        return None
    # verl writes the file in place, after everything else: a full disk may leave it empty. It also
    # removes the weights of an older checkpoint before it records the newer one.
    if text.isdecimal() and _is_whole(folder_of(run, int(text))):
        return int(text)
    return max(_whole(run), default=None)


def is_writing(run: Path) -> bool:
    """Whether a checkpoint is being written, or was left unfinished."""
    return max(_folders(run), default=0) > (last(run) or 0)


def fix_latest(run: Path) -> None:
    """Rewrite the file that names the newest checkpoint, if it is damaged or out of date."""
    step, path = last(run), run / "checkpoints" / LAST_SAVED
    if step is not None and path.read_text("utf-8") != str(step):
        path.write_text(str(step), "utf-8")


def best(run: Path, config: Train) -> Point | None:
    """The best validation of a step whose checkpoint is there, if `train.keep` is best."""
    if config.keep != "best":
        return None
    there = steps(run)
    return metrics.best(point for point in metrics.read(run) if point.step in there)


def prune(run: Path, config: Train, keep: int) -> None:
    """Remove the oldest checkpoints but the best one, and what is left of those removed before."""
    kept, newest, found = steps(run)[-keep:], last(run) or 0, best(run, config)
    for step, folder in _folders(run).items():
        if step < newest and step not in kept and not (found and step == found.step):
            shutil.rmtree(folder)


def steps(run: Path) -> list[int]:
    """Those of all complete checkpoints."""
    newest = last(run)
    return [step for step in _whole(run) if newest is not None and step <= newest]


def _whole(run: Path) -> list[int]:
    return [step for step, folder in _folders(run).items() if _is_whole(folder)]


def _is_whole(folder: Path) -> bool:
    """Whether a checkpoint has its weights, which verl removes from old ones, and its last file."""
    return (folder / "actor").is_dir() and (folder / "data.pt").exists()
