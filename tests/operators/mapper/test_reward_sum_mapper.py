import json
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, ROW_CONTRACT, component
from rejuice.operators.mapper import policy_rollout_mapper
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.operators.mapper.self_verification_mapper import SelfVerificationMapper
from rejuice.operators.registry import build
from rejuice.operators.sampling import Group, Sample
from rejuice.pipelines.engine.steps import run_in_memory


def table(prompts, *, verdict=None, **components):
    """Rows of `prompts`, with components given as lists; None is missing with `judge_timeout`."""
    columns = {"prompt_id": pa.array(list(prompts), pa.string())}
    if verdict is not None:
        letters = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout"}
        columns["verdict"] = pa.array([letters.get(x) for x in verdict], pa.string())
    for name, values in components.items():
        reasons = ["judge_timeout" if value is None else None for value in values]
        columns[f"reward_{name}"] = pa.array(values, pa.float64())
        columns[f"reward_{name}_missing"] = pa.array(reasons, pa.string())
    return pa.table(columns)


def summed(rows, **fields):
    change = check_operator(build(RewardSumMapper, fields), rows)
    return change.columns["reward"].to_pylist(), change.reasons.to_pylist(), dict(change.notes)


def test_the_weighted_sum():
    rows = table("aab", accuracy=[1, 0, 1], format=[0.1, -0.1, 0.1])
    reward, reasons, notes = summed(rows, weights={"accuracy": 2, "format": 0.5})
    assert reward == [2.05, -0.05, 2.05]
    assert reasons == [None] * 3
    assert notes == {}


def test_it_adds_in_the_order_of_the_weights():
    # (0.1 + 0.2) + 0.3 and (0.3 + 0.2) + 0.1 differ in the last bit.
    rows = table("a", x=[0.1], y=[0.2], z=[0.3])
    assert summed(rows, weights={"x": 1, "y": 1, "z": 1})[0] == [0.6000000000000001]
    assert summed(rows, weights={"z": 1, "y": 1, "x": 1})[0] == [0.6]


def test_what_it_reads():
    operator = RewardSumMapper(weights={"x": 1.0})
    assert operator.reads() == ("prompt_id", "reward_x")
    assert operator.optional_reads() == {"reward_x_missing": "reward_x"}
    gated = RewardSumMapper(weights={"x": 1.0}, gates={"x": "only_correct"})
    assert gated.reads()[-1] == "verdict"


@pytest.mark.parametrize(
    ("kind", "progress", "weight"),
    [
        ("linear", 0.0, 0.5),
        ("linear", 0.25, 0.45),
        ("linear", 1.0, 0.3),
        ("cosine", 0.0, 0.5),
        ("cosine", 0.25, 0.470711),  # 0.4 + 0.1 * cos(pi / 4)
        ("cosine", 0.5, 0.4),
        ("cosine", 1.0, 0.3),
    ],
)
def test_a_weight_with_a_schedule(kind, progress, weight):
    rows = table("a", diversity=[1.0])
    schedule = {"from": 0.5, "to": 0.3, "kind": kind}
    reward, _, _ = summed(rows, weights={"diversity": schedule}, progress=progress)
    assert reward == pytest.approx([weight], abs=1e-6)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_schedule_ends_exactly_at_its_end_values(kind):
    # In floats 0.4 + (0.1 - 0.4) is 0.09999999999999998.
    weights = {"x": {"from": 0.4, "to": 0.1, "kind": kind}}
    rows = table("a", x=[1.0])
    assert summed(rows, weights=weights, progress=0)[0] == [0.4]
    assert summed(rows, weights=weights, progress=1)[0] == [0.1]


def test_the_trainer_moves_progress():
    operator = build(RewardSumMapper, {"weights": {"x": {"from": 1, "to": 0.5}}})
    later = operator.model_copy(update={"progress": 1.0})
    rows = table("a", x=[1.0])
    assert operator.apply(rows).columns["reward"].to_pylist() == [1.0]
    assert later.apply(rows).columns["reward"].to_pylist() == [0.5]


def test_the_config_survives_json():
    operator = build(RewardSumMapper, {"weights": {"x": {"from": 1, "to": 0.5}, "y": 2}})
    text = json.dumps(operator.model_dump(mode="json"))
    assert '"from": 1.0' in text
    assert build(RewardSumMapper, json.loads(text)) == operator


