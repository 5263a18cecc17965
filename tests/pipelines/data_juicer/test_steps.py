"""Data-Juicer's operators as steps: their fields, what `rejuice check` says of them, what they do."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from change_of import change_of
from command import runner
from each import check_each
from jsonargparse.typing import ClosedUnitInterval
from pydantic import PositiveInt

from rejuice.operators import Change, OperatorError, RecipeError, Scope, build
from rejuice.pipelines.data_juicer import catalogue, settings, steps, tables
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.columns import checked_schema
from rejuice.pipelines.recipe.head import Head
from rejuice.pipelines.recipe.recipe import load, parse

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

TEXTS = [" a  b ", "second text, which is longer", "a b", "a b", "second text, which is longer"]


def table(**more):
    return pa.table({"text": TEXTS, "n": [1, 5, 3, 2, 4], **more})


def change(name, rows=None, **fields):
    return change_of(steps.step(name, fields), Frame.of(table() if rows is None else rows))


def reasons(change):
    return change.reasons.to_pylist()


# Without Data-Juicer


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    ).stdout


def test_nothing_is_imported_for_recipes_without_them():
    assert python(
        "import sys; from rejuice.pipelines import Recipe\n"
        "from rejuice.pipelines.analysis import reference\n"
        "Recipe([{'length_filter': {'min': 1}}], 'a.jsonl', keep_stats_in_res_ds=True)\n"
        "reference.listing(); print({'data_juicer', 'datasets'} & set(sys.modules))"
    ) == "set()\n"  # fmt: skip


@pytest.mark.recommended("pipelines/data_juicer/catalogue.py", "pip install 'rejuice[data-juicer]'")
def test_without_the_extra_their_steps_are_refused_and_ours_run(recipe_file, tmp_path):
    rows = [{"text": "a b", "answer": "1"}]
    runs = recipe_file([{"length_filter": {"column": "text", "min": 1}}], rows, use_cache=False)
    theirs, typo = tmp_path / "theirs.yaml", tmp_path / "typo.yaml"
    theirs.write_text(runs.read_text().replace("length_filter", "text_length_filter"))
    typo.write_text(runs.read_text().replace("length_filter", "lenght_filter"))
    out = python(
        "import sys; sys.modules['data_juicer'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'data_juicer' else found(name, *more)\n"
        "from rejuice.pipelines.cli.main import main\n"
        f"for words in (['run', '{runs}'], ['report', '{runs.parent}/out/curated.parquet'],\n"
        "    ['explain', 'length_filter'] , ['ops', '--schema'], ['ops', 'length_filter'],\n"
        f"    ['check', '{theirs}'], ['run', '{theirs}'], ['check', '{typo}'], ['ops', 'no_op']):\n"
        "  sys.argv = ['rejuice', *words]; sys.stderr = sys.stdout\n"
        "  try: main()\n"
        "  except SystemExit as end: print('STATUS', words[0], end.code)\n"
    )
    assert "Traceback" not in out
    lines = out.splitlines()
    extra = "pip install 'rejuice[data-juicer]'"
    refused = [line for line in lines if extra in line]
    assert len(refused) == 4
    assert all("text_length_filter" in line and ", line " in line for line in refused[:2])
    assert "did you mean 'length_filter'?" in refused[2]
    assert "no operator 'no_op'" in refused[3]


# Their names and fields


def test_keys_are_those_of_data_juicers_parser():
    from data_juicer.config.config import build_base_parser

    theirs = {action.dest.partition(".")[0] for action in build_base_parser()._actions}
    ours = {"train", "generated_datasets", "columns", "max_rows_per_file", "help", "config"}
    of_head = set(Head.model_fields) | {"process"}
    assert theirs - ours - of_head == settings.KEYS


def test_fields_are_those_that_data_juicer_checks():
    from data_juicer.core.preflight import _get_valid_params

    for name in catalogue.names():
        found = catalogue.find(name)
        assert set(found.fields) == set(_get_valid_params(found.cls)), name


def test_every_default_fits_its_own_annotation():
    for name in catalogue.names():
        for field in catalogue.find(name).fields.values():
            if not field.is_required:
                settings.check_type(field, field.default)


def test_operators_of_all_kinds_and_folders_are_found():
    assert catalogue.find("human_preference_annotation_mapper").kind == "mapper"
    assert catalogue.find("key_value_grouper").kind == "grouper"
    assert catalogue.find("no_filter") is catalogue.find("length_filter") is None
    assert {"text_length_filter", "random_selector"} < set(catalogue.names())
    assert "key_value_grouper" not in catalogue.names()


ERRORS = [
    ("text_length_filter", {"max_length": 1}, "unknown field 'max_length'; did you mean 'max_len'?"),
    ("llm_extract_mapper", {"input_keys": []}, "field 'output_schema' is missing; it has no default"),
    ("text_length_filter", {"skip_op_error": True}, "'skip_op_error' is True, which loses rows"),
    ("key_value_grouper", {}, "kind grouper, whose rows come from several rows each; run this"),
    ("text_lenth_filter", {}, "unknown operator; did you mean 'text_length_filter'?"),
    ("text_length_filter", {"max_len": "abc"}, "'max_len' is 'abc'; input should be a valid integer"),
    ("text_length_filter", {"max_len": True}, "'max_len' is True; input should be a valid integer"),
    ("text_length_filter", {"max_len": 2.5}, "'max_len' is 2.5; input should be a valid integer"),
    ("text_length_filter", {"text_key": 3}, "'text_key' is 3; input should be a valid string"),
    ("text_length_filter", {"reversed_range": 1}, "is 1; input should be a valid boolean"),
    ("alphanumeric_filter", {"min_ratio": "0.5"}, "is '0.5'; input should be a valid number"),
    ("document_minhash_deduplicator", {"window_size": 0}, "is 0; input should be greater than 0"),
    ("random_selector", {"select_ratio": -0.1}, "'select_ratio' is -0.1; "),
    ("remove_table_text_mapper", {"max_col": 30}, "is 30; input should be less than or equal to 20"),
    ("flagged_words_filter", {"words_aug_group_sizes": [2, 0]}, "should be greater than 0"),
    ("language_id_score_filter", {"lang": 5}, "input should be a valid string or a valid list"),
    ("specified_field_filter", {"target_value": "x"}, "is 'x'; input should be a valid list"),
    ("llm_extract_mapper", {"output_schema": {"a": 1}}, "input should be a valid string"),
    ("general_field_filter", {"filter_condition": "'a' in __dj__stats__"}, "name the statistic"),
    ("llm_quality_score_filter", {"model_params": {"api_key": "sk-0123456789abcdef"}}, "set OPENAI_API_KEY"),
]  # fmt: skip


def test_a_wrong_step_is_one_line_of_check_with_its_place(recipe_file):
    def check(name, fields, facts):
        path = recipe_file([{"clean_links_mapper": {}}, {name: fields}], [{"text": "a"}])
        with pytest.raises(RecipeError) as raised:
            load(path)
        message = str(raised.value)
        assert message.startswith(f"{path}, line ")
        assert f"step 2 {name}: " in message
        assert facts in message
        assert "\n" not in message

    check_each(ERRORS, check)


def test_values_of_the_right_type():
    cases = [
        (int, 5.0), (int, None), (float, 1), (PositiveInt, 2e5), (list[int], [1, 2]),
        (tuple[int, int], [1, 2]), (int | str, "auto"), (Path | None, "direct"),
        (Callable[[str], list[str]] | str | None, 5), (ClosedUnitInterval, 1), (None, "x"),
        (Literal["a", "b"], "a"), (dict[int], {}),
    ]  # fmt: skip
    check_each(
        cases, lambda hint, value: settings.check_type(catalogue.ForeignField("f", hint, 0), value)
    )
    given = parse("{max_len: 2e5, min_len: 1.0, text_key: '2e5'}")
    assert steps.step("text_length_filter", given).fields == given, "nothing is converted"


@pytest.mark.recommended("pipelines/data_juicer/steps.py", "pip install {…}")
def test_check_says_which_client_of_servers_is_missing(recipe_file, monkeypatch, capsys):
    monkeypatch.setattr(steps, "find_spec", lambda name: None)
    rejuice = runner(monkeypatch, capsys, Path())
    for name, fields, package in (
        ("llm_quality_score_filter", {}, "openai"),
        ("calibrate_qa_mapper", {"model_params": {"api_backend": "litellm"}}, "litellm"),
        ("ray_document_deduplicator", {}, "ray"),
    ):
        path = recipe_file([{name: fields}], [{"text": "a"}])
        status, _, err = rejuice("check", str(path))
        assert status == 2
        assert f"step 1 {name}: it needs {package}, which is not installed; pip install" in err
        load(path)  # To look at a run takes none of it.
    rejuice("check", str(recipe_file([{"optimize_qa_mapper": {}}], [{"text": "a"}])))
    assert "openai" not in capsys.readouterr().err, "it loads a model"


# The columns they read and write


def test_what_only_reads_its_text_fails_without_it_and_keeps_the_columns():
    names = [n for n in catalogue.names() if catalogue.find(n).reads_only_text]
    assert len(names) > 40
    quick = ["alphanumeric_filter", "text_length_filter", "words_num_filter", "clean_links_mapper",
             "document_deduplicator", "replace_content_mapper", "remove_long_words_mapper",
             "punctuation_normalization_mapper", "special_characters_filter"]  # fmt: skip
    assert set(quick) < set(names)
    for name in quick:
        fields = {"pattern": "a"} if name == "replace_content_mapper" else {}
        with pytest.raises(OperatorError, match="may need column 'text': set text_keys"):
            change(name, pa.table({"other": ["some text"]}), **fields)
        out = Frame.of(table()).after(change(name, **fields)).table()
        assert [n for n in out.column_names if not n.startswith("__dj__")] == ["text", "n"], name
    others = ("specified_field_filter", "llm_quality_score_filter", "image_shape_filter",
              "random_selector", "text_pair_similarity_filter", "text_tagging_by_prompt_mapper",
              "python_lambda_mapper", "extract_keyword_mapper")  # fmt: skip
    assert not set(others) & set(names)


def test_columns_are_followed_through_their_steps(recipe_file):
    recorded = ["prompt_template_mapper", {"recorded_rollout_mapper": {"columns": ["output"]}}]
    rows = [{"question": "q", "answer": "1", "output": "x"}]
    spaces = "whitespace_normalization_mapper"
    checked_schema(
        load(recipe_file([*recorded, spaces, "text_length_filter"], rows, text_keys="response"))
    )
    checked_schema(load(recipe_file(["python_lambda_mapper", "pass_rate_filter"], rows)))
    cases = [
        ([*recorded, "text_length_filter"], {}, "step 3 text_length_filter: its text column 'text' is missing; set text_keys"),
        (["text_length_filter", *recorded], {"text_keys": "response"}, "recorded_rollout_mapper writes it: put that step before"),
        ([*recorded, spaces, "pass_rate_filter"], {"text_keys": "response"}, "step 4 pass_rate_filter: column 'verdict' is missing"),
    ]  # fmt: skip
    for process, head, facts in cases:
        with pytest.raises(RecipeError) as raised:
            checked_schema(load(recipe_file(process, rows, **head)))
        assert facts in str(raised.value)


# What they do


def test_scopes_kinds_and_pickles():
    scopes = {
        "whitespace_normalization_mapper": Scope.ROW,
        "text_length_filter": Scope.ROW,
        "document_deduplicator": Scope.DATASET,
        "random_selector": Scope.DATASET,
    }
    assert {name: steps.step(name, {}).scope for name in scopes} == scopes
    step = steps.step("text_length_filter", {"max_len": 10}, text_key="response")
    assert (step.name(), step.kind.value) == ("text_length_filter", "filter")
    assert step.model_dump(mode="json") == {"max_len": 10, "text_key": "response"}
    assert pickle.loads(pickle.dumps(step)) == step
    assert build(type(step), step.model_dump(mode="json")) == step


def test_text_keys_of_the_recipe_are_the_text(recipe_file):
    process = [{"text_length_filter": {}}, {"words_num_filter": {"text_key": "mine"}}]
    for head, expected in (
        ({}, [None, "mine"]),
        ({"text_keys": ["response", "prompt"]}, ["response", "mine"]),
    ):
        read = load(recipe_file(process, [{"text": "a"}], **head))
        assert [s.operator.fields.get("text_key") for s in read.steps] == expected


def test_a_mapper_writes_what_it_changed_and_nothing_else():
    done = change("whitespace_normalization_mapper")
    assert {n: c.to_pylist() for n, c in done.columns.items()} == {"text": ["a  b", *TEXTS[1:]]}
    assert (done.reasons, done.parents, done.without) == (None, None, ())
    assert change("clean_links_mapper") == Change()
    assert change("text_length_filter", table().slice(0, 0)) == Change()


def test_dropped_rows_have_the_name_as_their_reason_and_the_others_keep_their_order():
    cases = [
        ("text_length_filter", {"min_len": 1, "max_len": 10}, [1, 4]),
        ("document_deduplicator", {}, [3, 4]),
        (
            "topk_specified_field_selector",
            {"field_key": "n", "topk": 2, "reverse": True},
            [0, 2, 3],
        ),
    ]
    for name, fields, dropped in cases:
        found = reasons(change(name, **fields))
        assert found == [name if row in dropped else None for row in range(5)]


def test_a_mapper_that_makes_several_rows_of_one():
    done = change("text_chunk_mapper", max_len=20)
    assert done.parents.tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert "".join(done.columns["text"].to_pylist()) == "".join(TEXTS)


def test_changes_of_a_table():
    rows = pa.table({"text": ["dropped dropped", "a  b"]})
    out = {"text": ["A"], "new": [7], tables.ROW: [1], "__dj__context__": [0]}
    written = tables.change(rows, pa.table(out), "x")
    assert reasons(written) == ["x", None]
    assert Frame.of(rows).after(written).table().to_pylist() == [{"text": "A", "new": 7}]
    narrow = pa.array([1, 2], pa.int8())
    rows = pa.table({"a": narrow, "b": [1, 2], "c": narrow})
    written = tables.change(rows, pa.table({"a": [1, 2], "c": [1, 2000], tables.ROW: [0, 1]}), "x")
    assert (written.without, list(written.columns)) == (("b",), ["c"])
    assert written.columns["c"].type == pa.int64()
    rows = pa.table({"a": [10, 20, 30]})
    written = tables.change(rows, pa.table({"a": [30, 10, 31], tables.ROW: [2, 0, 2]}), "x")
    assert written.parents.tolist() == [0, 2, 2]
    assert written.columns["a"].to_pylist() == [10, 30, 31]


def test_a_step_is_about_the_rows_of_its_condition():
    step = steps.step("text_length_filter", {"min_len": 7, "where": {"n": {"max": 3}}})
    assert "where" not in step.fields
    for each in (step, pickle.loads(pickle.dumps(step))):
        assert run_in_memory([each], table())["n"].to_pylist() == [5, 4]
    step = steps.step("whitespace_normalization_mapper", {"where": {"n": 5}})
    assert run_in_memory([step], table())["text"].to_pylist() == TEXTS


# Files that fields name, and the code of plug-ins, are in the key


def test_an_edited_file_is_computed_again_and_an_untouched_one_is_not(tmp_path):
    code, words = tmp_path / "own.py", tmp_path / "words"
    words.mkdir()
    code.write_text("a = 1")
    (words / "en.json").write_text("{}")

    def key(**fields):
        return steps.step("python_file_mapper", fields).cache_key_fields()

    before = key(file_path=str(code)), key(file_path=str(words))
    assert before == (key(file_path=str(code)), key(file_path=str(words)))
    code.write_text("a = 22")
    (words / "en.json").write_text("{} ")
    assert key(file_path=str(code)) != before[0]
    assert key(file_path=str(words)) != before[1]
    for text in ("", "/", ".", "a" * 5000, "no\0path"):
        assert "named files" not in key(function_name=text)
    step = steps.step("text_length_filter", {"stats_export_path": str(code), "num_proc": 3})
    assert step.cache_key_fields() == {"stats_export_path": str(code)}
