"""Where groups are complete: verl's replay buffer, with the recipe between rollouts and update.

    verl                          here
    sample(step, "train", B) ──>  wait for groups, run the recipe's steps on those that are there;
                                  where judgements are due, ask for them, and wait for those too
                             <──  keys of the rows that are left, with their rewards; figures

Named in `trainer.v1.sampler.custom_sampler`.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...operators.errors import DataError
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.recipe.recipe import Step
from ..policies import Policy, Sampling, located
from ..run import TrainingRun
from ..split import ACCURACY, grading
from . import judging
from .advantage import asked, register
from .curation import Curated, Curation, at_progress, threads
from .pending_groups import TOKENS, Held, number_of_groups, surplus, trainable, why
from .queued_answers import Answers
from .rollouts import read, write
from .schedule import Due, due
from .step_files import Clock, StepBooks, figures

_POLL_S = 0.02


class _Part(NamedTuple):
    """Answers of a step, or judgements, and what became of them.

    Attributes:
        held: their groups.
        rollouts: as sampled.
        curated: what the recipe left of them, and of that what can train, if they train.
        recipe: the steps they went through.
        trains: whether they train.
        not_asked: decisions about verification prompts that were not chosen.
    """

    held: Held
    rollouts: pa.Table
    curated: Curated
    recipe: tuple[Step, ...]
    trains: bool
    not_asked: pa.Table | None = None

    @property
    def tables(self) -> dict[str, pa.Table]:
        """What is kept of it."""
        found = {"rollouts": self.rollouts}
        found |= {"curated": self.curated.table, "decisions": self.curated.decisions}
        return found if self.not_asked is None else {**found, "not_asked": self.not_asked}


def _nothing(step: int, now: Due, parts: Mapping[str, _Part]) -> DataError:
    """Why a step has nothing to train on."""
    found = f"step {step}: no group is left to train on"
    judged = parts.get("verify")
    if judged is None:
        return DataError(
            f"{found} ({why(parts[''].curated)})",
            "look at the steps after policy_rollout_mapper, or allow a refill",
        )
    if judged.rollouts.num_rows or judged.held.failed:
        return DataError(f"{found} ({why(judged.curated)})", "look at the steps that judge")
    return DataError(
        f"{found}: no answer gives a verification prompt",
        "a prompt needs right and wrong answers: take more prompts_per_step, or a larger n",
    )


def _handed_over(held: Held, table: pa.Table, partition: str, reward: str) -> list[str]:
    """Write the rewards of the rows that are left, let all others go; the keys of the rows."""
    keys = held.keys(table) if table.num_rows else []
    if keys:
        lengths_N = np.asarray(pc.list_value_length(table[TOKENS]))
        write(keys, partition, table[reward].to_numpy(), lengths_N)
    gone = [*held.uids, *(held.tags.keys() - set(keys))]
    if gone:
        tq.kv_clear(partition_id=partition, keys=gone)
    return keys


def _kept(part: _Part) -> list[str]:
    """The rows of a part that train, with their rewards; their keys, in order."""
    table = part.curated.table
    return _handed_over(part.held, table if part.trains else table.slice(0, 0), "train", "reward")


class RecipeBuffer(ReplayBuffer):  # type: ignore[misc]
    """Groups of a step, through the recipe.

    A row is dropped for a reason or it trains; what is dropped is booked beside the rollouts of
    the step and leaves TransferQueue. Groups of one never train: GRPO would take their raw reward
    for an advantage.
    """

    def __init__(self, *args: Any, sampler_kwargs: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, sampler_kwargs=sampler_kwargs, **kwargs)
        self.poll_interval = _POLL_S
        self._run = TrainingRun.open(Path(sampler_kwargs["run"]))
        self._sampler = self._run.sampler()
        self._pool = threads()
        register(asked(self._run.cut.behind))
        self._books = StepBooks(self._run)
        self._answers = Answers(self._run)
        self._clock = Clock()
        self._waited = 0.0

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The trajectories to train on, or to validate on, once their groups are complete."""
        if partition_id == "val":
            return self._validation(global_steps, batch_size)
        if self._run.config.replay:
            found: tuple[KVBatchMeta, dict[str, Any]] = super().sample(
                global_steps, partition_id, batch_size
            )
            return found
        return self._training(global_steps, batch_size)

    # ------------------------------------------------------------------ training

    def _training(self, step: int, groups_wanted: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        config, start = self._run.config, time.perf_counter()
        # A step that is done again after a resume, perhaps by another schedule, begins anew.
        shutil.rmtree(self._run.step_folder(step), ignore_errors=True)
        self._clock.read()  # What a validation has spent is no part of a step.
        self._waited = 0.0
        now = due(config, step)
        answers, found = self._answered(step, groups_wanted, now)
        parts = {"": answers}
        if now.judgements:
            parts["verify"], judged = self._judged(step, now.since)
            found.update({f"rejuice/verify/{name}": value for name, value in judged.items()})
        with self._clock("write"):
            kept = {name: _kept(part) for name, part in parts.items()}
        keys = [key for each in kept.values() for key in each]
        if not keys:
            raise _nothing(step, now, parts)
        self._share_out(len(keys))
        for name, part in parts.items():
            recipe = self._run.step_recipe(step, part.recipe, name)
            self._books.keep(step, name, part.tables, recipe)
        if step >= config.steps:
            self._books.wait()  # No later step would tell that they could not be written.
        found["rejuice/progress"] = self._run.progress(step)
        found["rejuice/rows_trained"] = len(keys)
        lengths = [pc.list_value_length(part.rollouts[TOKENS]) for part in parts.values()]
        found["rejuice/tokens_sampled"] = sum(pc.sum(each).as_py() or 0 for each in lengths)
        seconds = self._clock.read()
        seconds["operators"] = sum(sum(p.curated.seconds.values()) for p in parts.values())
        seconds["after_sampling"] = time.perf_counter() - start - self._waited
        found.update({f"rejuice/seconds/{name}": value for name, value in seconds.items()})
        tags = {key: tag for part in parts.values() for key, tag in part.held.tags.items()}
        batch = KVBatchMeta(partition_id="train", keys=keys, tags=[tags[key] for key in keys])
        return batch, found

    def _answered(self, step: int, wanted: int, now: Due) -> tuple[_Part, dict[str, Any]]:
        """The responses to prompts of the dataset, and figures of them."""
        run = self._run
        steps = at_progress(run.cut.after, run.progress(step))
        held = Held(Curation(steps, self._pool))
        prompts, asked, refills = run.prompts("train"), wanted, 0
        while True:
            self._gather(held, asked, "train", prompts, self._sampler)
            with self._clock("close"):
                rollouts, graded = held.close()
                curated = trainable(graded) if now.answers else graded
            left = number_of_groups(curated.table)
            missing = wanted - left if now.answers else 0
            if missing <= 0 or refills == run.config.refill:
                break
            # As many as will fill the batch at the rate at which groups were left.
            more = min(wanted, -(-missing * asked // max(left, 1)))
            asked += self.refill_fn(more)
            refills += 1
        if not rollouts.num_rows:
            raise DataError(
                f"step {step}: no group is left to train on ({why(curated)})",
                "verl's log says why prompts failed",
            )
        if refills and missing > 0:
            print(f"step {step}: {left} of {wanted} groups after {refills} refills")
        with self._clock("close"):
            if now.answers:
                curated = surplus(curated, wanted, step)
            found = {f"rejuice/{name}": n for name, n in figures(curated, rollouts, steps).items()}
            if now.waits:
                self._answers.keep(step, graded.table)
        found["rejuice/groups"] = min(left, wanted) if now.answers else 0
        found["rejuice/refills"] = refills
        found["rejuice/failed_prompts"] = held.failed
        found["rejuice/repeated_prompts"] = held.repeated
        return _Part(held, rollouts, curated, steps, now.answers), found

    def _judged(self, step: int, since: int) -> tuple[_Part, dict[str, float]]:
        """The policy's judgements of the answers that wait, and figures of them."""
        run, (policy, sampling) = self._run, self._sampler
        assert run.cut.judging is not None
        ask, rollout, after = run.cut.judging
        longest = run.config.max_prompt_tokens
        with self._clock("ask"):
            waiting = self._answers.take(since, step)
            prompts, not_asked, found = judging.ask(ask, waiting, step, self._encode, longest)
        if since == step:
            self._answers.forget(step)
        steps = at_progress(after, run.progress(step))
        held = Held(Curation(steps, self._pool))
        if prompts.num_rows:
            uids, batch = judging.batch(prompts, rollout, run.cut.source, step)
            # As verl's own prompts, and those of a refill, go: into TransferQueue, then sampled.
            self.refill_fn.__self__._submit_batch_to_rollout(batch)
            sampler = (policy, sampling._replace(max_tokens=rollout.max_tokens))
            self._gather(held, len(uids), "train", prompts, sampler, among=set(uids))
        with self._clock("close"):
            rollouts, graded = held.close()
            curated = trainable(graded)
            # Of reasons, some may have dropped prompts and judgements.
            told = judging.figures(curated, rollouts, steps)
            found |= {name: found.get(name, 0.0) + value for name, value in told.items()}
        found["failed_prompts"] = held.failed
        return _Part(held, rollouts, curated, steps, True, not_asked), found

    def _share_out(self, rows: int) -> None:
        """Make it as many optimizer updates as the recipe says, however many rows a step has.

        verl's own are of so many rows as all answers of a step would give. It reads the number at
        each step.
        """
        config = self.refill_fn.__self__.config
        n, ranks = config.actor_rollout_ref.rollout.n, config.trainer.n_gpus_per_node
        ranks *= config.trainer.nnodes
        wanted = -(-rows // (self._run.config.updates_per_step * n))
        each = ranks // math.gcd(ranks, n)  # So that the ranks have equal shares.
        config.actor_rollout_ref.actor.ppo_mini_batch_size = -(-wanted // each) * each

    @cached_property
    def _encode(self) -> Encode:
        """Token ids of a verification prompt; its chat template is told what that of answers is."""
        kwargs = self._run.cut.rollout.chat_template_kwargs
        return chat_encoder(located(self._run.policy), kwargs)

    def _gather(
        self,
        held: Held,
        asked: int,
        partition: str,
        prompts: pa.Table,
        sampler: tuple[Policy, Sampling],
        among: set[str] | None = None,
    ) -> None:
        """Wait until so many groups have ended; the recipe begins on those that have.

        Args:
            held: takes them.
            asked: how many are to end in all.
            partition: `train` or `val`.
            prompts: of which they are.
            sampler: that samples them.
            among: their keys; None: all that are in the partition.
        """
        start = time.perf_counter()
        while held.ended < asked:
            self._sync_metadata_from_transfer_queue()
            # A sampler that dies says of all its prompts that they failed, also of these.
            failed = self.failure_keys[partition] - held.uids
            fresh = self.finished_keys[partition] - held.uids
            if among is not None:
                failed, fresh = failed & among, fresh & among
            if not failed and not fresh:
                held.curation.check()
                time.sleep(self.poll_interval)
                continue
            tags = {
                key: tag
                for key, tag in self.partitions[partition].items()
                if key.split("_")[0] in fresh
            }
            held.fail(len(failed))
            self._clear_groups(partition, failed)
            if fresh:
                with self._clock("read"):
                    rollouts = read(tags, partition, prompts, *sampler)
                held.add(fresh, tags, rollouts)
        self._waited += time.perf_counter() - start

    # ------------------------------------------------------------------ validation

    def _validation(self, step: int, groups: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        held = Held(Curation(grading(self._run.cut.after), self._pool))
        self._gather(held, groups, "val", self._run.prompts("val"), self._sampler)
        sampled, graded = held.close()
        table = graded.table
        if held.failed:
            print(f"step {step}: {held.failed} of {groups} prompts of the validation failed")
        if table.num_rows:
            self._books.validate(step, table)
            # verl takes the mean, of which one nan would make another.
            table = table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))
        if not table.num_rows:
            why_not = "no response has an accuracy" if sampled.num_rows else "every prompt failed"
            raise DataError(f"step {step}: the validation came to nothing: {why_not}")
        if table.num_rows < len(held.tags):
            print(f"step {step}: {len(held.tags) - table.num_rows} responses have no accuracy")
        keys = _handed_over(held, table, "val", ACCURACY)
        tags = [held.tags[key] for key in keys]
        return KVBatchMeta(partition_id="val", keys=keys, tags=tags), {}