def test_only_correct_counts_where_the_verdict_is_correct():
    rows = table("aaaa", verdict="cwt?", accuracy=[1, 0, 0, 0], diversity=[0.5, 0.5, 0.5, None])
    weights = {"accuracy": 1, "diversity": 1}
    # The last diversity is missing, but does not count, so `fail` does not fail.
    reward, reasons, _ = summed(rows, weights=weights, gates={"diversity": "only_correct"})
    assert reward == [1.5, 0, 0, 0]
    assert reasons == [None] * 4


def test_mixed_groups_only():
    rows = table("aabbccdd", verdict="cwccwncn", diversity=[0.5] * 8)
    gates = {"diversity": "mixed_groups_only"}
    reward, _, _ = summed(rows, weights={"diversity": 1}, gates=gates)
    assert reward == [0.5, 0.5, 0, 0, 0, 0, 0.5, 0.5]
    ungraded = table("aa", verdict="ct", diversity=[0.5] * 2)
    assert summed(ungraded, weights={"diversity": 1}, gates=gates)[0] == [0, 0]


HOLED = {"prompts": "aaabb", "accuracy": [1, 0, 1, 1, 0], "quality": [0.5, None, 0.25, None, None]}
WEIGHTS = {"accuracy": 1, "quality": 2}


def test_fail_names_the_response_the_component_and_the_reason():
    operator = build(RewardSumMapper, {"weights": WEIGHTS})
    with pytest.raises(DataError) as caught:
        operator.apply(table(**HOLED))
    assert str(caught.value) == (
        "reward_quality is missing (judge_timeout) for response 1 of prompt 'a'; "
        "set on_missing to drop_row, drop_group or group_mean to go on without it"
    )


def test_a_component_that_no_response_has_is_the_matter_of_its_own_step():
    rows = table("aab", quality=[None, None, None])
    with pytest.raises(DataError) as error:
        RewardSumMapper(weights={"quality": 1}).apply(rows)
    assert str(error.value) == (
        "reward_quality is missing (judge_timeout) for response 0 of prompt 'a', and for all others "
        "of 2 prompts; look first at the step that writes reward_quality, or set on_missing to "
        "drop_row, drop_group or group_mean to go on without it"
    )


def test_drop_row():
    reward, reasons, notes = summed(table(**HOLED), weights=WEIGHTS, on_missing="drop_row")
    assert reward == [2.0, None, 1.5, None, None]
    assert reasons == [None, "missing_component", None, "missing_component", "missing_component"]
    assert notes == {"missing_quality": 3}


def test_drop_group():
    rows = table("aabb", quality=[0.5, None, 1, 1])
    reward, reasons, notes = summed(rows, weights={"quality": 1}, on_missing="drop_group")
    assert reward == [0.5, None, 1, 1]
    assert reasons == ["missing_component"] * 2 + [None] * 2
    assert notes == {"missing_quality": 1}


def test_group_mean_is_the_mean_of_those_present():
    reward, reasons, notes = summed(table(**HOLED), weights=WEIGHTS, on_missing="group_mean")
    # 0.375 stands in for a's second quality; in b there is none to take the mean of.
    assert reward == [2.0, 0.75, 1.5, None, None]
    assert reasons == [None] * 3 + ["missing_component"] * 2
    assert notes == {"missing_quality": 3, "group_mean_quality": 1}


def test_group_mean_looks_only_where_the_component_counts():
    rows = table("aaa", verdict="cwc", quality=[0.5, 9.0, None])
    fields = {"weights": {"quality": 1}, "gates": {"quality": "only_correct"}}
    reward, reasons, _ = summed(rows, **fields, on_missing="group_mean")
    assert reward == [0.5, 0.0, 0.5]
    assert reasons == [None] * 3


def test_group_mean_drops_the_group_where_there_is_nothing_to_take_the_mean_of():
    rows = table("aab", verdict="cwc", quality=[None, 9.0, 1.0])
    fields = {"weights": {"quality": 1}, "gates": {"quality": "only_correct"}}
    _, reasons, notes = summed(rows, **fields, on_missing="group_mean")
    assert reasons == ["missing_component"] * 2 + [None]
    assert notes == {"missing_quality": 1}


