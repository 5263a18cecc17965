"""YAML text: the values that `dj-process` reads from the same recipe, and the lines of messages."""

import datetime
import math
from pathlib import Path

import pytest
import yaml
from each import check_each
from jsonargparse import get_loader

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe import load
from rejuice.pipelines.recipe.recipe import dump, parse, parse_document

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))
WORDS = [
    "1e-6",
    "1.0e-6",
    "1e5",
    "2e5",
    "'2e5'",
    "1E+5",
    ".5",
    "5.",
    "1_000",
    "010",
    "0o10",
    "09",
    "0x1F",
    "0b11",
    "1:30",
    "1:30.5",
    "yes",
    "No",
    "on",
    "Off",
    "y",
    "n",
    "~",
    "null",
    "true",
    "TRUE",
    "2020-01-01",
    "2020-01-01T10:00:00",
    ".inf",
    "-.Inf",
    "+1",
    "-1",
    "+.5",
    "1.5e3",
    "1.e3",
    "1e1.0",
    "0.1",
    ".5e+1",
    ".5e1",
    "1e",
    "'x'",
    '"1e-6"',
    "e5",
    "1e-6x",
    "-",
    "x-1",
]


def test_both_runners_read_the_same_values():
    def check(word):
        for text in (f"a: {word}\n", f"- {word}\n", f"{{k: [{word}]}}"):
            ours, theirs = parse(text), get_loader("yaml")(text)
            assert ours == theirs
            assert repr(ours) == repr(theirs), "of the same type, too"

    check_each([word for word in WORDS if word != "-"], check)


def test_both_runners_read_the_same_recipes():
    def check(path):
        text = path.read_text("utf-8")
        assert parse(text) == get_loader("yaml")(text)

    check_each(RECIPES, check)


def test_values_that_libraries_read_differently():
    found = parse("{a: 1e-6, b: 2020-01-01, c: yes, d: 010, e: 0o10, n: 8, f: 1:30}")
    assert found == {"a": 1e-6, "b": "2020-01-01", "c": True, "d": 8, "e": "0o10", "n": 8, "f": 90}
    assert isinstance(found["a"], float)
    assert math.isnan(parse(".nan"))


TEXTS = [
    *WORDS,
    "",
    " x ",
    "a: b",
    "# x",
    "<<",
    "=",
    "\n",
    "日本",
    "1e-6\n",
    "!x",
    "*x",
    "&x",
    "%x",
]


def test_what_is_written_is_read_back_as_text():
    def check(text):
        document = {"text": text, "list": [text], "fields": {text: 1}}
        for read in (parse, get_loader("yaml"), yaml.safe_load):
            found = read(dump(document))
            assert found == document
            assert not isinstance(found["text"], datetime.date)

    check_each(TEXTS, check)


def test_values_are_written_in_order_and_read_back():
    document = {"z": 1e-6, "a": [1, None, True, 0.1, -math.inf], "m": {"y": "yes", "x": 1e30}}
    assert parse(dump(document)) == document
    assert list(parse(dump(document))) == ["z", "a", "m"]


def test_lines_of_keys_and_of_items():
    text = "# first\na: 1\n\nb:\n- x\n\n- y: 1\n  z: 2\nc: [1,\n  2]\n"
    found = parse_document(text)
    assert found.value == {"a": 1, "b": ["x", {"y": 1, "z": 2}], "c": [1, 2]}
    assert found.lines == {"a": 2, "b": 4, "b.0": 5, "b.1": 7, "c": 9, "c.0": 9, "c.1": 10}
    assert parse_document("a:\n  b:\n    c: 1\n").lines == {"a": 1, "a.b": 2, "a.b.c": 3}
    merged = parse_document("a: &x\n  b: 1\nc:\n  <<: *x\n  d: [1]\n")
    assert merged.lines == {"a": 1, "a.b": 2, "c": 3, "c.b": 2, "c.d": 5, "c.d.0": 5}
    assert parse_document("") == (None, {})
    assert parse_document("- 1\n") == ([1], {"0": 1})


@pytest.mark.parametrize("text", ["a: &x\n  b: *x\n", "a: &x [*x]", "&x [*x]", "- &x {a: [*x]}"])
def test_a_value_that_is_inside_of_itself(text):
    with pytest.raises(yaml.MarkedYAMLError, match="recursive"):
        parse_document(text)


STEPS = "  - exact_deduplicator\n\n  # Short ones.\n  - length_filter:\n      {field}: 3\n"
HEAD = "dataset_path: a.jsonl\nexport_path: b.parquet\n"


def test_messages_name_the_line_of_the_step(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(HEAD + "process:\n" + STEPS.format(field="mim"))
    with pytest.raises(RecipeError, match=r"recipe.yaml, line 7, step 2 length_filter: unknown"):
        load(path)
    path.write_text(HEAD + "process:\n" + STEPS.format(field="min"))
    recipe = load(path)
    assert [step.line for step in recipe.steps] == [4, 7]
    assert recipe.where(recipe.steps[1]) == f"{path}, line 7, step 2 length_filter"
    assert recipe.where(recipe.steps[1]._replace(line=None)) == f"{path}, step 2 length_filter"


def test_steps_that_come_by_a_merge_are_on_the_line_where_they_are_written(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(HEAD + "<<:\n  process:\n  - exact_deduplicator\n  - length_filter: {mim: 3}\n")
    with pytest.raises(RecipeError, match=r"recipe.yaml, line 6, step 2 length_filter: unknown"):
        load(path)


def test_a_value_of_the_command_line_has_no_line(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(HEAD + "np: 0\nprocess: [exact_deduplicator]\n")
    with pytest.raises(RecipeError, match=r"recipe.yaml, line 3: 'np' is 0; "):
        load(path)
    with pytest.raises(RecipeError, match=r"^--np: 'np' is -1; "):
        load(path, {"np": "-1"})
