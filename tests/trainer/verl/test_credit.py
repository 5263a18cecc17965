"""Credit: the columns that steps leave in the table are what verl trains on."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from training_stage import AGENTS, PLAIN, SUM, Stage, advantages, summed
from trajectories import trajectory

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines import Recipe, run
from rejuice.trainer.verl.credit import TokenCredit, has_signal, masked_rows, row_advantages

pytestmark = pytest.mark.slow  # Imports verl.

GRADED = [{"scripted_mapper": None}, SUM]
OWN = [*GRADED, {"credit_mapper": None}]
NONE = {"grpo_advantage_mapper": {"normalise": "none"}}


def own(*columns):
    return {"credit_mapper": {"columns": list(columns)}}


def firsts(stage, batch):
    """By prompt and response, the advantage of the first token."""
    found = advantages(stage, batch)
    return {(int(key[:4]), int(key.split("_")[1])): row.advantages[0] for key, row in found.items()}


def test_what_an_operator_wrote_is_what_trains_and_rewards_stay_rewards(stage):
    here = stage(OWN)
    here.answer({0: ["1 advantage=-2.5", "0 advantage=0.125"], 1: ["1 advantage=7", "1"]})
    batch, figures = here.sample(1, 2)
    assert firsts(here, batch) == {(0, 0): -2.5, (0, 1): 0.125, (1, 0): 7.0}
    assert here.rewards(batch) == [1.0, 0.0, 1.0]
    for row in advantages(here, batch).values():
        assert row.response_mask == row.loss_mask == [1] * len(row.advantages)
        assert len(set(row.advantages)) == 1
    # A row without an advantage does not train, and a group of one does: nothing compares them.
    assert here.dropped() == {("training", "no_advantage"): 1}
    assert figures["rejuice/groups_without_signal"] == 0
    assert here.saved("curated")["advantage"].to_pylist() == [-2.5, 0.125, 7.0]


def test_a_condition_that_matches_no_row_is_named_in_the_first_step(stage, capsys):
    where = {"response": "nothing of this kind"}
    here = stage([*GRADED, {"loss_weight_mapper": {"weight": 0, "where": where}}, PLAIN[-1]])
    for number in (1, 2):
        here.answer({2 * number: ["1", "0"], 2 * number + 1: ["1", "0"]})
        here.sample(number, 2)
        here.buffer.in_a_row = number  # as at the end of a step
    lines = [line for line in capsys.readouterr().out.splitlines() if "`where`" in line]
    assert lines == [
        "step 1: warning: loss_weight_mapper: `where` matches none of 4 rows: response is nothing "
        "of this kind in no row, but 1 2, 0 2"
    ]


def test_an_advantage_that_is_not_finite_does_not_train(stage):
    here = stage(OWN)
    here.answer(
        {0: ["1 advantage=Infinity", "0 advantage=1"], 1: ["1 advantage=NaN", "0 advantage=2"]}
    )
    batch, _ = here.sample(1, 2)
    assert firsts(here, batch) == {(0, 1): 1.0, (1, 1): 2.0}
    assert here.dropped() == {
        ("training", "infinite_advantage"): 1,
        ("training", "no_advantage"): 1,
    }


def test_a_recipe_without_credit_gets_that_of_grpo_and_its_files_say_so(stage):
    here = stage(GRADED)
    here.answer({0: ["1", "0", "0"], 1: ["1", "1"]})
    batch, _ = here.sample(1, 2)
    found = firsts(here, batch)
    assert found[0, 0] == pytest.approx(2 / 3 / (1 / 3) ** 0.5, abs=1e-5)
    assert (found[1, 0], found[1, 1]) == (0.0, 0.0)
    column = here.saved("curated")["advantage"].to_numpy().astype(np.float32)
    assert column.tolist() == list(found.values())
    recipe = yaml.safe_load((here.run.step_folder(1) / "recipe.yaml").read_text())
    assert [*recipe["process"][-1]] == ["grpo_advantage_mapper"]


def test_an_advantage_beyond_float32_does_not_train(stage):
    here = stage(OWN)
    here.answer({0: ["1 advantage=1e39", "0 advantage=-1"]})
    batch, _ = here.sample(1, 1)
    assert firsts(here, batch) == {(0, 1): -1.0}
    assert here.dropped() == {("training", "infinite_advantage"): 1}


def test_a_weight_that_makes_an_advantage_infinite_is_refused():
    table = pa.table({"response_id": ["a"], "advantage": [1e30], "token_weight": [[1.0, 1e30]]})
    with pytest.raises(DataError, match="a has an advantage that its weight makes infinite"):
        TokenCredit.of(table, [[2]])


def test_credit_of_an_export_s_own_responses_is_not_that_of_new_ones(stage, tmp_path):
    rows = [{"question": f"{n} + 1?", "answer": "1", "responses": ["It is 1", "2"]} for n in "ab"]
    first = [
        {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
        {"recorded_rollout_mapper": {"columns": ["responses"]}},
        {"math_verify_mapper": None},
        SUM,
        {"loss_weight_mapper": {"where": {"verdict": "correct"}}},
        NONE,
    ]
    export = tmp_path / "export.parquet"
    run(Recipe(first, dataset=pa.Table.from_pylist(rows), export_path=export))
    assert pq.read_table(export)["loss_weight"].to_pylist() == [0.0, None] * 2
    other = {"loss_weight_mapper": {"where": {"verdict": "timeout"}}}
    steps = [{"math_verify_mapper": None}, SUM, other, NONE]
    here = stage(steps, prompts=2, head={"dataset_path": str(export)})
    here.answer({0: ["1", "0"]})
    batch, _ = here.sample(1, 1)
    assert list(firsts(here, batch).values()) == [0.5, -0.5]


def test_a_weight_of_a_prompt_is_that_of_its_responses(stage):
    rows = [{"question": f"{k}?", "answer": "1", "loss_weight": 0.5} for k in "ab"]
    here = stage([*GRADED, NONE], rows=rows, prompts=2)
    here.answer({0: ["1", "0"]})
    batch, _ = here.sample(1, 1)
    assert list(firsts(here, batch).values()) == [0.25, -0.25]


def test_the_reward_is_written_before_the_advantage(stage):
    steps = [GRADED[0], {"pass_at_k_advantage_mapper": {"k": 1}}, {"bare_reward_mapper": None}]
    with pytest.raises(RecipeError, match="bare_reward_mapper writes the reward after pass_at"):
        stage(steps)


def test_groups_of_one_train_where_nothing_compares_them(stage):
    here = stage([*OWN, {"turn_advantage_mapper": {"gamma": 0.5}}], rollout=AGENTS)
    here.play({0: [trajectory("1 advantage=3", (2, 1))]})
    batch, _ = here.sample(1, 1)
    assert [row.advantages for row in advantages(here, batch).values()] == [[1.5, 1.5], [3.0]]


def test_a_condition_says_which_groups_a_step_compares(stage):
    theirs = {"credit_mapper": {"columns": ["advantage"], "where": {"question": "What is 1 + 1?"}}}
    grpo = {"grpo_advantage_mapper": {"normalise": "none", "where": {"question": "What is 0 + 1?"}}}
    here = stage([*GRADED, theirs, grpo])
    here.answer({0: ["1", "0"], 1: ["1 advantage=3"]})
    batch, _ = here.sample(1, 2)
    assert firsts(here, batch) == {(0, 0): 0.5, (0, 1): -0.5, (1, 0): 3.0}


def test_lists_with_values_behind_a_null_are_read_right():
    offsets, values = pa.array([0, 2, 4], pa.int32()), pa.array([0.0, 1.0, 2.0, 3.0])
    lists = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, False]))
    table = pa.table({"response_id": ["a", "b"], "advantage": [1.0, 2.0], "turn_advantage": lists})
    assert row_advantages(table).tolist() == [1.0, 2.5]
    assert has_signal(table).tolist() == [True, True]
    assert TokenCredit.of(table, [[1], [1, 2]]).advantage_M.tolist() == [1.0, 2.0, 3.0, 3.0]
    weighed = pa.table({"response_id": ["a", "b"], "advantage": [1.0, 2.0], "token_weight": lists})
    assert masked_rows(weighed).tolist() == [False, False]


@pytest.mark.parametrize("weights", [[], [0, 0]])
def test_weights_for_other_tokens_are_no_mask(stage, weights):
    code = "token_weight=" + str(weights).replace(" ", "")
    here = stage([*GRADED, {"short_weight_mapper": None}, NONE])
    here.answer({0: [f"1 {code}", "0"]})
    with pytest.raises(DataError, match=f"has {len(weights)} values in token_weight and"):
        here.sample(1, 1)


def test_tokens_of_weight_0_are_masked_and_the_others_weigh_what_they_say(stage):
    here = stage([*GRADED, own("token_weight", "loss_weight"), PLAIN[-1]])
    texts = ["1 token_weight=[0,1,0.5]", "0 loss_weight=0.25", "0"]
    here.answer({0: texts})
    batch, _ = here.sample(1, 1)
    rows = list(advantages(here, batch).values())
    plain = np.array([1, 0, 0]) - 1 / 3
    plain /= np.std([1, 0, 0], ddof=1) + 1e-6
    length = len(rows[0].advantages)
    weights = ([0, 1, 0.5] * length)[:length]
    assert rows[0].advantages == pytest.approx((plain[0] * np.array(weights)).tolist(), abs=1e-6)
    assert rows[0].response_mask == rows[0].loss_mask == [int(w > 0) for w in weights]
    assert rows[1].advantages == pytest.approx([plain[1] / 4] * len(rows[1].advantages), abs=1e-6)
    assert set(rows[1].response_mask) == {1}
    assert rows[2].advantages == pytest.approx([plain[2]] * len(rows[2].advantages), abs=1e-6)


def test_a_masked_row_counts_in_its_group_and_does_not_train(stage):
    here = stage([*GRADED, own("token_weight", "loss_weight"), PLAIN[-1]])
    here.answer({0: ["1 loss_weight=0", "0"], 1: ["1", "0 token_weight=[0]"]})
    batch, figures = here.sample(1, 2)
    half = 0.5 / (0.5**0.5 + 1e-6)
    assert firsts(here, batch) == {(0, 1): pytest.approx(-half), (1, 0): pytest.approx(half)}
    assert here.dropped() == {("training", "masked"): 2}
    assert (figures["rejuice/groups"], figures["rejuice/rows_trained"]) == (2, 2)


@pytest.mark.parametrize(
    ("column", "text", "found"),
    [
        ("loss_weight", "1 loss_weight=1.5", "has loss_weight 1.5; write a number from 0 to 1"),
        ("loss_weight", "1 loss_weight=-1", "has loss_weight -1; write a number from 0 to 1"),
        ("token_weight", "1 token_weight=[1,-1]", "has a token_weight that is negative or no"),
        ("token_weight", "1 token_weight=[1,null]", "has a token_weight that is negative or no"),
    ],
)  # fmt: skip
def test_weights_that_mean_nothing_are_refused(stage, column, text, found):
    here = stage([*GRADED, own(column), PLAIN[-1]])
    here.answer({0: [text, "0"]})
    with pytest.raises(DataError, match=found):
        here.sample(1, 1)


def test_one_weight_for_each_token_and_one_advantage_for_each_turn(stage):
    table = pa.table({"response_id": ["a"], "advantage": [1.0], "token_weight": [[1.0, 0.0]]})
    with pytest.raises(DataError, match="response a has 2 values in token_weight and 3 tokens"):
        TokenCredit.of(table, [[3]])
    table = pa.table({"response_id": ["a"], "turn_advantage": [[1.0, 2.0]]})
    with pytest.raises(DataError, match="2 values in turn_advantage and 1 turns of the policy"):
        TokenCredit.of(table, [[3]])


@pytest.mark.parametrize("name", ["token_weight", "turn_advantage", "loss_weight", "advantage"])
def test_columns_of_another_type_are_an_error(name):
    table = pa.table({"response_id": ["a"], "advantage": [1.0]})
    if name == "advantage":
        table = table.drop_columns([name])
    table = table.append_column(name, pa.array(["good"]))
    with pytest.raises(DataError, match=name):
        TokenCredit.of(table, [[3]])


def test_turns_train_with_advantages_of_their_own(stage):
    here = stage([*GRADED, own("turn_advantage")], rollout=AGENTS)
    here.play(
        {
            0: [
                trajectory("1 turn_advantage=[3,-4]", (2, 3)),
                trajectory("0 turn_advantage=[5]", (1,)),
            ]
        }
    )
    batch, _ = here.sample(1, 1)
    rows = advantages(here, batch)
    assert [row.advantages for row in rows.values()] == [[3.0] * 2, [-4.0] * 3, [5.0]]
    weights = here.queue.kv_batch_get(batch.keys, "train", ["turn_weight"])["turn_weight"]
    assert [row.tolist() for row in weights.unbind()] == [
        pytest.approx([1 / 8] * 2), pytest.approx([1 / 12] * 3), [0.5]
    ]  # fmt: skip


def test_a_turn_whose_tokens_are_all_masked_leaves_the_mean_over_turns(stage):
    here = stage([*GRADED, own("token_weight"), PLAIN[-1]], rollout=AGENTS)
    here.play({0: [trajectory("1 token_weight=[0,0,1,1,0]", (2, 3)), trajectory("0", (1,))]})
    batch, figures = here.sample(1, 1)
    assert [key.split("_", 1)[1] for key in batch.keys] == ["0_1", "1_0"]
    assert figures["rejuice/agent/turn_rows"] == 2
    assert advantages(here, batch)[batch.keys[0]].response_mask == [1, 1, 0]
    weights = here.queue.kv_batch_get(batch.keys, "train", ["turn_weight"])["turn_weight"]
    assert [row.tolist() for row in weights.unbind()] == [[0.25] * 3, [0.5]]
    assert set(here.queue.kv_list("train")["train"]) == set(batch.keys)


def test_groups_without_credit_are_replaced_by_a_refill(stage):
    def more(prompts):
        for at in range(prompts):
            here.answer({2 + at: ["1 advantage=1", "0 advantage=2"]})
        return prompts

    here = stage(OWN, more=more, refill=2)
    here.answer({0: ["1", "0"], 1: ["1 advantage=1", "0"]})
    batch, figures = here.sample(1, 2)
    found = {prompt for prompt, _ in firsts(here, batch)}
    assert len(found) == 2
    assert 0 not in found
    assert (figures["rejuice/groups"], figures["rejuice/refills"]) == (2, 1)


def test_a_statistic_of_the_batch_is_one_of_what_trains(stage, tmp_path):
    """Not of excess groups, nor of rows that cannot train."""
    code = tmp_path / "batch.py"
    code.write_text(
        """
