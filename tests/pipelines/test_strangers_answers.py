"""Answers as strangers' datasets and models write them, where they are at hand: each case's verdicts.

A letter is a verdict, a space begins another question, and a bar begins a run with other fields.
"""

import re
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from rejuice.pipelines.cli.main import app

FOLDER = Path(__file__).resolve().parents[2] / "../shared/data/strangers/answers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.exists(), reason="the inputs are not at hand"),
]
LETTERS = {"correct": "r", "wrong_answer": "w", "no_answer": "n", "verifier_error": "b"}

VERDICTS = {
    "01-mcq-index": "wwwrw www",  # with a line
    "04-mcq-boxed-formula": "rrrr",
    "07-interval-forms": "rr r rr rr rrr rr",
    "08-tiny-and-big": "bb wr b wr wr wr rw",  # a factorial over the limits; a recurrence
    "09-bold-final": "rrrrrrrr",
    "11-line-equation": "wrrrr rw rw",
    "13-yes-no": "rrrrrww rrnrw rrww rrww",
    "14-physics-rounding": "wrww www rrw wr wwr | rrrw wrw rrr rr rrr",
    "16-chemistry": "rrrwr rrww rrw rrw",
    "19-answer-tags": "rrrrrrwrrrwr",
    "21-countdown": "rrrr",  # by value: the recipe says so
    "22-xlam-toolcalls": "rwrrw",
    "25-grid": "rrrww rw",
    "26-logic": "rrwwr rrrw rwr rwr | rwwwr rwrw rwr rwr",
    "27-dates": "rrrwwrw rrrww rrr ww",
    "30-lcb-private": "rw",
    "32-eurus-fn-name": "rw rw",
    "33-assert-case": "rw",
    "35-synthetic-type-field": "rw rw",
    "41-code-odd-tests": "r",
    "86-nested-list-answer": "wr rr | rw rr",
    "100-mcq-letter-last-line": "rrrrrrrrrr w",
    "102-mcq-lower-case": "rrrrrr rr",
    "103-mcq-letter-and-text": "rrrrrr",
    "105-weekday-in-sentence": "rrrrwr",
    "107-unit-names": "rr r r r rr r",
    "109-unit-multiples": "r r r r r r",
    "110-kJ-and-J": "wrr w",
    "112-worked-out-with-unit": "rr rr r",
    "114-worked-out-names": "wr wr www r",
    "116-sql-other-statement": "wwr wr",
    "119-roots-of-letters": "r r r",
    "120-free-constants": "rrr rr",
    "121-fenced-lists": "rr rr r",
    "136-tests-of-numbers": "r",
    "140-reasoning-gym": "rrr rrww rrrr rrrr rww rww rrr rwr",  # a JSON list of texts: either
    "141-answer-not-ascii": "rrr r rr",
    "143-abbreviation": "rr rr",
    "144-name-with-number": "rrrw r",
    "146-short-texts": "rr rr rr b | rr rr rr r",
}
FIELDS = {
    "14-physics-rounding": {"tolerance": 0.01},
    "26-logic": {"ordered_lists": True},
    "86-nested-list-answer": {"answer_type": "list"},
    "146-short-texts": {"answer_type": "text"},
}
LINES = {
    "01-mcq-index": "numbers below the length of column 'choices'",
    "54-alpaca-empty-input": 'set question: "{instruction}\\n{input}"',
    "08-tiny-and-big": "(a factorial of more than 200)",
    "146-short-texts": "'none' is a missing value",
    "27-dates": "types of the first references: 2 date (such as '2021-03-05'), 2 time",
}


@pytest.fixture
def folder_of(tmp_path, monkeypatch):
    """A copy of a case, as the working directory."""

    def of(name):
        folder = tmp_path / name
        copytree(FOLDER / name, folder)
        monkeypatch.chdir(folder)
        return folder

    return of


