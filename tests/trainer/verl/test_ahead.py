"""Prompts that are sampled ahead of the step that trains on them."""

from threading import Event, current_thread, main_thread
from types import MethodType, SimpleNamespace

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_stage import PLAIN, Stage

from rejuice.operators import DataError
from rejuice.operators.sampling.protocol import Group
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow  # Imports verl.

WEIGHTS = [*PLAIN, {"importance_weight_mapper": {"max": 1.05}}]
FRESH = [{"policy_age_filter": {"max_age": 1}}, *PLAIN]
RIGHT_AND_WRONG = ["1", "0", "1", "0"]


@pytest.fixture
def ahead(tmp_path, queue):
    """A factory of stages whose prompts are requested in the order of their numbers."""

    def make(after=PLAIN, name="run", **train):
        (tmp_path / name).mkdir()
        train = {"mode": "colocate_async", "max_age": 2, **train}
        stage = Stage(tmp_path / name / "run", queue, after, **train)
        stage.uid_of = lambda index, made: f"{8 * made + index:09d}"
        return stage

    return make


def prompts_of(stage, step):
    """The numbers of the prompts that a step has sampled, in order."""
    names = stage.saved("rollouts", step)["prompt_id"].unique().to_pylist()
    number_of = {each["prompt_id"]: number for number, each in enumerate(stage.prompts)}
    return [number_of[name] for name in names]


def test_a_step_takes_the_prompts_that_were_requested_first(ahead):
    stage = ahead()
    stage.answer(dict.fromkeys([3, 1, 2, 0, 4], RIGHT_AND_WRONG))
    first, _ = stage.sample(1, 2)
    assert prompts_of(stage, 1) == [0, 1]
    there = stage.queue.kv_list("train")["train"]
    assert {key for key, tag in there.items() if tag.get("is_prompt")} == {f"{n:09d}" for n in (2, 3, 4)}  # fmt: skip
    stage.sample(2, 2)
    assert prompts_of(stage, 2) == [2, 3]
    assert len(first.keys) == 8
    # Of the last step there are no more.
    stage.sample(3, 2)
    assert prompts_of(stage, 3) == [4]


def test_groups_of_the_next_step_enter_the_recipe_during_the_update(ahead, monkeypatch):
    from rejuice.trainer.verl.groups import PendingGroups

    added, seen = Event(), list[set[str]]()
    add = PendingGroups.add

    def noted(groups, uids, tags):
        add(groups, uids, tags)
        if current_thread() is not main_thread():
            seen.append(uids)
            added.set()

    monkeypatch.setattr(PendingGroups, "add", noted)
    stage = ahead()
    # The fifth is not of the second step, and the fourth is not finished.
    slow = stage.ask([3])
    stage.answer(dict.fromkeys([1, 2, 0, 4], RIGHT_AND_WRONG))
    stage.sample(1, 2)
    assert added.wait(60)
    assert seen == [{"000000002"}]
    stage.answer({3: RIGHT_AND_WRONG}, slots=slow)
    stage.sample(2, 2)
    assert prompts_of(stage, 2) == [2, 3]
    assert stage.saved("curated", 2).num_rows == 8


def test_what_cannot_be_read_ahead_is_raised_by_the_next_step(ahead, monkeypatch):
    from rejuice.trainer.verl.groups import PendingGroups

    stage = ahead()
    stage.answer(dict.fromkeys([0, 1, 2, 3], RIGHT_AND_WRONG))
    stage.sample(1, 4)
    tried = Event()

    def broken(*_):
        tried.set()
        raise DataError("a response is damaged")

    monkeypatch.setattr(PendingGroups, "add", broken)
    stage.answer({4: RIGHT_AND_WRONG})
    assert tried.wait(60)
    with pytest.raises(DataError, match="a response is damaged"):
        stage.sample(2, 1)


