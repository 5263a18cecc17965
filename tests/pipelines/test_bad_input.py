"""Bad input gets one clear line, before anything is lost. The lines are the interface: exact."""

import json
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rejuice.operators import RejuiceError
from rejuice.pipelines import run
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.trial import tried
from rejuice.pipelines.recipe.columns import check_columns
from rejuice.pipelines.recipe.recipe import load

ROWS = [{"question": f"What is {i} plus 1?", "answer": f"#### {i + 1}"} for i in range(6)]
PROMPTS = {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}}


def message(path, *, run=False):
    """The line that `rejuice check` (or `run`) prints about a recipe."""
    with pytest.raises(RejuiceError) as caught:
        recipe = load(path)
        if run:
            engine.run(recipe)
        else:
            check_columns(recipe, Dataset(recipe.head.dataset_path).first_rows.schema)
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(str(path.parent), "").replace("/recipe.yaml", "recipe.yaml")


def test_unknown_operator(recipe_file):
    assert message(recipe_file([{"pas_rate_filter": {}}], ROWS)) == (
        "recipe.yaml, line 4, step 1 pas_rate_filter: unknown operator; did you mean 'pass_rate_filter'?"
    )


def test_an_unknown_operator_without_a_similar_name(recipe_file):
    assert message(recipe_file(["qqqqqqqq"], ROWS)) == (
        "recipe.yaml, line 4, step 1 qqqqqqqq: unknown operator; `rejuice ops` lists them"
    )


def test_unknown_field(recipe_file):
    assert message(recipe_file([{"pass_rate_filter": {"mx": 0.5}}], ROWS)) == (
        "recipe.yaml, line 4, step 1 pass_rate_filter: unknown field 'mx'; did you mean 'max'?"
    )


def test_mistyped_field(recipe_file):
    assert message(recipe_file([{"pass_rate_filter": {"max": "most"}}], ROWS)) == (
        "recipe.yaml, line 4, step 1 pass_rate_filter: field 'max' is 'most'; "
        "input should be a valid number, unable to parse string as a number"
    )


def test_fields_that_contradict_each_other(recipe_file):
    assert message(recipe_file([{"pass_rate_filter": {"min": 0.9, "max": 0.1}}], ROWS)) == (
        "recipe.yaml, line 4, step 1 pass_rate_filter: min 0.9 is above max 0.1"
    )


def test_missing_column(recipe_file):
    assert message(recipe_file([PROMPTS, {"pass_rate_filter": {}}], ROWS)) == (
        "recipe.yaml, line 6, step 2 pass_rate_filter: column 'verdict' is missing; "
        "llm_verify_mapper, math_verify_mapper, unit_test_mapper or reward_function_mapper with "
        "correct_above writes it: put that step before this one"
    )


def test_a_reward_that_only_a_function_could_give(recipe_file):
    """The functions of which nothing is known here are asked what they write, not what they read."""
    process = [PROMPTS, {"reward_sum_mapper": {"weights": {"function": 1.0}}}]
    assert message(recipe_file(process, ROWS)) == (
        "recipe.yaml, line 6, step 2 reward_sum_mapper: column 'reward_function' is missing; "
        "reward_function_mapper writes it: put that step before this one"
    )


def test_a_text_where_a_list_is_meant(recipe_file):
    assert message(recipe_file([{"recorded_rollout_mapper": {"columns": "rs"}}], ROWS)) == (
        "recipe.yaml, line 4, step 1 recorded_rollout_mapper: "
        "field 'columns' is 'rs', not a list; write ['rs']"
    )


OF_STRUCTS = {"columns": ["rs"], "text": "text"}
TWO = [{"text": "2", "ids": [5, 6], "lp": [-0.1, -2.0]}, {"text": "3", "ids": [5], "lp": [-0.2]}]
BESIDE = {"rs": ["2", "3"], "ids": [[5, 6], [5]], "lp": [[-0.1, -2.0], [-0.2]]}
AS = {"ids": "response_token_ids", "lp": "response_logprobs"}


def test_token_ids_that_recorded_responses_did_not_keep(recipe_file):
    """Both ways that the message names give the step what it needs."""
    asked = {"question": "1 + 1?", "answer": "#### 2"}
    weighs = {"token_weight_mapper": {"style": "top_entropy", "share": 0.4}}
    for recorded, row in ((OF_STRUCTS, {"rs": TWO}), ({"columns": ["rs"]}, BESIDE)):
        process = [PROMPTS, {"recorded_rollout_mapper": recorded}, weighs]
        shown = message(recipe_file(process, [asked | row])).partition("token_weight_mapper: ")[2]
        assert shown.startswith("column 'response_token_ids' is missing; ")
        assert "recorded_rollout_mapper with keep_fields: {FIELD: COLUMN} or parallel: {" in shown
    for recorded, row in (
        (OF_STRUCTS | {"keep_fields": AS}, {"rs": TWO}),
        ({"columns": ["rs"], "parallel": AS}, BESIDE),
    ):
        process = [PROMPTS, {"recorded_rollout_mapper": recorded}, weighs]
        table = run(load(recipe_file(process, [asked | row]))).table
        assert table["token_weight"].to_pylist() == [[0.0, 1.0], [0.0]]


