"""The recipe of several tasks in one dataset: by `rejuice run`, by `dj-process`, and its steps in
training."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from fake_judge import FakeJudge

from rejuice.operators import RejuiceError
from rejuice.pipelines.demo.datasets import SOURCES, first_rows, write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.report import check_not_empty
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.split import split_recipe
from rejuice.trainer.verl.curation import curate

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mixed_tasks.yaml"
PROMPTS = 12
JUDGED = "llm_quality_reward_mapper"
ARITHMETIC, CODE, EXPLANATION = SOURCES


def written(folder, url):
    """The recipe over few problems, with a judge at another address."""
    document = yaml.safe_load(RECIPE.read_text("utf-8"))
    data = str(folder / "train.jsonl")
    document |= {
        "dataset_path": data,
        "export_path": str(folder / "curated.parquet"),
        "generated_datasets": {data: {"type": "mixed", "prompts": PROMPTS, "levels": [1, 2]}},
        "train": document["train"] | {"validation_path": data},
        "np": 1,
    }
    (judged,) = (each[JUDGED] for each in document["process"] if JUDGED in each)
    judged |= {"server": {"base_url": url}, "cache": None}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def by_rejuice(tmp_path_factory):
    """What `rejuice run` makes of it: the recipe, its report, the rows; and requests of a judge."""
    with FakeJudge() as judge:
        recipe = load(written(tmp_path_factory.mktemp("rejuice"), judge.url))
        report = engine.run(recipe, chunk_rows=4)
        asked = sum(judge.answered.values())
    return recipe, report, pq.read_table(recipe.head.export_path), asked


@pytest.mark.slow
def test_each_task_has_its_verifier(by_rejuice):
    recipe, report, table, asked = by_rejuice
    check_not_empty(recipe.offline(), report)
    reasons = {
        (row["data_source"], row["reward_accuracy_missing"], row["reward_quality_missing"])
        for row in table.to_pylist()
    }
    no = "not_applicable"
    assert reasons == {(ARITHMETIC, None, no), (CODE, None, no), (EXPLANATION, no, None)}
    for row in table.to_pylist():
        component = "quality" if row["data_source"] == EXPLANATION else "accuracy"
        assert row["reward"] == row[f"reward_{component}"]
        assert (row["verdict"] is None) == (row["data_source"] == EXPLANATION)
        assert (row["tests_run"] is None) == (row["data_source"] != CODE)
        assert row["loss_weight"] == (0.0 if row["finish_reason"] == "length" else None)
    # Each step has figures of its own rows, and nothing of the others is asked of a judge.
    lines = {line.step: line for line in report.steps}
    of_each = PROMPTS // len(SOURCES) * 8
    graded = [sum(lines[name].columns["verdict"]["counts"].values()) for name in VERIFIERS]
    assert graded == [of_each, of_each]
    assert lines[JUDGED].columns["reward_quality"]["n"] == of_each >= asked > 0


VERIFIERS = ("math_verify_mapper", "unit_test_mapper")


@pytest.mark.slow
def test_the_steps_of_training_are_not_of_an_offline_run(by_rejuice):
    recipe, report, _, _ = by_rejuice
    names = [line.step for line in report.steps]
    assert "policy_rollout_mapper" not in names
    assert "recorded_rollout_mapper" in names
    parts = split_recipe(recipe)
    assert parts.rollout.name() == "policy_rollout_mapper"
    assert [step.name for step in parts.before] == [
        "prompt_template_mapper",
        "prompt_template_mapper_2",
    ]
    assert "exact_deduplicator" not in [step.name for step in parts.after]


@pytest.mark.slow
def test_training_makes_the_same_of_the_same_responses(by_rejuice):
    """What the recorded responses are worth in training is what they are worth offline."""
    recipe, _, _, _ = by_rejuice
    made = [step for step in recipe.steps if step.operator.on != "train"][:3]
    table = first_rows("mixed", DemoOptions(seed=0, prompts=PROMPTS, split="train", levels=(1, 2)))
    rollouts = curate(made, table).table
    with FakeJudge() as judge:
        again = load(written(recipe.path.parent, judge.url))
        trained = curate(split_recipe(again).after, rollouts).table
        names = ("response_id", "reward", "advantage", "loss_weight")
        offline = curate([s for s in again.offline().steps if s.number > 3][:-1], rollouts).table
    assert trained.select(names).equals(offline.select(names))
    assert Counter(trained["data_source"].to_pylist()) == dict.fromkeys(SOURCES, 32)


@pytest.mark.slow
def test_dj_process_gives_the_same_rows(by_rejuice, tmp_path):
    pytest.importorskip("data_juicer")
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    _, _, table, _ = by_rejuice
    with FakeJudge() as judge:
        path = written(tmp_path, judge.url)
        options = ["--config", str(path), "--open_monitor", "false", "--use_cache", "false"]
        DefaultExecutor(init_configs(options)).run()
    found = pq.read_table(tmp_path / "curated.parquet")
    names = [name for name in table.column_names if name != "quality_record"]
    assert found.select(names).to_pylist() == table.select(names).to_pylist()


# --- The dataset --------------------------------------------------------------------------------


def test_the_tasks_come_in_turn(tmp_path):
    write_dataset(tmp_path / "a.parquet", "mixed", DemoOptions(prompts=7, levels=(1, 2)))
    found = pq.read_table(tmp_path / "a.parquet")
    assert found["data_source"].to_pylist() == [SOURCES[row % 3] for row in range(7)]
    assert len(set(found["question"].to_pylist())) == 7
    for row in found.to_pylist():
        assert (row["answer"] is None) == (row["data_source"] == CODE)
        assert (row["test_list"] is None) == (row["data_source"] != CODE)
        assert len(row["responses"]) == 8
    first = first_rows("mixed", DemoOptions(seed=0, prompts=7, split="train", levels=(1, 2)))
    assert first.to_pylist() == found.to_pylist()


def test_no_two_splits_share_a_question():
    asked = [DemoOptions(30, split, (1, 2)) for split in ("train", "validation", "test")]
    questions = [set(first_rows("mixed", each)["question"].to_pylist()) for each in asked]
    assert len(set.union(*questions)) == 90


def test_a_split_has_no_more_problems_than_there_are():
    with pytest.raises(RejuiceError, match="different problems"):
        first_rows(
            "mixed", DemoOptions(seed=0, prompts=10**7, split="test", levels=(1,)), most=10**7
        )
