"""Checks what the steps of a run need before verl is launched, which takes a minute."""

from __future__ import annotations

from ...operators.errors import RejuiceError
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.operator import ResumableOperator
from ...operators.sampling.tokenizer import chat_encoder
from ..policies import policy_path
from ..run import TrainingRun


def check_servers(run: TrainingRun) -> None:
    """Check that the servers of a recipe's steps are up, such as that of an LLM judge.

    verl takes the place of the steps that sample, but not that of the tools and frozen models of
    agents.

    Raises:
        RejuiceError: a server is not up, or lacks its model; or the flow does not suit the policy.
    """
    parts = run.split
    if parts.agents is not None:
        _check_flow(run, parts.agents)
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


def _check_flow(run: TrainingRun, agents: AgentRolloutMapper) -> None:
    if run.config.replay is not None and not run.held_out:
        return  # Nothing is sampled.
    encode = chat_encoder(policy_path(run.policy), agents.chat_template_kwargs)
    (step,) = (step for step in run.recipe.steps if step.operator is agents)
    try:
        agents.preflight_parts(encode)
    except RejuiceError as error:
        raise error.at(run.recipe.where(step)) from error
