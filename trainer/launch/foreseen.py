"""What the first steps of training would meet, found on the rows of its datasets before.

All rows of a small file go through the steps that make and filter prompts, and of others the first
ones, which refuse nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from ...operators import Filter, Operator, PromptTemplateMapper
from ...operators.arrow_compute import pc
from ...operators.columns import columns_of
from ...operators.errors import DataError, RejuiceError
from ...operators.filter.curriculum_filter import CurriculumFilter
from ...operators.filter.ngram_decontamination_filter import found_in
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import content_lengths
from ...operators.text.tokens import texts_of
from ...pipelines.dataset.read import Dataset
from ...pipelines.engine.frame import Frame
from ...pipelines.engine.match_log import MatchLog
from ...pipelines.engine.steps import iterate_steps
from ...pipelines.engine.trial import small
from ...pipelines.recipe.steps import Step
from ..report.watch import shown_set
from ..run import TrainingRun
from ..split import HeldOutSet

_MOST_COUNTED = 1_000
"""Prompts whose tokens are counted, where each of them is too long."""


class Tried(NamedTuple):
    """What steps before sampling have made of a dataset."""

    dataset: str
    frame: Frame
    prompts: pa.Array  # their texts, each once
    whole: bool  # whether all rows went through all steps
    notes: tuple[str, ...]  # about steps that match no row, or drop all of them

    def check(self, run: TrainingRun, warn: Callable[[str], object], least: int = 1) -> None:
        """Check that there are enough prompts that are not too long.

        Raises:
            DataError: there are not.
        """
        n, longest = len(self.prompts), run.config.max_prompt_tokens
        if self.whole and not n:
            right = "change the steps before sampling, or the dataset"
            raise DataError(f"{self.dataset} gives no prompt: {'; '.join(self.notes)}", right)
        if self.whole and n < least:
            found = f"{self.dataset} gives {n} prompts, a step takes {least}"
            raise DataError(found, "set prompts_per_step lower")
        lengths = list[int]()
        texts = self.prompts[:_MOST_COUNTED].to_pylist()
        for length in content_lengths(policy_path(run.policy), texts):
            if length <= longest:
                return
            lengths.append(length)
        if lengths:
            found = (
                f"each of {len(lengths):,} prompts of {self.dataset} is longer than "
                f"train.max_prompt_tokens, {longest:,}: they have {min(lengths):,} to "
                f"{max(lengths):,} tokens and those of the chat template"
            )
            if self.whole and n == len(lengths):
                raise DataError(found, "raise train.max_prompt_tokens")
            warn(f"{found}; raise train.max_prompt_tokens")


def try_steps(run: TrainingRun, steps: Sequence[Step], dataset: Dataset) -> Tried:
    """Apply the first steps that need nothing but the rows.

    Raises:
        RejuiceError: what a step raised.
    """
    rows = small(dataset)
    frame, notes, tried = Frame.of(dataset.first_rows if rows is None else rows), list[str](), 0
    for step in steps:
        operator, there = step.operator, frame.column_names
        quick = isinstance(operator, PromptTemplateMapper | Filter)
        needed = columns_of(operator.needs_of(there), there)
        if not quick or type(operator).preflight is not Operator.preflight or {*needed} - {*there}:
            break
        notes += _unmatched(run, step, frame)
        try:
            (applied,) = iterate_steps([step], frame)
        except RejuiceError as error:
            raise error.at(str(dataset.spec)) from None
        if frame.num_rows and not applied.after.num_rows:
            notes.append(f"{run.recipe.where(step)}: drops all of {frame.num_rows:,} rows")
        frame, tried = applied.after, tried + 1
    prompts = pa.array([], pa.large_string())
    if "prompt" in frame.column_names:
        prompts = pc.unique(texts_of(frame.select(["prompt"])["prompt"].drop_null()))
    whole = rows is not None and tried == len(steps)
    return Tried(str(dataset.spec), frame, prompts, whole, tuple(notes))


def _unmatched(run: TrainingRun, step: Step, frame: Frame) -> Iterator[str]:
    match = MatchLog.of(step.operator, frame)
    if match and (why := match.why_none()):
        yield f"{run.recipe.where(step)}: {why}"


def check_foreseen(run: TrainingRun, dataset: Dataset, warn: Callable[[str], object]) -> None:
    """Check that the first steps, and validations, have prompts.

    Raises:
        RejuiceError: there are none or too few, all are too long, or a stage is empty.
    """
    tried = try_steps(run, run.split.before, dataset)
    tried.check(run, warn, run.config.prompts_per_step)
    if tried.whole:
        _check_stages(run, tried.frame)
        written, lines = set[str](), [*tried.notes]
        for step in run.recipe.in_training().steps[len(run.split.before) :]:
            if written.isdisjoint(columns_of(step.operator.where or (), tried.frame.column_names)):
                lines += _unmatched(run, step, tried.frame)
            written.update(step.operator.writes())
        for line in lines:
            warn(line)
    for held_out in run.held_out:
        if held_out.path.exists():
            _check_held_out(run, held_out, tried, warn)


def _check_held_out(
    run: TrainingRun, held_out: HeldOutSet, trained: Tried, warn: Callable[[str], object]
) -> None:
    tried = try_steps(run, held_out.steps, Dataset(held_out.path))
    tried.check(run, warn)
    texts, prompts = (pa.chunked_array([each.prompts]) for each in (trained, tried))
    if known := found_in(texts, prompts):
        first = "" if trained.whole else f"the first {trained.frame.num_rows:,} rows of "
        warn(
            f"{shown_set(held_out.split)}: {known:,} of {len(prompts):,} validation prompts are "
            f"also in {first}the dataset that trains; leave them out of one of the two"
        )


def _check_stages(run: TrainingRun, prompts: Frame) -> None:
    """Check that each stage of a curriculum that training reaches has prompts."""
    reached = {run.progress(step) for step in range(1, run.config.steps + 1)}
    for step in run.split.choosing:
        operator = step.operator
        if not isinstance(operator, CurriculumFilter) or operator.where:
            continue
        for start in sorted({max(s for s in operator.stages if s <= at) for at in reached}):
            stage = {operator.column: operator.stages[start]}
            match = MatchLog.of(operator.model_copy(update={"where": stage}), prompts)
            if match and (why := match.why_none()):
                found = f"the stage from {start:g} on {why.removeprefix('`where` ')}"
                right = "change the stage, or leave it out"
                raise DataError(found, right, where=run.recipe.where(step))
