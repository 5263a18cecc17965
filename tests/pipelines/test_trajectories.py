"""Steps for groups of responses work on trajectories as they are: one of each, in one recipe."""

from collections import Counter

import pyarrow.parquet as pq
import pytest
from fake_judge import FakeJudge

from rejuice.operators.agents.trajectory import turns_of
from rejuice.pipelines.analysis.explain import explain_row as explain_stored_row
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.recipe import load

PROMPTS, N = 30, 8


@pytest.fixture
def recorded(tmp_path, recipe_file):
    """A recipe with some steps after recorded trajectories."""
    write_dataset(tmp_path / "prompts.jsonl", "arithmetic", DemoOptions(prompts=PROMPTS))
    write_dataset(
        tmp_path / "old.parquet", "trajectories", DemoOptions(prompts=PROMPTS, responses=N)
    )
    agents = {
        "engine": "recorded", "recorded": {"path": str(tmp_path / "old.parquet")}, "n": N,
        "on_policy": False,
    }  # fmt: skip
    first = [
        {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
        {"agent_rollout_mapper": agents},
    ]

    def make(*steps):
        return load(recipe_file([*first, *steps], dataset_path=str(tmp_path / "prompts.jsonl")))

    return make


def table_of(recipe):
    return pq.read_table(recipe.head.export_path).to_pylist()


@pytest.mark.slow
def test_one_of_each_kind_of_step(recorded):
    with FakeJudge() as judge:
        server = {"base_url": judge.url, "patience_s": 2}
        recipe = recorded(
            "math_verify_mapper",
            "group_stats_mapper",
            {"pass_rate_filter": {"min": 0.1, "max": 0.9}},
            "diversity_reward_mapper",
            {"llm_quality_reward_mapper": {"model": "m", "server": server}},
            {
                "reward_sum_mapper": {
                    "weights": {"accuracy": 1.0, "diversity": 0.1, "quality": 0.1},
                    "gates": {"diversity": "only_correct", "quality": "only_correct"},
                    "on_missing": "drop_row",
                }
            },
            {"group_size_filter": {"min": 2}},
            "grpo_advantage_mapper",
            {"truncated_response_filter": {"reasons_to_drop": ["turn_limit"]}},
            {"column_range_filter": {"column": "tool_errors", "max": 0}},
            "exact_deduplicator",
            "minhash_deduplicator",
            {"diverse_response_selector": {"k": 3}},
        )
        report = run(recipe)
    dropped = {step.step: step.dropped for step in report.steps}
    lost = report.steps[1].columns["finish_reason"]["counts"]["turn_limit"]
    verdicts = report.steps[2].columns["verdict"]["counts"]
    assert verdicts["no_answer"] == lost > 0, "no answer is the policy's fault"
    failed = report.steps[1].columns["finish_reason"]["counts"]["tool_failed"]
    assert report.steps[2].columns["reward_accuracy_missing"]["counts"] == {"no_response": failed}
    assert 0 < dropped["reward_sum_mapper"]["missing_component"] <= failed
    assert dropped["truncated_response_filter"]["truncated"] > 0
    assert dropped["column_range_filter"]["above_max"] > 0
    rows = table_of(recipe)
    assert max(Counter(row["prompt_id"] for row in rows).values()) <= 3
    for row in rows:
        assert row["finish_reason"] == "stop"
        assert turns_of(row["turns"])[-1].text == f"answer: {row['response']}"
        assert row["advantage"] is not None


@pytest.mark.slow
def test_labels_can_be_balanced(recorded):
    recipe = recorded(
        "math_verify_mapper",
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
        {"label_balance_selector": {"negative": ["wrong_answer", "no_answer"]}},
    )
    run(recipe)
    counts = Counter(row["verdict"] for row in table_of(recipe))
    assert counts["correct"] == counts["wrong_answer"] + counts["no_answer"] > counts["no_answer"]


def explain_row(recipe, row):
    return explain_stored_row(open_stored(recipe.path), row, everything=True)


@pytest.mark.slow
def test_a_row_is_explained_turn_by_turn(recorded):
    recipe = recorded("math_verify_mapper")
    run(recipe)
    row = next(row for row in table_of(recipe) if row["tool_calls"] == 1 and row["response"])
    shown = explain_row(recipe, row["response_id"]).splitlines()
    first, call, last = row["turns"]
    assert "   turns = 3 entries" in shown
    assert "   turn_count = 2" in shown
    assert f'   1. policy: "{first["text"]}"' in shown
    assert f'   2. calculator {call["arguments"]}, ok: "{call["observation"]}"' in shown
    assert f'   3. policy: "{last["text"]}"' in shown


@pytest.mark.slow
def test_trajectories_of_a_dataset_are_explained_turn_by_turn(recorded, recipe_file):
    recipe = recorded()
    run(recipe)
    row = next(row for row in table_of(recipe) if row["tool_calls"] == 1 and row["response"])
    steps = [{"column_range_filter": {"column": "tool_errors", "max": 0}}]
    export = recipe.head.export_path
    head = {"dataset_path": str(export), "export_path": str(export.with_name("later.parquet"))}
    later = load(recipe_file(steps, name="later.yaml", **head))
    run(later)
    dataset, _, _ = explain_row(later, row["response_id"]).partition("01_column_range_filter")
    assert "\n   turns = 3 entries\n" in dataset
    assert f'\n   1. policy: "{row["turns"][0]["text"]}"\n' in dataset
    assert f"\n   2. calculator {row['turns'][1]['arguments']}, ok: " in dataset


def test_turns_of_another_kind_are_the_users_own(recipe_file):
    rows = [{"question": "Why?", "answer": "42", "turns": [{"role": "user", "content": "Why?"}]}]
    recipe = load(recipe_file([{"prompt_template_mapper": {}}], rows))
    run(recipe)
    shown = explain_row(recipe, "row 1")
    assert "\n   turns = 1 entry\n01_prompt_template_mapper" in shown


@pytest.mark.slow
def test_the_report_has_the_figures_of_trajectories(recorded):
    report = run(recorded("math_verify_mapper"))
    columns = report.steps[1].columns
    assert set(columns["finish_reason"]["counts"]) == {"stop", "turn_limit", "tool_failed"}
    assert columns["turn_count"]["max"] == 6
    assert columns["tool_errors"]["mean"] > 0
