"""The loop of training, in verl's replay buffer: between rollouts and update stands the recipe.

    verl                          here
    sample(step, "train", B) ──>  wait for groups, and run the recipe's steps on those that are
                                  finished; if judgements are due, request and wait for those too
                             <──  keys of the rows that are left, with their rewards; figures

verl finds `RecipeBuffer` by `trainer.v1.sampler.custom_sampler`. The advantages that the steps have
given to the rows are handed to verl by its estimator (credit.py).
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...operators.columns import CREDIT, numbers
from ...operators.errors import DataError
from ...operators.importance import POLICY_AGE, POLICY_LOGPROBS, SAMPLED_LOGPROBS
from ...operators.mapper.importance_weight_mapper import ImportanceWeightMapper
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.engine.conditional_step import unmatched_lines
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.train import TURN_MEAN
from .. import metrics, saved
from ..accuracy import of_graded_tasks, set_figures, with_accuracy
from ..metrics import BEST, BEST_STEP
from ..run import UPDATE, EarlyEnd, TrainingRun, errors_recorded, plan_step, write_early_end
from ..split import ACCURACY, REPLAYED, HeldOutSet, grading_and_credit, grading_steps, loss_agg_mode
from . import judging
from .advantage import TrajectoryKey
from .ahead import Ahead, NextGroups, age_figures, rows_of_prompts, too_old_line
from .choice import PromptChoice
from .credit import CreditEstimator
from .curation import (
    Curated,
    Curation,
    at_progress,
    continued,
    curate,
    format_drop_counts,
    poll_interval,
    threads,
    values_table,
)
from .figures import (
    Clock,
    SampleTables,
    StepFiles,
    UsedCores,
    agent_figures,
    figure_name,
    response_figures,
    signal_figures,
)
from .groups import (
    NO_SIGNAL,
    TRAINED,
    Outcome,
    PendingGroups,
    StepPart,
    ValidationGroups,
    clear_others,
    drop_excess_groups,
    drop_untrainable,
    give_credit,
    not_finite,
    number_of_groups,
    release_validation,
    skip_of,
    tokens_sampled,
)
from .history import history_of, write_history
from .judging import AnswerQueue, VerificationPrompts
from .replay import StoredGroups, put_rows, replayable, replayed_figures, with_logprobs
from .trajectories import Polled, TrainedRows, read, write_logprobs, write_trained
from .verl_trainer import SKIPS, StepSkippedError, VerlTrainer, skipped

_PATIENCE = 3  # steps in a row without an update by an outage, such as a tool's
_Batch = tuple[KVBatchMeta, dict[str, Any]]


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
            self.run = TrainingRun.open(folder)
            self.trainer = VerlTrainer(self.refill_fn, self._is_stopped)
            self.source = GroupSource(self.run, self.trainer)
            self.choice = PromptChoice(self.run) if self.run.split.choosing else None
            self._credit = CreditEstimator()
            self._credit.register()
        self._cores = UsedCores() if self.run.config.profile == "cpu" else None
        self.trainer.end_steps(self._end_step)
        self.trainer.save_by(self._save)
        if self.choice is not None:
            self.trainer.choose_prompts(self._choose)
        self.ahead = self.source.ahead
        self.files = StepFiles(self.run)
        self.queue = AnswerQueue(self.run)
        self.samples = SampleTables(self.run)
        self._has_loss = False
        self._found = self._outcome = TRAINED  # before the update of a step, and after the last one
        self.in_a_row = 0  # steps with this outcome; 0: this process has ended none yet

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> _Batch:
        """Groups without a signal raise a StepSkippedError: `VerlTrainer` leaves the update out."""
        with errors_recorded(self.run.folder):
            self._set_loss()
            if partition_id == "val":
                return self._validate(global_steps, batch_size)
            if self._cores is not None:
                self._cores.read()
            if self.run.config.replay:
                batch, figures = self._replay(
                    global_steps, super().sample(global_steps, partition_id, batch_size)
                )
            else:
                batch, figures = self._train(global_steps, batch_size)
            if self._cores is not None:
                figures["rejuice/cores/gen"] = self._cores.read()
        if batch.extra_info.get(SKIPS):
            raise StepSkippedError(batch, figures)
        return batch, figures

    def _choose(self, step: int, prompts: int) -> list[int]:
        assert self.choice is not None
        with errors_recorded(self.run.folder):
            begins = self.ahead is not None and self.choice.step != step
            busy = rows_of_prompts() if begins else ()
            return self.choice.take(step, prompts, busy)

    def _train(self, number: int, groups_wanted: int) -> _Batch:
        if self.ahead is not None:
            self.ahead.begin(number)
        step = TrainingStep(self.run, number, self.source, self.queue, self.trainer, self.choice)
        step.sample_answers(groups_wanted)
        if step.plan.judgements:
            step.sample_judgements()
        if step.plan.answers and self.run.split.replay_selector is not None:
            step.replay_groups(groups_wanted)
        if not self.in_a_row:
            step.warn_of_unmatched()
        rows = step.trained_rows()
        if rows.keys:
            with step.clock("write"):
                self._hand_over(rows)
        batch, figures = step.release(rows), step.all_figures()
        step.write_files(self.files, self.samples)
        self._found = step.outcome
        if number < self.run.config.steps and self.run.config.wait_for_slow:
            self.source.read_ahead(number + 1, groups_wanted)
        return batch, figures

    def _end_step(self, figures: dict[str, Any]) -> None:
        """Count steps in a row with the same outcome, of which too many end training."""
        with errors_recorded(self.run.folder):
            if self._cores is not None and UPDATE[0] in figures:
                figures["rejuice/cores/update"] = self._cores.read()
            step, config = self.trainer.step, self.run.config
            outcome = not_finite(figures, config.learning_rate) or self._found
            same = outcome.kind == self._outcome.kind
            self._outcome, self.in_a_row = outcome, self.in_a_row + 1 if same else 1
            if outcome.kind == "nan":
                figures["rejuice/nan_steps"] = self.in_a_row
            most = {"no_signal": config.stop_without_signal, "nan": config.stop.nan_steps}
            most |= {"outage": _PATIENCE, "trained": 0}
            if 0 < most[outcome.kind] <= self.in_a_row:
                self._give_up(step, outcome)
            elif step < config.steps and (why := self._used_up(step + 1)):
                self._end(step, why)

    def _save(self, save: Callable[[], None]) -> None:
        """Save a checkpoint of a step, if it is due; verl asks after each step."""
        folder, config = self.run.folder, self.run.config
        due = config.saves(self.trainer.step) and self._outcome.kind != "nan"
        # The last step saves one in any case: steps before it may have none.
        if due or self.trainer.is_last:
            saved.prune(folder, config, max(1, config.keep_checkpoints - 1))
            save()
            saved.prune(folder, config, config.keep_checkpoints)

    def _used_up(self, step: int) -> str:
        """Why no prompt is left for a step; empty if some are."""
        if self.choice is None or (self.ahead is not None and rows_of_prompts()):
            return ""  # Ahead, prompts of later steps are sampled already.
        why = self.choice.used_up(step)
        return why and f"no prompt is left to sample ({why})"

    def _give_up(self, step: int, outcome: Outcome) -> None:
        in_a_row = f", in {self.in_a_row} steps in a row" if self.in_a_row > 1 else ""
        safe = saved.last(self.run.folder) or 0
        if outcome.kind == "outage" and self.run.config.save_every and self.in_a_row < step - safe:
            self.trainer.save()  # What was trained before it.
        # Where no step had a signal, there is nothing to show for it.
        if outcome.kind != "no_signal" or self.in_a_row >= step:
            raise DataError(f"step {step}: {outcome.why}{in_a_row}", outcome.right)
        if step < self.run.config.steps:
            self._end(step, f"{outcome.why}{in_a_row}")

    def _end(self, step: int, why: str) -> None:
        print(f"step {step}: {why}, so training ends here")
        write_early_end(self.run.folder, EarlyEnd(step, self.run.config.steps, why))
        self.trainer.end_after(step)

    def _is_stopped(self) -> bool:
        """Whether Ctrl-C has come; then the files of the last step are written."""
        if stopped := self.run.stop_file.exists():
            self.files.wait()
        return stopped

    def _replay(self, number: int, batch: _Batch) -> _Batch:
        """Give stored groups the credit of the recipe's steps; what does not train is cleared."""
        meta, figures = batch
        rows, dropped = self._stored.trained_rows(meta)
        if not rows.keys:
            found = f"step {number}: no group is left to train on"
            raise DataError(found, f"look at the columns {', '.join(CREDIT)} of train.replay")
        if dropped:
            tq.kv_clear(partition_id="train", keys=dropped)
        self._hand_over(rows, rewards=False)
        self._found = TRAINED if any(each.any() for each in rows.advantages) else NO_SIGNAL
        tag_of = dict(zip(meta.keys, meta.tags, strict=True))
        return _batch("train", rows.keys, {key: tag_of[str(key)] for key in rows.keys}), figures

    @cached_property
    def _stored(self) -> StoredGroups:
        return StoredGroups.open(self.run)

    def _hand_over(self, rows: TrainedRows, *, rewards: bool = True) -> None:
        updates = self.trainer.set_mini_batch_size(len(rows.keys), self.run.config.updates_per_step)
        of_turns = self.run.split.agents is not None
        write_trained(rows, "train", updates if of_turns else None, rewards=rewards)
        self._credit.set(rows.names, rows.advantages)

    def _set_loss(self) -> None:
        # Not earlier: verl builds its workers after this buffer.
        if not self._has_loss and loss_agg_mode(self.run.split, self.run.config) == TURN_MEAN:
            self.trainer.use_turn_loss()
        self._has_loss = True

    # ------------------------------------------------------------------ a validation

    def _validate(self, step: int, prompts: int) -> _Batch:
        sets = self.run.held_out
        groups = ValidationGroups({each.split: self._held_out(each) for each in sets})
        self.source.wait_for(groups, prompts, "val", Clock())
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
        self.trainer.log(logged, step)
        if best := saved.best(self.run.folder, self.run.config):
            self.trainer.log({BEST_STEP: best.step, BEST: best.validation or 0.0}, step)
        if step < self.run.config.steps and (why := self._validated_enough(figures)):
            if not self.in_a_row:
                reason = f"step {step}: {why}, and this start has not trained a step yet"
                raise DataError(reason, "set train.stop higher, or leave it out")
            self._end(step, why)
        return _batch("val", graded, tags), {}

    def _validated_enough(self, figures: Mapping[str, float]) -> str:
        config, stop = self.run.config, self.run.config.stop
        own = {**figures, "accuracy": figures.get(config.validation_figures[0], math.nan)}
        reached = {name: own.get(name, math.nan) for name in stop.at}
        if reached and all(value >= stop.at[name] for name, value in reached.items()):
            listed = ", ".join(f"{name} {value:.3f}" for name, value in reached.items())
            return f"the validation has reached {listed}"
        if stop.validations_without_gain is None:
            return ""
        points = [each for each in metrics.read(self.run.folder) if each.validation is not None]
        best = metrics.best(points) or points[0]
        since = sum(each.step > best.step for each in points)
        if since < stop.validations_without_gain:
            return ""
        value = best.validation
        return (
            f"no accuracy of {since} validations in a row is above {value:.3f} of step {best.step}"
        )

    def _held_out(self, held_out: HeldOutSet) -> PendingGroups:
        prompts, steps = self.run.prompts(held_out.split), grading_steps(self.run.split.after)
        n, temperature, top_p, _ = held_out.settings
        return self.source.pending("val", prompts, steps, n, temperature=temperature, top_p=top_p)

    def _graded(
        self, step: int, held_out: HeldOutSet, groups: PendingGroups
    ) -> tuple[list[TrajectoryKey], dict[str, float]]:
        rollouts, curated = groups.close()
        table, ungraded = curated.table, rollouts.num_rows
        if table.num_rows:
            self.files.validate(step, held_out.name, table)
            meant = of_graded_tasks(table)
            # verl takes the mean of all rows, which one nan would make nan.
            table = with_accuracy(meant)
            ungraded = meant.num_rows - table.num_rows
        if ungraded:
            responses = _counted(ungraded, "response")
            print(f"step {step}: {responses} of {held_out.name} without an accuracy")
        figures = {"ungraded": float(ungraded), "failed_responses": float(groups.failed_responses)}
        n = held_out.settings.n
        figures |= set_figures(table, n) if table.num_rows else {f"mean@{n}": math.nan}
        return release_validation(groups, table, ACCURACY), figures


