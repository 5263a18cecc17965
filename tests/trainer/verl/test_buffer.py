"""The recipe between rollouts and update, on a TransferQueue in memory."""

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from training_stage import PLAIN, SUM, summed

from rejuice.operators.errors import DataError
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.report.stored import open_training
from rejuice.trainer.run import early_end

pytestmark = pytest.mark.slow  # Imports verl.


@pytest.fixture
def skipped(verl):
    """What the buffer raises where a step has nothing to train on."""
    from rejuice.trainer.verl.verl_trainer import StepSkippedError

    return StepSkippedError


ONLY_SHORT = {"length_filter": {"column": "response", "unit": "characters", "max": 3}}
NO_REWARD = [{"bare_reward_mapper": None}, {"grpo_advantage_mapper": None}]


def trained(stage, batch):
    """Rows that train: prompt number, response number and reward."""
    prompt_of = {uid: index for index, uids in stage.uids.items() for uid in uids}
    parts = [key.rsplit("_", 2) for key in batch.keys]
    places = [(prompt_of[uid], int(session)) for uid, session, _ in parts]
    return list(zip(places, stage.rewards(batch), strict=True))


# --------------------------------------------------------------------------- rewards


def test_each_response_gets_its_own_reward_on_its_last_token(stage):
    stage = stage(PLAIN)
    stage.answer({1: ["1", "0", "0.25 and more", "0"], 0: ["0.5", "1", "1", "0"]})
    batch, _ = stage.sample(1, 2)
    assert trained(stage, batch) == [
        ((0, 0), 0.5), ((0, 1), 1.0), ((0, 2), 1.0), ((0, 3), 0.0),
        ((1, 0), 1.0), ((1, 1), 0.0), ((1, 2), 0.25), ((1, 3), 0.0),
    ]  # fmt: skip
    scores = stage.queue.kv_batch_get(batch.keys, "train", ["rm_scores", "responses"])
    for row, ids in zip(scores["rm_scores"].unbind(), scores["responses"].unbind(), strict=True):
        assert len(row) == len(ids)
        assert not row[:-1].any()
    assert batch.partition_id == "train"
    assert [tag["seq_len"] for tag in batch.tags] == [3 + len(ids) for ids in scores["responses"]]


def test_the_markers_of_prompts_leave_the_queue_and_the_rows_stay(stage):
    stage = stage(PLAIN)
    stage.answer({0: ["1", "0"], 1: ["1", "0"]})
    batch, _ = stage.sample(1, 2)
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_groups_that_came_in_another_order_give_the_same_step(stage, tmp_path, queue):
    from training_stage import Stage

    reported = {k: [str(k % 2), str((k + 1) % 3), "0"] for k in range(6)}
    orders = [list(reported), [4, 0, 5, 1, 3, 2]]
    seen = []
    for turn, order in enumerate(orders):
        (tmp_path / str(turn)).mkdir()
        one = Stage(tmp_path / str(turn) / "run", queue, PLAIN, n=3)
        one.answer({k: reported[k] for k in order})
        batch, figures = one.sample(1, 6)
        measured = ("rejuice/seconds/", "rejuice/cores/")
        figures = {name: x for name, x in figures.items() if not name.startswith(measured)}
        tables = [one.saved(name) for name in ("rollouts", "curated", "decisions")]
        seen.append((trained(one, batch), figures, tables))
        queue.partitions.clear()
    assert seen[0][:2] == seen[1][:2]
    assert all(a.equals(b) for a, b in zip(seen[0][2], seen[1][2], strict=True))


def test_groups_are_taken_as_they_finish(stage):
    stage = stage(PLAIN)
    slots = stage.ask([0, 1, 2])
    stage.answer({0: ["1", "0"]}, slots=slots[:1])
    later = iter([(1, ["0", "0"]), (2, ["0", "1"])])

    def sleep(_):
        k, texts = next(later)
        stage.answer({k: texts}, slots=[slots[k]])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rejuice.trainer.verl.training.time.sleep", sleep)
        batch, figures = stage.sample(1, 3)
    assert [reward for _, reward in trained(stage, batch)] == [1, 0, 0, 0, 0, 1]
    assert figures["rejuice/rows_sampled"] == 6


