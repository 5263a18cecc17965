"""Rollouts on a CPU: whole groups from the embedded sampler, put into TransferQueue.

    GroupManager.generate_sequences(prompts) ──> Sampler (an actor) ──> TransferQueue
    Adapter.update_weights(weights)          ──> Sampler

verl's own manager requests one response at a time, by calls that cost more than a small policy
needs to answer. `GroupManager` passes all prompts of a step to the sampler of
`policy_rollout_mapper`, which answers group by group.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import ray
import torch
import transfer_queue as tq
from safetensors.torch import save_file
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from ...operators.cores import usable_cores
from ...operators.first_failures import FirstFailures
from ...operators.sampling.processes import EngineProcesses
from ...operators.sampling.protocol import Failure, Group, Prompt, Settings
from ...operators.sampling.seeds import prompt_seed
from ...operators.sampling.tokenizer import Messages
from ...operators.sampling.transformers_engine import TransformersEngine
from ..loop.failures import report_sampler_failure
from ..loop.trajectories import fail, prompt_batch, put
from ..loop.types import PromptBatch, Slot
from ..run import RUN_VARIABLE, WEIGHTS

_NAME = "rejuice-sampler"
_PUT = 16  # groups that are put into TransferQueue at once


class SampleRequest(NamedTuple):
    """A prompt to sample: where its responses go, the chat, and the seed."""

    slot: Slot
    messages: Messages
    seed: int


class Sampler:
    """The embedded engine, for an actor."""

    def __init__(self, policy: str, workers: int, chat_template_kwargs: Mapping[str, Any]) -> None:
        build = partial(TransformersEngine, policy, chat_template_kwargs=chat_template_kwargs)
        threads = max(1, usable_cores() // workers)
        self._engine = EngineProcesses(build, workers=workers, threads=threads)
        # Ray kills this process before it can clean up; the command that launched the run does.
        self._weights = Path(os.environ[RUN_VARIABLE]) / WEIGHTS
        # In verl's log, at once: Ray ends this process without cleaning up.
        self._first_failures = FirstFailures(partial(print, flush=True))
        tq.init()

    def load_weights(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Sample from these weights from now on."""
        save_file(weights, self._weights)
        self._engine.load_weights(self._weights, version)

    def sample(
        self, requests: Sequence[SampleRequest], settings: Settings, partition: str, step: int
    ) -> None:
        """Sample, and put groups into TransferQueue as they finish."""
        prompts = [Prompt(request.messages, request.seed) for request in requests]
        finished: list[tuple[Slot, Group]] = []
        for index, found in self._engine.sample(prompts, settings):
            if isinstance(found, Failure):
                message = f"a prompt failed with {found.reason}: {found.detail}"
                self._first_failures.report(found.reason, message)
                fail([requests[index].slot], partition)
                continue
            finished.append((requests[index].slot, found))
            if len(finished) == _PUT:
                put(finished, partition, step)
                finished = []
        if finished:
            put(finished, partition, step)


class Replica(RolloutReplica):  # type: ignore[misc]
    """verl's handle of the sampler."""

    async def launch_servers(self) -> None:
        chat_kwargs = dict(self.config.engine_kwargs.get("rejuice") or {})
        remote = ray.remote(Sampler).options(name=_NAME)
        server = remote.remote(self.model_config.path, usable_cores(), chat_kwargs)
        self.servers = [server]
        self._server_handle = server
        self._server_address = _NAME

    async def sleep(self) -> None:
        """Do nothing: the sampler has no memory to release."""

    wake_up = sleep


class Adapter(BaseRollout):  # type: ignore[misc]
    """Runs in the training worker, and sends its weights to the sampler."""

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: nothing was released."""

    async def release(self) -> None:
        """Do nothing: there is nothing to release."""

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", **more: Any
    ) -> None:
        found = {name: tensor.detach().cpu().contiguous() for name, tensor in weights}
        if os.environ["RANK"] == "0":
            version = more.get("global_steps") or 0
            await ray.get_actor(_NAME).load_weights.remote(found, version)


class GroupManager:
    """verl's agent loop manager, for single-turn groups."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._sampler = ray.get_actor(_NAME)

    @classmethod
    def create(cls, config: Any, **_: Any) -> GroupManager:
        """The manager, as verl creates one; the clients of verl's own servers are not used."""
        return cls(config)

    def generate_sequences(self, prompts: Any) -> None:
        """Pass the prompts to the sampler, without waiting."""
        rollout = self._config.actor_rollout_ref.rollout
        batch = prompt_batch(prompts)
        options = rollout.val_kwargs if batch.partition == "val" else rollout
        settings = Settings(
            batch.n or options.n,
            options.temperature,
            options.top_p,
            batch.max_tokens or rollout.response_length,
        )
        requests = [
            SampleRequest(slot, chat, prompt_seed(slot.prompt_id, rollout.seed, batch.step))
            for slot, chat in zip(batch.slots, batch.chats, strict=True)
        ]
        work = self._sampler.sample.remote(requests, settings, batch.partition, batch.step)
        Thread(target=_watch, args=(work, batch), daemon=True).start()


def _watch(work: Any, batch: PromptBatch) -> None:
    """Wait for the sampler; if it fails, mark its prompts as failed, so that they end."""
    try:
        ray.get(work)
    except Exception as error:  # Of any type: the step finds its prompts failed.
        report_sampler_failure(_reason(error))
        fail(batch.slots, batch.partition)


def _reason(error: Exception) -> str:
    """One line out of the many of Ray's errors."""
    if isinstance(error, ray.exceptions.RayActorError):
        return "its process was killed; the machine is probably out of memory"
    cause = getattr(error, "cause", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__
