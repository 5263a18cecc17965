"""Groups of earlier steps that train again, on a TransferQueue in memory."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from training_stage import Stage, Trainer, advantages, buffer_of

from rejuice.operators.errors import DataError, RecipeError
from rejuice.trainer.report.stored import open_training
from rejuice.trainer.run import early_end

pytestmark = pytest.mark.slow  # Imports verl.

SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
MIXED, SOLVED = ["1", "0", "1", "0"], ["1", "1", "1", "1"]


def steps(**replay):
    return [
        {"scripted_mapper": None},
        SUM,
        {"reward_std_filter": None},
        {"replay_selector": replay},
        {"grpo_advantage_mapper": None},
        {"importance_weight_mapper": {"max": 1.5}},
    ]


@pytest.fixture
def two_steps(stage):
    """A run with a step of two groups that train; and one of which one trains."""

    def make(log_ratio=0.1, answers=None, train=(), **replay):
        made = stage(steps(**replay), **{"prompts_per_step": 2, "refill": 0, **dict(train)})
        made.trainer.log_ratio = log_ratio
        made.answer({0: MIXED, 1: ["1", "1", "1", "0"]})
        first, _ = made.sample(1, 2)
        made.queue.kv_clear(first.keys, "train")
        made.answer(answers or {2: MIXED, 3: SOLVED}, step=2)
        return made

    return make


def replayed(stage, name, step=2):
    return pq.read_table(stage.run.folder / f"steps/{step:06d}/replayed/{name}.parquet")


def test_a_group_of_an_earlier_step_takes_the_place_of_one_without_signal(two_steps):
    stage = two_steps()
    batch, figures = stage.sample(2, 2)
    assert len(batch.keys) == 8
    rows = replayed(stage, "curated")
    # Of both groups of the first step, the one with the greater spread.
    assert set(rows["prompt_id"].to_pylist()) == {stage.prompts[0]["prompt_id"]}
    assert rows["response"].to_pylist() == MIXED
    assert rows["reward"].to_pylist() == [1.0, 0.0, 1.0, 0.0]
    assert set(rows["replayed_from"].to_pylist()) == {1}
    assert figures["rejuice/replayed/groups"] == 1
    assert figures["rejuice/replayed/share"] == 0.5
    assert figures["rejuice/replayed/policy_age"] == 1
    assert figures["rejuice/replayed/mean_token_ratio"] == pytest.approx(np.exp(0.1), rel=1e-6)
    assert figures["rejuice/rows_trained"] == 8
    assert stage.trainer.ended == 1
    # What was sampled is counted alone.
    own = stage.saved("rollouts", 2)["response_token_ids"].to_pylist()
    assert figures["rejuice/tokens_sampled"] == sum(map(len, own))
    history = stage.saved("history", 2)
    assert history["prompt_id"].to_pylist() == [stage.prompts[k]["prompt_id"] for k in (2, 3)]


def test_the_update_starts_from_the_policy_of_today_and_is_weighted(two_steps):
    stage = two_steps()
    batch, _ = stage.sample(2, 2)
    given = advantages(stage, batch)
    data = stage.queue.kv_batch_get(batch.keys, "train", ["rollout_log_probs"])
    logprobs = dict(zip(batch.keys, data["rollout_log_probs"].unbind(), strict=True))
    own = {uid for uids in stage.uids.values() for uid in uids}
    rows = replayed(stage, "rollouts")
    rows = rows.filter(np.asarray(rows["prompt_id"]) == stage.prompts[0]["prompt_id"]).to_pylist()
    old = [key for key in batch.keys if key.rsplit("_", 2)[0] not in own]
    assert len(old) == 4
    for key, row, advantage in zip(old, rows, (1, -1, 1, -1), strict=True):
        np.testing.assert_allclose(logprobs[key], row["policy_logprobs"], rtol=0, atol=1e-7)
        np.testing.assert_allclose(
            np.subtract(row["policy_logprobs"], row["response_logprobs"]), 0.1, rtol=0, atol=1e-6
        )
        expected = advantage * np.sqrt(0.75) * np.exp(0.1)
        assert given[key].advantages == pytest.approx([expected] * len(logprobs[key]), rel=1e-4)
    for key in set(batch.keys) - set(old):
        assert np.abs(given[key].advantages) == pytest.approx(np.sqrt(0.75), rel=1e-4)


def test_the_queue_has_nothing_else(two_steps):
    stage = two_steps()
    batch, _ = stage.sample(2, 2)
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    # As those that the agent loops put there.
    assert not any("log_probs" in stage.queue.partitions["train"][k].fields for k in batch.keys)


def test_what_the_policy_has_moved_away_from_is_not_replayed(two_steps):
    stage = two_steps(log_ratio=-1.0)
    batch, figures = stage.sample(2, 2)
    assert len(batch.keys) == 4
    assert figures["rejuice/replayed/groups"] == 0
    assert figures["rejuice/replayed/dropped/ratio_out_of_range"] == 8
    reasons = set(replayed(stage, "decisions")["reason"].to_pylist())
    assert reasons == {"ratio_out_of_range"}
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


@pytest.mark.parametrize(
    ("answers", "prompts"),
    [
        ({2: MIXED, 4: MIXED}, []),  # Nothing is missing.
        ({0: SOLVED, 2: MIXED}, [1]),  # Which it has sampled itself.
        ({2: SOLVED, 3: SOLVED}, [0]),  # At most half of the step.
    ],
)
def test_which_groups_are_replayed(two_steps, answers, prompts):
    stage = two_steps(answers=answers)
    _, figures = stage.sample(2, 2)
    folder = stage.run.folder / "steps/000002/replayed"
    assert folder.is_dir() == bool(prompts)
    found = replayed(stage, "curated")["prompt_id"].unique().to_pylist() if prompts else []
    assert found == [stage.prompts[k]["prompt_id"] for k in prompts]
    assert figures.get("rejuice/replayed/groups", 0) == len(prompts)


@pytest.mark.parametrize(("most", "prompts"), [(1, [[0], [1, 2], []]), (2, [[0], [0, 2], [2]])])
def test_a_group_is_replayed_so_often(two_steps, most, prompts):
    stage = two_steps(max_replays=most, max_share=1)
    number_of = {each["prompt_id"]: k for k, each in enumerate(stage.prompts)}
    found = []
    for step in (2, 3, 4):
        batch, _ = stage.sample(step, 2)
        stage.queue.kv_clear(batch.keys, "train")
        folder = stage.run.folder / f"steps/{step:06d}/replayed"
        table = pq.read_table(folder / "curated.parquet") if folder.is_dir() else {"prompt_id": []}
        found.append(sorted({number_of[str(name)] for name in table["prompt_id"]}))
        stage.answer({4: SOLVED, 3: SOLVED} if step == 2 else {5: MIXED, 3: SOLVED}, step=step + 1)
    assert found == prompts


def test_a_group_that_is_too_old_is_not_replayed(two_steps):
    stage = two_steps(max_age=1)
    first, _ = stage.sample(2, 2)
    stage.queue.kv_clear(first.keys, "train")
    stage.answer({4: MIXED, 3: SOLVED}, step=3)
    stage.sample(3, 2)
    assert set(replayed(stage, "rollouts", 3)["replayed_from"].to_pylist()) == {2}


def test_a_resumed_run_replays_the_same(two_steps):
    stage = two_steps()
    stage.sample(2, 2)
    first = [replayed(stage, name) for name in ("rollouts", "curated", "decisions", "values")]
    stage.buffer = buffer_of(stage.run, stage.trainer)
    stage.queue.partitions.clear()
    stage.uids.clear()
    stage.answer({2: MIXED, 3: SOLVED}, step=2)
    batch, _ = stage.sample(2, 2)
    assert len(batch.keys) == 8
    for name, table in zip(("rollouts", "curated", "decisions", "values"), first, strict=True):
        assert replayed(stage, name).equals(table), name


def test_rows_have_what_the_steps_before_the_selector_wrote(stage):
    """Masked rows count in the statistics of their group, and weights of other steps stay."""
    short = {"where": {"response": ["1", "0 and more"]}}
    weights = [
        {"loss_weight_mapper": {**short, "weight": 0.0}},
        {"replay_selector": None},
        {"grpo_advantage_mapper": None},
    ]
    made = stage([*steps()[:3], *weights], prompts_per_step=2, refill=0)
    made.answer({0: ["1", "1 and more", "0", "0 and more"], 1: SOLVED})
    first, _ = made.sample(1, 2)
    assert len(first.keys) == 2
    given = advantages(made, first)
    made.queue.kv_clear(first.keys, "train")
    made.answer({2: MIXED, 3: SOLVED}, step=2)
    batch, _ = made.sample(2, 2)
    rows = replayed(made, "rollouts")
    assert rows["reward"].to_pylist() == [1.0, 1.0, 0.0, 0.0]
    assert rows["loss_weight"].to_pylist() == [0.0, None, None, 0.0]
    left = replayed(made, "curated")
    assert left["response"].to_pylist() == ["1 and more", "0"]
    again = advantages(made, batch)
    own = {uid for uids in made.uids.values() for uid in uids}
    old = [key for key in batch.keys if key.rsplit("_", 2)[0] not in own]
    expected = [given[key].advantages[0] for key in first.keys]
    assert [again[key].advantages[0] for key in old] == pytest.approx(expected, rel=1e-6)


def test_steps_that_only_replay_have_a_signal(two_steps):
    stage = two_steps(answers={2: SOLVED, 3: SOLVED}, train={"stop_without_signal": 1})
    batch, _ = stage.train(2, 2)
    assert len(batch.keys) == 4
    assert early_end(stage.run.folder) is None


def test_samples_of_them_have_the_rewards_that_they_had(two_steps):
    stage, logged = two_steps(train={"steps": 2}), {}
    writer = SimpleNamespace(add_text=lambda name, text, step: logged.update({name: text}))
    stage.trainer.logger.logger["tensorboard"] = SimpleNamespace(writer=writer)
    stage.sample(2, 2)
    lines = [line.strip("| ").split(" | ") for line in logged["rejuice/replayed/samples"].splitlines()]  # fmt: skip
    columns = dict(zip(lines[0], zip(*lines[2:], strict=True), strict=True))
    assert {*columns["verdict"]} == {"correct", "wrong&#95;answer"}
    assert {*columns["reward"]} == {"1", "0"}
    assert {*columns["components"]} == {"accuracy 1", "accuracy 0"}


def test_a_step_whose_files_are_gone_cannot_be_replayed(two_steps):
    stage = two_steps()
    stage.buffer.files.wait()
    (stage.run.folder / "steps/000001/values.parquet").unlink()
    with pytest.raises(
        DataError, match=r"000001/values.parquet cannot be read.* put the file back"
    ):
        stage.sample(2, 2)


def test_the_stored_step_has_them_as_a_set_of_their_own(two_steps):
    stage = two_steps()
    stage.sample(2, 2)
    stage.buffer.files.wait()
    found = open_training(stage.run.folder)
    assert [one.name for one in found.sets] == ["step 1", "step 2", "step 2 replayed"]
    last = found.sets[-1]
    assert [step.name for step in last.steps] == [
        "replay_selector", "grpo_advantage_mapper", "importance_weight_mapper",
    ]  # fmt: skip
    assert last.steps[0].operator.keep == 1
    *_, end = last.applied(0)
    table = end.after.table()
    assert table.equals(last.final().select(table.column_names))
    ratio = np.asarray(table["importance_ratio"])
    assert np.all(ratio > 1)


def test_a_column_of_the_dataset_makes_no_row_a_replayed_one(queue, tmp_path):
    rows = [{"question": "1 + 1?", "answer": "2", "replayed_from": 3, "policy_age": 1}]
    with pytest.raises(RecipeError, match="replayed_from"):
        Stage(tmp_path / "run", queue, steps(), trainer=Trainer(), rows=rows)
    (tmp_path / "other").mkdir()
    plain = [*steps()[:3], steps()[4]]
    made = Stage(tmp_path / "other" / "run", queue, plain, rows=rows, prompts_per_step=1)
    made.answer({0: MIXED})
    made.sample(1, 1)
    assert "replayed_from" not in made.saved("curated").column_names


def sampled(**fields):
    given = {"n": 4, "max_tokens": 16, "on_policy": False, **fields}
    return {"policy_rollout_mapper": given}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"train": {"keep_rollouts": False}}, "keep_rollouts is false"),
        (
            {"rollout": sampled(temperature=0.7)},
            "temperature is 0.7, and stored log-probabilities are those of the policy itself",
        ),
        ({"rollout": sampled(top_p=0.9)}, "top_p is 0.9, and replay_selector compares"),
        ({"train": {"prompts_per_step": 1}}, "less than one group; set max_share of .* to 1 or"),
        ({"after": steps(where={"level": 1})}, "replay_selector has a `where`"),
        ({"after": [*steps()[:4], *steps()[3:]]}, "two replay_selectors"),
        ({"after": [*steps()[:3], steps()[4], steps()[3]]}, "put it before grpo_advantage_mapper"),
        ({"after": [steps()[0], steps()[3], SUM]}, "put it before replay_selector"),
    ],
)
def test_recipes_that_cannot_replay(queue, tmp_path, changed, expected):
    with pytest.raises(RecipeError, match=expected):
        Stage(
            tmp_path / "run", queue, changed.get("after", steps()), trainer=Trainer(),
            rollout=changed.get("rollout"), **changed.get("train", {}),
        )  # fmt: skip
