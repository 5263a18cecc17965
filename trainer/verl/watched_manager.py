"""verl's agent loops for profile `gpu`, watched: the prompts of a worker that dies fail.

verl's workers take prompts without waiting for the responses, so nobody learns of one that dies
with its process or its node, and the step would wait for its prompts without end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from threading import Lock, Thread
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

from ...operators.errors import EngineError
from ..run import report_sampler_failure
from .trajectories import Polled, Slot, fail, prompt_batch, reason_of

_INTERVAL_S = 10.0
"""Between calls that find out whether a worker lives."""


class WatchedManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's own manager, except that prompts fail with their worker, and the others carry on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dead, self._lock = set[Any](), Lock()

    def generate_sequences(self, prompts: Any) -> None:
        """Divide the prompts among the workers that live, without waiting."""
        # private: verl==0.9.1, tests/trainer/verl/test_watched_manager.py::test_verl_divides_prompts_among_its_workers
        alive = [worker for worker in self.agent_loop_workers if worker not in self._dead]
        if not alive:
            raise EngineError("all agent loop workers of verl have died", "verl's log says why")
        batch = prompt_batch(prompts)
        slots = iter(batch.slots)
        for worker, chunk in zip(alive, prompts.chunk(len(alive)), strict=False):
            given = worker, chunk, list(islice(slots, len(chunk))), batch.partition
            Thread(target=self._submit, args=given, daemon=True).start()

    def _submit(self, worker: Any, chunk: Any, slots: Sequence[Slot], partition: str) -> None:
        """Hand prompts to a worker; if it fails before they have ended, so do they."""
        try:
            ray.get(worker.generate_sequences.remote(chunk))
            while True:
                time.sleep(_INTERVAL_S)
                if not _waiting(slots, partition):
                    return
                self._check(worker)
        except Exception as error:  # Of any type: the step finds its prompts failed.
            with self._lock:
                known = worker in self._dead  # It had prompts of a refill, too.
                if not isinstance(error, _ALIVE):
                    self._dead.add(worker)
            if not known:
                report_sampler_failure(f"an agent loop worker failed: {reason_of(error)}")
            if waiting := _waiting(slots, partition):
                fail(waiting, partition)

    def _check(self, worker: Any) -> None:
        try:
            ray.get(worker.__ray_ready__.remote())
        except ray.exceptions.ActorUnavailableError:
            return  # It cannot be reached now; whether it is dead, the next call will find out.


_ALIVE = (ray.exceptions.RayTaskError, ray.exceptions.ActorUnavailableError)
"""What a call may raise though the worker lives: an error in it, and a fault of the network."""


def _waiting(slots: Sequence[Slot], partition: str) -> list[Slot]:
    waiting = Polled.of(partition).prompts("pending", "running")
    return [slot for slot in slots if slot.uid in waiting]