def test_group_mean_of_equal_values_is_that_value():
    rows = table("aaaa", quality=[0.1, 0.1, 0.1, None])
    assert summed(rows, weights={"quality": 1}, on_missing="group_mean")[0] == [0.1] * 4


def test_a_missing_component_never_becomes_zero():
    rows = table("ab", quality=[None, None])
    for on_missing in ("drop_row", "drop_group", "group_mean"):
        reward, reasons, _ = summed(rows, weights={"quality": 1}, on_missing=on_missing)
        assert reward == [None, None]
        assert reasons == ["missing_component"] * 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_missing(value):
    rows = table("ab", quality=[value, 1.0])
    operator = build(RewardSumMapper, {"weights": {"quality": 1}})
    with pytest.raises(DataError, match=r"^reward_quality is missing \(not finite\) for response"):
        operator.apply(rows)
    assert summed(rows, weights={"quality": 1}, on_missing="drop_row")[0] == [None, 1.0]


def test_a_value_with_a_reason_is_missing():
    rows = pa.table(
        {
            "prompt_id": ["a", "b"],
            "reward_x": [0.0, 1.0],
            "reward_x_missing": ["judge_timeout", None],
        }
    )
    assert summed(rows, weights={"x": 1}, on_missing="drop_row")[0] == [None, 1.0]