def test_the_longer_a_step_takes_the_less_often_the_queue_is_listed(stage):
    stage = stage(PLAIN)
    slots = stage.ask([0, 1])
    stage.answer({0: ["1", "0"]}, slots=slots[:1])
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds
        if now[0] > 600:
            stage.answer({1: ["0", "1"]}, slots=slots[1:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rejuice.trainer.verl.training.time.sleep", sleep)
        patch.setattr("rejuice.trainer.verl.training.time.perf_counter", lambda: now[0])
        stage.sample(1, 2)
    assert (slept[0], max(slept)) == (0.02, 1.0)
    assert len(slept) < 1000
    assert now[0] < 602


def test_weights_follow_their_schedule(stage):
    falling = {"weights": {"accuracy": {"from": 0.5, "to": 0.3}}}
    stage = stage([{"scripted_mapper": None}, {"reward_sum_mapper": falling}], steps=5)
    for step, weight in ((1, 0.5), (3, 0.4), (5, 0.3)):
        stage.answer({step: ["1", "0"], 0: ["1", "0"]}, step=step)
        batch, figures = stage.sample(step, 2)
        assert stage.rewards(batch) == [float(np.float32(weight)), 0.0] * 2
        assert figures["rejuice/progress"] == (step - 1) / 4
        stage.queue.partitions.clear()


def test_an_underscore_in_the_key_of_a_prompt(stage, monkeypatch):
    stage = stage(PLAIN)
    monkeypatch.setattr(stage, "uid_of", lambda index, made: f"gsm8k_train_{index}_{made}")
    stage.answer({0: ["1", "0"], 1: ["1", "0"]})
    stage.fail([2])
    batch, figures = stage.sample(1, 3)
    assert trained(stage, batch) == [((0, 0), 1.0), ((0, 1), 0.0), ((1, 0), 1.0), ((1, 1), 0.0)]
    assert figures["rejuice/failed_prompts"] == 1
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


# --------------------------------------------------------------------------- drops


def test_what_a_filter_drops_is_recorded_and_leaves_the_queue(stage):
    stage = stage([ONLY_SHORT, *PLAIN])
    stage.answer({0: ["1", "0", "0.12345", "1"], 1: ["1", "0", "0", "0.98765"]})
    batch, figures = stage.sample(1, 2)
    assert [place for place, _ in trained(stage, batch)] == [
        (0, 0),
        (0, 1),
        (0, 3),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    assert stage.dropped() == {("length_filter", "too_long"): 2}
    rollouts, curated = stage.saved("rollouts"), stage.saved("curated")
    assert (rollouts.num_rows, curated.num_rows) == (8, 6)
    ids = set(rollouts["response_id"].to_pylist()) - set(curated["response_id"].to_pylist())
    assert set(stage.saved("decisions")["row_id"].to_pylist()) == ids
    assert figures["rejuice/dropped/too_long"] == 2
    assert (figures["rejuice/rows_sampled"], figures["rejuice/rows_trained"]) == (8, 6)


def test_a_group_of_one_never_trains(stage):
    stage = stage([ONLY_SHORT, {"scripted_mapper": None}, SUM])
    stage.answer({0: ["1", "0.12345", "0.12345", "0.12345"], 1: ["1", "0", "0", "0"]})
    batch, figures = stage.sample(1, 2)
    assert {prompt for (prompt, _), _ in trained(stage, batch)} == {1}
    assert stage.dropped() == {
        ("length_filter", "too_long"): 3,
        ("grpo_advantage_mapper", "group_of_one"): 1,
    }
    assert figures["rejuice/groups"] == 1
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_a_row_without_a_reward_never_trains(stage):
    stage = stage(NO_REWARD[:1], validation_path=None)
    stage.answer({0: ["1", "nothing", "inf", "0"], 1: ["nothing", "nothing", "nothing", "2"]})
    batch, _ = stage.sample(1, 2)
    assert trained(stage, batch) == [((0, 0), 1.0), ((0, 3), 0.0)]
    assert stage.dropped() == {
        ("training", "no_reward"): 5,
        ("grpo_advantage_mapper", "group_of_one"): 1,
    }


def test_no_group_left_is_reported_with_the_reasons(stage):
    stage = stage([ONLY_SHORT, {"scripted_mapper": None}, SUM])
    stage.answer({0: ["0.12345"] * 3 + ["1"], 1: ["0.12345"] * 4})
    with pytest.raises(DataError) as caught:
        stage.sample(1, 2)
    assert str(caught.value) == (
        "step 1: no group is left to train on (too_long 7, group_of_one 1); "
        "look at the steps after policy_rollout_mapper, or allow a refill"
    )
    recorded = json.loads((stage.run.folder / "error.json").read_text())
    assert recorded == {"message": str(caught.value), "expected": True}


# --------------------------------------------------------------------------- without signal

SPREAD = [{"scripted_mapper": None}, SUM, {"reward_std_filter": {"min": 1e-6}}, PLAIN[-1]]


def test_a_step_without_signal_trains_nothing_and_is_no_failure(stage, skipped):
    stage = stage(SPREAD, validation_path=None)
    stage.answer({0: ["1", "1"], 1: ["0", "0"]})
    with pytest.raises(skipped) as found:
        stage.sample(1, 2)
    figures = found.value.figures
    assert (figures["rejuice/groups"], figures["rejuice/rows_trained"]) == (0, 0)
    assert figures["rejuice/groups_without_signal"] == 1
    assert stage.dropped() == {("reward_std_filter", "no_reward_spread"): 4}
    assert {*found.value.batch.keys} == {
        *stage.queue.kv_list("train")["train"]
    }  # verl clears them.
    stage.queue.partitions.clear()
    assert not (stage.run.folder / "error.json").exists()
    stage.answer({2: ["1", "0"]}, step=2)
    batch, _ = stage.sample(2, 1)
    assert len(batch.keys) == 2


def test_steps_without_signal_end_training(stage):
    stage = stage(SPREAD, validation_path=None, steps=9, stop_without_signal=2)
    for step, texts in enumerate((["1", "0"], ["1", "1"], ["0", "1"], ["1", "1"]), 1):
        stage.answer({step: texts}, step=step)
        batch, _ = stage.train(step, 1)
        assert ("skips" in batch.extra_info) is (step in {2, 4})
    assert early_end(stage.run.folder) is None
    stage.answer({5: ["0", "0"]}, step=5)
    stage.train(5, 1)
    why = "no group has a signal, in 2 steps in a row"
    assert early_end(stage.run.folder) == (5, 9, why)
    assert stage.trainer.total_training_steps == 5
    assert stage.trainer.config.trainer.test_freq == -1


def test_steps_whose_rows_have_advantages_of_0_count_too(stage):
    stage = stage(PLAIN, validation_path=None, steps=9, stop_without_signal=1)
    for step, texts in enumerate((["1", "0"], ["1", "1"]), 1):
        stage.answer({step: texts}, step=step)
        batch, _ = stage.train(step, 1)
        assert len(batch.keys) == 2  # verl updates, by advantages of 0.
    assert early_end(stage.run.folder) == (2, 9, "no group has a signal")


def test_a_run_that_never_had_a_signal_fails(stage):
    stage = stage(SPREAD, validation_path=None, stop_without_signal=2)
    stage.answer({0: ["0", "0"]})
    stage.train(1, 1)
    stage.queue.partitions.clear()  # As verl does.
    stage.answer({1: ["0", "0"]}, step=2)
    with pytest.raises(DataError, match=r"step 2: no group has a signal, in 2 .*easier ones"):
        stage.train(2, 1)
    assert stage.saved("rollouts", 2).num_rows == 2  # To be looked at.
    assert early_end(stage.run.folder) is None


def test_a_step_that_mostly_failed_is_no_step_without_signal(stage):
    """Its rewards are missing: whatever the two others say, it is not solved."""
    steps = [SPREAD[0], summed("drop_row"), *SPREAD[2:]]
    stage = stage(steps, validation_path=None)
    stage.answer({0: ["1", "1"], 1: ["nothing"] * 3})
    with pytest.raises(DataError, match="no group is left to train on"):
        stage.sample(1, 2)


# --------------------------------------------------------------------------- refill


def test_rows_that_are_left_are_shared_out_to_the_updates(stage):
    here = stage(PLAIN, prompts_per_step=8, updates_per_step=2)
    here.answer({prompt: ["1", "0", "1", "0"] for prompt in range(4)})
    here.sample(step=1, groups=4)
    # Of 4 groups, not of the 8 there might have been: verl's mini-batches are of so many prompts.
    assert here.trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == 2


class More:
    """Answers what the buffer asks for, from prompt 2 on, with the responses it is given."""

    def __init__(self, *texts):
        self.texts, self.requested, self.next = texts, [], 2
        self.step = 1

    def __call__(self, wanted):
        self.requested.append(wanted)
        for _ in range(wanted):
            self.stage.answer({self.next: self.texts}, step=self.step)
            self.next += 1
        return wanted


@pytest.fixture
def refilled(stage):
    """A factory of stages with a refill, and what was requested."""

    def make(texts, **settings):
        more = More(*texts)
        more.stage = stage([ONLY_SHORT, *PLAIN], prompts=40, more=more, **settings)
        return more.stage, more

    return make


def test_a_step_that_is_full_asks_for_nothing(refilled):
    stage, more = refilled(["1", "0"], refill=3)
    stage.answer({0: ["1", "0"], 1: ["0", "0"]})
    _, figures = stage.sample(1, 2)
    assert more.requested == []
    assert figures["rejuice/refills"] == 0


def test_groups_that_were_dropped_are_replaced(refilled):
    stage, more = refilled(["1", "0"], refill=3)
    stage.answer({0: ["1", "0"], 1: ["0.12345", "0.12345"]})
    batch, figures = stage.sample(1, 2)
    assert more.requested == [2]  # One is missing, and half of them were dropped.
    assert figures["rejuice/refills"] == 1
    assert figures["rejuice/groups"] == 2
    assert len({prompt for (prompt, _), _ in trained(stage, batch)}) == 2
    assert stage.dropped() == {("length_filter", "too_long"): 2, ("training", "surplus_group"): 2}
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_a_refill_stops_at_its_bound_and_trains_on_what_there_is(refilled, capsys):
    stage, more = refilled(["0.12345", "0.12345"], refill=3)
    stage.answer({0: ["1", "0"], 1: ["0.12345", "0.12345"]})
    batch, figures = stage.sample(1, 2)
    assert more.requested == [2, 2, 2]
    assert trained(stage, batch) == [((0, 0), 1.0), ((0, 1), 0.0)]
    assert (figures["rejuice/refills"], figures["rejuice/groups"]) == (3, 1)
    assert "step 1: 1 of 2 groups after 3 refills" in capsys.readouterr().out


def test_a_refill_that_finds_nothing_reports_it(refilled):
    stage, more = refilled(["0.12345", "0.12345"], refill=2)
    stage.answer({0: ["0.12345", "0"], 1: ["0.12345", "0"]})
    with pytest.raises(
        DataError, match=r"^step 1: no group is left to train on \(too_long 10, group"
    ):
        stage.sample(1, 2)
    assert more.requested == [2, 2]


def test_excess_groups_are_dropped_in_a_seeded_random_order(refilled):
    """Whoever is quick must not be trained on more often: short responses are quick."""
    stage, more = refilled(["1", "0"], refill=1, steps=30)
    chosen = []
    for step in range(1, 25):
        more.step, more.next = step, 2
        stage.answer({0: ["1", "0"], 1: ["1"]}, step=step)
        batch, figures = stage.sample(step, 2)
        assert figures["rejuice/groups"] == 2
        chosen.append(frozenset(prompt for (prompt, _), _ in trained(stage, batch)))
        assert stage.dropped(step)["training", "surplus_group"] == 2
        stage.queue.partitions.clear()
    assert set(chosen) == {frozenset(pair) for pair in ((0, 2), (0, 3), (2, 3))}


def test_a_prompt_that_comes_twice_in_a_step_is_trained_on_once(refilled):
    """A refill that reaches the end of the dataset starts it again: same prompt, same samples."""
    stage, more = refilled(["1", "0"], refill=1)
    more.next = 0
    stage.answer({0: ["1", "0"], 1: ["0.12345", "0.12345"]})
    batch, figures = stage.sample(1, 2)
    assert trained(stage, batch) == [((0, 0), 1.0), ((0, 1), 0.0)]
    assert stage.saved("rollouts")["prompt_id"].value_counts().field(1).to_pylist() == [2, 2]
    assert figures["rejuice/groups"] == 1
    assert figures["rejuice/repeated_prompts"] == 2
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_a_prompt_that_comes_twice_at_once_is_trained_on_once(stage):
    stage = stage(PLAIN)
    slots = stage.ask([0, 1, 0])
    for slot, texts in zip(slots, (["1", "0"], ["0", "1"], ["1", "0"]), strict=True):
        stage.answer({0: texts}, slots=[slot])
    batch, figures = stage.sample(1, 3)
    assert [place for place, _ in trained(stage, batch)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert figures["rejuice/repeated_prompts"] == 1


# --------------------------------------------------------------------------- failures


def test_failed_prompts_are_counted_and_cleared(stage):
    stage = stage(PLAIN)
    stage.fail([1])
    stage.answer({0: ["1", "0"]})
    batch, figures = stage.sample(1, 2)
    assert figures["rejuice/failed_prompts"] == 1
    assert figures["rejuice/groups"] == 1
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_failed_prompts_are_replaced_too(refilled):
    stage, more = refilled(["1", "0"], refill=1)
    stage.fail([1])
    stage.answer({0: ["1", "0"]})
    _, figures = stage.sample(1, 2)
    assert more.requested == [2]
    assert figures["rejuice/groups"] == 2


def failed_sessions(stage, responses, step=1, partition="train"):
    """Prompts of which some sessions have failed, as verl's workers of agent loops leave them."""
    from rejuice.trainer.verl.trajectories import fail

    slots = stage.ask(list(responses), partition, step)
    stage.answer(responses, partition, step, slots=slots)
    fail(slots, partition)


def test_a_failed_session_leaves_the_rest_of_its_group_to_train_on(stage, capsys):
    """As in stock verl; the group has the advantage of those that are there."""
    stage = stage(PLAIN, n=4)
    failed_sessions(stage, {0: ["1", "0", "0"]})
    stage.answer({1: ["1", "0", "0", "1"]})
    batch, figures = stage.sample(1, 2)
    assert [place for place, _ in trained(stage, batch)] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    curated = stage.saved("curated")
    std = np.std([1, 0, 0], ddof=1) + 1e-6
    assert curated["advantage"].to_pylist()[:3] == pytest.approx(
        [(2 / 3) / std, -(1 / 3) / std, -(1 / 3) / std]
    )
    assert figures["rejuice/failed_responses"] == 1
    assert figures["rejuice/failed_prompts"] == 0
    assert figures["rejuice/pass_rate"] == 3 / 7, "a failure is neither right nor wrong"
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    assert "step 1: 1 response failed" in capsys.readouterr().out


def test_a_failed_session_drops_its_group_where_the_recipe_says_so(stage):
    stage = stage(PLAIN, n=4, on_failed_session="drop_group")
    failed_sessions(stage, {0: ["1", "0", "0"]})
    stage.answer({1: ["1", "0", "0", "1"]})
    batch, figures = stage.sample(1, 2)
    assert {prompt for (prompt, _), _ in trained(stage, batch)} == {1}
    assert (figures["rejuice/failed_prompts"], figures["rejuice/failed_responses"]) == (1, 0)
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_the_only_session_that_did_not_fail_is_a_group_of_one_and_is_replaced(refilled):
    stage, more = refilled(["1", "0"], refill=1, n=2)
    failed_sessions(stage, {0: ["1"]})
    stage.answer({1: ["1", "0"]})
    batch, figures = stage.sample(1, 2)
    assert more.requested == [2]
    assert (figures["rejuice/groups"], figures["rejuice/failed_responses"]) == (2, 1)
    assert stage.dropped() == {
        ("grpo_advantage_mapper", "group_of_one"): 1,
        ("training", "surplus_group"): 2,
    }
    assert 0 not in {prompt for (prompt, _), _ in trained(stage, batch)}


def test_a_validation_grades_what_a_failed_session_has_left(stage):
    stage = stage(PLAIN, validation_n=2)
    failed_sessions(stage, {0: ["1"]}, step=0, partition="val")
    stage.answer({1: ["0", "0"]}, partition="val", step=0)
    batch, _ = stage.sample(0, 2, "val")
    assert stage.rewards(batch) == [1.0, 0.0, 0.0]


def test_a_step_in_which_all_prompts_fail_reports_it(stage):
    stage = stage(PLAIN)
    stage.fail([0, 1])
    with pytest.raises(DataError) as caught:
        stage.sample(1, 2)
    assert str(caught.value).startswith(
        "step 1: no group is left to train on (every prompt failed); "
    )


def test_a_sampler_that_dies_takes_no_group_that_was_there(stage):
    """All prompts that it was given are reported as failed, also those that it answered."""
    from rejuice.trainer.verl.trajectories import fail

    stage = stage(PLAIN)
    slots = stage.ask([0, 1, 2])
    stage.answer({0: ["1", "0"]}, slots=slots[:1])

    def sleep(_):
        fail(slots, "train")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rejuice.trainer.verl.training.time.sleep", sleep)
        batch, figures = stage.sample(1, 3)
    assert trained(stage, batch) == [((0, 0), 1.0), ((0, 1), 0.0)]
    assert figures["rejuice/failed_prompts"] == 2
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    data = stage.queue.kv_batch_get(batch.keys, "train")
    assert {"responses", "rollout_log_probs", "rm_scores"} <= set(data.keys())


def test_a_prompt_that_failed_before_the_sampler_died_is_counted_once(stage):
    """Its key, which was cleared, comes back as what verl does not take for a prompt."""
    from rejuice.trainer.verl.trajectories import fail

    stage = stage(PLAIN)
    slots = stage.ask([0, 1, 2])
    fail(slots[:1], "train")
    steps = iter(
        [lambda: stage.answer({1: ["1", "0"]}, slots=slots[1:2]), lambda: fail(slots, "train")]
    )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rejuice.trainer.verl.training.time.sleep", lambda _: next(steps)())
        batch, figures = stage.sample(1, 3)
    assert trained(stage, batch) == [((1, 0), 1.0), ((1, 1), 0.0)]
    assert figures["rejuice/failed_prompts"] == 2


def test_an_operator_that_copies_rows_is_refused(stage, tmp_path):
    code = """
import numpy as np
from rejuice.operators import Change, Operator

class TwiceMapper(Operator):
    def apply(self, table):
        return Change(parents=np.repeat(np.arange(table.num_rows), 2))
"""
    (tmp_path / "twice.py").write_text(code)
    paths = [str(tmp_path / name) for name in ("scripted.py", "twice.py")]
    stage = stage([*PLAIN, {"twice_mapper": None}], head={"custom_operator_paths": paths})
    stage.answer({0: ["1", "0"], 1: ["1", "0"]})
    with pytest.raises(DataError, match=r"^a row is not one response of the policy"):
        stage.sample(1, 2)


# --------------------------------------------------------------------------- missing components

HALF = {0: ["1", "0.5", "timeout", "timeout"], 1: ["1", "0", "0", "1"]}


def test_missing_fail(stage):
    stage = stage([{"scripted_mapper": None}, summed("fail")])
    stage.answer(HALF)
    with pytest.raises(DataError) as caught:
        stage.sample(1, 2)
    prompt_id = stage.prompts[0]["prompt_id"]
    assert str(caught.value) == (
        f"step 4 reward_sum_mapper: reward_accuracy is missing (timeout) for response 2 of prompt "
        f"'{prompt_id}'; set on_missing to drop_row, drop_group or group_mean to go on without it"
    )


def test_an_error_is_not_kept_until_the_last_group_has_come(stage, monkeypatch):
    stage = stage([{"scripted_mapper": None}, summed("fail")])
    stage.answer({0: HALF[0]})
    stage.ask([1])  # It is never answered.
    sleep, polls = time.sleep, iter(range(500))
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(0.01 + 0 * next(polls)))
    with pytest.raises(DataError, match="reward_accuracy is missing"):
        stage.sample(1, 2)


@pytest.mark.parametrize(
    ("on_missing", "rewards", "dropped"),
    [
        ("drop_row", [1.0, 0.5], 2),
        ("drop_group", [], 4),
        ("group_mean", [1.0, 0.5, 0.75, 0.75], 0),
    ],
)
def test_missing_for_half_of_a_group(stage, on_missing, rewards, dropped):
    """A verifier that hangs gives `timeout`, and never a number."""
    stage = stage([{"scripted_mapper": None}, summed(on_missing), {"grpo_advantage_mapper": None}])
    stage.answer(HALF)
    batch, figures = stage.sample(1, 2)
    assert stage.rewards(batch) == [*rewards, 1.0, 0.0, 0.0, 1.0]
    slug = {("reward_sum_mapper", "missing_component"): dropped}
    assert stage.dropped() == (slug if dropped else {})
    assert figures["rejuice/note/reward_sum_mapper/missing_accuracy"] == 2
    assert figures["rejuice/reward_accuracy"] == pytest.approx(3.5 / 6), "dropped rows, too"


def test_missing_for_a_whole_group_leaves_the_group_out(stage):
    stage = stage([{"scripted_mapper": None}, summed("group_mean")])
    stage.answer({0: ["timeout"] * 4, 1: ["1", "0", "0", "1"]})
    batch, figures = stage.sample(1, 2)
    assert {prompt for (prompt, _), _ in trained(stage, batch)} == {1}
    assert figures["rejuice/pass_rate"] == 2 / 4, "of what was graded"


# --------------------------------------------------------------------------- validation


def test_validation_is_graded_by_accuracy_and_nothing_is_dropped(stage):
    stage = stage([ONLY_SHORT, *PLAIN])
    stage.answer({1: ["0.12345"], 0: ["1"]}, partition="val", step=0)
    batch, figures = stage.sample(0, 2, "val")
    assert stage.rewards(batch) == [1.0, float(np.float32(0.12345))]
    assert figures == {}
    assert batch.partition_id == "val"
    assert set(stage.queue.kv_list("val")["val"]) == set(batch.keys)
    kept = pq.read_table(stage.run.folder / "validations" / "000000.parquet")
    assert kept["response"].to_pylist() == ["1", "0.12345"]


def test_validation_leaves_rows_without_accuracy_out(stage):
    """Not a number would make the mean of all responses none either."""
    stage = stage(PLAIN)
    stage.answer({0: ["1", "timeout"], 1: ["0.5", "0"]}, partition="val", step=0)
    batch, _ = stage.sample(0, 2, "val")
    assert stage.rewards(batch) == [1.0, 0.5, 0.0]
    assert set(stage.queue.kv_list("val")["val"]) == set(batch.keys)
    kept = pq.read_table(stage.run.folder / "validations" / "000000.parquet")
    assert kept["reward_accuracy_missing"].to_pylist() == [None, "timeout", None, None]


def test_validation_goes_on_without_prompts_that_failed(stage):
    stage = stage(PLAIN)
    stage.fail([1], partition="val", step=0)
    stage.answer({0: ["1"]}, partition="val", step=0)
    batch, _ = stage.sample(0, 2, "val")
    assert stage.rewards(batch) == [1.0]


def test_validation_does_not_touch_the_groups_of_training(stage):
    stage = stage(PLAIN)
    stage.answer({0: ["1", "0"], 1: ["1", "0"]})
    stage.answer({2: ["1"]}, partition="val")
    stage.sample(1, 1, "val")
    batch, _ = stage.sample(1, 2)
    assert len(batch.keys) == 4


# --------------------------------------------------------------------------- the same offline


def test_the_step_is_repeated_by_its_own_recipe(stage, monkeypatch):
    """Steps of all kinds: a custom operator, a schedule, one of Data-Juicer's, a dataset scope."""
    falling = {"weights": {"accuracy": {"from": 0.5, "to": 0.3}}, "on_missing": "drop_row"}
    after = [
        {"scripted_mapper": None},
        {"reward_sum_mapper": falling},
        {"exact_deduplicator": {"within": "prompt"}},
        {"text_length_filter": {"text_key": "response", "min_len": 1, "max_len": 3}},
        {"grpo_advantage_mapper": {"normalise": "leave_one_out"}},
    ]
    stage = stage(after, steps=5)
    texts = {0: ["1", "1", "0", "0.5"], 1: ["1", "timeout", "0", "0.12345"]}
    stage.answer(texts, step=2)
    stage.sample(2, 2)
    kept = stage.saved("curated", 2)
    folder = stage.run.folder / "steps" / "000002"
    monkeypatch.chdir(folder)
    recipe = load(folder / "recipe.yaml")
    operators = [step.operator for step in recipe.steps]
    again = run_in_memory(operators, pq.read_table(recipe.head.dataset_path))
    assert again.num_rows == 5
    assert again.equals(kept)
    assert kept["reward"].to_pylist() == [0.45, 0.0, 0.225, 0.45, 0.0]
    names = [step.name for step in recipe.steps]
    assert names == [step.name for step in stage.run.split.after]
    reasons = {(step, reason) for step, reason in stage.dropped(2)}
    assert {step for step, _ in reasons} <= set(names)


@pytest.mark.parametrize("keep", [False, True])
def test_what_data_juicer_keeps_beside_the_rows_is_written_where_it_is_kept(
    stage, monkeypatch, keep
):
    """Rollouts are what the step's recipe begins with: they have what their prompts have."""
    import pyarrow.feather as feather

    after = [*PLAIN[:-1], {"text_length_filter": {"text_key": "response", "min_len": 1}}, PLAIN[-1]]
    stage = stage(after, head={"keep_stats_in_res_ds": keep})
    prompts = stage.run.prompts("train")
    tags = pa.array(['{"tag":1}'] * prompts.num_rows).cast(pa.json_())
    path = stage.run.folder / "prompts" / "train.arrow"
    feather.write_feather(prompts.append_column("__dj__meta__", tags), path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    stage.answer({0: ["1", "0"], 1: ["0", "1"]})
    stage.sample(1, 2)
    rollouts, curated = stage.saved("rollouts"), stage.saved("curated")
    helpers = [name for name in curated.column_names if name.startswith("__dj__")]
    assert helpers == (["__dj__meta__", "__dj__stats__"] if keep else [])
    assert rollouts["__dj__meta__"].to_pylist() == ['{"tag":1}'] * 4
    folder = stage.run.folder / "steps" / "000001"
    monkeypatch.chdir(folder)
    recipe = load(folder / "recipe.yaml")
    assert recipe.head.keep_stats_in_res_ds is keep
    operators = [step.operator for step in recipe.steps]
    again = run_in_memory(operators, rollouts, keep_stats=keep)
    assert again.equals(curated)


def test_only_the_history_is_kept_if_no_rollouts_are_to_be_kept(stage):
    stage = stage(PLAIN, keep_rollouts=False)
    stage.answer({0: ["1", "0"], 1: ["1", "0"]})
    stage.sample(1, 2)
    kept = [each.name for each in (stage.run.folder / "steps").rglob("*.parquet")]
    assert kept == ["history.parquet"]


def test_the_mean_reward_is_that_of_what_was_sampled(stage):
    stage = stage([*PLAIN[:2], {"reward_std_filter": None}, PLAIN[2]])
    stage.answer({0: ["1", "0", "0"], 1: ["0", "0", "0"], 2: ["0", "0", "0"]})
    _, figures = stage.sample(1, 3)
    assert figures["rejuice/rows_trained"] == 3
    assert figures["rejuice/reward"] == figures["rejuice/pass_rate"] == pytest.approx(1 / 9)


def test_figures_are_those_of_the_rows(stage):
    stage = stage(PLAIN)
    stage.answer({0: ["1", "0", "0"], 1: ["0", "0", "0"], 2: ["1", "1", "0.5"]})
    _, figures = stage.sample(1, 3)
    table = stage.saved("curated")
    assert figures["rejuice/reward"] == pc.mean(table["reward"]).as_py() == pytest.approx(3.5 / 9)
    assert figures["rejuice/pass_rate"] == 4 / 9
    assert figures["rejuice/mixed_groups"] == pytest.approx(1 / 3)
    tokens = pa.compute.list_value_length(stage.saved("rollouts")["response_token_ids"])
    assert figures["rejuice/response_tokens"] == pc.mean(tokens).as_py()
    assert all(isinstance(value, (int, float)) for value in figures.values())


@pytest.mark.parametrize("steps", [1, 2])
def test_step_files_that_cannot_be_written_end_the_run(stage, steps, monkeypatch):
    """They are written beside the update: the next step reports it, and the last one its own."""
    from rejuice.trainer.verl import figures

    def on_full_disk(folder, *_):
        raise OSError(f"no space left for {folder.name}")

    monkeypatch.setattr(figures, "_write", on_full_disk)
    stage = stage(PLAIN, steps=steps)
    stage.answer({0: ["1", "0"], 1: ["0", "1"]})
    if steps > 1:
        first, _ = stage.sample(1, 2)
        stage.queue.kv_clear(first.keys, "train")
        stage.answer({0: ["1", "0"], 1: ["0", "1"]}, step=2)
    with pytest.raises(OSError, match="no space left for 000001"):
        stage.sample(min(steps, 2), 2)


def test_a_history_that_cannot_be_written_ends_the_run(stage):
    stage = stage(PLAIN)
    (stage.run.folder / "steps").write_text("in the way")
    stage.answer({0: ["1", "0"], 1: ["0", "1"]})
    with pytest.raises(OSError, match="steps"):
        stage.sample(1, 2)


# --------------------------------------------------------------------------- values of steps


def test_what_steps_wrote_is_kept_of_dropped_rows_too(stage):
    stage = stage([{"scripted_mapper": None}, ONLY_SHORT, SUM, {"grpo_advantage_mapper": None}])
    stage.answer({0: ["1", "0.5 and more"], 1: ["0", "1"]})
    stage.sample(1, 2)
    assert stage.saved("values")["reward_accuracy"].to_pylist() == [1.0, 0.5, 0.0, 1.0]
    (one,) = open_training(stage.run.folder).sets
    rows = stored_rows(one)
    assert rows.components == ("accuracy",)
    # The only response that is left of prompt 0 is dropped by the advantage.
    assert rows.table["fate"].to_pylist() == [6, 4, -1, -1]  # As the run's recipe numbers them.
    assert rows.table["reason"].to_pylist() == ["group_of_one", "too_long", None, None]
    assert rows.table["tokens"].to_pylist() == [
        len(ids) for ids in stage.saved("rollouts")["response_token_ids"].to_pylist()
    ]
    *_, last = one.applied(0)
    table = last.after.table()
    assert table.equals(one.final().select(table.column_names))
