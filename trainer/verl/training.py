"""A training step: verl's replay buffer, with the recipe between rollouts and update.

    verl                          here
    sample(step, "train", B) ──>  wait for groups, and run the recipe's steps on those that are
                                  finished; if judgements are due, request and wait for those too
                             <──  keys of the rows that are left, with their rewards; figures

verl finds it by `trainer.v1.sampler.custom_sampler`.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...operators.errors import DataError
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.recipe.train import TURN_MEAN
from ..run import Policy, Sampling, TrainingRun, errors_recorded, policy_path
from ..split import ACCURACY, HeldOutSet, advantage_operator, grading_steps, loss_agg_mode
from . import judging
from .advantage import LossSettings, register
from .curation import Curated, Curation, at_progress, threads
from .figures import (
    Clock,
    SampleTables,
    StepFiles,
    agent_figures,
    response_figures,
    set_figures,
    signal_figures,
)
from .groups import (
    PendingGroups,
    StepPart,
    ValidationGroups,
    drop_excess_groups,
    drop_untrainable,
    format_drop_counts,
    nothing_to_train_on,
    number_of_groups,
    release,
    tokens_sampled,
)
from .judging import AnswerQueue, StepPlan, VerificationPrompts, plan_step
from .trajectories import TrajectoryKey, read, read_trajectories, write_turns

# --- verl's trainer, as far as the replay buffer uses it ------------------------------
# verl gives its replay buffer one function, which submits more prompts. It is a method of the
# trainer, through which the rest is reached: nothing public leads there.


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


# --- Buffer ---------------------------------------------------------------------------

# --- How often to look whether groups have ended --------------------------------------
# TransferQueue notifies nobody and counts nothing: to see one group end, all keys are listed.

_SHORTEST_S, _LONGEST_S = 0.02, 1.0
_DELAY_SHARE = 0.01
"""A group is seen this late at most, as a share of the time waited."""
_LISTING_SHARE = 0.1
"""Listing takes this share of the time at most."""


def poll_interval(waited_s: float, listing_s: float) -> float:
    """Seconds until keys are listed again."""
    by_delay = min(max(_SHORTEST_S, waited_s * _DELAY_SHARE), _LONGEST_S)
    return max(by_delay, listing_s / _LISTING_SHARE)


# --- Buffer ---------------------------------------------------------------------------


class RecipeBuffer(ReplayBuffer):  # type: ignore[misc]
    """The groups of a step, curated by the recipe.

    Each row either trains or is dropped for a reason; dropped rows are recorded beside the rollouts
    of the step, and are removed from TransferQueue. Groups of one never train: GRPO would take
    their raw reward for an advantage.
    """

    def __init__(self, *args: Any, sampler_kwargs: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)
        self.poll_interval = poll_interval(0, 0)  # In replay, where verl waits itself.
        folder = Path(sampler_kwargs["run"])
        with errors_recorded(folder):
            self._run = TrainingRun.open(folder)
            self._sampler = self._run.sampler()
            split = self._run.split
            self._advantage = advantage_operator(split.post_rollout_steps)
            register(self._advantage, of_turns=split.agents is not None)
        self._read = read if split.agents is None else read_trajectories
        self._trainer = VerlTrainer(self.refill_fn)
        self._pool = threads()
        self._files = StepFiles(self._run)
        self._queue = AnswerQueue(self._run)
        self._samples = SampleTables(self._run)
        self._clock = Clock()
        self._waited = 0.0
        self._has_loss = False

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The trajectories to train on, or to validate on, once their groups are complete."""
        found: tuple[KVBatchMeta, dict[str, Any]]
        with errors_recorded(self._run.folder):
            self._set_loss()
            if partition_id == "val":
                found = self._validate(global_steps, batch_size)
            elif self._run.config.replay:
                found = super().sample(global_steps, partition_id, batch_size)
                self._weigh(found[0])
            else:
                found = self._train(global_steps, batch_size)
        return found

    def _set_loss(self) -> None:
        # Not earlier: verl builds its workers after this buffer.
        if not self._has_loss and loss_agg_mode(self._run.split, self._run.config) == TURN_MEAN:
            self._trainer.use_turn_loss()
        self._has_loss = True

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
        keys = [key for part in parts.values() for key in part.trained_keys]
        if not keys:
            raise nothing_to_train_on(step, parts, self._run.split.rollout.name())
        updates = self._set_updates(len(keys))
        with self._clock("write"):
            for part in parts.values():
                part.release_to_verl(updates)
        self._keep(step, parts)
        self._samples.log(step, parts, self._trainer.tracking)
        figures.update(signal_figures(parts, self._advantage))
        figures["rejuice/progress"] = self._run.progress(step)
        figures["rejuice/rows_trained"] = sum(part.rows_trained for part in parts.values())
        if self._run.split.agents is not None:
            figures["rejuice/agent/turn_rows"] = len(keys)
        figures["rejuice/tokens_sampled"] = tokens_sampled(parts)
        seconds = self._clock.read()
        seconds["operators"] = sum(sum(p.curated.seconds.values()) for p in parts.values())
        seconds["after_sampling"] = time.perf_counter() - start - self._waited
        figures.update({f"rejuice/seconds/{name}": value for name, value in seconds.items()})
        tags = {key: tag for part in parts.values() for key, tag in part.groups.tags.items()}
        return _batch("train", keys, tags), figures

    def _set_updates(self, rows: int) -> int | None:
        """Divide the rows of a step among its updates; how many they are if the rows are turns."""
        updates = self._trainer.set_mini_batch_size(rows, self._run.config.updates_per_step)
        return None if self._run.split.agents is None else updates

    def _weigh(self, batch: KVBatchMeta) -> None:
        """Give stored turns their weights; stored responses need none."""
        if self._run.split.agents is None:
            return
        keys = list(map(TrajectoryKey.parse, batch.keys))
        lengths_N = np.array([tag["response_len"] for tag in batch.tags])
        updates = self._trainer.set_mini_batch_size(len(keys), self._run.config.updates_per_step)
        write_turns(keys, "train", lengths_N, updates)

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
        read = self._reads("train", run.prompts("train"), self._sampler)
        groups = PendingGroups(Curation(steps, self._pool), read, run.split.rollout.n)
        requested, refills = wanted, 0
        while True:
            self._wait_for(groups, requested, "train")
            with self._clock("close"):
                rollouts, graded = groups.close()
                curated = drop_untrainable(graded) if plan.answers else graded
                if plan.queues and rollouts.num_rows:
                    self._queue.keep(step, graded.table)
            left, aim = self._left(curated, wanted, step, plan)
            missing = aim - left
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
            what = "groups" if plan.answers else "verification prompts"
            print(f"step {step}: {left} of {aim} {what} after {refills} refills")
        with self._clock("close"):
            if plan.answers:
                curated = drop_excess_groups(curated, wanted, step)
            figures = response_figures(curated, rollouts, steps)
            if run.split.agents is not None:
                figures.update(agent_figures(rollouts))
        figures["groups"] = min(left, wanted) if plan.answers else 0
        figures["refills"] = refills
        if groups.failed_responses:
            print(f"step {step}: {_counted(groups.failed_responses, 'response')} failed")
        figures["failed_prompts"] = groups.failed
        figures["failed_responses"] = groups.failed_responses
        figures["repeated_prompts"] = groups.repeated
        part = StepPart(groups, rollouts, curated, steps, plan.answers)
        return part, {f"rejuice/{name}": value for name, value in figures.items()}

    def _left(self, curated: Curated, wanted: int, step: int, plan: StepPlan) -> tuple[int, int]:
        """How many groups there are to train on, and how many there should be.

        Where only judgements train, each verification prompt will be a group.
        """
        if plan.answers:
            return number_of_groups(curated.table), wanted
        assert self._run.split.judging is not None
        target = self._run.split.judging.target
        if target is None or not self._run.config.refill:
            return 0, 0
        if not curated.table.num_rows:
            return 0, target
        return self._verification_prompts(step, plan.since).prompts.num_rows, target

    def _verification_prompts(self, step: int, since: int) -> VerificationPrompts:
        """Prompts to judge the queued answers."""
        assert self._run.split.judging is not None
        prompting, longest = self._run.split.judging.prompting, self._run.config.max_prompt_tokens
        with self._clock("ask"):
            queued = self._queue.take(since, step)
            return judging.verification_prompts(prompting, queued, step, self._encode, longest)

    def _judgements(self, step: int, since: int) -> tuple[StepPart, dict[str, float]]:
        """The policy's judgements of the queued answers, and their figures."""
        run, (policy, sampling) = self._run, self._sampler
        assert run.split.judging is not None
        _, rollout, after = run.split.judging
        prompts, not_asked, figures = self._verification_prompts(step, since)
        self._queue.forget(step)
        steps = at_progress(after, run.progress(step))
        read = self._reads(
            "train", prompts, (policy, sampling._replace(max_tokens=rollout.max_tokens))
        )
        groups = PendingGroups(Curation(steps, self._pool), read, rollout.n)
        if prompts.num_rows:
            uids, batch = judging.verl_batch(prompts, rollout, run.split.source, step)
            self._trainer.submit(batch)
            self._wait_for(groups, len(uids), "train", among=set(uids))
        with self._clock("close"):
            rollouts, graded = groups.close()
            curated = drop_untrainable(graded)
            # The same reason may have dropped prompts and judgements.
            found = judging.judgement_figures(curated, rollouts, steps)
            figures |= {name: figures.get(name, 0.0) + value for name, value in found.items()}
        figures["failed_prompts"] = groups.failed
        figures["failed_responses"] = groups.failed_responses
        return StepPart(groups, rollouts, curated, steps, True, not_asked), figures

    def _reads(self, partition: str, prompts: pa.Table, sampler: tuple[Policy, Sampling]) -> Any:
        """What fetches the trajectories of prompts, by a policy and its sampling parameters."""
        policy, sampling = sampler
        return partial(
            self._read, partition=partition, prompts=prompts, policy=policy, sampling=sampling
        )

    @cached_property
    def _encode(self) -> Encode:
        """Token ids of a verification prompt, by the same chat template as answers."""
        kwargs = self._run.split.rollout.chat_template_kwargs
        return chat_encoder(policy_path(self._run.policy), kwargs)

    def _wait_for(
        self,
        groups: PendingGroups | ValidationGroups,
        wanted: int,
        partition: str,
        among: set[str] | None = None,
    ) -> None:
        """Wait until so many groups have ended; the recipe starts on those that are finished."""
        start = time.perf_counter()
        while groups.ended < wanted:
            listed = time.perf_counter()
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_marks_prompts_as_we_read_them
            self._sync_metadata_from_transfer_queue()
            listing_s = time.perf_counter() - listed
            # A sampler that dies marks all its prompts as failed, even those that are finished.
            failed = self.failure_keys[partition] - groups.uids
            finished = self.finished_keys[partition] - groups.uids
            if among is not None:
                failed, finished = failed & among, finished & among
            if not failed and not finished:
                groups.check()
                time.sleep(poll_interval(time.perf_counter() - start, listing_s))
                continue
            # Without prompts: one that failed and was cleared comes back, as what is no prompt to
            # verl, if the sampler dies later on.
            parsed = TrajectoryKey.of_trajectories(self.partitions[partition])
            if self._run.config.on_failed_session == "drop_row":
                # verl marks a prompt as failed once all its sessions have ended. Rows whose process
                # died before they were stored have no tags.
                stored = {key.uid for key, tag in parsed.items() if tag.get("status") == "success"}
                failed, finished = failed - stored, finished | (failed & stored)
            groups.fail(len(failed))
            tags = {key: tag for key, tag in parsed.items() if key.uid in finished and tag}
            ended = failed | finished
            lost = [str(key) for key in parsed if key.uid in ended and key not in tags]
            if failed or lost:
                tq.kv_clear(partition_id=partition, keys=[*failed, *lost])
            if finished:
                with self._clock("read"):
                    groups.add(finished, tags)
        self._waited += time.perf_counter() - start

    # ------------------------------------------------------------------ a validation

    def _validate(self, step: int, prompts: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        sets = self._run.held_out
        groups = ValidationGroups({each.split: self._held_out(each) for each in sets})
        self._wait_for(groups, prompts, "val")
        if groups.failed:
            print(f"step {step}: {groups.failed} of {prompts} prompts of the validation failed")
        graded, figures = list[TrajectoryKey](), {"failed_prompts": float(groups.failed)}
        tags = dict[TrajectoryKey, dict[str, Any]]()
        for held_out in sets:
            of_set = groups.of_splits[held_out.split]
            keys, found = self._graded(step, held_out, of_set)
            graded += keys
            tags |= of_set.tags
            figures |= {f"{held_out.name}/{name}": value for name, value in found.items()}
        if not graded:
            reason = "no response has an accuracy" if tags else "every prompt failed"
            raise DataError(f"step {step}: the validation came to nothing: {reason}")
        logged = {f"rejuice/validation/{name}": value for name, value in figures.items()}
        self._trainer.log(logged, step)
        return _batch("val", graded, tags), {}

    def _held_out(self, held_out: HeldOutSet) -> PendingGroups:
        """The groups of a validation set, of which there are none yet."""
        policy, sampling = self._sampler
        n, temperature, top_p, _ = held_out.settings
        sampling = sampling._replace(temperature=temperature, top_p=top_p)
        read = self._reads("val", self._run.prompts(held_out.split), (policy, sampling))
        return PendingGroups(Curation(grading_steps(self._run.split.after), self._pool), read, n)

    def _graded(
        self, step: int, held_out: HeldOutSet, groups: PendingGroups
    ) -> tuple[list[TrajectoryKey], dict[str, float]]:
        """The responses of a validation set that have an accuracy, as rows of TransferQueue."""
        rollouts, curated = groups.close()
        table = curated.table
        if table.num_rows:
            self._files.validate(step, held_out.name, table)
            # verl takes the mean of all rows, which one nan would make nan.
            table = table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))
        ungraded = rollouts.num_rows - table.num_rows
        if ungraded:
            responses = _counted(ungraded, "response")
            print(f"step {step}: {responses} of {held_out.name} without an accuracy")
        figures = {"ungraded": float(ungraded), "failed_responses": float(groups.failed_responses)}
        if table.num_rows:
            figures |= set_figures(table, held_out.settings.n)
        return release(groups, table, "val", ACCURACY), figures


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _batch(
    partition: str, keys: list[TrajectoryKey], tags: Mapping[TrajectoryKey, dict[str, Any]]
) -> KVBatchMeta:
    """Rows of TransferQueue as verl's trainer reads them."""
    return KVBatchMeta(
        partition_id=partition, keys=list(map(str, keys)), tags=[tags[key] for key in keys]
    )