def test_a_component_of_weight_zero_cannot_be_missing():
    rows = table("ab", accuracy=[1, 0], quality=[None, 1.0])
    assert summed(rows, weights={"accuracy": 1, "quality": 0})[0] == [1, 0]
    faded = {"from": 1, "to": 0}
    assert summed(rows, weights={"accuracy": 1, "quality": faded}, progress=1)[0] == [1, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^field 'weights' is missing; it has no default$"),
        ({"weights": {}}, r"^field 'weights' is {}; dictionary should have at least 1 item"),
        (
            {"weights": {"x": 1}, "gates": {"y": "only_correct"}},
            r"^gates contain 'y', which has no weight$",
        ),
        (
            {"weights": {"x": 1}, "gates": {"x": "never"}},
            r"^field 'gates.x' is 'never'; input should be 'only_correct' or 'mixed_groups_only'$",
        ),
        (
            {"weights": {"x": 1}, "progress": 1.5},
            r"^field 'progress' is 1.5; input should be less than or equal to 1$",
        ),
        (
            {"weights": {"x": "much"}},
            r"^field 'weights.x.number' is 'much'; input should be a valid number",
        ),
        (
            {"weights": {"x": {"from": 1, "to": 0, "kind": "sudden"}}},
            r"^field 'weights.x.schedule.kind' is 'sudden'; input should be 'linear' or 'cosine'$",
        ),
        ({"weights": {"x": {"from": 1}}}, r"^field 'weights.x.schedule.to' is missing"),
        (
            {"weights": {"x": {"from": 1, "to": 0, "by": 2}}},
            r"^unknown field 'weights.x.schedule.by'$",
        ),
        ({"weights": {"x": float("inf")}}, r"^field 'weights.x.number' is inf; input should be a"),
    ],
)
def test_wrong_fields_are_errors(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(RewardSumMapper, fields)


@given(
    st.lists(st.tuples(st.integers(0, 3), *[st.none() | st.floats(-10, 10)] * 2), max_size=12).map(
        lambda rows: sorted(rows, key=lambda row: row[0])
    )
)
def test_it_agrees_with_a_plain_loop(rows):
    data = table([str(row[0]) for row in rows], x=[r[1] for r in rows], y=[r[2] for r in rows])
    plain = [None if r[1] is None or r[2] is None else 0.7 * r[1] + 0.3 * r[2] for r in rows]
    broken = {row[0] for row, reward in zip(rows, plain, strict=True) if reward is None}

    def change(on_missing):
        operator = RewardSumMapper(weights={"x": 0.7, "y": 0.3}, on_missing=on_missing)
        return operator.apply(data)

    by_row, by_group = change("drop_row"), change("drop_group")
    # Equal bit for bit, not nearly.
    assert by_row.columns["reward"].to_pylist() == plain
    assert by_row.reasons.is_null().to_pylist() == [reward is not None for reward in plain]
    assert by_group.reasons.is_null().to_pylist() == [row[0] not in broken for row in rows]
    filled = change("group_mean")
    for row, reward, reason in zip(
        rows, filled.columns["reward"].to_pylist(), filled.reasons.to_pylist(), strict=True
    ):
        peers = [other for other in rows if other[0] == row[0]]
        columns = [[p[i] for p in peers if p[i] is not None] for i in (1, 2)]
        kept = all(columns)
        assert (reason is None) == kept
        if kept:
            x, y = (row[i] if row[i] is not None else np.mean(columns[i - 1]) for i in (1, 2))
            assert reward == pytest.approx(0.7 * x + 0.3 * y, abs=1e-9)


def of_tasks(prompts, tasks, *, reward, verdict=None, **components):
    """As `table`, with tasks (g, v, or none) and the rewards that rows have."""
    names = {"g": "generate", "v": "verify"}
    return (
        table(prompts, verdict=verdict, **components)
        .append_column("task", pa.array([names.get(task) for task in tasks], pa.string()))
        .append_column("reward", pa.array(reward, pa.float64()))
    )


def test_with_a_task_the_other_rows_keep_their_rewards():
    rows = of_tasks(
        "aabbc", "ggvv?", reward=[0.1, None, None, 7, 0.3], verification=[None, 9, 1, 0, 9]
    )
    reward, reasons, notes = summed(rows, weights={"verification": 2}, task="verify")
    assert reward == [0.1, None, 2, 0, 0.3]
    assert reasons == [None] * 5
    assert notes == {}


def test_without_a_task_neither_task_nor_reward_is_read():
    rows = of_tasks("ab", "gv", reward=[0.1, 0.2], accuracy=[1, 0])
    assert summed(rows, weights={"accuracy": 1})[0] == [1, 0]
    assert RewardSumMapper(weights={"x": 1.0}, task="verify").reads() == (
        *RewardSumMapper(weights={"x": 1.0}).reads(), "task", "reward",
    )  # fmt: skip


def test_a_reward_that_is_kept_is_kept_to_the_bit():
    kept = [0.1 + 0.2, float("inf"), float("nan"), -0.0]
    rows = of_tasks("abcd", "gggg", reward=kept, verification=[None] * 4)
    reward, _, _ = summed(rows, weights={"verification": 1}, task="verify")
    assert repr(reward) == repr(kept)
    words = rows.set_column(rows.column_names.index("reward"), "reward", pa.array(["good"] * 4))
    with pytest.raises(DataError, match=r"^column 'reward' is string, not numeric"):
        RewardSumMapper(weights={"verification": 1.0}, task="verify").apply(words)


MIXED = {"tasks": "gvv gvv vvg".replace(" ", ""), "reward": [5, 0, 0] * 2 + [0, 0, 5]}


@pytest.mark.parametrize(
    ("on_missing", "rewards", "dropped"),
    [
        ("drop_row", [5, 1, None, 5, 1, 3, None, None, 5], "001 000 110"),
        ("drop_group", [5, 1, None, 5, 1, 3, None, None, 5], "011 000 110"),
        ("group_mean", [5, 1, 1, 5, 1, 3, None, None, 5], "000 000 110"),
    ],
)
def test_what_is_missing_concerns_the_rows_of_the_task_alone(on_missing, rewards, dropped):
    # A row of another task may have a value of its own or none, which is irrelevant here.
    values = [9, 1, None, None, 1, 3, None, None, 9]
    rows = of_tasks("aaabbbccc", **MIXED, verification=values)
    fields = {"weights": {"verification": 1}, "task": "verify", "on_missing": on_missing}
    reward, reasons, notes = summed(rows, **fields)
    assert reward == rewards
    assert [int(reason is not None) for reason in reasons] == [
        int(x) for x in dropped.replace(" ", "")
    ]
    assert notes.pop("missing_verification") == 3
    assert notes == ({"group_mean_verification": 1} if on_missing == "group_mean" else {})


def test_fail_ignores_other_tasks():
    rows = of_tasks("ab", "gv", reward=[1, None], verification=[None, 1])
    assert summed(rows, weights={"verification": 1}, task="verify")[0] == [1, 1]
    operator = build(RewardSumMapper, {"weights": {"verification": 1}})
    with pytest.raises(DataError, match="for response 0 of prompt 'a'"):
        operator.apply(rows)


def test_a_group_is_mixed_by_the_verdicts_of_the_task():
    rows = of_tasks("aabbb", "gvgvv", verdict="cwccw", reward=[9] * 5, x=[0.5, 0.5, None, 0.5, 0.5])
    fields = {"weights": {"x": 1}, "gates": {"x": "mixed_groups_only"}, "task": "verify"}
    assert summed(rows, **fields)[0] == [9, 0, 9, 0.5, 0.5]


value = st.none() | st.floats(-10, 10)
rows_of_tasks = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("gv?"), value, value, value), max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@pytest.mark.slow
@given(rows_of_tasks, st.sampled_from(["drop_row", "drop_group", "group_mean"]))
def test_a_task_is_summed_as_if_the_other_rows_were_not_there(rows, on_missing):
    ids, tasks, x, y, reward = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 5
    )
    data = of_tasks([str(each) for each in ids], tasks, reward=reward, x=x, y=y)
    fields = {"weights": {"x": 0.7, "y": 0.3}, "on_missing": on_missing}
    mixed = RewardSumMapper(**fields, task="verify").apply(data)
    own = pc.fill_null(pc.equal(data["task"].combine_chunks(), "verify"), False)
    alone = RewardSumMapper(**fields).apply(data.filter(own))
    assert mixed.columns["reward"].filter(own).equals(alone.columns["reward"])
    assert mixed.reasons.filter(own).equals(alone.reasons)
    assert mixed.notes == alone.notes
    others = pc.invert(own)
    kept = data["reward"].filter(others).to_pylist()
    assert mixed.columns["reward"].filter(others).to_pylist() == kept
    assert mixed.reasons.filter(others).null_count == len(kept)


