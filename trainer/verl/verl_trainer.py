"""verl's trainer, as far as the replay buffer uses it.

verl gives its replay buffer one function, which submits more prompts. It is a method of the
trainer, through which the rest is reached: nothing public leads there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import transfer_queue as tq
from numpy.typing import NDArray
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict
from verl.workers.utils.padding import response_from_nested

from .advantage import LossSettings
from .groups import QueuedGroups

SKIPS = "skips"
"""In the `extra_info` of a batch that has nothing to train on."""


def skipped(groups: Sequence[QueuedGroups]) -> KVBatchMeta:
    """The rows of a step that has nothing to train on, for verl to clear.

    Their prompts are cleared at once: a checkpoint of the step must not have them any more.
    """
    uids = [uid for each in groups for uid in each.uids]
    if uids:
        tq.kv_clear(partition_id="train", keys=uids)
    keys = [str(key) for each in groups for key in each.tags]
    info = {SKIPS: True}
    return KVBatchMeta(partition_id="train", keys=keys, tags=[{} for _ in keys], extra_info=info)


class StepSkippedError(Exception):
    def __init__(self, batch: KVBatchMeta, figures: Mapping[str, float]) -> None:
        super().__init__("the step has nothing to train on")
        self.batch, self.figures = batch, figures  # what verl clears, and what is logged


class VerlTrainer:
    """The trainer to which a replay buffer belongs.

    `refill` is its method that verl gives the buffer as `refill_fn`.
    """

    def __init__(self, refill: Callable[[int], int], is_stopped: Callable[[], bool] = bool) -> None:
        self._refill, self._is_stopped = refill, is_stopped

    @property
    def _trainer(self) -> Any:
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_builds_its_replay_buffer_of_ours
        return self._refill.__self__  # type: ignore[attr-defined]

    @property
    def step(self) -> int:
        return int(self._trainer.global_steps)

    def refill(self, prompts: int) -> int:
        return self._refill(prompts)

    def choose_prompts(self, rows: Callable[[int, int], list[int]]) -> None:
        """Let a function choose the prompts, of a step and a number, in place of verl's sampler."""
        trainer = self._trainer

        def next_batch(num_prompts: int | None = None) -> Any:
            step = trainer.global_steps
            chosen = rows(step, num_prompts or trainer.config.data.train_batch_size)
            if not chosen:
                return None  # All are sampled already: `name_requests` submits none.
            fields = trainer.train_dataloader.collate_fn(
                [trainer.train_dataset[row] for row in chosen]
            )
            fields["uid"] = np.array([str(uuid4()) for _ in chosen], object)
            batch = get_tensordict(fields)
            assign_non_tensor_data(batch, "global_steps", step)
            return batch

        # private: verl==0.9.1, tests/trainer/verl/test_choice.py::test_verl_submits_the_prompts_that_are_chosen
        trainer._next_train_batch = next_batch

    def name_requests(self, name: Callable[[Any], None]) -> None:
        """Let a function give prompts their keys in TransferQueue, before they are submitted."""
        # private: verl==0.9.1, tests/trainer/verl/test_ahead.py::test_requests_have_numbers
        trainer = self._trainer
        submit = trainer._submit_batch_to_rollout

        def named(batch: Any) -> int:
            if batch is None:
                return 0
            name(batch)
            return int(submit(batch))

        # private: verl==0.9.1, tests/trainer/verl/test_ahead.py::test_requests_have_numbers
        trainer._submit_batch_to_rollout = named

    def stop_requests(self, ahead: int) -> None:
        """Let verl request no prompts in the last steps: those before have requested them."""
        # private: verl==0.9.1, tests/trainer/verl/test_ahead.py::test_nothing_is_requested_beyond_the_last_step
        trainer = self._trainer
        prepare_step = trainer.prepare_step

        def prepare() -> dict[str, Any]:
            if trainer.global_steps + ahead > trainer.total_training_steps:
                return {}
            return dict(prepare_step())

        trainer.prepare_step = prepare

    def update_sampler_every(self, steps: int) -> None:
        """Give the sampler new weights after every few steps only, and before a validation."""
        # private: verl==0.9.1, tests/trainer/verl/test_ahead.py::test_weights_are_updated_every_few_steps
        trainer = self._trainer
        if steps == 1:
            return
        update, every = trainer.on_step_end, trainer.config.trainer.test_freq

        def on_step_end() -> None:
            step = trainer.global_steps
            validates = every > 0 and (step % every == 0 or step >= trainer.total_training_steps)
            if step % steps == 0 or validates:
                update()

        trainer.on_step_end = on_step_end

    def submit(self, prompts: Any) -> None:
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verification_prompts_reach_the_rollouts_as_verls_own_do
        self._trainer._submit_batch_to_rollout(prompts)

    def end_sampling(self) -> None:
        """End the sampling of a step before verl does: on a GPU, the policy has its memory then."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_computes_log_probs_of_replayed_rows
        trainer = self._trainer
        if "on_sample_end" in vars(trainer):
            return  # It has ended.
        trainer.on_sample_end()

        def has_ended() -> None:
            del trainer.on_sample_end  # For the next step, it is verl's again.

        trainer.on_sample_end = has_ended

    def log_probs(self, batch: KVBatchMeta) -> list[NDArray[np.float32]]:
        """By the policy as it is, at the temperature of the sampling, float32[tokens] each."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_computes_log_probs_of_replayed_rows
        trainer = self._trainer
        config = trainer.config
        ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes
        whole = upsample_batch_to_divisible_size(batch, ranks, trainer.tokenizer.eos_token_id)
        whole.extra_info.update(
            {
                "calculate_entropy": False,
                "compute_loss": False,
                "temperature": config.actor_rollout_ref.rollout.temperature,
            }
        )
        trainer.actor_rollout_wg.compute_log_prob(whole)
        fields = ["log_probs", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
        if padding := whole.keys[len(batch.keys) :]:
            tq.kv_clear(partition_id="train", keys=padding)
        found = response_from_nested(data["log_probs"], data["response_mask"])
        return [each.numpy() for each in found.float().unbind()]

    def log(self, figures: dict[str, float], step: int) -> None:
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

    @property
    def is_last(self) -> bool:
        return self.step >= int(self._trainer.total_training_steps)

    def save_by(self, how: Callable[[Callable[[], None]], None]) -> None:
        """Let a function save checkpoints, or leave it, by verl's own way that it is given."""
        trainer = self._trainer
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_saves_checkpoints_by_a_method
        trainer._save_checkpoint = partial(how, trainer._save_checkpoint)

    def save(self) -> None:
        """Save a checkpoint of the step, as if it were the last one."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_saves_checkpoints_by_a_method
        self.end_after(self.step)
        self._trainer._save_checkpoint()

    def end_steps(self, end: Callable[[dict[str, Any]], None]) -> None:
        """Let a step with nothing to train on pass without an update: verl has no such step.

        `end` is called after each step, with the figures of it that are logged.
        """
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_step_with_nothing_to_train_on_passes_verls_loop
        trainer = self._trainer
        step, compute_metrics = trainer.step, trainer._compute_metrics
        log_rollouts = trainer._log_rollout_data

        def step_or_skip(metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
            self._prompts = trainer.train_dataloader.state_dict()
            self.end_if_stopped()
            try:
                batch: KVBatchMeta = step(metrics, timing_raw)
            except StepSkippedError as skipped:
                trainer.on_sample_end()
                metrics.update(skipped.figures)
                batch = skipped.batch
            end(metrics)
            return batch

        def metrics_of(
            batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], **at: Any
        ) -> None:
            if not batch.extra_info.get(SKIPS):
                compute_metrics(batch, metrics, timing_raw, **at)
                return
            metrics.update({f"timing_s/{name}": value for name, value in timing_raw.items()})
            metrics["training/global_step"] = at["global_steps"]

        def log_rollouts_of(batch: KVBatchMeta, *others: Any) -> None:
            if not batch.extra_info.get(SKIPS):
                log_rollouts(batch, *others)

        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_step_with_nothing_to_train_on_passes_verls_loop
        trainer.step, trainer._compute_metrics = step_or_skip, metrics_of
        trainer._log_rollout_data = log_rollouts_of

    def end_if_stopped(self) -> None:
        """End training, if it is to, with a checkpoint of the step before the one that begins."""
        if self._is_stopped():
            trainer = self._trainer
            trainer.global_steps -= 1
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_saves_checkpoints_by_a_method
            trainer.train_dataloader = SimpleNamespace(state_dict=lambda: self._prompts)
            self.save()
            sys.exit()

    def end_after(self, step: int) -> None:
        """Make a step that is being sampled the last one, with its checkpoint and validation."""
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_step_with_nothing_to_train_on_passes_verls_loop
        trainer = self._trainer
        trainer.total_training_steps = step
        if trainer.config.trainer.test_freq > 0:
            trainer.config.trainer.test_freq = 1

    def set_mini_batch_size(self, rows: int, updates: int) -> int:
        """Split the rows of a step into as many optimizer updates as the recipe has.

        verl's mini-batches have as many rows as a step without dropped rows would give them. It
        reads their size from its configuration at each step, in prompts of n responses. How many
        updates there will be is returned: fewer where few rows remain.
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