def test_it_waits_for_slow_ones_or_not(ahead):
    for waits, turns in ((True, [{"0", "1"}, {"0", "1"}]), (False, [{"1", "2"}, {"0", "4"}])):
        ahead_of = ahead(name=str(waits), wait_for_slow=waits).buffer.ahead
        found = [ahead_of.turn({"0", "4"}, {"1", "2", "3"}, 2), ahead_of.turn({"0", "4"}, set(), 2)]
        assert found[0] == turns[0]
        assert found[1] == ({"0", "4"} if waits else turns[1])
        assert not ahead_of.turn(set(), set(), 2)


def test_responses_have_ages_and_old_ones_are_dropped(ahead, capsys):
    rows = [
        {"question": f"What is {n}?", "answer": "1", "data_source": "ab"[n % 2]} for n in range(8)
    ]
    stage = ahead(FRESH, rows=rows)
    for number, asked in ((0, 1), (1, 2), (2, 3)):
        texts = RIGHT_AND_WRONG if number else ["1 and no more", *RIGHT_AND_WRONG[1:]]
        stage.answer({number: texts}, step=asked)
    _, figures = stage.sample(3, 3)
    lengths = pc.list_value_length(stage.saved("rollouts", 3)["response_token_ids"]).to_pylist()
    old, others = np.mean(lengths[:4]), np.mean(lengths[4:])
    assert old > others
    line = f"4 of 12 responses were too_old; they have {old:,.0f} tokens on average, the others "
    assert f"step 3: {line}{others:,.0f}\n" in capsys.readouterr().out
    rollouts = stage.saved("rollouts", 3)
    assert rollouts["policy_age"].to_pylist() == [2] * 4 + [1] * 4 + [0] * 4
    assert rollouts["last_policy_version"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    assert stage.dropped(3) == {("policy_age_filter", "too_old"): 4}
    assert figures["rejuice/policy_age/mean"] == 1
    assert figures["rejuice/policy_age/max"] == 2
    assert figures["rejuice/policy_age/trained"] == 0.5
    # Whose prompts are starved is seen.
    ages = [figures[f"rejuice/source/{name}/policy_age"] for name in "ab"]
    old = [figures[f"rejuice/source/{name}/too_old"] for name in "ab"]
    assert (ages, old) == ([1, 1], [0.5, 0])


def test_older_responses_have_weights_and_the_update_starts_from_the_policy(ahead):
    stage = ahead(WEIGHTS)
    stage.trainer.log_ratio = 0.04
    for number, asked in ((0, 1), (1, 2)):
        stage.answer({number: RIGHT_AND_WRONG}, step=asked)
    before = {
        key: entry.fields["rollout_log_probs"].clone()
        for key, entry in stage.queue.partitions["train"].items()
        if "rollout_log_probs" in entry.fields
    }
    batch, _ = stage.sample(2, 2)
    curated = stage.saved("curated", 2)
    weights = curated["token_weight"].to_pylist()
    assert weights[4:] == [None] * 4
    assert np.allclose(np.concatenate(weights[:4]), np.exp(0.04), atol=1e-6)
    ratios = curated["mean_token_ratio"].to_pylist()
    assert ratios[4:] == [None] * 4
    assert np.allclose(ratios[:4], np.exp(0.04), atol=1e-6)
    data = stage.queue.kv_batch_get(batch.keys, "train", ["rollout_log_probs"])
    for key, row in zip(batch.keys, data["rollout_log_probs"].unbind(), strict=True):
        moved = 0.04 if key.startswith("000000000") else 0.0
        assert np.allclose(row - before[key], moved, atol=1e-6)
    stored = pc.list_flatten(curated["response_logprobs"]).to_numpy()
    theirs = pc.list_flatten(curated["policy_logprobs"]).to_numpy()
    assert np.allclose(theirs - stored[: len(theirs)], 0.04, atol=1e-6)
    # Its samplers gave back their memory, once.
    stage.trainer.on_sample_end()
    assert stage.trainer.ended == 1


def trained_on(folder, schedule, **train):
    """What three steps of two prompts train on, if so many prompts finish before each, in this order."""
    from fake_queue import FakeQueue

    with pytest.MonkeyPatch.context() as patch:
        queue = FakeQueue()
        queue.install(patch)
        stage = Stage(folder / "run", queue, WEIGHTS, mode="colocate_async", max_age=2, **train)
        stage.uid_of = lambda index, made: f"{index:09d}"
        stage.trainer.log_ratio = 0.02
        slots = dict(enumerate(stage.ask(range(6))))
        for step, finished in enumerate(schedule, 1):
            answers = {n: [str(n % 3), "0", "1", "0"] for n in finished}
            if answers:
                stage.answer(answers, step=step, slots=[slots[n] for n in finished])
            stage.sample(step, 2)
        queue.close()
        names = ["response_id", "reward", "advantage", "token_weight", "policy_age"]
        tables = [stage.saved("curated", step) for step in (1, 2, 3)]
        return [t.select([n for n in names if n in t.column_names]).to_pylist() for t in tables]


@settings(max_examples=4)  # Each opens two runs.
@given(order=st.permutations(range(6)))
def test_the_order_in_which_groups_finish_changes_nothing(verl, tmp_path_factory, order):
    first, second = (
        trained_on(tmp_path_factory.mktemp("any"), [each, [], []]) for each in (range(6), order)
    )
    assert first == second


@settings(max_examples=4)
@given(order=st.permutations(range(6)), first=st.integers(2, 6))
def test_a_schedule_of_completions_gives_the_same_steps_again(verl, tmp_path_factory, order, first):
    """Whoever finishes first trains first, where nobody waits for slow ones."""
    second = max(4 - first, 0)
    schedule = [order[:first], order[first : first + second], order[first + second :]]
    found = [
        trained_on(tmp_path_factory.mktemp("any"), schedule, wait_for_slow=False) for _ in range(2)
    ]
    assert found[0] == found[1]
    assert {row["response_id"] for step in found[0] for row in step}


def test_a_step_without_signal_does_not_come_again(ahead, queue, verl):
    """Whose checkpoint is saved before verl clears its rows."""
    from rejuice.trainer.verl.verl_trainer import StepSkippedError

    stage = ahead([*PLAIN[:-1], {"reward_std_filter": None}, PLAIN[-1]])
    stage.answer({0: ["1"] * 4, 1: ["0"] * 4, 2: RIGHT_AND_WRONG, 3: RIGHT_AND_WRONG})
    with pytest.raises(StepSkippedError) as skipped:
        stage.sample(1, 2)
    left = {key for key, tag in queue.kv_list("train")["train"].items() if tag.get("is_prompt")}
    assert left == {"000000002", "000000003"}
    assert len(skipped.value.batch.keys) == 8


def test_a_dataset_that_is_too_small_is_refused(ahead):
    ahead(name="small", prompts_per_step=4, max_age=1)
    with pytest.raises(DataError, match="has 8 prompts, and by max_age 12 are under way at a time"):
        ahead(prompts_per_step=4)


def test_prompts_that_fail_are_visits(ahead):
    stage = ahead()
    stage.answer({0: RIGHT_AND_WRONG})
    stage.fail([1])
    stage.sample(1, 2)
    history = stage.saved("history").select(["prompt_id", "n", "reason"]).to_pylist()
    assert [(row["n"], row["reason"]) for row in history] == [(4, None), (0, "failed_prompt")]
    assert history[1]["prompt_id"] == stage.prompts[1]["prompt_id"]


def test_the_recipe_of_a_step_gives_the_same_weights_again(ahead):
    stage = ahead(WEIGHTS)
    stage.trainer.log_ratio = 0.04
    stage.answer(dict.fromkeys([0, 1], RIGHT_AND_WRONG), step=1)
    stage.sample(2, 2)
    rollouts, recipe = stage.saved("rollouts", 2), stage.run.folder / "steps/000002/recipe.yaml"
    again = run_in_memory([step.operator for step in load(recipe).steps], rollouts)
    names = ["response_id", "advantage", "token_weight"]
    assert again.select(names).to_pylist() == stage.saved("curated", 2).select(names).to_pylist()


def test_replayed_groups_are_older_than_they_were(ahead):
    after = [*PLAIN[:-1], {"reward_std_filter": None}, {"replay_selector": {"max_share": 1.0}}, *PLAIN[-1:], WEIGHTS[-1]]  # fmt: skip
    stage = ahead(after)
    stage.answer({0: RIGHT_AND_WRONG, 1: RIGHT_AND_WRONG}, step=1)
    stage.sample(2, 2)
    stage.answer({2: ["1"] * 4, 3: ["1"] * 4}, step=3)
    stage.sample(3, 2)
    assert set(stage.saved("replayed/curated", 3)["policy_age"].to_pylist()) == {2}


# --- verl's trainer -------------------------------------------------------------------


@pytest.fixture
def trainer(verl, queue):
    """One of verl's that samples ahead, without anything that it would start."""
    from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync as Theirs

    done = []
    names = ("update_weights", "resume_generation_replicas")
    manager = {name: lambda *given, name=name: done.append((name, *given)) for name in names}
    trainer = SimpleNamespace(
        done=done, global_steps=1, total_training_steps=6, trainer_mode="colocate_async",
        config=SimpleNamespace(trainer=SimpleNamespace(test_freq=5)), timing_raw={},
        checkpoint_manager=SimpleNamespace(**manager),
        agent_loop_manager=SimpleNamespace(generate_sequences=done.append),
    )  # fmt: skip
    for name in ("_submit_batch_to_rollout", "prepare_step", "_add_batch_to_generate", "on_step_end", "_add_prompts_to_generate"):  # fmt: skip
        setattr(trainer, name, MethodType(getattr(Theirs, name), trainer))
    return trainer


@pytest.fixture
def handle(trainer):
    """Ours, by which the buffer holds it."""
    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    return VerlTrainer(trainer._add_prompts_to_generate)


def batch_of(prompts):
    from verl.utils import tensordict_utils as tu

    names = np.array([f"random-{n}" for n in range(prompts)], object)
    infos = np.array([{"index": n} for n in range(prompts)], object)
    return tu.get_tensordict({"uid": names, "extra_info": infos})


def test_requests_have_numbers(trainer, handle, queue, tmp_path):
    from rejuice.trainer.verl.ahead import Ahead, rows_of_prompts
    from rejuice.trainer.verl.sampled import SampledGroups

    config = SimpleNamespace(max_age=1, sync_every=1, profile="cpu", save_every=1)
    run = SimpleNamespace(config=config, folder=tmp_path)
    stored = SampledGroups(tmp_path)
    Ahead(run, handle)
    for _ in range(2):
        trainer._submit_batch_to_rollout(batch_of(3))
    keys = [f"{n:09d}" for n in range(6)]
    assert sorted(queue.kv_list("train")["train"]) == keys
    assert [list(batch["uid"]) for batch in trainer.done] == [keys[:3], keys[3:]]
    assert rows_of_prompts() == [0, 1, 2, 0, 1, 2]
    # After a resume, they go on after those that are there.
    for key in (*keys, "000000007"):
        stored.keep(key, "id", 1, Group("p", 0, 0, (1,), ()))
    queue.kv_clear(keys[:5], "train")
    queue.kv_batch_put(["000000004_0_0"], "train", tags=[{}])  # As verl leaves it in a checkpoint.
    Ahead(run, handle)
    trainer._submit_batch_to_rollout(batch_of(1))
    assert sorted(queue.kv_list("train")["train"]) == ["000000005", "000000006"]
    # What was finished after the checkpoint is needed, what was trained on before it is not.
    assert sorted(stored.uids()) == ["000000005", "000000007"]
    # There may be nothing to request.
    assert trainer._submit_batch_to_rollout(None) == 0


def test_nothing_is_requested_beyond_the_last_step(trainer, handle):
    asked = []
    trainer._next_train_batch = lambda: asked.append(trainer.global_steps) or batch_of(1)
    handle.stop_requests(2)
    for trainer.global_steps in range(1, 7):
        assert trainer.prepare_step() == {}
    assert asked == [1, 2, 3, 4]


def test_weights_are_updated_every_few_steps(trainer, handle):
    handle.update_sampler_every(2)
    for trainer.global_steps in range(1, 7):
        trainer.on_step_end()
    updated = [given[0] for name, *given in trainer.done if name == "update_weights"]
    assert updated == [2, 4, 5, 6]  # 5 is validated.