class Judge:
    """Judges at random, by the seed of the prompt; now and then there is no judgement."""

    def sample(self, prompts, settings):
        for index, prompt in enumerate(prompts):
            rng = np.random.default_rng(prompt.seed)
            texts = rng.choice(["\\boxed{Yes}", "\\boxed{No}", "?"], settings.n)
            samples = tuple(Sample(str(text), (1,), (-1.0,), "stop") for text in texts)
            yield index, Group("judge", 0, prompt.seed, (1,), samples)


def rolled_out(graded, accuracy):
    """Rows (prompt, verdict, answer), with `accuracy` for the right ones and 0 for the others."""
    names = {"c": "correct", "w": "wrong_answer"}
    texts = {
        "prompt_id": [f"p{prompt}" for prompt, *_ in graded],
        "reference": ["a reference"] * len(graded),
        "verdict": [names[verdict] for _, verdict, _ in graded],
        "extracted_answer": [f"{verdict}{answer}" for _, verdict, answer in graded],
    }
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    chats = [[{"role": "user", "content": f"question {prompt}"}] for prompt, *_ in graded]
    sampled = {
        name: pa.nulls(len(graded), ROW_CONTRACT[name]) for name in PolicyRolloutMapper().writes()
    }
    sampled["response_id"] = pa.array([f"r{row}" for row in range(len(graded))], pa.string())
    values = np.array([accuracy * (verdict == "c") for _, verdict, _ in graded], np.float64)
    both = {"prompt": pa.array(chats, MESSAGES), **component("accuracy", values)}
    return pa.table({**columns, **sampled, **both})


def after_both(graded, *, accuracy=1.0, judgement=1.0):
    """The rows in the end, by task, of a recipe with both samplings."""
    operators = [
        RewardSumMapper(weights={"accuracy": 1.0}),
        SelfVerificationMapper(candidates="all"),
        PolicyRolloutMapper(task="verify", n=4),
        JudgementRewardMapper(right=judgement),
        RewardSumMapper(task="verify", weights={"verification": 1.0}),
        GrpoAdvantageMapper(normalise="none"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_rollout_mapper, "open_engine", lambda spec: Judge())
        rows = run_in_memory(operators, rolled_out(graded, accuracy)).to_pylist()
    own = {"generate": [], "verify": []}
    for row in rows:
        own[row["task"]].append(row)
    return rows, own["generate"], own["verify"]


graded_rows = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("cw"), st.integers(0, 2)), max_size=16
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def figures(rows):
    return [(row["prompt_id"], row["reward"], row["advantage"]) for row in rows]


