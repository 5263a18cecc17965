"""What messages of the engine recommend is run, word by word."""

import re
import shlex

import pytest
from command import runner
from filelock import FileLock

from rejuice.operators import DataError, RecipeError, get
from rejuice.pipelines.analysis import reference
from rejuice.pipelines.analysis.stored import open_stored

STEPS = [{"length_filter": {"min": 1}}, {"length_filter": {"max": 9}}]
ROWS = [{"response": "a"}, {"response": ""}]


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    """The command; it must succeed unless `fails`, and returns what it prints."""
    run = runner(monkeypatch, capsys, tmp_path)

    def checked(words, *, fails=False):
        name, *rest = shlex.split(words)
        assert name == "rejuice"
        code, out, err = run(*rest)
        assert (code == 2) is fails, err
        return err if fails else out

    return checked


@pytest.fixture
def recipe(recipe_file):
    """A factory of recipes whose names have a space in them."""

    def make(name="my recipe.yaml", **fields):
        paths = {"dataset_path": "data.jsonl", "export_path": "out/x.parquet"}
        return recipe_file(STEPS, ROWS, name=name, **{**paths, **fields})

    return make


def commands(message):
    """The commands in backticks."""
    return re.findall(r"`(rejuice [^`]*)`", message)


@pytest.mark.slow
@pytest.mark.recommended("operators/registry.py", "see `rejuice ops`")
@pytest.mark.recommended("pipelines/analysis/reference.py", "see `rejuice ops`")
@pytest.mark.recommended("pipelines/recipe/steps.py", "`rejuice ops` lists them")
def test_the_list_of_operators(rejuice, recipe_file):
    recipe_file(["qqqqqqqq"], ROWS)
    with pytest.raises(RecipeError) as in_python:
        get("qqqqqqqq")
    asked = ("rejuice ops qqqqqqqq", "rejuice check recipe.yaml")
    for message in (str(in_python.value), *(rejuice(words, fails=True) for words in asked)):
        (command,) = commands(message)
        assert "pass_rate_filter" in rejuice(command)


@pytest.mark.recommended(
    "pipelines/analysis/reference.py", "give the file of one of your own with --custom FILE"
)
def test_an_operator_of_a_file_is_shown_with_the_file(rejuice, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rejuice.operators import Filter\n\n\nclass QqqqqqFilter(Filter):\n"
        "    'Keep short ones.'\n\n    most: int = 3\n    'Most characters.'\n\n"
        "    def reads(self):\n        return ('response',)\n\n"
        "    def decide(self, table):\n        return None\n"
    )
    err = rejuice("rejuice ops qqqqqq_filter", fails=True)
    assert "give the file of one of your own with --custom FILE" in err
    assert rejuice("rejuice ops qqqqqq_filter --custom mine.py") == (
        "### qqqqqq_filter\n\nKeep short ones.\n\nScope: row. Reads `response`.\n\n"
        "| field | type | default | meaning |\n|---|---|---|---|\n"
        "| `most` | integer | `3` | Most characters. |\n\n"
    )
    line = ["qqqqqq_filter", "Keep", "short", "ones.", "[mine.py]"]
    assert line in map(str.split, rejuice("rejuice ops --custom mine.py").splitlines())
    assert "\n### qqqqqq_filter\n" in rejuice("rejuice ops --markdown --custom mine.py")
    near = rejuice("rejuice ops qqqqq_filter --custom mine.py", fails=True)
    assert "did you mean 'qqqqqq_filter'?" in near


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/reference.py", "Written by `rejuice ops --markdown`")
def test_the_page_of_operators(rejuice):
    (command,) = commands(reference.page().split("\n\n")[1])
    assert rejuice(command) == reference.page()


@pytest.mark.recommended("pipelines/engine/export.py", "give another --export_path, or --overwrite")
def test_an_export_of_another_recipe(rejuice, recipe):
    recipe("one.yaml")
    recipe("two.yaml")
    rejuice("rejuice run one.yaml")
    err = rejuice("rejuice run two.yaml", fails=True)
    assert "give another --export_path, or --overwrite" in err
    rejuice("rejuice run two.yaml --export_path out/y.parquet")
    rejuice("rejuice run two.yaml --overwrite")


@pytest.mark.recommended("pipelines/engine/finished_export.py", "give another --export_path")
def test_an_export_that_another_run_is_writing(rejuice, recipe, tmp_path):
    recipe("one.yaml")
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".x.run.lock"):
        err = rejuice("rejuice run one.yaml", fails=True)
        assert "give another --export_path" in err
        rejuice("rejuice run one.yaml --export_path out/y.parquet")


@pytest.mark.recommended("pipelines/analysis/stored.py", "`rejuice run {…}`")
def test_the_run_that_is_to_be_opened(rejuice, recipe):
    path = recipe()
    with pytest.raises(DataError) as error:
        open_stored(path)
    (command,) = commands(str(error.value))
    rejuice(command)
    assert open_stored(path).report.rows_out == 1


@pytest.mark.slow
def test_a_row_is_explained_after_a_run_with_other_fields(rejuice, recipe):
    recipe()
    explain = "rejuice explain 'my recipe.yaml' 'row 1'"
    (command,) = commands(rejuice(explain, fails=True))
    rejuice(command)
    assert "kept" in rejuice(explain)
    printed = rejuice(f"{command} --length_filter_2.max 5 --length_filter.min 2")
    traced = printed.splitlines()[-1].removeprefix("to trace one dropped row: ")
    assert rejuice(traced) == rejuice(explain)
    assert "too_short" in rejuice(traced)