import pyarrow as pa
import pyarrow.compute as pc
from rejuice.operators import Change, Operator, Scope


class BatchMeanMapper(Operator):
    \"\"\"The reward minus its mean over all rows.\"\"\"

    scope = Scope.DATASET

    def reads(self):
        return ("reward",)

    def writes(self):
        return ("advantage",)

    def digest(self, table):
        return table.select(["reward"])

    def apply(self, table):
        found = pc.subtract(table["reward"], pc.mean(table["reward"]))
        return Change({"advantage": found.combine_chunks()})
"""
    )
    after = [GRADED[0], summed("drop_row"), {"batch_mean_mapper": None}]
    paths = [str(tmp_path / "scripted.py"), str(code)]
    here = stage(after, head={"custom_operator_paths": paths}, prompts=8)
    here.answer({0: ["1", "0"], 1: ["1", "1"], 2: ["0", "0", "nothing"]})
    batch, _ = here.sample(1, 2)
    found, rewards = firsts(here, batch), here.rewards(batch)
    assert len(rewards) == 4
    assert list(found.values()) == pytest.approx((np.array(rewards) - np.mean(rewards)).tolist())


GRPO = {"grpo_advantage_mapper": None}
OVERLONG = {"style": "soft_overlong", "max_length": 8, "buffer": 4}


def of(*components):
    return {"reward_sum_mapper": {"weights": dict.fromkeys(components, 1.0)}}


@pytest.mark.parametrize(
    "credit",
    [
        [{"rank_reward_mapper": {"column": "reward_accuracy"}}, of("rank"), GRPO],
        [{"length_reward_mapper": OVERLONG}, of("accuracy", "length"), GRPO],
        [GRPO, {"token_weight_mapper": {"style": "top_entropy", "share": 0.3}}],
        [GRPO, {"token_weight_mapper": {"style": "first_error", "first_error": "first_error"}}],
        [GRPO, {"loss_weight_mapper": {"weight": 0.5, "where": {"verdict": "correct"}}}],
    ],
    ids=["rank", "length", "top_entropy", "first_error", "loss_weight"],
)
def test_the_columns_of_our_operators_offline_are_what_trains(stage, credit):
    steps = [
        GRADED[0],
        own("first_error"),
        *([] if "reward_sum_mapper" in credit[1] else [SUM]),
        *credit,
    ]
    here = stage(steps)
    here.answer(
        {0: ["1 first_error=1", "0 and longer", "0.5", "0.25"], 1: ["1", "0", "0 first_error=0"]}
    )
    batch, _ = here.sample(1, 2)
    assert_as_offline(here, batch, steps)


@pytest.mark.parametrize(
    "credit",
    [
        [GRPO, {"turn_advantage_mapper": {"gamma": 0.5}}],
        [{"turn_advantage_mapper": {"style": "returns", "turn_rewards": "turn_rewards"}}],
        [GRPO, {"turn_advantage_mapper": {"style": "states", "gamma": 0.95}}],
    ],
    ids=["outcome", "returns", "states"],
)
def test_credit_of_turns_offline_is_what_trains(stage, credit):
    steps = [*GRADED, own("turn_rewards"), *credit]
    here = stage(steps, rollout=AGENTS)
    here.play(
        {
            0: [
                trajectory("1 turn_rewards=[1,-1]", (2, 3)),
                trajectory("0 turn_rewards=[0.5]", (1,)),
                trajectory("0 turn_rewards=[0,0.25,1]", (1, 1, 2)),
            ],
            1: [trajectory("1 turn_rewards=[1]", (2,)), trajectory("0 turn_rewards=[2,3]", (2, 1))],
        }
    )
    batch, _ = here.sample(1, 2)
    assert_as_offline(here, batch, steps)


def assert_as_offline(here, batch, steps):
    """Each token trains with what the same steps write in a run of their own over the samples."""
    here.saved("rollouts")
    folder = here.run.folder / "steps" / "000001"
    offline = Recipe(
        steps,
        dataset=folder / "rollouts.parquet",
        custom_operator_paths=[here.run.folder.parent / "scripted.py"],
    )
    expected = []
    for row in run(offline).table.to_pylist():
        turns = [len(t["token_ids"]) for t in row.get("turns") or () if t["role"] == "policy"]
        turns = turns or [len(row["response_token_ids"])]
        of_turns = row.get("turn_advantage") or [row["advantage"]] * len(turns)
        tokens = np.repeat(of_turns, turns) * (row.get("loss_weight") or 1.0)
        tokens = tokens * np.array(row.get("token_weight") or [1.0] * len(tokens))
        parts = np.split(tokens, np.cumsum(turns)[:-1])
        expected += parts if row.get("token_weight") is None or any(row["token_weight"]) else []
    trained = list(advantages(here, batch).values())
    found = [np.array(row.advantages)[: len(row.loss_mask)] for row in trained]
    assert len(found) == len(expected)
    assert any(part.any() for part in expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one[: len(other)], other, rtol=1e-6, atol=1e-6)


def test_verls_own_function_rewards_in_training_as_verl_would(stage):
    from verl.utils.reward_score import default_compute_score

    function = {
        "function": "verl.utils.reward_score:default_compute_score",
        "reward_kwargs": {"data_source": "openai/gsm8k"},
    }
    texts = {0: ["It is 1 #### 1", "#### 2", "1"], 1: ["#### 2", "2 #### 1,000"]}
    found = rewards_of_function(stage, function, texts)
    references = {0: "1", 1: "2"}  # Of the made-up questions.
    assert found == [
        default_compute_score("openai/gsm8k", text, references[prompt])
        for prompt, each in texts.items()
        for text in each
    ]
    assert found == [1.0, 0.0, 0.0, 1.0, 0.0]


def test_trls_own_function_rewards_in_training_as_trl_would(stage, monkeypatch):
    monkeypatch.delitem(sys.modules, "trl")  # As processes of verl do not import it.
    from trl.rewards import think_format_reward

    texts = {0: ["<think>1</think> 1", "<think> 1"], 1: ["1", "<think>\n2\n</think>\n2"]}
    found = rewards_of_function(stage, {"function": "trl.rewards:think_format_reward"}, texts)
    expected = (think_format_reward([[{"content": t}]]) for each in texts.values() for t in each)
    assert found == [value for values in expected for value in values] == [1.0, 0.0, 0.0, 1.0]


def rewards_of_function(stage, function, texts):
    """What verl reports as rewards, and the advantages, which are those of them."""
    weights = {"reward_sum_mapper": {"weights": {"function": 1.0}}}
    steps = [GRADED[0], {"reward_function_mapper": function}, weights, NONE]
    here = stage(steps, rollout={"policy_rollout_mapper": {"n": 4, "max_tokens": 64}})
    here.answer(texts)
    batch, _ = here.sample(1, len(texts))
    rewards = here.rewards(batch)
    sizes = [len(each) for each in texts.values()]
    means = [np.mean(part) for part in np.split(np.array(rewards), np.cumsum(sizes)[:-1])]
    expected = np.array(rewards) - np.repeat(means, sizes)
    assert list(firsts(here, batch).values()) == pytest.approx(expected.tolist())
    return rewards


def test_excess_groups_do_not_give_others_credit(stage, tmp_path):
    """A step that sees the batch may find otherwise once they are gone; only groups in want train."""
    code = tmp_path / "above.py"
    code.write_text(ABOVE_MEDIAN)
    paths = [str(tmp_path / "scripted.py"), str(code)]
    here = stage([*GRADED, {"above_median_mapper": None}], head={"custom_operator_paths": paths})
    here.answer({0: ["1", "1"], 1: ["2", "2"], 2: ["3", "3"], 3: ["4", "4"]})
    batch, figures = here.sample(1, 1)
    (prompt,) = {prompt for prompt, _ in firsts(here, batch)}
    assert prompt in (2, 3)  # Those above 2.5.
    assert figures["rejuice/groups"] == 1
    assert here.dropped() == {("training", "no_advantage"): 4, ("training", "surplus_group"): 2}


ABOVE_MEDIAN = """
import pyarrow.compute as pc
from rejuice.operators import Change, Operator, Scope


