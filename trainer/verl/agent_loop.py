"""One response at a time from verl's own servers: what profile `gpu` rolls out with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache, partial
from math import nan
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from ...operators.agents.play import Play
from ...operators.agents.runner import play_trajectory
from ...operators.agents.tool import ToolError
from ...operators.agents.toolbox import Toolbox
from ...operators.agents.trajectory import FAILURES, Trajectory, Turn
from ...operators.errors import FirstFailures
from ...operators.sampling.engines import policy_path
from ...operators.sampling.protocol import Failure, Group, Prompt, Sample, prompt_seed
from ...operators.sampling.tokenizer import chat_encoder
from ..run import Policy, TrainingRun
from .trajectories import NO_ACTION, own_settings, stored_fields

# --- One trajectory of an agent at a time, from verl's own servers: profile `gpu` -----
# verl makes an agent loop for each trajectory, many of them in one process. What they share, the
# flow and its tools, is opened once for each process.

_first_failures = FirstFailures(partial(print, flush=True))  # In verl's log, at once.
_ABORTED = ("aborted", "abort")  # as vLLM's server in verl says it, and as SGLang's does


class FlowAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """The recipe's flow, whose policy is verl's server; an output for each turn of the policy.

    The flow's `seconds` do not bound what the server takes: verl's own timeouts apply, and where
    verl sets none, a server that never answers stops the step.
    """

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """The turns of one trajectory, as `trajectories.put` would put them.

        Whatever goes wrong is a trajectory that failed, and costs its group nothing else: an
        exception would make verl drop all trajectories of the prompt. A trajectory without a turn
        has one output that does not train, so that it is counted.
        """
        name = f"{kwargs['uid']}_{kwargs['session_id']}"
        try:
            flow = _open_flow(self.config.trainer.v1.sampler.sampler_kwargs.run)
            own = own_settings(kwargs["extra_info"])
            server = _ServerTurns(
                self.server_manager,
                name,
                {**sampling_params, **own},
                flow.policy,
                seeds_requests=flow.seeds_requests,
            )
            found = await flow.play(server, **kwargs)
        except ToolError as error:
            found = Trajectory((), None, "tool_failed", str(error))
        except Exception as error:  # Such as a bug in a flow of the user's.
            found = Trajectory((), None, "sampling_failed", f"{type(error).__name__}: {error}")
        if found.first_failure is not None:  # Such as a prompt that is too long from the start.
            reason, detail = found.first_failure
            detail = f"{reason}: {detail}"
            found = found._replace(response=None, finish_reason="sampling_failed", detail=detail)
        if found.finish_reason in FAILURES:
            message = f"a trajectory failed with {found.finish_reason}: {found.detail}"
            _first_failures.report(found.finish_reason, message)
        turns = found.actions or [NO_ACTION]
        return [_output(turn, found, at) for at, turn in enumerate(turns)]


class _ServerTurns:
    """The policy of one trajectory, on verl's servers: a `TurnSampler`.

    By `request_id`, its turns go to one server, which knows their beginnings.
    """

    def __init__(
        self,
        servers: Any,
        request_id: str,
        sampling_params: Mapping[str, Any],
        policy: Policy,
        *,
        seeds_requests: bool,
    ) -> None:
        self._servers, self._request_id, self._policy = servers, request_id, policy
        self._sampling, self._seeds_requests = sampling_params, seeds_requests

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        assert prompt.token_ids is not None
        # vLLM takes a signed 64-bit seed; those of turns are below 2**62.
        seed = prompt.seed if self._seeds_requests else None
        seeded = {} if seed is None else {"seed": seed}
        try:
            output = await self._servers.generate(
                request_id=self._request_id,
                prompt_ids=list(prompt.token_ids),
                sampling_params={**self._sampling, **seeded, "max_tokens": max_tokens},
            )
        except Exception as error:  # It comes from Ray, vLLM or verl.
            return Failure("server_error", f"{type(error).__name__}: {error}")
        ids, logprobs = tuple(output.token_ids), tuple(output.log_probs or ())
        if not ids or len(ids) != len(logprobs) or output.stop_reason in _ABORTED:
            return Failure("bad_response", f"{len(ids)} tokens, {len(logprobs)} log-probabilities")
        ended = ids[-1] in self._policy.end_token_ids
        text: str = self._policy.tokenizer.decode(
            ids[:-1] if ended else ids, clean_up_tokenization_spaces=False
        )
        sample = Sample(text, ids, logprobs, "stop" if ended else "length")
        version = output.extra_fields.get("min_global_steps") or 0
        return Group(self._policy.name, version, seed, prompt.token_ids, (sample,))


class _OpenFlow:
    def __init__(self, run: TrainingRun) -> None:
        mapper = run.split.agents
        assert mapper is not None
        self.policy, _ = run.sampler()
        self._seed, self.seeds_requests = run.config.seed, run.config.seeds_requests
        self._mapper, self._flow, self._tools = mapper, mapper.open_flow(), mapper.open_tools()
        self._models = self._flow.models()
        self._max_prompt_tokens = run.config.max_prompt_tokens
        self._encode = chat_encoder(policy_path(run.policy), mapper.chat_template_kwargs)
        self._prompts = cache(run.prompts)
        self._flow.check(self._encode)
        self._opened: asyncio.Future[Toolbox] | None = None

    async def play(self, server: _ServerTurns, **prompt: Any) -> Trajectory:
        about, session = prompt["extra_info"], int(prompt["session_id"])
        (task,) = self._mapper.tasks(self._prompts(about["split"]), [int(about["index"])])
        seed = prompt_seed(task.prompt_id, self._seed, int(prompt["global_steps"]))
        play = Play(
            task,
            self._flow,
            sampler=server,
            encode=self._encode,
            toolbox=await self._toolbox(),
            models=self._models,
            max_tokens=self._mapper.max_tokens,
            max_prompt_tokens=self._max_prompt_tokens,
            seed=seed,
            index=session,
        )
        return await play_trajectory(self._flow, play)

    async def _toolbox(self) -> Toolbox:
        # One for all trajectories, which begin at the same time.
        opened = self._opened
        if opened is None or (opened.done() and opened.exception() is not None):
            opened = self._opened = asyncio.ensure_future(Toolbox.of(self._tools))
        return await asyncio.shield(opened)  # One that is cancelled leaves it to the others.


@cache
def _open_flow(run: str) -> _OpenFlow:
    """In its only event loop."""
    return _OpenFlow(TrainingRun.open(Path(run)))


def _output(turn: Turn, trajectory: Trajectory, at: int) -> AgentLoopOutput:
    trained = 0 if turn is NO_ACTION else 1
    ids = list(turn.token_ids or ())
    version = turn.policy_version
    return AgentLoopOutput(
        prompt_ids=list(turn.prompt_token_ids or ()),
        response_ids=ids,
        response_mask=[trained] * len(ids),
        response_logprobs=list(turn.logprobs or ()),
        num_turns=1 + len(trajectory.turns),
        metrics={},
        # The recipe gives the reward. If that were ever left out, training must not learn from a
        # number that no reward function gave.
        reward_score=nan,
        # verl takes the fields of the first row for those of all.
        extra_fields={
            "reward_extra_info": {},
            **stored_fields(trajectory, at),
            "min_global_steps": version,
            "max_global_steps": version,
        },
    )


# --- Agent loop -----------------------------------------------------------------------


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