class GroupSource:
    """The groups of a run, which the recipe's steps begin on as they finish."""

    def __init__(self, run: TrainingRun, trainer: VerlTrainer) -> None:
        self._run, self._trainer = run, trainer
        self._policy, self._sampling = run.sampler()
        self.ahead = Ahead(run, trainer) if run.config.samples_ahead else None
        self._next: NextGroups | None = None
        self._pool = threads()

    @cached_property
    def encode(self) -> Encode:
        """Token ids of a verification prompt, by the same chat template as answers."""
        kwargs = self._run.split.rollout.chat_template_kwargs
        return chat_encoder(policy_path(self._run.policy), kwargs)

    def pending(
        self,
        partition: str,
        prompts: pa.Table,
        steps: Sequence[Step],
        n: int,
        step: int | None = None,
        **sampling: Any,
    ) -> PendingGroups:
        """The groups of some prompts, of which there are none yet.

        `sampling` has the sampling parameters that differ from those of the run, and `step` is the
        one that trains on responses of several ages.
        """
        fetch = partial(
            read,
            partition=partition,
            prompts=prompts,
            policy=self._policy,
            sampling=self._sampling._replace(**sampling),
            step=step,
            of_agents=self._run.split.agents is not None,
        )
        return PendingGroups(Curation(steps, self._pool), fetch, n)

    def groups_of(self, number: int, clock: Clock) -> PendingGroups:
        """The groups of a step as far as they were read ahead, which `clock` has counted."""
        found, self._next = self._next, None
        if found is not None and found.step == number:
            return found.take(clock)
        return self._new_groups(number)

    def read_ahead(self, number: int, wanted: int) -> None:
        """Read the groups of a step as they finish, while the policy is updated."""
        if self.ahead is not None:
            self._next = NextGroups(number, self._new_groups(number), wanted, self.ahead)

    def _new_groups(self, number: int) -> PendingGroups:
        run, (grading, _) = self._run, self.steps_at(number)
        step = None if self.ahead is None else number
        return self.pending("train", run.prompts("train"), grading, run.split.rollout.n, step)

    def steps_at(self, number: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        return grading_and_credit(at_progress(self._run.split.after, self._run.progress(number)))

    def wait_for(
        self,
        groups: PendingGroups | ValidationGroups,
        wanted: int,
        partition: str,
        clock: Clock,
        among: set[str] | None = None,
    ) -> float:
        """Wait until so many groups have ended; seconds that it took.

        The recipe starts on those that are finished.
        """
        start = time.perf_counter()
        ahead = self.ahead if partition == "train" else None
        while groups.ended < wanted:
            polled_at = time.perf_counter()
            polled = Polled.of(partition)
            polling_s = time.perf_counter() - polled_at
            # A sampler that dies marks all its prompts as failed, even those that are finished.
            failed = polled.prompts("failure") - groups.uids
            finished = polled.prompts("finished") - groups.uids
            if ahead is not None:
                under_way = polled.prompts("pending", "running")
                turn = ahead.turn(under_way, failed | finished, wanted - groups.ended)
                if not turn:
                    break  # There are no more prompts.
                failed, finished = failed & turn, finished & turn
            if among is not None:
                failed, finished = failed & among, finished & among
            if not failed and not finished:
                groups.check()
                if partition == "train" and ahead is None:  # Ahead, verl saves what is under way.
                    self._trainer.end_if_stopped()
                time.sleep(poll_interval(time.perf_counter() - start, polling_s))
                continue
            # Without prompts: one that failed and was cleared comes back, as what is no prompt to
            # verl, if the sampler dies later on.
            parsed = TrajectoryKey.of_trajectories(polled.rows)
            if self._run.config.on_failed_session == "drop_row":
                # verl marks a prompt as failed once all its sessions have ended. Rows whose process
                # died before they were stored have no tags.
                stored = {key.uid for key, tag in parsed.items() if tag.get("status") == "success"}
                failed, finished = failed - stored, finished | (failed & stored)
            groups.fail(len(failed), () if ahead is None else rows_of_prompts(failed))
            tags = {key: tag for key, tag in parsed.items() if key.uid in finished and tag}
            ended = failed | finished
            lost = [str(key) for key in parsed if key.uid in ended and key not in tags]
            if failed or lost:
                tq.kv_clear(partition_id=partition, keys=[*failed, *lost])
            if finished:
                with clock("read"):
                    groups.add(finished, tags)
        return time.perf_counter() - start


class TrainingStep:
    def __init__(
        self,
        run: TrainingRun,
        number: int,
        source: GroupSource,
        queue: AnswerQueue,
        trainer: VerlTrainer,
        choice: PromptChoice | None,
    ) -> None:
        self._start, self._waited, self.clock = time.perf_counter(), 0.0, Clock()
        self._run, self.number, self._source, self._queue = run, number, source, queue
        self._trainer, self._choice, self._ahead = trainer, choice, source.ahead
        self.plan = plan_step(self._run.config, number)
        self.parts: dict[str, StepPart] = {}  # answers: "", judgements: "verify", and "replayed"
        self.outcome = TRAINED  # as far as it is known before the update
        self._figures: dict[str, float] = {}
        self._grading, self._credit = source.steps_at(number)
        # A step that is repeated after a resume, perhaps by another schedule, starts from nothing.
        shutil.rmtree(self._run.step_folder(number), ignore_errors=True)

    # ------------------------------------------------------------------ sample and grade

    def sample_answers(self, wanted: int) -> None:
        """Wait for responses to prompts of the dataset; request more where too few are left."""
        run, plan, grading, credit = self._run, self.plan, self._grading, self._credit
        steps = (*grading, *credit)
        choice, ahead = self._choice, self._ahead
        groups = self._source.groups_of(self.number, self.clock)
        # Ahead, others were chosen, for a later step.
        requested = wanted if choice is None or ahead is not None else choice.taken
        refills = 0
        while True:
            requested = self._wait_for(groups, requested)
            with self.clock("close"):
                rollouts, graded = groups.close()
                if plan.queues or not plan.answers:
                    curated = continued(graded, credit)
                if plan.queues and rollouts.num_rows:
                    self._queue.keep(self.number, curated.table)
                if plan.answers:
                    trainable = drop_untrainable(graded, credit)
                    curated = give_credit(trainable, credit)
            left, aim = self._left(curated, wanted)
            missing = aim - left
            if missing <= 0 or refills == run.config.refill:
                break
            # As many as will fill the batch at the rate at which groups were left so far.
            more = min(wanted, -(-missing * requested // max(left, 1)))
            if choice is not None and choice.step == self.number:
                more = min(more, choice.left)
            if not more:
                break
            requested += self._trainer.refill(more)
            refills += 1
        if not rollouts.num_rows:
            raise DataError(
                f"step {self.number}: no group is left to train on ({format_drop_counts(curated)})",
                "verl's log says why prompts failed",
            )
        if requested < wanted:
            print(f"step {self.number}: only {_counted(requested, 'prompt')} left of {wanted}")
        elif refills and missing > 0:
            what = "groups" if plan.answers else "verification prompts"
            print(f"step {self.number}: {left} of {aim} {what} after {refills} refills")
        if groups.failed_responses:
            print(f"step {self.number}: {_counted(groups.failed_responses, 'response')} failed")
        if ahead is not None:
            ahead.take(self.number, groups.uids, too_old_line(rollouts, curated))
        if plan.answers:
            curated, rollouts = self._finally(trainable, curated, rollouts, groups, wanted)
        with self.clock("close"):
            values = values_table(rollouts, steps, curated.written)
            figures = response_figures(curated, rollouts, values, steps)
            if run.split.agents is not None:
                figures.update(agent_figures(rollouts))
        figures |= choice.figures() if choice is not None and choice.step == self.number else {}
        figures.update(age_figures(rollouts, curated))
        figures["groups"] = number_of_groups(curated.table) if plan.answers else 0
        figures["refills"] = refills
        figures["repeated_prompts"] = groups.repeated
        self._add("", StepPart(groups, rollouts, curated, values, steps, plan.answers), figures)

    def _finally(
        self,
        trainable: Curated,
        curated: Curated,
        rollouts: pa.Table,
        groups: PendingGroups,
        wanted: int,
    ) -> tuple[Curated, pa.Table]:
        """What trains of the answers, once there will be no more of them, and all of them."""
        credit = self._credit
        trainable, rollouts = self._weighed(trainable, rollouts, groups)
        if POLICY_LOGPROBS in trainable.table.column_names:
            curated = give_credit(trainable, credit)
        with self.clock("close"):
            curated = drop_excess_groups(trainable, curated, credit, wanted, self.number)
        return curated, rollouts

    def _weighed(
        self, trainable: Curated, rollouts: pa.Table, groups: PendingGroups
    ) -> tuple[Curated, pa.Table]:
        """Give responses of older policies the log-probabilities of the current one.

        In TransferQueue, where the update starts from them, they take the place of those of the
        policy that sampled: what corrects the difference is a weight of tokens. Without a step that
        gives such weights, nothing is done.
        """
        weighs = any(isinstance(each.operator, ImportanceWeightMapper) for each in self._credit)
        table = trainable.table
        if self._ahead is None or not weighs or not table.num_rows:
            return trainable, rollouts
        old_N = numbers(table, POLICY_AGE) > 0
        if self._run.config.profile == "gpu":
            old_N[:] = True  # Engines that sample compute less exactly than what trains.
        if not old_N.any():
            return trainable, rollouts
        old = table.filter(pa.array(old_N))
        keys = [first for (first,) in groups.keys(old)]
        self._trainer.end_sampling()
        with self.clock("log_probs"):
            found = self._trainer.log_probs(_batch("train", keys, groups.tags))
        write_logprobs(keys, "train", found)
        of_row = dict(zip(old["response_id"].to_pylist(), found, strict=True))
        both = (
            with_logprobs(each, [of_row.get(name) for name in each["response_id"].to_pylist()])
            for each in (table, rollouts)
        )
        table, rollouts = both
        return trainable._replace(table=table), rollouts

    def _left(self, curated: Curated, wanted: int) -> tuple[int, int]:
        """How many groups there are to train on, and how many there should be.

        Where only judgements train, each verification prompt will be a group.
        """
        if self.plan.answers:
            return number_of_groups(curated.table), wanted
        assert self._run.split.judging is not None
        target = self._run.split.judging.target
        if target is None or not self._run.config.refill:
            return 0, 0
        if not curated.table.num_rows:
            return 0, target
        return self._verification_prompts().prompts.num_rows, target

    def sample_judgements(self) -> None:
        run = self._run
        assert run.split.judging is not None
        _, rollout, after = run.split.judging
        prompts, not_asked, figures = self._verification_prompts()
        self._queue.forget(self.number)
        grading, credit = grading_and_credit(at_progress(after, run.progress(self.number)))
        steps = (*grading, *credit)
        groups = self._source.pending(
            "train", prompts, grading, rollout.n, max_tokens=rollout.max_tokens
        )
        if prompts.num_rows:
            uids, batch = judging.verl_batch(prompts, rollout, run.split.source, self.number)
            self._trainer.submit(batch)
            self._wait_for(groups, len(uids), among=set(uids))
        with self.clock("close"):
            rollouts, graded = groups.close()
            curated = give_credit(drop_untrainable(graded, credit), credit)
            values = values_table(rollouts, steps, curated.written)
            # The same reason may have dropped prompts and judgements.
            found = judging.judgement_figures(curated, rollouts, values, steps)
            figures |= {name: figures.get(name, 0.0) + value for name, value in found.items()}
        part = StepPart(groups, rollouts, curated, values, steps, True, not_asked)
        self._add("verify", part, figures)

    def replay_groups(self, wanted: int) -> None:
        run, selector = self._run, self._run.split.replay_selector
        assert selector is not None
        missing = wanted - number_of_groups(self.parts[""].curated.table)
        missing = min(missing, selector.most(wanted), selector.keep or missing)
        if missing <= 0:
            return
        sampled = self.parts[""].rollouts["prompt_id"].unique().to_pylist()
        table = replayable(run, self.number, selector, missing, sampled)
        if not table.num_rows:
            return
        stored = put_rows(table, self.number, SAMPLED_LOGPROBS)
        batch = _batch("train", [*stored.tags], stored.tags)
        self._trainer.end_sampling()
        start = time.perf_counter()
        table = with_logprobs(table, self._trainer.log_probs(batch))
        seconds = time.perf_counter() - start
        clear_others(stored, (), "train")
        keeps = selector.model_copy(update={"keep": missing})
        credit = (self._credit[0]._replace(operator=keeps), *self._credit[1:])
        curated = give_credit(curate((), table), credit)
        # Anew: of rows in TransferQueue, all have the same fields.
        queued = put_rows(curated.table, self.number, POLICY_LOGPROBS)
        values = values_table(table, credit, curated.written)
        part = StepPart(queued, table, curated, values, credit, True)
        trained = sum(each.trained.num_rows for each in (*self.parts.values(), part))
        self._add(REPLAYED, part, {**replayed_figures(part, trained), "seconds": seconds})

    def _verification_prompts(self) -> VerificationPrompts:
        assert self._run.split.judging is not None
        prompting, longest = self._run.split.judging.prompting, self._run.config.max_prompt_tokens
        with self.clock("ask"):
            queued = self._queue.take(self.plan.since, self.number)
            return judging.verification_prompts(
                prompting, queued, self.number, self._source.encode, longest
            )

    def _wait_for(self, groups: PendingGroups, wanted: int, among: set[str] | None = None) -> int:
        """Wait until so many groups have ended; how many have, fewer where there are no others."""
        self._waited += self._source.wait_for(groups, wanted, "train", self.clock, among)
        return groups.ended

    def _add(self, name: str, part: StepPart, figures: Mapping[str, float]) -> None:
        self.parts[name] = part
        found = {
            **figures,
            "failed_prompts": part.groups.failed,
            "failed_responses": part.groups.failed_responses,
        }
        self._figures |= {figure_name(name, each): value for each, value in found.items()}

    # ------------------------------------------------------------------ what trains

    def trained_rows(self) -> TrainedRows:
        return TrainedRows.joined([part.trained_rows() for part in self.parts.values()])

    def release(self, rows: TrainedRows) -> KVBatchMeta:
        """Clear all rows but those that train, and give these to verl."""
        if not rows.keys:
            self.outcome = skip_of(self.number, self.parts, self._run.split.rollout.name())
            return skipped([part.groups for part in self.parts.values()])
        with self.clock("write"):
            for part in self.parts.values():
                clear_others(part.groups, rows.keys, "train")
        if self._run.split.agents is not None:
            self._figures["rejuice/agent/turn_rows"] = len(rows.keys)
        tags = {key: tag for part in self.parts.values() for key, tag in part.groups.tags.items()}
        return _batch("train", rows.keys, tags)

    def warn_of_unmatched(self) -> None:
        for part in self.parts.values():
            matches = part.curated.matches
            for line in unmatched_lines((step, each.why_none()) for step, each in matches.items()):
                print(f"step {self.number}: warning: {line}")

    def write_files(self, files: StepFiles, samples: SampleTables) -> None:
        """Keep the rollouts, rewards and decisions of the step, and log samples of them."""
        choice, chosen = self._choice, None
        if choice is not None and choice.step == self.number:
            chosen = choice.table
        for name, part in self.parts.items():
            recipe = self._run.step_recipe(self.number, part.recipe, name)
            tables = part.tables
            if not name and chosen is not None:
                tables["choice"] = chosen
            files.keep(self.number, name, tables, recipe)
        taken = None if chosen is None else chosen["prompt_id"]
        if self._ahead is not None:
            # Those that were chosen now are of a later step.
            rows = pa.array(self.parts[""].groups.failed_rows, pa.int64())
            taken = self._run.prompts("train")["prompt_id"].take(rows)
        history = history_of(self.number, self.parts[""], taken)
        # At once: a checkpoint of this step is resumed by it.
        write_history(self._run.step_folder(self.number), history)
        if choice is not None:
            choice.add(self.number, history)
        replays, failed = self._run.split.replay_selector is not None, self.outcome is not TRAINED
        if failed or replays or self.number >= self._run.config.steps:
            # By them the command says why the step has no signal. No later step may report that
            # they could not be written; and after a resume from a checkpoint of this step, they
            # are replayed.
            files.wait()
        samples.log(self.number, self.parts, self._trainer, last=failed)

    def all_figures(self) -> dict[str, float]:
        parts = self.parts.values()
        sampled = {name: part for name, part in self.parts.items() if name != REPLAYED}
        of_groups = signal_figures(sampled)
        replayed = REPLAYED in self.parts and self.parts[REPLAYED].trained.num_rows
        if self.outcome is TRAINED and not replayed and min(of_groups.values(), default=1.0) == 1:
            self.outcome = NO_SIGNAL
        seconds = self.clock.read()
        seconds["operators"] = sum(sum(part.curated.seconds.values()) for part in parts)
        seconds["after_sampling"] = time.perf_counter() - self._start - self._waited
        return {
            **self._figures,
            **of_groups,
            "rejuice/progress": self._run.progress(self.number),
            "rejuice/rows_trained": sum(part.trained.num_rows for part in parts),
            "rejuice/tokens_sampled": tokens_sampled(sampled.values()),
            **{f"rejuice/seconds/{name}": value for name, value in seconds.items()},
        }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _batch(
    partition: str, keys: list[TrajectoryKey], tags: Mapping[TrajectoryKey, dict[str, Any]]
) -> KVBatchMeta:
    return KVBatchMeta(
        partition_id=partition, keys=list(map(str, keys)), tags=[tags[key] for key in keys]
    )
