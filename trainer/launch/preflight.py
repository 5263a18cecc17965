"""Checks what the steps of a run need before verl is launched, which takes a minute."""

from __future__ import annotations

from ...operators.errors import RejuiceError
from ...operators.operator import ResumableOperator
from ..run import TrainingRun


def check_servers(run: TrainingRun) -> None:
    """Check that the servers of a recipe's steps are up, such as that of an LLM judge.

    verl takes the place of the steps that sample.

    Raises:
        RejuiceError: a server is not up, or lacks its model.
    """
    parts = run.split
    judging = () if parts.judging is None else (*parts.judging.prompting, *parts.judging.after)
    for step in (*parts.before, *parts.after, *judging):
        operator = step.operator
        if not isinstance(operator, ResumableOperator):
            continue
        if run.config.replay and operator.has_results():
            continue  # It may have scored the stored responses before.
        try:
            operator.preflight()
        except RejuiceError as error:
            raise error.at(run.recipe.where(step)) from error
