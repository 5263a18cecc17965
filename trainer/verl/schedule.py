"""What a step trains on: answers, the policy's judgements of them, or both.

The schedules are those of Learning to Self-Verify, https://arxiv.org/abs/2602.07594. They depend on
the number of the step and on the config alone, so that a resumed run continues its schedule.
"""

from __future__ import annotations

from ...pipelines.recipe.train import Train
from .types import StepPlan


def plan_step(config: Train, step: int) -> StepPlan:
    """The plan of `step`, from 1 to `config.steps`."""
    schedule = config.schedule
    if schedule == "verify_alter":
        every = config.verification.every
        # Also after the last multiple: the run may be resumed with more steps.
        return StepPlan(True, step % every == 0, (step - 1) // every * every + 1, True)
    if schedule == "verify_init":
        judgements = step <= first_steps(config)
        return StepPlan(not judgements, judgements, step, judgements)
    judgements = schedule in ("self_verify", "mixed")
    return StepPlan(schedule != "self_verify", judgements, step, judgements)


def first_steps(config: Train) -> int:
    """How many steps of `verify_init` train on judgements: at least one, and not all."""
    share = round(config.verification.init_share * config.steps)
    return min(max(1, share), max(1, config.steps - 1))
