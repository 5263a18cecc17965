"""A real run of the shipped recipe of several tasks, with a reward and an advantage of the user's.

Mathematics, code and judged explanations in one dataset; a reward function of verl's signature; the
sign of the advantage turned; and responses that were cut off masked.
"""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from fake_judge import FakeJudge

from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer import metrics

pytestmark = pytest.mark.slow

STEPS = 5
RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mixed_tasks.yaml"
FLIPPED = '''
import pyarrow.compute as pc
from rejuice.operators import Mapper


class FlippedAdvantageMapper(Mapper):
    """The advantage with its sign turned."""

    def reads(self):
        return ("advantage",)

    def writes(self):
        return ("advantage",)

    def map(self, table):
        return {"advantage": pc.negate(table["advantage"]).combine_chunks()}
'''
BRIEF = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return len(solution_str) / 1000
"""


def recipe_of(folder, url):
    """The shipped recipe, with these two files of a user's."""
    document = yaml.safe_load(RECIPE.read_text())
    process = document["process"]
    named = {name: step for step in process for name in step}
    named["llm_quality_reward_mapper"]["llm_quality_reward_mapper"]["server"] = {"base_url": url}
    named["reward_sum_mapper"]["reward_sum_mapper"]["weights"]["function"] = 0.5
    at = process.index(named["reward_sum_mapper"])
    process.insert(
        at,
        {
            "reward_function_mapper": {
                "function": "brief.py:compute_score",
                "where": {"data_source": ["arithmetic", "explanation"]},
            }
        },
    )
    process.insert(
        process.index(named["grpo_advantage_mapper"]) + 1, {"flipped_advantage_mapper": None}
    )
    document["custom_operator_paths"] = ["flipped.py"]
    document["train"]["steps"] = STEPS
    (folder / "flipped.py").write_text(FLIPPED)
    (folder / "brief.py").write_text(BRIEF)
    (folder / "mixed.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.fixture(scope="module")
def trained(rejuice, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    with FakeJudge() as judge:
        recipe_of(folder, judge.url)
        rejuice("train", "mixed.yaml", "--output", "run", cwd=folder)
    figures = [each.figures for each in metrics.read(folder / "run") if each.trained]
    assert len(figures) == STEPS
    return folder / "run", figures


def test_what_verl_trains_on_is_what_is_on_file(trained):
    folder, figures = trained
    for step, logged in enumerate(figures, 1):
        curated = pq.read_table(folder / "steps" / f"{step:06d}" / "curated.parquet")
        advantage_N, reward_N = (curated[name].to_numpy() for name in ("advantage", "reward"))
        tokens_N = pc.list_value_length(curated["response_token_ids"]).to_numpy()
        assert logged["critic/advantages/mean"] == pytest.approx(
            (advantage_N * tokens_N).sum() / tokens_N.sum(), abs=1e-6
        )
        assert logged["critic/score/mean"] == pytest.approx(reward_N.mean(), abs=1e-6)
        # In each group the best reward has the lowest advantage.
        prompts = np.array(curated["prompt_id"].to_pylist())
        for name in set(prompts):
            of_group = prompts == name
            rewards, advantages = reward_N[of_group], advantage_N[of_group]
            if np.ptp(rewards) > 1e-9 and len(rewards) > 2:
                assert np.corrcoef(rewards, advantages)[0, 1] == pytest.approx(-1, abs=1e-6)
        assert set(curated["finish_reason"].to_pylist()) == {"stop"}


def test_each_task_has_its_own_components(trained):
    folder, figures = trained
    step = folder / "steps" / "000001"
    sampled, values = (
        pq.read_table(step / f"{name}.parquet").to_pylist() for name in ("rollouts", "values")
    )
    assert {row["data_source"] for row in sampled} == {"arithmetic", "code", "explanation"}
    for row in ({**one, **two} for one, two in zip(sampled, values, strict=True)):
        judged = row["data_source"] == "explanation"
        assert (row["reward_accuracy_missing"] == "not_applicable") is judged
        assert (row["reward_quality_missing"] == "not_applicable") is not judged
        if row["data_source"] == "code":
            assert row["reward_function_missing"] == "not_applicable"
        else:
            assert row["reward_function"] == len(row["response"]) / 1000
    assert not any("not_applicable" in name for logged in figures for name in logged)


def test_the_steps_of_the_run_are_those_of_the_recipe(trained):
    folder, _ = trained
    names = [step.name for step in load(folder / "steps" / "000001" / "recipe.yaml").steps]
    assert names[-3:] == ["grpo_advantage_mapper", "flipped_advantage_mapper", "loss_weight_mapper"]
