"""One response at a time from verl's own servers: what profile `gpu` rolls out with."""

from __future__ import annotations

from functools import partial
from math import nan
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from ...operators.first_failures import FirstFailures
from ...operators.sampling.seeds import prompt_seed
from .trajectories import own_settings

_first_failures = FirstFailures(partial(print, flush=True))  # In verl's log, at once.


class RecipeAgentLoop(SingleTurnAgentLoop):  # type: ignore[misc]
    """verl's single turn, with a seed of its own where wanted and the reward left to the recipe."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        prompt, params = kwargs["extra_info"], dict(sampling_params)
        if self.config.trainer.v1.sampler.sampler_kwargs.seeds_requests:
            step = int(kwargs["global_steps"])
            seed = prompt_seed(prompt["prompt_id"], self.rollout_config.seed, step)
            # vLLM takes a signed 64-bit seed; the responses of a group differ in theirs.
            params["seed"] = seed + int(kwargs["session_id"])
        params.update(own_settings(prompt))
        try:
            output = await super().run(params, **kwargs)
        except Exception as error:  # verl counts the session as failed, and gives no reason.
            reason = type(error).__name__
            _first_failures.report(reason, f"a response failed with {reason}: {error}")
            raise
        # Groups are scored when they are complete. If that were ever left out, training must not
        # learn from a number that no reward function gave.
        output.reward_score = nan
        output.extra_fields["reward_extra_info"] = {}
        return output