@pytest.mark.slow
@given(graded_rows)
@settings(max_examples=30)
def test_generation_and_verification_never_meet(graded):
    """Neither in one sum nor in one group."""
    rows, generation, verification = after_both(graded)
    for row in generation:
        assert (row["reward"], row["reward_verification"]) == (row["reward_accuracy"], None)
    for row in verification:
        assert (row["reward"], row["reward_accuracy"]) == (row["reward_verification"], None)
    seen = set()
    for prompt_id, group in groupby(rows, key=lambda row: row["prompt_id"]):
        members = list(group)
        assert prompt_id not in seen
        seen.add(prompt_id)
        assert len({row["task"] for row in members}) == 1
        mean = np.mean([row["reward"] for row in members])
        assert [row["advantage"] for row in members] == pytest.approx(
            [row["reward"] - mean for row in members]
        )
    # What one is worth does not move the other by a bit. (A power of two scales without rounding.)
    _, scaled, same = after_both(graded, accuracy=1024.0)
    assert figures(same) == figures(verification)
    assert figures(scaled) == [(p, 1024 * r, 1024 * a) for p, r, a in figures(generation)]
    _, same, scaled = after_both(graded, judgement=1024.0)
    assert figures(same) == figures(generation)
    assert figures(scaled) == [(p, 1024 * r, 1024 * a) for p, r, a in figures(verification)]


def test_a_sum_over_both_tasks_is_refused_or_empty():
    table = JudgementRewardMapper().apply(
        pa.table(
            {
                "task": ["generate", "verify"],
                "response": ["4", "\\boxed{Yes}"],
                "label": [None, "Yes"],
            }
        )
    )
    rows = of_tasks("ab", "gv", reward=[1, None], accuracy=[1, None])
    for name in ("reward_verification", "reward_verification_missing"):
        rows = rows.append_column(name, table.columns[name])
    weights = {"accuracy": 1, "verification": 1}
    with pytest.raises(DataError, match=r"^reward_accuracy is missing \(judge_timeout\) for resp"):
        build(RewardSumMapper, {"weights": weights}).apply(rows)
    with pytest.raises(DataError, match=r"^reward_verification is missing \(other_task\) for resp"):
        build(RewardSumMapper, {"weights": {"verification": 1}}).apply(rows)
    for on_missing in ("drop_row", "drop_group", "group_mean"):
        reward, reasons, _ = summed(rows, weights=weights, on_missing=on_missing)
        assert reward == [None, None]
        assert reasons == ["missing_component"] * 2


def test_a_number_of_the_dataset_is_a_component():
    table = pa.table({"prompt_id": ["p"] * 3, "reward_given": [1, 0, None]})
    operator = RewardSumMapper(weights={"given": 2.0}, on_missing="drop_row")
    change = operator.apply(table)
    assert change.columns["reward"].to_pylist() == [2.0, 0.0, None]
    assert change.reasons.to_pylist() == [None, None, "missing_component"]
    with pytest.raises(DataError, match=r"reward_given is missing \(no reason given\)"):
        RewardSumMapper(weights={"given": 2.0}).apply(table)


@pytest.mark.parametrize(
    ("given", "rewards"),
    [
        ([True, False, None], [1.0, 0.0, None]),  # KTO's labels
        (["4", " 4.5\n", "N/A"], [4.0, 4.5, None]),
        (["true", "False", "n.a."], [1.0, 0.0, None]),
        (["-1", None, ""], [-1.0, None, None]),
        (["nan", "1e400", "-inf"], [None, None, None]),
    ],
)
def test_a_component_may_be_a_boolean_or_a_number_that_is_written_as_text(given, rewards):
    table = pa.table({"prompt_id": ["p"] * 3, "reward_given": given})
    change = check_operator(RewardSumMapper(weights={"given": 1.0}, on_missing="drop_row"), table)
    assert change.columns["reward"].to_pylist() == rewards
    rated = table.set_column(1, "reward_given", pa.array(["4", "good", "5"]))
    with pytest.raises(DataError, match=r"'reward_given' is string, not numeric .*'good'"):
        RewardSumMapper(weights={"given": 1.0}).apply(rated)
