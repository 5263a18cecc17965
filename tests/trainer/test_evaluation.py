"""`rejuice eval`: the sets of a recipe, and two policies on the same prompts."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner
from scipy import stats

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines.cli.evaluation import _name
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


def stored(path, *answers, sources=None, **more):
    """Responses to the questions, those of a question next to each other."""
    questions = [question for question, of in zip(QUESTIONS, answers, strict=False) for _ in of]
    rows = {
        "prompt_id": questions,
        "prompt": [[{"role": "user", "content": each}] for each in questions],
        "response": [f"It is {each}." for of in answers for each in of],
        "reference": [QUESTIONS[each] for each in questions],
        "verdict": ["correct"] * len(questions),  # Of an earlier verifier: it is graded again.
        **({} if sources is None else {"data_source": sources}),
        **more,
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
    names = list(found.figures)
    assert Evaluator(load(recipe)).contaminated(tmp_path / "eval", names) == {"sums": 1}
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
        (["--set", "a=x", "--set", "a=y"], "--set names 'a' twice; give each set its own name"),
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
    ours, theirs = (rng.binomial(4, share, 400) / 4 for share in (0.5, 0.45))
    found = compare(graded(ours[:, None].tolist()), graded(theirs[:, None].tolist()))
    expected = stats.ttest_rel(ours, theirs)
    assert (found.prompts, found.mean) == (400, pytest.approx(np.mean(ours - theirs)))
    # With 400 prompts a permutation test and a bootstrap are near Student's.
    assert found.p == pytest.approx(expected.pvalue, abs=0.01)
    low, high = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((low, high), abs=3e-3)


@pytest.mark.parametrize("delta", [[1], [1, 1, 1], [1, 1, 0.5], [1, -0.5, 0.25, 0.25, 0, 1, 1]])
def test_of_few_prompts_all_signs_are_tried(delta):
    found = compare(graded([[each] for each in delta]), graded([[0]] * len(delta)))
    if len(delta) == 1:
        assert (found.p, np.isnan(found.low), np.isnan(found.high)) == (1, True, True)
        return
    flipped = stats.permutation_test(
        (np.array(delta),), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert found.p == pytest.approx(flipped.pvalue)
    assert found.low <= found.mean <= found.high


def test_only_prompts_that_both_have_graded_are_compared():
    found = compare(graded([[1, 1], [0], [None]]), graded([[0, 1], [0], [1], [1]]))
    assert (found.prompts, found.mean) == (2, 0.25)
    assert compare(graded([[1]]), graded([[1]])).p == 1
    with pytest.raises(DataError, match="no prompt in common"):
        compare(graded([[1]]), graded([[None]]))


def test_rows_that_no_step_grades_count_nowhere(recipe, tmp_path):
    document = yaml.safe_load(recipe.read_text("utf-8"))
    document["process"][2] = {"math_verify_mapper": {"where": {"data_source": "a"}}}
    recipe.write_text(yaml.safe_dump(document), "utf-8")
    file = stored(tmp_path / "stored.parquet", [4, 5], [7, 7], sources=["a", "a", "b", "b"])
    found = Evaluator(load(recipe)).grade(tmp_path / "eval", {"sums": file})
    figures = found.figures["sums"]
    assert (figures["prompts"], figures["ungraded"], figures["mean@2"]) == (1, 0, 0.5)
    assert found.sources["sums"] == {}


def test_n_is_that_of_the_stored_responses(recipe, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5, 4, 4])
    found = Evaluator(load(recipe)).grade(tmp_path / "eval", {"sums": file})
    assert {"mean@4", "pass@4", "maj@4"} <= found.figures["sums"].keys()


def test_stored_responses_without_ids_or_prompts(recipe, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5])
    rows = pq.read_table(file)
    pq.write_table(rows.drop_columns(["prompt"]), file)
    evaluator = Evaluator(load(recipe))
    evaluator.grade(tmp_path / "eval", {"sums": file})
    assert evaluator.contaminated(tmp_path / "eval", ["sums"]) == {}
    pq.write_table(rows.drop_columns(["prompt_id"]), file)
    with pytest.raises(DataError, match="has no column 'prompt_id'; give responses that"):
        evaluator.grade(tmp_path / "eval", {"sums": file})


def test_training_data_that_cannot_be_read_leaves_the_figures(recipe, rejuice, tmp_path):
    pq.write_table(pa.table({"other": [1]}), tmp_path / "train.parquet")
    file = stored(tmp_path / "stored.parquet", [4, 5])
    status, out, err = rejuice("eval", recipe, "--responses", f"sums={file}", "-o", tmp_path / "x")
    assert (status, "the training data was not compared" in err) == (0, True), err
    assert (tmp_path / "x" / "figures.json").exists()
    assert "0.500" in out


@pytest.mark.recommended("pipelines/cli/evaluation.py", "give another --output")
def test_the_other_evaluation_is_not_replaced(recipe, rejuice, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5])
    words = ["eval", recipe, "--responses", f"sums={file}", "--output", tmp_path / "one"]
    assert rejuice(*words)[0] == 0
    status, _, err = rejuice(*words, "--against", tmp_path / "one")
    assert (status, "one would be replaced; give another --output" in err) == (2, True), err


@pytest.mark.recommended("pipelines/cli/evaluation.py", "by `rejuice export policy RUN DIR`, and give --policy DIR")  # fmt: skip
def test_a_run_without_a_policy_says_so(recipe, rejuice, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    recipe.rename(run / "recipe.yaml")
    status, _, err = rejuice("eval", run, "--trust")
    assert status == 2
    assert "run has not written its policy yet; write that of a checkpoint by" in err


@pytest.mark.parametrize(
    ("policy", "name"),
    [("org/model-1B", "org_model-1B"), ("..", "x"), ("a b/c", "a_b_c"), ("../..", None)],
)
def test_the_folder_of_a_policy_is_below_that_of_evaluations(policy, name, tmp_path, monkeypatch):
    (tmp_path / "x" / "y").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "x" / "y")
    found = _name(policy)
    assert Path(found).name == found
    assert found == (tmp_path.name if name is None else name)


@pytest.mark.recommended("pipelines/cli/evaluation.py", "give --output DIR")
@pytest.mark.recommended("pipelines/cli/evaluation.py", "give the --output of an evaluation")
def test_an_evaluation_without_a_set_of_the_other_is_compared_with_none(recipe, rejuice, tmp_path):
    file = stored(tmp_path / "stored.parquet", [4, 5])
    words = ["eval", recipe, "--responses", f"sums={file}", "--output", tmp_path / "one"]
    status, out, err = rejuice(*words, "--against", tmp_path)
    assert (status, "has none of the sets sums; give the --output of an" in err) == (2, True), err
    assert "0.500" in out, "what was paid for is shown"


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
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_policy_is_sampled_as_in_validation(recipe, tmp_path, temperature):
    document = yaml.safe_load(recipe.read_text("utf-8"))
    document["train"]["validation"]["sums"]["temperature"] = temperature
    recipe.write_text(yaml.safe_dump(document), "utf-8")
    folder = tmp_path / "eval"
    first = Evaluator(load(recipe)).evaluate(folder)
    assert first.policy == "embedded"
    rows = pq.read_table(folder / "sums.parquet")
    assert rows.num_rows == 4
    assert {chat[0]["content"] for chat in rows["prompt"].to_pylist()} == {*list(QUESTIONS)[:2]}
    assert Evaluator(load(recipe)).evaluate(folder) == first
