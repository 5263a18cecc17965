"""Warnings of a recipe: weights of GDPO that are not those of the sum beside it; older policies."""

import pytest
from command import runner

from rejuice.operators import GrpoAdvantageMapper, ImportanceWeightMapper
from rejuice.operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.steps import (
    age_warnings,
    number_steps,
    observation_warnings,
    server_warnings,
    weight_warnings,
)
from rejuice.pipelines.recipe.train import Train

ROWS = [{"prompt_id": "p", "response": text, "task": "generate", "source": "a"} for text in "xy"]
GRADED = ["format_reward_mapper", {"length_reward_mapper": {"style": "shorter"}}]
BOTH = {"format": 1.0, "length": 0.5}


@pytest.fixture
def warned(recipe_file):
    def lines(*steps):
        recipe = load(recipe_file([*GRADED, *steps], ROWS))
        return weight_warnings(recipe.steps, lambda step: f"step {step.number} {step.name}")

    return lines


def total(weights=BOTH, **fields):
    return {"reward_sum_mapper": {"weights": weights, **fields}}


def gdpo(weights=BOTH, **fields):
    return {"gdpo_advantage_mapper": {"weights": weights, **fields}}


def test_the_same_weights_are_not_named(warned):
    assert warned(total(), gdpo()) == []
    assert warned(gdpo()) == []
    assert warned(total(), "grpo_advantage_mapper") == []


@pytest.mark.parametrize(
    ("own", "differ"),
    [
        (gdpo({"format": 1.0, "length": 2.0}), "length 2, not 0.5"),
        (gdpo({"format": 1.0}), "length none, not 0.5"),
        (gdpo({**BOTH, "other": 1.0}), "other 1, not none"),
        (gdpo(gates={"format": "only_correct"}), "format 1 (only_correct), not 1"),
    ],
)
def test_what_differs_is_named(warned, own, differ):
    (line,) = warned(total(), own)
    assert line == (
        "step 4 gdpo_advantage_mapper: the weights are not those of step 3 reward_sum_mapper "
        f"({differ}), so that `reward`, which filters and figures take, is not what trains; give "
        "both the same, unless that is meant"
    )


def test_a_schedule_is_named(warned):
    (line,) = warned(total({**BOTH, "length": {"from": 0.5, "to": 0.0}}), gdpo())
    assert "(length 0.5, not 0.5 to 0)" in line


def test_the_sum_of_other_rows_is_not_compared(warned):
    sums = (
        total({"format": 3.0}, task="generate"),
        total({"length": 3.0}, task="verify"),
    )
    assert warned(*sums, gdpo({"format": 3.0}, where={"task": "generate"})) == []
    assert warned(*sums, gdpo({"length": 3.0}, where={"task": "verify"})) == []
    assert len(warned(*sums, gdpo({"format": 4.0}, where={"task": "generate"}))) == 1
    apart = total({"format": 3.0}, where={"source": "a"})
    assert warned(apart, gdpo({"format": 4.0}, where={"source": "b"})) == []


def test_sums_of_different_rows_are_compared_together(warned):
    sums = (
        total({"format": 1.0, "accuracy": 1.0}, where={"source": "a"}),
        total({"format": 1.0, "length": 2.0}, where={"source": "b"}),
    )
    weights = {"format": 1.0, "accuracy": 1.0, "length": 2.0}
    assert warned(*sums, gdpo(weights)) == []
    (line,) = warned(*sums, gdpo({**weights, "length": 3.0}))
    assert "step 3 reward_sum_mapper and 4 reward_sum_mapper_2 (length 3, not 2)" in line


def test_check_and_run_print_it_once(recipe_file, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    path = recipe_file([*GRADED[:1], total({"format": 1.0}), gdpo({"format": 2.0})], ROWS)
    recipe = load(path)
    (line,) = weight_warnings(recipe.steps, recipe.where)
    expected = f"rejuice: warning: {line}\n".replace(f"{tmp_path}/", "")
    assert rejuice("check", path)[2] == expected
    code, _, err = rejuice("run", path)
    assert (code, err.count(expected)) == (0, 1)
    whatif = rejuice("whatif", path, "--gdpo_advantage_mapper.weights.format", "3")
    assert (whatif[0], whatif[2].count("(format 3, not 1)")) == (0, 1)


@pytest.mark.parametrize(
    ("train", "corrects", "steps"),
    [
        ({}, False, None),
        ({"mode": "colocate_async", "max_age": 1}, False, None),
        ({"mode": "colocate_async", "max_age": 2}, False, 2),
        ({"mode": "colocate_async", "max_age": 2}, True, None),
        ({"mode": "separate_async", "max_age": 1, "sync_every": 3}, False, 3),
        (
            {
                "mode": "separate_async",
                "max_age": 4,
                "verl": {"algorithm": {"rollout_correction": {"rollout_is": "token"}}},
            },
            False,
            None,
        ),
    ],
)
def test_older_policies_without_correction_are_warned_of(train, corrects, steps):
    own = [GrpoAdvantageMapper(), *([ImportanceWeightMapper()] if corrects else [])]
    found = age_warnings(number_steps(own), Train(**train))
    assert [f"of up to {steps} steps before, without" in line for line in found] == [True] * bool(
        steps
    )


def where(step):
    return f"step {step.number} {step.name}"


@pytest.mark.parametrize("on_missing", ["fail", "drop_row", "drop_group", "group_mean"])
def test_a_sum_that_ends_the_run_where_a_judge_fails_is_named(on_missing):
    judge = LlmQualityRewardMapper(model="judge")
    total = RewardSumMapper(weights={"quality": 1.0}, on_missing=on_missing)
    lines = server_warnings(number_steps([judge, total]), where)
    assert len(lines) == (on_missing == "fail")
    assert all("llm_quality_reward_mapper" in line and "drop_row" in line for line in lines)
    others = RewardSumMapper(weights={"accuracy": 1.0})
    assert server_warnings(number_steps([judge, others]), where) == []


@pytest.mark.parametrize(
    ("tool", "characters", "tokens", "warned"),
    [
        ({"search": {"documents": "documents"}}, 4096, 512, True),
        ({"search": {"documents": "documents"}}, 1024, 512, False),
        ({"search": {"documents": "documents"}}, 4096, 2048, False),
        ("calculator", 4096, 512, False),
    ],
)
def test_an_observation_that_no_prompt_has_room_for_is_named(tool, characters, tokens, warned):
    flow = {"react": {"max_observation": characters}}
    agents = AgentRolloutMapper(engine="transformers", model="embedded", flow=flow, tools=[tool])
    lines = observation_warnings(number_steps([agents]), where, Train(max_prompt_tokens=tokens))
    assert len(lines) == warned
    facts = ("4,096 characters", "1,024 tokens", "512", "max_observation to 1024")
    assert all(fact in line for line in lines for fact in facts)
