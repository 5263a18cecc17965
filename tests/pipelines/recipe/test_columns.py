"""No step replaces a column of the user's: the messages, and what may be computed again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import (
    DataError,
    GroupStatsMapper,
    Mapper,
    MathVerifyMapper,
    RecipeError,
)
from rejuice.pipelines import Recipe, load, run
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.write import written_columns
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.columns import checked_schema

CHAT = [{"role": "user", "content": "1 + 1?"}]
ROW = {"prompt_id": "p", "prompt": CHAT, "reference": "2", "response": "It is 2."}
WRONG = {**ROW, "response": "It is 3."}
VERIFY = {"math_verify_mapper": {}}
LONG = {"length_filter": {"min": 1}}
SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
RIGHT = "; rename it there, or drop it there to have it computed again"


class OtherVerifierMapper(Mapper):
    """Grade by the length of the response."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("verdict",)

    def map(self, table):
        return {"verdict": pa.repeat(pa.scalar("correct"), table.num_rows)}


class UpperMapper(Mapper):
    """Read a column, and write it."""

    column: str = "response"

    def reads(self):
        return (self.column,)

    def writes(self):
        return (self.column,)

    def map(self, table):
        return {self.column: pa.compute.utf8_upper(table[self.column])}


def refusal(call, *words, **fields):
    with pytest.raises(RecipeError) as caught:
        call(*words, **fields)
    line = str(caught.value)
    assert "\n" not in line
    return line


def refused(path):
    """The line of `check`, which is also that of `run`."""
    line = refusal(checked_schema, load(path))
    assert refusal(engine.run, load(path)) == line
    return line.replace(f"{path.parent}/", "")


def columns(process, table):
    return run(Recipe(process, table)).table


def test_a_column_of_the_dataset_is_not_replaced(recipe_file):
    path = recipe_file([LONG, VERIFY], [{**ROW, "verdict": "as I say"}])
    assert refused(path) == (
        "recipe.yaml, line 6, step 2 math_verify_mapper: "
        f"would replace column 'verdict' of the dataset{RIGHT}"
    )
    assert not (path.parent / "out").exists()


def test_all_columns_are_named_in_one_line(recipe_file):
    rows = [{"question": "1 + 1?", "answer": "2", "reference": "a page", "prompt": "my own"}]
    assert refused(recipe_file(["prompt_template_mapper"], rows)) == (
        "recipe.yaml, line 4, step 1 prompt_template_mapper: would replace columns 'prompt', "
        "'reference' of the dataset; rename them there, or drop them there to have them computed "
        "again"
    )


