"""`rejuice eval`: the sets of a recipe, and two policies on the same prompts."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner
from scipy import stats

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.evaluation import Evaluator, compare

QUESTIONS = {"What is 2 + 2?": "4", "What is 3 + 4?": "7", "What is 9 - 1?": "8"}


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def recipe(tmp_path):
    """A recipe with a dataset and a set of its own, of which one question is in both."""
    rows = [{"question": question, "answer": answer} for question, answer in QUESTIONS.items()]
    pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / "held_out.parquet")
    pq.write_table(pa.Table.from_pylist(rows[1:]), tmp_path / "train.parquet")
    document = {
        "project_name": "evaluated",
        "dataset_path": str(tmp_path / "train.parquet"),
        "export_path": str(tmp_path / "out.parquet"),
        "process": [
            "prompt_template_mapper",
            {"policy_rollout_mapper": {"engine": "transformers", "model": "embedded", "n": 2}},
            "math_verify_mapper",
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
            "grpo_advantage_mapper",
        ],
        "train": {
            "steps": 1,
            "prompts_per_step": 2,
            "validation": {"sums": {"path": str(tmp_path / "held_out.parquet"), "n": 2}},
        },
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def stored(path, *answers, sources=None):
    """Responses to the questions, those of a question next to each other."""
    questions = [question for question, of in zip(QUESTIONS, answers, strict=False) for _ in of]
    rows = {
        "prompt_id": questions,
        "prompt": [[{"role": "user", "content": each}] for each in questions],
        "response": [f"It is {each}." for of in answers for each in of],
        "reference": [QUESTIONS[each] for each in questions],
        "verdict": ["correct"] * len(questions),  # Of an earlier verifier: it is graded again.
        **({} if sources is None else {"data_source": sources}),
    }
    pq.write_table(pa.table(rows), path)
    return path


def test_stored_responses_are_graded_again(recipe, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5], [7, 7], sources=["a", "a", "b", "b"])
    found = Evaluator(load(recipe)).grade(tmp_path / "eval", {"sums": file})
    figures = found.figures["sums"]
    assert (figures["mean@2"], figures["pass@2"], figures["maj@2"]) == (0.75, 1.0, 0.75)
    assert figures["mean_low"] < 0.75 < figures["mean_high"]
    assert (figures["prompts"], figures["ungraded"]) == (2, 0)
    assert {name: each["mean@2"] for name, each in found.sources["sums"].items()} == {
        "a": 0.5,
        "b": 1.0,
    }
    assert found.contaminated == {"sums": 1}
    assert pq.read_table(tmp_path / "eval" / "sums.parquet")["verdict"].to_pylist() == [
        "correct", "wrong_answer", "correct", "correct",
    ]  # fmt: skip


def test_the_command_prints_the_table_and_writes_the_figures(recipe, tmp_path, rejuice):
    for name, answers in (("better", [[4, 4], [7, 7]]), ("worse", [[4, 5], [6, 5]])):
        file = stored(tmp_path / f"{name}.stored.parquet", *answers)
        against = ["--against", tmp_path / "better"] if name == "worse" else []
        status, out, err = rejuice("eval", recipe, "--responses", f"sums={file}", "-o", tmp_path / name, *against)  # fmt: skip
        assert status == 0, err
    heading, row, difference = out.splitlines()
    assert heading.split() == [
        "set",
        "prompts",
        "mean@2",
        "pass@2",
        "maj@2",
        "95%",
        "ungraded",
        "in",
        "training",
    ]
    assert row.split()[:5] == ["sums", "2", "0.250", "0.500", "0.250"]
    assert difference.startswith("sums: -0.750 (")
    written = json.loads((tmp_path / "worse" / "figures.json").read_text("utf-8"))
    assert written["figures"]["sums"]["mean@2"] == 0.25


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "a"], "--set a names no set; write --set NAME=PATH"),
        (["--n", "2"], "n is given, and no set; give --set NAME=PATH, or set n in"),
        (["--set", "a/b=x.parquet"], "validation set 'a/b' has a name that is no file name"),
        (
            ["--responses", "sums=x.parquet"],
            "stored responses need a folder for what is graded; give --output DIR",
        ),
        (["--responses", "x=y.parquet", "-o", "out"], "there is no set 'x'; name one of sums"),
    ],
)
def test_what_does_not_fit_is_named(recipe, rejuice, words, message):
    status, _, err = rejuice("eval", recipe, *words)
    assert (status, message in err) == (2, True), err


def test_a_recipe_without_sets_says_how_to_give_one(recipe):
    document = yaml.safe_load(recipe.read_text("utf-8"))
    del document["train"]
    recipe.write_text(yaml.safe_dump(document), "utf-8")
    with pytest.raises(RecipeError, match="there is nothing to evaluate on; give --set NAME=PATH"):
        Evaluator(load(recipe))


def graded(accuracies):
    rows = [(f"p{at}", value) for at, values in enumerate(accuracies) for value in values]
    return pa.table(
        {
            "prompt_id": [name for name, _ in rows],
            "reward_accuracy": pa.array([value for _, value in rows], pa.float64()),
        }
    )


def test_the_difference_is_that_of_a_paired_test():
    rng = np.random.default_rng(0)
    ours, theirs = (rng.integers(0, 2, (400, 4)).astype(float).tolist() for _ in range(2))
    found = compare(graded(ours), graded(theirs))
    delta = np.mean(ours, axis=1) - np.mean(theirs, axis=1)
    expected = stats.ttest_rel(np.mean(ours, axis=1), np.mean(theirs, axis=1))
    assert found.prompts == 400
    assert found.mean == pytest.approx(delta.mean())
    # With 400 prompts the normal distribution is near Student's.
    assert found.p == pytest.approx(expected.pvalue, abs=1e-3)
    low, high = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)


def test_only_prompts_that_both_have_graded_are_compared():
    found = compare(graded([[1, 1], [0], [None]]), graded([[0, 1], [0], [1], [1]]))
    assert (found.prompts, found.mean) == (2, 0.25)
    assert compare(graded([[1]]), graded([[1]])).p == 1
    with pytest.raises(DataError, match="no prompt in common"):
        compare(graded([[1]]), graded([[None]]))


@pytest.mark.recommended("pipelines/cli/evaluation.py", "give --output DIR")
@pytest.mark.recommended("pipelines/cli/evaluation.py", "give the --output of an evaluation")
def test_an_evaluation_without_a_set_of_the_other_is_compared_with_none(recipe, rejuice, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5])
    words = ["eval", recipe, "--responses", f"sums={file}", "--output", tmp_path / "one"]
    status, _, err = rejuice(*words, "--against", tmp_path)
    assert (status, "has none of the sets sums; give the --output of an" in err) == (2, True), err
    status, out, _ = rejuice(*words, "--against", tmp_path / "one")
    assert (status, out.splitlines()[-1][:12]) == (0, "sums: +0.000")


@pytest.mark.slow
@pytest.mark.recommended("pipelines/cli/evaluation.py", "give --set NAME=PATH, or set n")
@pytest.mark.recommended("trainer/evaluation.py", "give --set NAME=PATH, or train.validation")
def test_another_set_and_n(recipe, rejuice, tmp_path):
    given = ["--set", f"other={tmp_path / 'train.parquet'}", "--n", "4"]
    status, out, err = rejuice("eval", recipe, *given)
    assert status == 0, err
    assert out.splitlines()[1].split()[:2] == ["other", "2"]
    assert pq.read_table(tmp_path / "outputs/eval/embedded/other.parquet").num_rows == 8


@pytest.mark.slow
def test_a_policy_is_sampled_as_in_validation(recipe, tmp_path):
    folder = tmp_path / "eval"
    first = Evaluator(load(recipe)).evaluate(folder)
    rows = pq.read_table(folder / "sums.parquet")
    assert rows.num_rows == 4
    assert {chat[0]["content"] for chat in rows["prompt"].to_pylist()} == {*list(QUESTIONS)[:2]}
    assert Evaluator(load(recipe)).evaluate(folder) == first
