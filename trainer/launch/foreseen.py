"""What the first steps of training would meet, found on their prompts before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ...operators import Filter, Operator, PromptTemplateMapper
from ...operators.filter.ngram_decontamination_filter import found_in
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import content_encoder
from ...pipelines.dataset.read import Dataset
from ...pipelines.recipe.steps import Step
from ..run import TrainingRun


def foreseen(run: TrainingRun) -> list[str]:
    """Lines about the prompts of small datasets whose steps need nothing else.

    Raises:
        RejuiceError: there are none or too few, all are too long, or a stage has none.
    """
    datasets = [run.recipe.in_training().opened(), *(Dataset(each.path) for each in run.held_out)]
    steps = [*run.split.before, *(step for each in run.held_out for step in each.steps)]
    quick = all(map(_is_quick, steps)) and not run.config.replay
    if not (quick and all(map(Dataset.is_small, datasets))):
        return []
    from .prompts import write_prompts

    with TemporaryDirectory(prefix="rejuice-") as folder:
        made = run._replace(folder=Path(folder))
        write_prompts(made, by=content_encoder(policy_path(run.policy)))
        return [*shared_prompts(made)]


def _is_quick(step: Step) -> bool:
    operator = step.operator
    quick = isinstance(operator, PromptTemplateMapper | Filter)
    return quick and type(operator).preflight is Operator.preflight


def shared_prompts(run: TrainingRun) -> Iterator[str]:
    """A line for each validation set with prompts that train, of those that are written."""
    from ..report.watch import shown_set

    for held_out in run.held_out:
        texts, prompts = (run.prompts(split)["prompt"] for split in ("train", held_out.split))
        if known := found_in(texts, prompts):
            yield (
                f"{shown_set(held_out.split)}: {known:,} of {len(prompts):,} validation prompts "
                "are also in the dataset that trains; leave them out of one of the two"
            )
