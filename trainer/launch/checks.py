"""What `rejuice check` and `rejuice train` check before anything is made.

The recipe itself is checked where a run is made of it (`TrainingRun.of`), columns and first rows of
`dataset_path` as for `rejuice run`. Here are the other datasets, and the keys of verl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from ...operators import PromptTemplateMapper
from ...operators.errors import DataError, RecipeError
from ...pipelines.dataset.read import Dataset
from ...pipelines.recipe.columns import checked_schema
from ..held_out import HeldOutSet
from ..run import TrainingRun
from ..split import grading_steps


def check_training(
    run: TrainingRun,
    dataset: Dataset | None = None,
    *,
    may_lack: bool = False,
    resume: bool = False,
) -> list[str]:
    """Check that a run can be made: its datasets, and its keys of verl.

    Args:
        run: the run.
        dataset: its `dataset_path`, where the caller has it open.
        may_lack: leave out what is not there yet: datasets, or verl.
        resume: the run goes on: it has its prompts, so its datasets may be gone.

    Returns:
        A line about each thing that was left out, but `dataset_path`, and about each validation
        set in which prompts repeat.

    Raises:
        RejuiceError: a dataset is not what the run needs, or verl does not know a key.
    """
    may_lack_data = may_lack or resume
    head = run.recipe.head
    there = head.dataset_spec.exists() or head.generated_part() is not None
    if run.config.replay is None and (there or not may_lack_data):
        checked_schema(run.recipe, dataset)
    left_out = [*_other_datasets(run, may_lack=may_lack_data)]
    if not run.config.verl:
        return left_out
    from .verl_keys import check_user_keys

    check_user_keys(run, resume=resume)
    if may_lack and find_spec("verl") is None:
        return [*left_out, "verl is not installed, so the keys of train.verl were not checked."]
    from .overrides import overrides
    from .verl_config import are_known, check_keys

    if run.config.gpu.strategy != "fsdp2" or not are_known(run.config.verl):
        check_keys(overrides(run, resume))
    return left_out


def _other_datasets(run: TrainingRun, *, may_lack: bool) -> Iterator[str]:
    """Check the datasets of the `train:` section; lines about them."""
    replay = run.config.replay
    if replay is not None:
        if may_lack and not replay.exists():
            yield _lacking(replay)
        else:
            _check_replay(replay, of_agents=run.split.agents is not None)
    for held_out in run.held_out:
        generated = run.recipe.head.generated(held_out.path)
        if may_lack and not held_out.path.exists() and generated is None:
            yield _lacking(held_out.path)
        else:
            _check_validation(run, held_out)
            if held_out.path.exists():
                yield from _repeats(held_out)


def _lacking(path: Path) -> str:
    return f"{path} does not exist yet, so columns were not checked."


def _repeats(held_out: HeldOutSet) -> Iterator[str]:
    """A line where prompts repeat in the first rows of a validation set: each is sampled once."""
    from ...pipelines.engine.frame import Frame
    from ...pipelines.engine.steps import apply_steps

    frame = Frame.of(Dataset(held_out.path).first_rows)
    steps = takewhile(lambda step: isinstance(step.operator, PromptTemplateMapper), held_out.steps)
    frame = apply_steps(list(steps), frame)
    if "prompt_id" not in frame.column_names:
        return
    counts = Counter[str](frame.select(["prompt_id"])["prompt_id"].to_pylist())
    if len(counts) < frame.num_rows:
        from ..report.left_out import repeats_line

        n, rows = held_out.settings.n, f"the first {frame.num_rows:,}"
        yield repeats_line(held_out.split, counts, n, rows)


def _check_replay(path: Path, *, of_agents: bool) -> None:
    from .prompts import check_replayed

    dataset = Dataset(path)
    try:  # A column may begin further down, but seldom does.
        check_replayed(path, dataset.first_schema.names, of_agents=of_agents)
    except DataError:
        check_replayed(path, dataset.schema.names, of_agents=of_agents)


def _check_validation(run: TrainingRun, held_out: HeldOutSet) -> None:
    """Check that prompts can be made of a validation set, and responses to them graded."""
    recipe, parts = run.recipe, run.split
    numbers = {step.number for step in grading_steps(parts.after)}
    rest = [s for s in recipe.steps if s.number in numbers or s.operator is parts.rollout]
    head = recipe.head.model_copy(update=_of_file(held_out.path))
    steps = (*held_out.steps, *rest)
    try:
        checked_schema(recipe.replace(head=head, steps=steps, table=None))
    except RecipeError as error:
        named = held_out.name in run.config.validation
        where = f"train.validation.{held_out.name}" if named else "train.validation_path"
        raise error.at(where) from None


def _of_file(path: Path) -> dict[str, Any]:
    """The head of a recipe that reads one file as it is, and not what the recipe's own reads."""
    return {"dataset_path": path, "dataset": None, "columns": None, "suffixes": ()}