def ran(*words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return re.sub(r"\s+", " ", result.output)


def verdicts_with(folder, fields):
    """The letters of the verdicts of a run whose last step has these fields, too."""
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    [(verifier, own)] = recipe["process"][-1].items()
    recipe["process"][-1] = {verifier: {**(own or {}), **fields}}
    recipe["export_path"] = f"out{len(fields)}/rows.parquet"
    (folder / "with.yaml").write_text(yaml.safe_dump(recipe))
    ran("run", "with.yaml", "--quiet")
    rows = pq.read_table(folder / recipe["export_path"]).to_pylist()
    questions = dict.fromkeys(row["prompt_id"] for row in rows)
    return " ".join(
        "".join(LETTERS[row["verdict"]] for row in rows if row["prompt_id"] == question)
        for question in questions
    )


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_verdicts(folder_of, name):
    folder = folder_of(name)
    by_default, _, with_fields = VERDICTS[name].partition(" | ")
    assert verdicts_with(folder, {}) == by_default
    if with_fields:
        assert verdicts_with(folder, FIELDS[name]) == with_fields


@pytest.mark.parametrize("name", sorted(LINES))
def test_what_check_says(folder_of, name):
    folder_of(name)
    assert LINES[name] in ran("check", "recipe.yaml")


def test_options_that_the_recipe_names(folder_of):
    folder = folder_of("01-mcq-index")
    ran("run", "recipe.yaml", "--quiet", "--prompt_template_mapper.choices=[choices]")
    verdicts = pq.read_table(folder / "out" / "recipe.parquet")["verdict"].to_pylist()
    assert "".join(map(LETTERS.get, verdicts)) == "rrrwwrrw"


def test_a_question_of_two_columns(folder_of):
    folder = folder_of("54-alpaca-empty-input")
    printed = ran("run", "recipe.yaml")
    assert "rows with the same prompt differ in column 'input'" in printed
    field = """--prompt_template_mapper.question="{instruction}\\n{input}\""""
    ran("run", "recipe.yaml", "--quiet", "--overwrite", field)
    rows = pq.read_table(folder / "out" / "recipe.parquet").to_pylist()
    assert len({row["prompt_id"] for row in rows}) == 3
    asked = [row["prompt"][0]["content"] for row in rows]
    assert asked == ["Add the numbers.\n2 and 3", "Add the numbers.\n4 and 4", "Say hello."]


def test_what_needs_a_function(folder_of):
    folder = folder_of("21-countdown")
    ran("run", "function.yaml", "--quiet")
    rewards = pq.read_table(folder / "out" / "function.parquet")["reward_function"]
    assert rewards.to_pylist() == [1.0, 1.0, 0.1, 0.1]


SPLITS = "has the splits test, train"
CONVERT = "is not a dataset file; convert it"
REFUSED = {  # what `check` and `run` say
    "62-pass-rate-text/nofilter.yaml": "no reference in column 'expected_answer': 'n/a'",
    "70-hub-folder-splits/recipe.yaml": SPLITS,
    "73-csv-tsv-xlsx-tar/a_csv.yaml": CONVERT,
    "73-csv-tsv-xlsx-tar/a_tsv.yaml": CONVERT,
    "73-csv-tsv-xlsx-tar/a_txt.yaml": CONVERT,
    "73-csv-tsv-xlsx-tar/a_xlsx.yaml": CONVERT,
    "73-csv-tsv-xlsx-tar/shard_0_tar.yaml": CONVERT,
    "75-lmeval-loglikelihood/recipe.yaml": "column 'resps' has log-likelihoods",
    "135-cpp-only/recipe.yaml": "other_language 3, no_package 1",  # of `run` alone
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_and_named(folder_of, name):
    case, recipe = name.split("/")
    folder = folder_of(case)
    for command in ("run",) if case == "135-cpp-only" else ("check", "run"):
        result = CliRunner().invoke(app, [command, recipe])
        assert result.exit_code in (1, 2)
        assert REFUSED[name] in re.sub(r"\s+", " ", str(result.exception or "") + result.output)
        assert command == "run" or not (folder / "out").exists()


TRAIN = [f"train-0000{each}" for each in ("0-of-00002 q0", "1-of-00002 q0", "1-of-00002 q1")]
CHECKER = ["--unit_test_mapper.checker", "generated_checker"]
LISTS = ["--recorded_rollout_mapper.lists_as_text", "true"]
WAYS = [  # case, options, column and values of the export, what is printed
    ("38-code-checker", CHECKER, "verdict", ["correct", "correct", "wrong_answer"], ""),
    ("51-ratings-shorter", [], "reward", [5.0], "uneven_lists"),
    ("53-kto", [], "reward", [1.0, 0.0, 1.0], ""),
    ("62-pass-rate-text", [], "reference", ["12"], "missing_value"),
    ("70-hub-folder-splits", ["--split", "train"], "question", TRAIN, ""),
    ("76-lighteval-details", LISTS, "verdict", ["correct", "wrong_answer"], ""),
    (
        "133-prompt-in-response",
        [],
        "response",
        ["Red.", "Seven."],
        "2 responses began with their prompt",
    ),
]


@pytest.mark.parametrize(("name", "options", "column", "values", "line"), WAYS)
def test_the_ways_that_lines_name(folder_of, name, options, column, values, line):
    folder = folder_of(name)
    assert line in ran("run", "recipe.yaml", *options)
    found = pq.read_table(folder / "out" / "recipe.parquet")[column].to_pylist()
    assert found == values
