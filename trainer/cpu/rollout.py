"""Rollouts on a CPU: whole groups from the embedded sampler, put into TransferQueue.

    Groups.generate_sequences(prompts) ──> Sampler (an actor) ──> TransferQueue
    Adapter.update_weights(weights)    ──> Sampler

verl's own manager asks for one response at a time, by calls that cost more than a small policy
needs to answer. `Groups` hands all prompts of a step to the sampler of `policy_rollout_mapper`,
which answers group by group.
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
from ..loop.failures import SAMPLER_FAILED as FAILED
from ..loop.trajectories import Batch, Slot, fail, put
from ..run import MARK, WEIGHTS

_NAME = "rejuice-sampler"
_PUT = 16  # groups put at once


class Ask(NamedTuple):
    """A prompt to sample: where its responses go, the chat, and the seed."""

    slot: Slot
    messages: Messages
    seed: int


class Sampler:
    """The embedded engine, for an actor."""

    def __init__(self, policy: str, workers: int, told: Mapping[str, Any]) -> None:
        build = partial(TransformersEngine, policy, chat_template_kwargs=told)
        threads = max(1, usable_cores() // workers)
        self._engine = EngineProcesses(build, workers=workers, threads=threads)
        # Ray kills this process, which cleans up nothing: the command that launched the run does.
        self._weights = Path(os.environ[MARK]) / WEIGHTS
        # In verl's log, at once: Ray ends this process without cleaning up.
        self._first_failures = FirstFailures(partial(print, flush=True))
        tq.init()

    def load_weights(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Sample from these weights from now on."""
        save_file(weights, self._weights)
        self._engine.load_weights(self._weights, version)

    def sample(self, asks: Sequence[Ask], settings: Settings, partition: str, step: int) -> None:
        """Sample, and put groups into TransferQueue as they finish."""
        prompts = [Prompt(ask.messages, ask.seed) for ask in asks]
        held: list[tuple[Slot, Group]] = []
        for index, found in self._engine.sample(prompts, settings):
            if isinstance(found, Failure):
                message = f"a prompt failed with {found.reason}: {found.detail}"
                self._first_failures.report(found.reason, message)
                fail([asks[index].slot], partition)
                continue
            held.append((asks[index].slot, found))
            if len(held) == _PUT:
                put(held, partition, step)
                held = []
        if held:
            put(held, partition, step)


class Replica(RolloutReplica):  # type: ignore[misc]
    """verl's handle of the sampler."""

    async def launch_servers(self) -> None:
        policy, told = self.model_config.path, dict(self.config.engine_kwargs.get("rejuice") or {})
        server = ray.remote(Sampler).options(name=_NAME).remote(policy, usable_cores(), told)
        self.servers = [server]
        self._server_handle = server
        self._server_address = _NAME

    async def sleep(self) -> None:
        """It has no memory to give back."""

    wake_up = sleep


class Adapter(BaseRollout):  # type: ignore[misc]
    """In the training worker: hands its weights to the sampler."""

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """There is nothing to release."""

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", **more: Any
    ) -> None:
        found = {name: tensor.detach().cpu().contiguous() for name, tensor in weights}
        if os.environ["RANK"] == "0":
            version = more.get("global_steps") or 0
            await ray.get_actor(_NAME).load_weights.remote(found, version)


class Groups:
    """verl's agent loop manager, for single-turn groups."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._sampler = ray.get_actor(_NAME)

    @classmethod
    def create(cls, config: Any, **_: Any) -> Groups:
        """As verl asks for it; the clients of its own servers are of no use here."""
        return cls(config)

    def generate_sequences(self, prompts: Any) -> None:
        """Hand the prompts to the sampler, without waiting."""
        rollout = self._config.actor_rollout_ref.rollout
        batch = Batch.of(prompts)
        asked = rollout.val_kwargs if batch.partition == "val" else rollout
        settings = Settings(
            batch.n or asked.n,
            asked.temperature,
            asked.top_p,
            batch.max_tokens or rollout.response_length,
        )
        asks = [
            Ask(slot, chat, prompt_seed(slot.prompt_id, rollout.seed, batch.step))
            for slot, chat in zip(batch.slots, batch.chats, strict=True)
        ]
        work = self._sampler.sample.remote(asks, settings, batch.partition, batch.step)
        Thread(target=_watch, args=(work, batch), daemon=True).start()


def _watch(work: Any, batch: Batch) -> None:
    """See that the prompts end, whatever becomes of the sampler."""
    try:
        ray.get(work)
    except Exception as error:  # Of any kind: it is told, and the step finds its prompts failed.
        print(f"{FAILED}{_why(error)}", flush=True)
        fail(batch.slots, batch.partition)


def _why(error: Exception) -> str:
    """One line of the many that Ray makes."""
    if isinstance(error, ray.exceptions.RayActorError):
        return "its process was killed, perhaps for want of memory"
    cause = getattr(error, "cause", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__