def test_missing_column_that_no_operator_writes(recipe_file):
    rows = [{"problem": "1 + 1", "answer": "#### 2"}]
    assert message(recipe_file([PROMPTS], rows)) == (
        "recipe.yaml, line 4, step 1 prompt_template_mapper: column 'question' is missing; "
        "there are: answer, problem"
    )


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_dataset(recipe_file, content):
    assert message(recipe_file([PROMPTS], content)) == (
        "/data.jsonl is empty; a dataset needs at least one row"
    )


def test_missing_file(recipe_file):
    assert message(recipe_file([PROMPTS])) == (
        "/data.jsonl does not exist; set dataset_path to a file or a folder of files"
    )


def test_a_file_of_another_kind(recipe_file, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n")
    assert message(recipe_file([PROMPTS], dataset_path=str(tmp_path / "data.csv"))) == (
        "/data.csv is not a dataset file; convert it, with pandas: `python -c 'import pandas as d; "
        """[d.read_csv(f, dtype=str, keep_default_na=False).to_parquet(f + ".parquet") for f in """
        """["/data.csv"]]'`, and read the .parquet"""
    )


def test_broken_json_line(recipe_file):
    lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    broken = lines + '{"question": "What is\n' + lines
    assert message(recipe_file([PROMPTS], broken)) == (
        "/data.jsonl, line 7: not JSON (Unterminated string starting at: line 1 column 14 (char 13)); "
        "fix or remove the line"
    )


def test_a_line_that_is_no_object(recipe_file):
    assert message(recipe_file([PROMPTS], '{"question": "a", "answer": "b"}\n[1]\n')) == (
        "/data.jsonl, line 2: list instead of an object; give one object per line"
    )


def test_reference_without_an_answer(recipe_file):
    rows = [*ROWS, {"question": "What is 1 plus 6?", "answer": "seven, I think"}]
    assert message(recipe_file([PROMPTS], rows), run=True) == (
        "/data.jsonl, step 1 prompt_template_mapper: no reference in column 'answer': "
        "'seven, I think', '#### (.*)' not found (its question: 'What is 1 plus 6?'); "
        "fix the row, or set on_bad_row: drop_row to leave such rows out"
    )


def test_mixed_schemas_in_one_file(recipe_file):
    rows = [*ROWS, {"question": 7, "answer": "#### 7"}]
    assert message(recipe_file([PROMPTS], rows)) == (
        "/data.jsonl, line 7: column 'question' is number, but string in earlier rows; "
        "give the column one type, or name only others in `columns`"
    )


def test_mixed_schemas_in_two_files(recipe_file, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"question": "1 + 1", "answer": "#### 2"}\n')
    (folder / "b.jsonl").write_text('{"question": 11, "answer": "#### 2"}\n')
    assert message(recipe_file([PROMPTS], dataset_path=str(folder)), run=True) == (
        "/parts/b.jsonl: column 'question' is int64, but string in earlier rows; "
        "give the column one type, or name only others in `columns`"
    )


RECORDED = {"recorded_rollout_mapper": {"columns": ["samples"]}}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "process",
    [
        [PROMPTS, "grpo_advantage_mapper"],
        [PROMPTS, RECORDED, "math_verify_mapper", "group_stats_mapper"],
    ],
)
def test_duplicate_prompts(recipe_file, tmp_path, monkeypatch, process, suffix):
    """`check` refuses them as a run does; the step that the message names keeps one."""
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "samples": ["1", "2"], "reward": 0.5} for row in [*ROWS, ROWS[1]]]
    path = recipe_file(process, rows, export_path="out.parquet")
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), "data.parquet")
        path = recipe_file(process, rows, dataset_path="data.parquet", export_path="out.parquet")
    line = message(path, run=True)
    with pytest.raises(RejuiceError) as caught:
        tried(load(path), load(path).opened())
    assert str(caught.value).replace(str(path.parent), "") == line
    found, _, advice = line.partition("; ")
    assert found.endswith("rows 2 and 7 have the same prompt but are not next to each other")
    keep = re.search(r"first step `(exact_deduplicator): (.*?)`, or ", advice)
    assert (keep is not None) is (RECORDED in process)
    if keep is not None:
        one = recipe_file(
            [{keep[1]: yaml.safe_load(keep[2])}, *process], rows, export_path="out.parquet"
        )
        assert engine.run(load(one)).rows_in == 7
        assert (
            pq.read_table("out.parquet")["prompt_id"].value_counts().field("counts").to_pylist()
            == [2] * 6
        )
    assert advice.endswith("sort the dataset by prompt, see docs/recipes.md")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("- a\n- b\n", "['a', 'b']"), ("", "empty"), ("just words\n", "'just words'"), ("3\n", "3")],
)
def test_a_recipe_that_is_not_a_mapping(tmp_path, text, kind):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert message(path) == (
        f"recipe.yaml: a recipe is a mapping, this is {kind}; start with dataset_path:"
    )


