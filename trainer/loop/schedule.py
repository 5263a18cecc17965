"""What a step trains on: answers, the policy's judgements of them, or both.

The schedules are those of Learning to Self-Verify, https://arxiv.org/abs/2602.07594. They depend on
the number of the step and on the config alone, so that a run that goes on is where it was.
"""

from __future__ import annotations

from typing import NamedTuple

from ...pipelines.recipe.train import Train


class Due(NamedTuple):
    """What is due at a step.

    Attributes:
        answers: train on responses to the prompts of the dataset.
        judgements: sample judgements of answers, and train on them.
        since: the first step whose answers wait for these judgements.
        waits: the answers of this step wait to be judged, at this step or at a later one.
    """

    answers: bool
    judgements: bool
    since: int
    waits: bool


def due(config: Train, step: int) -> Due:
    """What is due at `step`, from 1 to `config.steps`."""
    schedule = config.schedule
    if schedule == "verify_alter":
        every = config.verification.every
        # Also behind the last multiple: the run may be resumed with more steps.
        return Due(True, step % every == 0, (step - 1) // every * every + 1, True)
    if schedule == "verify_init":
        judgements = step <= first_steps(config)
        return Due(not judgements, judgements, step, judgements)
    judgements = schedule in ("self_verify", "mixed")
    return Due(schedule != "self_verify", judgements, step, judgements)


def first_steps(config: Train) -> int:
    """Steps of `verify_init` that train on judgements: one at least, and not all."""
    share = round(config.verification.init_share * config.steps)
    return min(max(1, share), max(1, config.steps - 1))
