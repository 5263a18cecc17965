"""What training would meet at its first steps, found before: datasets are tried as far as is quick.

All rows of a small file are read, and the first ones of others, through the steps that make and
filter prompts. What is only known of the first rows is said of them, and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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

_MOST_COUNTED = 1_000
"""Prompts whose tokens are counted, where each of them is too long."""


@dataclass(frozen=True)
class Tried:
    """What steps before sampling have made of a dataset."""

    dataset: str
    frame: Frame
    whole: bool  # whether all rows were read
    through: bool  # whether all steps were tried
    unmatched: tuple[tuple[Step, str], ...]  # steps whose condition no row matches, and why
    empty: str  # which step has dropped all rows

    @cached_property
    def prompts(self) -> pa.Array:
        """Their texts, each once; none where no step has made them."""
        if "prompt" not in self.frame.column_names:
            return pa.array([], pa.large_string())
        return pc.unique(texts_of(self.frame.select(["prompt"])["prompt"].drop_null()))


def try_steps(steps: Sequence[Step], dataset: Dataset) -> Tried:
    """Apply the first steps that need nothing but the rows.

    Raises:
        RejuiceError: what a step raised.
    """
    whole = small(dataset)
    frame = Frame.of(dataset.first_rows if whole is None else whole)
    log, done, empty = list[tuple[Step, str]](), 0, ""
    for step in steps:
        operator = step.operator
        rows_alone = type(operator).preflight is Operator.preflight
        is_quick = rows_alone and isinstance(operator, PromptTemplateMapper | Filter)
        there = frame.column_names
        if not is_quick or not {*columns_of(operator.needs_of(there), there)} <= {*there}:
            break
        match = MatchLog.of(operator, frame)
        log += [(step, match.why_none())] if match else []
        try:
            (applied,) = iterate_steps([step], frame)
        except RejuiceError as error:
            raise error.at(str(dataset.spec)) from None
        if frame.num_rows and not applied.after.num_rows:
            empty = f"step {step.number} {step.name} drops all of {frame.num_rows:,} rows"
        frame, done = applied.after, done + 1
    unmatched = tuple((step, why) for step, why in log if why)
    through = done == len(steps)
    return Tried(str(dataset.spec), frame, whole is not None, through, unmatched, empty)


def check_foreseen(run: TrainingRun, dataset: Dataset, warn: Callable[[str], object]) -> None:
    """Check that the first steps have prompts to train on.

    Raises:
        RejuiceError: there are none or too few, all are too long, or a stage is empty.
    """
    tried = try_steps(run.split.before, dataset)
    _check_prompts(run, tried, warn)
    for line in _unmatched(run, tried):
        warn(line)
    found, least = len(tried.prompts), run.config.prompts_per_step
    if tried.whole and tried.through and found < least:
        found_ = f"{tried.dataset} gives {found} prompts, a step takes {least}"
        raise DataError(found_, "set prompts_per_step lower")
    if tried.whole:
        check_stages(run, tried.frame)
    for held_out in run.held_out:
        if held_out.path.exists():
            held = try_steps(held_out.steps, Dataset(held_out.path))
            _check_prompts(run, held, warn)
            for line in _known(tried, held, shown_set(held_out.split)):
                warn(line)


def _unmatched(run: TrainingRun, tried: Tried) -> Iterator[str]:
    """Lines about conditions that no row of a whole dataset matches."""
    found, there = [*tried.unmatched], {*tried.frame.column_names}
    for step in run.recipe.in_training().steps[len(run.split.before) :]:
        if {*columns_of(step.operator.where or (), there)} <= there:
            match = MatchLog.of(step.operator, tried.frame)
            found += [(step, match.why_none())] if match else []
        there -= {*step.operator.writes()}
    return (f"{run.recipe.where(s)}: {why}" for s, why in found if why and tried.whole)


def _check_prompts(run: TrainingRun, tried: Tried, warn: Callable[[str], object]) -> None:
    """Refuse a dataset of which no prompt is left, or all are too long."""
    if tried.whole and (tried.empty or (tried.through and not len(tried.prompts))):
        reasons = [tried.empty, *(f"{step.name}: {why}" for step, why in tried.unmatched)]
        why = next(filter(None, reasons), "no row has one")
        right = "change the steps before sampling, or the dataset"
        raise DataError(f"{tried.dataset} gives no prompt: {why}", right)
    longest, lengths = run.config.max_prompt_tokens, list[int]()
    prompts = tried.prompts[:_MOST_COUNTED]
    for length in content_lengths(policy_path(run.policy), prompts.to_pylist()):
        if length <= longest:
            return
        lengths.append(length)
    if not lengths:
        return
    found = (
        f"each of {len(lengths):,} prompts of {tried.dataset} is longer than "
        f"train.max_prompt_tokens, {longest:,}: they have {min(lengths):,} to {max(lengths):,} "
        "tokens and those of the chat template"
    )
    right = "raise train.max_prompt_tokens"
    if tried.whole and len(tried.prompts) == len(lengths):
        raise DataError(found, right)
    warn(f"{found}; {right}")


def check_stages(run: TrainingRun, prompts: Frame) -> None:
    """Check that each stage of a curriculum that training reaches has prompts.

    Raises:
        DataError: one has none.
    """
    reached = {run.progress(step) for step in range(1, run.config.steps + 1)}
    for step in run.split.choosing:
        operator = step.operator
        if not isinstance(operator, CurriculumFilter) or operator.where:
            continue
        current = {max(s for s in operator.stages if s <= progress) for progress in reached}
        for start in sorted(current):
            stage = {operator.column: operator.stages[start]}
            match = MatchLog.of(operator.model_copy(update={"where": stage}), prompts)
            if match and (why := match.why_none()):
                why = why.removeprefix("`where` ")
                right = "change the stage, or leave it out"
                where = run.recipe.where(step)
                raise DataError(f"the stage from {start:g} on {why}", right, where=where)


def _known(trained: Tried, held: Tried, name: str) -> Iterator[str]:
    texts, prompts = trained.prompts, held.prompts
    known = found_in(pa.chunked_array([texts]), pa.chunked_array([prompts]))
    if known:
        first = "" if trained.whole else f"the first {trained.frame.num_rows:,} rows of "
        yield (
            f"{name}: {known:,} of {len(prompts):,} validation prompts are also in {first}the "
            "dataset that trains; leave them out of one of the two"
        )
