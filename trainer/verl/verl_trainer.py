"""verl's trainer, as far as the replay buffer uses it.

verl gives its replay buffer one function, which submits more prompts. It is a method of the
trainer, through which the rest is reached: nothing public leads there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .advantage import LossSettings


class VerlTrainer:
    """The trainer to which a replay buffer belongs.

    Args:
        refill: the trainer's method that verl gives the buffer as `refill_fn`.
    """

    def __init__(self, refill: Callable[[int], int]) -> None:
        self._refill = refill

    @property
    def _trainer(self) -> Any:
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_builds_its_replay_buffer_of_ours
        return self._refill.__self__  # type: ignore[attr-defined]

    def refill(self, prompts: int) -> int:
        """Submit further prompts of the dataset; how many were submitted."""
        return self._refill(prompts)

    def submit(self, prompts: Any) -> None:
        """Submit prompts as verl submits its own: into TransferQueue, then to the rollouts."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verification_prompts_reach_the_rollouts_as_verls_own_do
        self._trainer._submit_batch_to_rollout(prompts)

    def log(self, figures: dict[str, float], step: int) -> None:
        """Log figures of a step to the loggers of the run, beside what verl logs of it."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_has_its_loggers_before_it_validates
        self._trainer.logger.log(data=figures, step=step)

    @property
    def tracking(self) -> Any:
        """verl's loggers: `logger` has those of the run by name, `log` takes a list `backend`."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_keeps_its_loggers_by_name
        return self._trainer.logger

    def use_turn_loss(self) -> None:
        """Train with the loss over turns of trajectories; the workers keep it for the whole run."""
        trainer = self._trainer
        settings = LossSettings.of(trainer.config.actor_rollout_ref.actor)
        trainer.actor_rollout_wg.set_loss_fn(settings.loss())

    def set_mini_batch_size(self, rows: int, updates: int) -> int:
        """Split the rows of a step into as many optimizer updates as the recipe has.

        verl's mini-batches have as many rows as a step without dropped rows would give them. It
        reads their size from its configuration at each step, in prompts of n responses.

        Returns:
            How many updates there will be: fewer where few rows remain.
        """
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_reads_the_mini_batch_size_at_each_step
        config = self._trainer.config
        n, ranks = config.actor_rollout_ref.rollout.n, config.trainer.n_gpus_per_node
        ranks *= config.trainer.nnodes
        wanted = -(-rows // (updates * n))
        multiple = ranks // math.gcd(ranks, n)  # The ranks must have equal shares.
        size: int = -(-wanted // multiple) * multiple
        config.actor_rollout_ref.actor.ppo_mini_batch_size = size
        return -(-rows // (size * int(n)))