def test_a_tag_that_would_run_code(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("dataset_path: x\nnp: !!python/object/apply:os.system ['touch /tmp/pwned']\n")
    assert message(path) == (
        "recipe.yaml, line 2: tag 'tag:yaml.org,2002:python/object/apply:os.system' is not "
        "allowed; a recipe holds names and values, never code"
    )


def test_broken_yaml(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("dataset_path: x\nprocess: [a\n")
    assert message(path) == (
        "recipe.yaml, line 3: not YAML (expected ',' or ']', but got '<stream end>'); fix the line"
    )


def test_a_key_given_twice(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("dataset_path: x\ndataset_path: y\n")
    assert message(path) == (
        "recipe.yaml, line 2: not YAML (key 'dataset_path' is given twice); fix the line"
    )


def test_an_unknown_key(recipe_file):
    assert message(recipe_file([PROMPTS], ROWS, dataset_paht="x")) == (
        "recipe.yaml, line 6: unknown key 'dataset_paht'; did you mean 'dataset_path'?"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dataset_pth: a.jsonl\nexport_path: b.jsonl\nprocess: [exact_deduplicator]\n", "line 1: unknown key 'dataset_pth'; did you mean 'dataset_path'?"),
        ("dataset_path: a.jsonl\nexprt_path: b.jsonl\nprocess: []\n", "line 2: unknown key 'exprt_path'; did you mean 'export_path'?"),
        ("dataset_path: a.jsonl\nexport_path: b.jsonl\nproces: [exact_deduplicator]\n", "line 3: unknown key 'proces'; did you mean 'process'?"),
        ("partition: {mode: auto}\npartiton_dir: x\nprocess: []\n", "line 2: unknown key 'partiton_dir'; did you mean 'partition_dir'?"),
    ],
)  # fmt: skip
def test_a_misspelled_key_is_reported_as_that_and_not_as_what_is_missing(tmp_path, text, expected):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert message(path) == f"recipe.yaml, {expected}"


def test_every_key_of_data_juicer_is_left_to_it(recipe_file):
    theirs = {
        "turbo": True,
        "partition": {"mode": "auto"},
        "export_type": "parquet",
        "trace_num": 3,
    }
    recipe = load(recipe_file([PROMPTS], ROWS, **theirs))
    assert recipe.for_data_juicer == theirs


def test_a_recipe_without_steps(recipe_file):
    assert (
        message(recipe_file([], ROWS))
        == "recipe.yaml, line 3: 'process' is empty; make it a list of operators"
    )


def test_a_step_with_two_names(recipe_file):
    assert message(recipe_file([{"a": {}, "b": {}}], ROWS)) == (
        "recipe.yaml, line 4, step 1: a step is one operator and its fields; write `- name: {…}`"
    )


def test_an_export_path_that_exists(recipe_file, tmp_path):
    path = recipe_file([PROMPTS], ROWS)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "curated.parquet").write_text("precious")
    assert message(path, run=True) == (
        "export_path /out/curated.parquet exists; give another --export_path, or --overwrite"
    )
    assert (tmp_path / "out" / "curated.parquet").read_text() == "precious"


def test_an_export_of_no_known_format(recipe_file, tmp_path):
    path = recipe_file([PROMPTS], ROWS, export_path=str(tmp_path / "out.csv"))
    assert message(path, run=True) == (
        "export_path /out.csv has no known format; end it in .parquet, .arrow, .jsonl, "
        "or name a folder, without a dot"
    )


def test_a_custom_operator_file_that_does_not_import(recipe_file, tmp_path):
    (tmp_path / "mine.py").write_text("import nothing_of_that_name\n")
    path = recipe_file([PROMPTS], ROWS, custom_operator_paths=[str(tmp_path / "mine.py")])
    assert message(path) == (
        "custom_operator_paths: /mine.py does not import: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


def test_an_operator_that_fails(recipe_file, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rejuice.operators import Filter\n"
        "class OddFilter(Filter):\n"
        "    def reads(self): return ('question',)\n"
        "    def decide(self, table): return 1 / 0\n"
    )
    path = recipe_file(
        [PROMPTS, {"odd_filter": {}}], ROWS, custom_operator_paths=[str(tmp_path / "mine.py")]
    )
    assert message(path, run=True) == (
        "recipe.yaml, line 6, step 2 odd_filter: failed with ZeroDivisionError: division by zero (mine.py:4)"
    )


def test_an_override_of_a_step_that_is_not_there(recipe_file):
    path = recipe_file([PROMPTS], ROWS)
    with pytest.raises(RejuiceError) as caught:
        load(path, {"pass_rate_filter.max": "1"})
    assert str(caught.value) == (
        "--pass_rate_filter.max: no step 'pass_rate_filter' in the recipe; "
        "its steps are: prompt_template_mapper"
    )


@pytest.mark.slow
def test_the_command_prints_one_line_and_exits_with_2(recipe_file):
    path = recipe_file([{"pas_rate_filter": {}}], ROWS)
    done = subprocess.run(
        [sys.executable, "-m", "rejuice.pipelines.cli", "check", str(path)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"rejuice: {path}, line 4, step 1 pas_rate_filter: unknown operator; "
        "did you mean 'pass_rate_filter'?\n"
    )