class AboveMedianMapper(Operator):
    \"\"\"The reward, of rows whose reward is at least the median of all.\"\"\"

    scope = Scope.DATASET

    def reads(self):
        return ("reward",)

    def writes(self):
        return ("advantage",)

    def digest(self, table):
        return table.select(["reward"])

    def apply(self, table):
        reward = table["reward"].combine_chunks()
        above = pc.greater_equal(reward, pc.quantile(reward, 0.5)[0])
        return Change({"advantage": pc.if_else(above, reward, None)})
"""


# --------------------------------------------------------------------------- replay


@pytest.fixture
def replayed(tmp_path, queue):
    """A factory: a run that replays what another one has curated, and its first batch."""
    from rejuice.trainer.verl.replay import ReplayManager

    def make(after, without=(), added=()):
        longer = {"policy_rollout_mapper": {"n": 4, "max_tokens": 64}}
        live = Stage(tmp_path / "live", queue, OWN, rollout=longer, prompts_per_step=2)
        texts = ["1 advantage=-2.5", "0 advantage=0.125"]
        live.answer({0: texts, 1: ["1 advantage=7 loss_weight=0", "0 advantage=4"]})
        live.sample(1, 2)
        stored = live.saved("curated")
        stored = stored.drop_columns([name for name in without if name in stored.column_names])
        for name, values in dict(added).items():
            stored = stored.append_column(name, pa.array(values))
        pq.write_table(stored, tmp_path / "collected.parquet")
        queue.partitions.clear()
        replay = {"replay": str(tmp_path / "collected.parquet"), "validation_path": None}
        again = Stage(tmp_path / "again", queue, after, rollout=longer, **replay)
        ReplayManager(again.run.folder, None).generate_sequences(again.prompt_batch([0, 1]))
        batch, _ = again.sample(1, 2)
        return again, batch

    return make


def test_a_replay_trains_on_stored_advantages_where_no_step_gives_others(replayed):
    here, batch = replayed(GRADED)
    assert list(firsts(here, batch).values()) == [-2.5, 0.125, 7.0, 4.0]
    assert here.rewards(batch) == [1.0, 0.0, 1.0, 0.0]


def test_a_replay_trains_on_what_the_steps_of_its_recipe_write(replayed):
    here, batch = replayed([*GRADED, own("loss_weight"), NONE])
    assert firsts(here, batch) == {(0, 0): 0.5, (0, 1): -0.5, (1, 1): -0.5}  # (1, 0) weighs 0.


@pytest.mark.parametrize("first", [True, False])
def test_a_replay_takes_weights_from_steps_on_either_side_of_the_advantage(replayed, first):
    weight = {"loss_weight_mapper": {"where": {"verdict": "correct"}}}
    steps = [weight, NONE] if first else [NONE, weight]
    here, batch = replayed([*GRADED, *steps], without=["loss_weight"])
    assert firsts(here, batch) == {(0, 1): -0.5, (1, 1): -0.5}


def test_a_replay_leaves_stored_advantages_out_where_its_recipe_gives_others(replayed):
    added = {"turn_advantage": [[9.0]] * 4}
    here, batch = replayed([*GRADED, NONE], without=["loss_weight"], added=added)
    assert list(firsts(here, batch).values()) == [0.5, -0.5] * 2
    here, batch = replayed(GRADED, without=["loss_weight"], added=added)
    assert list(firsts(here, batch).values()) == [9.0] * 4


def test_a_replay_of_rewards_alone_trains_on_advantages_of_grpo(replayed):
    here, batch = replayed(GRADED, without=["advantage"])
    half = 0.5 / (0.5**0.5 + 1e-6)
    assert list(firsts(here, batch).values()) == pytest.approx([half, -half] * 2)


def test_a_replay_leaves_rows_out_that_have_no_credit(replayed):
    steps = [*GRADED, own("advantage", "loss_weight")]
    here, batch = replayed(steps)
    assert list(firsts(here, batch).values()) == [-2.5, 0.125, 4.0]
    assert set(here.queue.kv_list("train")["train"]) >= set(batch.keys)
    assert len([key for key in here.queue.kv_list("train")["train"] if "_" in key]) == 3