@pytest.mark.slow
def test_the_commands_say_it_and_end_with_status_2(recipe_file):
    path = recipe_file([VERIFY], [{**ROW, "verdict": "as I say"}])
    rejuice = Path(sys.executable).with_name("rejuice")
    for command in ("check", "run"):
        done = subprocess.run(
            [rejuice, command, path], capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 2
        assert "line 4, step 1 math_verify_mapper: would replace column 'verdict'" in done.stderr


def test_a_column_that_first_turns_up_far_down(recipe_file):
    """`check` reads the head of the file, `run` all of it, before the first step."""
    rows = [ROW] * 12_000 + [{**ROW, "verdict": "as I say"}]
    path = recipe_file([VERIFY], rows)
    assert "verdict" not in checked_schema(load(path)).names
    assert "would replace column 'verdict'" in refusal(engine.run, load(path))


def test_a_field_that_first_turns_up_far_down(recipe_file):
    """As with a column, the rows before it have none: a step may drop them, or the run is refused."""
    early = {"question": "x" * 1_000, "meta": {"source": "a"}}
    late = {"question": "1 + 1?", "meta": {"source": "a", "solution": "2"}}
    template = {"reference": "meta.solution", "on_bad_row": "drop_row"}
    rows = [early] * 1_500 + [late] * 2

    def with_fields(**fields):
        return load(recipe_file([{"prompt_template_mapper": {**template, **fields}}], rows))

    assert engine.run(with_fields()).steps[0].dropped == {"no_reference": 1_500}
    for fields, line in (
        ({"on_bad_row": "fail"}, "no reference in column 'meta.solution': None"),
        ({"reference": "meta.solutoin"}, "there is no 'meta.solutoin': column 'meta' is struct<"),
    ):
        with pytest.raises(DataError) as caught:
            checked_schema(with_fields(**fields))
        assert line in str(caught.value)


def test_a_recipe_in_python_is_refused_alike():
    table = pa.Table.from_pylist([{**ROW, "reward": 0.5}])
    process = [VERIFY, SUM]
    assert refusal(run, Recipe(process, table)) == (
        f"Recipe, step 2 reward_sum_mapper: would replace column 'reward' of the dataset{RIGHT}"
    )


def test_a_step_of_data_juicer_hides_nothing(recipe_file):
    theirs = {"whitespace_normalization_mapper": {"text_key": "response"}}
    path = recipe_file([theirs, VERIFY], [{**ROW, "verdict": "as I say"}])
    assert "step 2 math_verify_mapper: would replace column 'verdict'" in refused(path)


def test_what_a_step_reads_it_may_replace():
    table = pa.Table.from_pylist([ROW])
    assert columns([UpperMapper()], table)["response"].to_pylist() == ["IT IS 2."]


def test_a_prompt_of_the_dataset_becomes_the_chat(recipe_file):
    """As in datasets of verl and DAPO."""
    template = {"prompt_template_mapper": {"question": "prompt", "reference": "reference"}}
    table = pa.table({"prompt": ["1 + 1?"], "reference": ["2"]})
    assert columns([template], table).select(["prompt", "reference"]).to_pylist() == [
        {"prompt": CHAT, "reference": "2"}
    ]


@pytest.mark.parametrize(
    ("fields", "row", "lost"),
    [
        (
            {"reference": "reference", "reference_pattern": "#### (.*)"},
            {"question": "1 + 1?", "reference": "One and one.\n#### 2"},
            "reference",
        ),
        (
            {"reference": "reference.short"},
            {"question": "1 + 1?", "reference": {"short": "2", "long": "One and one is 2."}},
            "reference",
        ),
        (
            {"question": "prompt.text", "reference": None},
            {"prompt": {"text": "1 + 1?", "source": "a page"}},
            "prompt",
        ),
    ],
)
def test_a_column_of_which_only_a_part_is_used_is_kept(fields, row, lost):
    recipe = Recipe([{"prompt_template_mapper": fields}], pa.Table.from_pylist([row]))
    assert f"would replace column '{lost}' of the dataset" in refusal(run, recipe)


def test_a_step_does_not_replace_what_another_operator_wrote():
    table = pa.Table.from_pylist([ROW])
    assert refusal(run, Recipe([VERIFY, LONG, OtherVerifierMapper()], table)) == (
        "Recipe, step 3 other_verifier_mapper: would replace column 'verdict' of step 1 "
        "math_verify_mapper; give each of them a `where` that excludes the other's, or leave one "
        "out"
    )


A, B = {"source": ["a", None]}, {"source": "b", "level": {"min": 2}}


@pytest.mark.parametrize(
    ("one", "other", "is_right"),
    [
        (A, B, True),
        ({"level": {"max": 1}}, B, True),
        (A, {"source": [None, "c"]}, False),
        (A, {"level": 1}, False),
        (A, None, False),
        (None, B, False),
    ],
)
def test_two_operators_write_a_column_where_no_row_is_of_both(one, other, is_right):
    rows = [{**ROW, "source": "a", "level": 1}, {**ROW, "source": "b", "level": 3}]
    rows = pa.Table.from_pylist([{**each, "response": "It is 3."} for each in rows])
    recipe = Recipe([MathVerifyMapper(where=one), OtherVerifierMapper(where=other)], rows)
    if is_right:
        assert run(recipe).table["verdict"].to_pylist() == ["wrong_answer", "correct"]
    else:
        found = "step 2 other_verifier_mapper: would replace column 'verdict' of step 1 math_verify"
        why = ": a row may match the `where` of both; give each of them a `where` that excludes"
        shown = refusal(run, recipe)
        assert found in shown
        assert (why in shown) == bool(one and other)


def test_a_third_operator_must_exclude_both():
    rows = pa.Table.from_pylist([{**ROW, "source": source} for source in "abc"])
    steps = [
        MathVerifyMapper(where={"source": "a"}),
        OtherVerifierMapper(where={"source": "b"}),
        MathVerifyMapper(where={"source": ["b", "c"]}),
    ]
    assert "step 3 math_verify_mapper_2: would replace column 'verdict' of step 2" in refusal(
        run, Recipe(steps, rows)
    )


def test_what_a_condition_reads_must_be_there():
    recipe = Recipe([MathVerifyMapper(where={"sauce": 1})], pa.Table.from_pylist([ROW]))
    assert "column 'sauce' is missing" in refusal(run, recipe)
    recipe = Recipe([MathVerifyMapper(where={"x" * 100_000: 1})], pa.Table.from_pylist([ROW]))
    message = refusal(run, recipe)
    assert "column 'xxx" in message
    assert len(message) < 1_000


def test_a_statistic_of_other_rows_stays_current():
    """A step replaces verdicts of its own rows, and what was computed of others is as it was."""
    rows = pa.Table.from_pylist([{**ROW, "source": source} for source in "ab"])
    a, b = {"source": "a"}, {"source": "b"}

    def recipe(where):
        steps = [
            MathVerifyMapper(where=a),
            GroupStatsMapper(where=where),
            OtherVerifierMapper(where=b),
        ]
        return Recipe(steps, rows)

    assert run(recipe(a)).table["pass_rate"].null_count == 1
    assert "of which step 2 group_stats_mapper computed" in refusal(run, recipe(None))


def test_an_operator_computes_again_what_it_wrote():
    table = pa.Table.from_pylist([ROW, WRONG])
    twice = {"reward_sum_mapper": {"weights": {"accuracy": 2.0}}}
    found = columns([VERIFY, SUM, "grpo_advantage_mapper", twice, "grpo_advantage_mapper"], table)
    assert found["reward"].to_pylist() == [2.0, 0.0]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_an_export_is_verified_and_rewarded_again(recipe_file, tmp_path, suffix):
    first = tmp_path / f"first{suffix}"
    engine.run(load(recipe_file([VERIFY, SUM], [ROW, WRONG], export_path=str(first))))
    other = {"reward_sum_mapper": {"weights": {"accuracy": -1.0}}}
    engine.run(load(recipe_file([VERIFY, other], dataset_path=str(first))))
    found = pq.read_table(tmp_path / "out" / "curated.parquet")
    assert found["reward"].to_pylist() == [-1.0, 0.0]


@pytest.mark.parametrize(("suffix", "known"), [(".parquet", True), (".arrow", True), (".jsonl", False)])  # fmt: skip
def test_an_export_that_was_moved_still_says_what_is_its_own(recipe_file, tmp_path, suffix, known):
    first, moved = tmp_path / f"first{suffix}", tmp_path / "elsewhere" / f"rollouts{suffix}"
    engine.run(load(recipe_file([VERIFY], [ROW, WRONG], export_path=str(first))))
    moved.parent.mkdir()
    shutil.move(first, moved)
    path = recipe_file([VERIFY], dataset_path=str(moved))
    if known:
        engine.run(load(path))
    else:  # JSON has no place for it, and the run folder stayed behind.
        assert "would replace columns 'verdict', 'extracted_answer'" in refusal(
            engine.run, load(path)
        )


def test_what_is_the_users_stays_theirs_through_a_run(recipe_file, tmp_path):
    first = tmp_path / "first.parquet"
    rows = [{**ROW, "reward": 0.5, "answer": "One and one is 2."}]
    engine.run(load(recipe_file([VERIFY], rows, export_path=str(first))))
    path = recipe_file([VERIFY, SUM], dataset_path=str(first))
    assert "step 2 reward_sum_mapper: would replace column 'reward'" in refused(path)
    engine.run(load(recipe_file([LONG], dataset_path=str(first))))
    second = Dataset(tmp_path / "out" / "curated.parquet").table()
    assert second["answer"].to_pylist() == ["One and one is 2."]
    path = recipe_file([VERIFY], dataset_path=str(tmp_path / "out" / "curated.parquet"), export_path=str(tmp_path / "third.parquet"))  # fmt: skip
    engine.run(load(path))  # The mark of the first run went through the second.


def test_a_table_of_an_earlier_run_is_computed_again_in_python():
    first = columns([VERIFY, SUM], pa.Table.from_pylist([ROW, WRONG]))
    graded = columns([OtherVerifierMapper()], first)
    assert graded["verdict"].to_pylist() == ["correct", "correct"]
    twice = {"reward_sum_mapper": {"weights": {"accuracy": 2.0}}}
    assert columns([VERIFY, twice], first)["reward"].to_pylist() == [2.0, 0.0]


def test_a_dataset_that_is_named_like_the_export(recipe_file, tmp_path):
    """The run folder beside it is about the export."""
    process = [LONG, VERIFY]
    path = recipe_file(process, [ROW], export_path=str(tmp_path / "data.parquet"))
    engine.run(load(path))
    (tmp_path / "data.jsonl").write_text(json.dumps({**ROW, "verdict": "as I say"}) + "\n")
    assert "would replace column 'verdict'" in refusal(checked_schema, load(path))


def test_the_pass_rate_of_another_model_is_no_verdict(recipe_file):
    rows = [{"question": "1 + 1?", "answer": "2", "pass_rate": 0.5}]
    path = recipe_file(["prompt_template_mapper", "pass_rate_filter"], rows)
    assert "column 'verdict' is missing; use column_range_filter" in refusal(
        checked_schema, load(path)
    )


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_folder_of_exports(recipe_file, tmp_path, suffix):
    folder = tmp_path / "exports"
    for name in ("a", "b"):
        export = folder / f"{name}.{suffix}"
        engine.run(load(recipe_file([VERIFY], [ROW, WRONG], export_path=str(export))))
    path = recipe_file([VERIFY], dataset_path=str(folder))
    checked_schema(load(path))
    (folder / "c.jsonl").write_text(json.dumps({**ROW, "verdict": "as I say"}) + "\n")
    assert "would replace columns 'verdict'" in refusal(checked_schema, load(path))


@pytest.mark.parametrize("name", ["rows.csv", "rows"])
def test_a_format_that_only_data_juicer_reads_marks_nothing(tmp_path, name):
    (tmp_path / "rows").mkdir()
    for file in ("rows.csv", "rows/rows.csv"):
        (tmp_path / file).write_text("verdict\nmine\n")
    assert written_columns(tmp_path / name) == frozenset()


def test_a_report_of_something_else_marks_nothing(tmp_path):
    (tmp_path / "rows.run").mkdir()
    (tmp_path / "rows.run" / "report.json").write_text("{}")
    (tmp_path / "rows.jsonl").write_text('{"verdict": "mine"}\n')
    assert written_columns(tmp_path / "rows.jsonl") == frozenset()
