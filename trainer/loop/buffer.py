"""A training step: verl's replay buffer, with the recipe between rollouts and update.

    verl                          here
    sample(step, "train", B) ──>  wait for groups, and run the recipe's steps on those that are
                                  finished; if judgements are due, request and wait for those too
                             <──  keys of the rows that are left, with their rewards; figures

verl finds it by `trainer.v1.sampler.custom_sampler`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...operators.errors import DataError
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ..policies import Policy, Sampling, policy_path
from ..run import TrainingRun
from ..split import ACCURACY, advantage_operator, grading_steps
from . import judging
from .advantage import register
from .curation import Curation, at_progress, threads
from .failures import errors_recorded
from .pending_groups import (
    PendingGroups,
    drop_excess_groups,
    drop_untrainable,
    format_drop_counts,
    number_of_groups,
)
from .queued_answers import AnswerQueue
from .rollouts import read
from .schedule import plan_step
from .step_files import Clock, StepFiles, response_figures
from .step_part import StepPart, nothing_to_train_on, release, tokens_sampled
from .types import StepPlan, TrajectoryKey
from .verl_trainer import VerlTrainer

_POLL_S = 0.02


class RecipeBuffer(ReplayBuffer):  # type: ignore[misc]
    """The groups of a step, curated by the recipe.

    Each row either trains or is dropped for a reason; dropped rows are recorded beside the rollouts
    of the step, and are removed from TransferQueue. Groups of one never train: GRPO would take
    their raw reward for an advantage.
    """

    def __init__(self, *args: Any, sampler_kwargs: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)
        self.poll_interval = _POLL_S
        folder = Path(sampler_kwargs["run"])
        with errors_recorded(folder):
            self._run = TrainingRun.open(folder)
            self._sampler = self._run.sampler()
            register(advantage_operator(self._run.split.post_rollout_steps))
        self._trainer = VerlTrainer(self.refill_fn)
        self._pool = threads()
        self._files = StepFiles(self._run)
        self._queue = AnswerQueue(self._run)
        self._clock = Clock()
        self._waited = 0.0

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The trajectories to train on, or to validate on, once their groups are complete."""
        found: tuple[KVBatchMeta, dict[str, Any]]
        with errors_recorded(self._run.folder):
            if partition_id == "val":
                found = self._validate(global_steps, batch_size)
            elif self._run.config.replay:
                found = super().sample(global_steps, partition_id, batch_size)
            else:
                found = self._train(global_steps, batch_size)
        return found

    # ------------------------------------------------------------------ a training step

    def _train(self, step: int, groups_wanted: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        start = time.perf_counter()
        self._begin(step)
        plan = plan_step(self._run.config, step)
        answers, figures = self._answers(step, groups_wanted, plan)
        parts = {"": answers}
        if plan.judgements:
            parts["verify"], judged = self._judgements(step, plan.since)
            figures.update({f"rejuice/verify/{name}": value for name, value in judged.items()})
        with self._clock("write"):
            keys = [key for part in parts.values() for key in part.release_to_verl()]
        if not keys:
            raise nothing_to_train_on(step, parts)
        self._trainer.set_mini_batch_size(len(keys), self._run.config.updates_per_step)
        self._keep(step, parts)
        figures["rejuice/progress"] = self._run.progress(step)
        figures["rejuice/rows_trained"] = len(keys)
        figures["rejuice/tokens_sampled"] = tokens_sampled(parts)
        seconds = self._clock.read()
        seconds["operators"] = sum(sum(p.curated.seconds.values()) for p in parts.values())
        seconds["after_sampling"] = time.perf_counter() - start - self._waited
        figures.update({f"rejuice/seconds/{name}": value for name, value in seconds.items()})
        tags = {key: tag for part in parts.values() for key, tag in part.groups.tags.items()}
        return _batch("train", keys, tags), figures

    def _begin(self, step: int) -> None:
        # A step that is repeated after a resume, perhaps by another schedule, starts from nothing.
        shutil.rmtree(self._run.step_folder(step), ignore_errors=True)
        self._clock.read()  # The time of a validation does not belong to a step.
        self._waited = 0.0

    def _keep(self, step: int, parts: Mapping[str, StepPart]) -> None:
        for name, part in parts.items():
            recipe = self._run.step_recipe(step, part.recipe, name)
            self._files.keep(step, name, part.tables, recipe)
        if step >= self._run.config.steps:
            self._files.wait()  # No later step would report that they could not be written.

    def _answers(self, step: int, wanted: int, plan: StepPlan) -> tuple[StepPart, dict[str, Any]]:
        """The responses to prompts of the dataset, and their figures."""
        run = self._run
        steps = at_progress(run.split.after, run.progress(step))
        groups = PendingGroups(Curation(steps, self._pool))
        prompts, requested, refills = run.prompts("train"), wanted, 0
        while True:
            self._wait_for(groups, requested, "train", prompts, self._sampler)
            with self._clock("close"):
                rollouts, graded = groups.close()
                curated = drop_untrainable(graded) if plan.answers else graded
            left = number_of_groups(curated.table)
            missing = wanted - left if plan.answers else 0
            if missing <= 0 or refills == run.config.refill:
                break
            # As many as will fill the batch at the rate at which groups were left so far.
            more = min(wanted, -(-missing * requested // max(left, 1)))
            requested += self._trainer.refill(more)
            refills += 1
        if not rollouts.num_rows:
            raise DataError(
                f"step {step}: no group is left to train on ({format_drop_counts(curated)})",
                "verl's log says why prompts failed",
            )
        if refills and missing > 0:
            print(f"step {step}: {left} of {wanted} groups after {refills} refills")
        with self._clock("close"):
            if plan.answers:
                curated = drop_excess_groups(curated, wanted, step)
            figures = response_figures(curated, rollouts, steps)
            if plan.queues:
                self._queue.keep(step, graded.table)
        figures["groups"] = min(left, wanted) if plan.answers else 0
        figures["refills"] = refills
        figures["failed_prompts"] = groups.failed
        figures["repeated_prompts"] = groups.repeated
        part = StepPart(groups, rollouts, curated, steps, plan.answers)
        return part, {f"rejuice/{name}": value for name, value in figures.items()}

    def _judgements(self, step: int, since: int) -> tuple[StepPart, dict[str, float]]:
        """The policy's judgements of the queued answers, and their figures."""
        run, (policy, sampling) = self._run, self._sampler
        assert run.split.judging is not None
        prompting, rollout, after = run.split.judging
        longest = run.config.max_prompt_tokens
        with self._clock("ask"):
            queued = self._queue.take(since, step)
            prompts, not_asked, figures = judging.verification_prompts(
                prompting, queued, step, self._encode, longest
            )
        if since == step:
            self._queue.forget(step)
        steps = at_progress(after, run.progress(step))
        groups = PendingGroups(Curation(steps, self._pool))
        if prompts.num_rows:
            uids, batch = judging.verl_batch(prompts, rollout, run.split.source, step)
            self._trainer.submit(batch)
            sampler = (policy, sampling._replace(max_tokens=rollout.max_tokens))
            self._wait_for(groups, len(uids), "train", prompts, sampler, among=set(uids))
        with self._clock("close"):
            rollouts, graded = groups.close()
            curated = drop_untrainable(graded)
            # The same reason may have dropped prompts and judgements.
            found = judging.judgement_figures(curated, rollouts, steps)
            figures |= {name: figures.get(name, 0.0) + value for name, value in found.items()}
        figures["failed_prompts"] = groups.failed
        return StepPart(groups, rollouts, curated, steps, True, not_asked), figures

    @cached_property
    def _encode(self) -> Encode:
        """Token ids of a verification prompt, by the same chat template as answers."""
        kwargs = self._run.split.rollout.chat_template_kwargs
        return chat_encoder(policy_path(self._run.policy), kwargs)

    def _wait_for(
        self,
        groups: PendingGroups,
        wanted: int,
        partition: str,
        prompts: pa.Table,
        sampler: tuple[Policy, Sampling],
        among: set[str] | None = None,
    ) -> None:
        """Wait until so many groups have ended; the recipe starts on those that are finished.

        Args:
            groups: receives them.
            wanted: how many are to end in all.
            partition: `train` or `val`.
            prompts: the table of their prompts.
            sampler: the policy and its sampling parameters.
            among: uids of the groups to wait for; None: all that are in the partition.
        """
        start = time.perf_counter()
        while groups.ended < wanted:
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_marks_prompts_as_we_read_them
            self._sync_metadata_from_transfer_queue()
            # A sampler that dies marks all its prompts as failed, even those that are finished.
            failed = self.failure_keys[partition] - groups.uids
            finished = self.finished_keys[partition] - groups.uids
            if among is not None:
                failed, finished = failed & among, finished & among
            if not failed and not finished:
                groups.curation.check()
                time.sleep(self.poll_interval)
                continue
            # Without prompts: one that failed and was cleared comes back, as what is no prompt to
            # verl, if the sampler dies later on.
            parsed = TrajectoryKey.of_trajectories(self.partitions[partition])
            groups.fail(len(failed))
            if failed:
                lost = [str(key) for key in parsed if key.uid in failed]
                tq.kv_clear(partition_id=partition, keys=[*failed, *lost])
            if finished:
                tags = {key: tag for key, tag in parsed.items() if key.uid in finished}
                with self._clock("read"):
                    rollouts = read(tags, partition, prompts, *sampler)
                groups.add(finished, tags, rollouts)
        self._waited += time.perf_counter() - start

    # ------------------------------------------------------------------ a validation

    def _validate(self, step: int, prompts: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        groups = PendingGroups(Curation(grading_steps(self._run.split.after), self._pool))
        self._wait_for(groups, prompts, "val", self._run.prompts("val"), self._sampler)
        rollouts, graded = groups.close()
        table = graded.table
        if groups.failed:
            print(f"step {step}: {groups.failed} of {prompts} prompts of the validation failed")
        if table.num_rows:
            self._files.validate(step, table)
            # verl takes the mean of all rows, which one nan would make nan.
            table = table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))
        if not table.num_rows:
            reason = "no response has an accuracy" if rollouts.num_rows else "every prompt failed"
            raise DataError(f"step {step}: the validation came to nothing: {reason}")
        if table.num_rows < len(groups.tags):
            print(f"step {step}: {len(groups.tags) - table.num_rows} responses have no accuracy")
        return _batch("val", release(groups, table, "val", ACCURACY), groups.tags), {}


def _batch(
    partition: str, keys: list[TrajectoryKey], tags: Mapping[TrajectoryKey, dict[str, Any]]
) -> KVBatchMeta:
    """Rows of TransferQueue as verl's trainer reads them."""
    return KVBatchMeta(
        partition_id=partition, keys=list(map(str, keys)), tags=[tags[key] for key in keys]
    )
