"""One response at a time from verl's own servers: what profile `gpu` rolls out with."""

from __future__ import annotations

from math import nan
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from ...operators.sampling.seeds import prompt_seed


class RecipeAgentLoop(SingleTurnAgentLoop):  # type: ignore[misc]
    """verl's single turn, with a seed of its own and the reward left to the recipe."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        prompt, step = kwargs["extra_info"], int(kwargs["global_steps"])
        seed = prompt_seed(prompt["prompt_id"], self.rollout_config.seed, step)
        # vLLM takes a signed 64-bit seed; the responses of a group differ in theirs.
        seeded = {**sampling_params, "seed": seed + int(kwargs["session_id"])}
        if "max_tokens" in prompt:  # Only verification prompts have it.
            seeded["max_tokens"] = prompt["max_tokens"]
        output = await super().run(seeded, **kwargs)
        # Groups are scored when they are complete. If that were ever left out, training must not
        # learn from a number that no reward function gave.
        output.reward_score = nan
        output.extra_fields["reward_extra_info"] = {}
        return output
