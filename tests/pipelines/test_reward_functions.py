"""A recipe with a function of the user's: where it is found, whom it is trusted, and the page's examples."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner

from rejuice.operators.functions.pool import close_pools
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.recipe import load, load_without_code
from rejuice.pipelines.recipe.trust import code_of, is_trusted, trust

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reward-functions.md"
FUNCTION = """
def compute_score(response, reference):
    open({canary!r}, "w").close()
    return response == reference
"""


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    close_pools()


@pytest.fixture
def folder(tmp_path):
    """A folder with a function, a dataset and a recipe."""
    (tmp_path / "mine.py").write_text(FUNCTION.format(canary=str(tmp_path / "canary")))
    rows = [{"question": f"{n} + 1?", "response": str(n % 2), "reference": "1"} for n in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    document = {
        "dataset_path": "data.jsonl",
        "export_path": str(tmp_path / "out.parquet"),
        "process": [{"reward_function_mapper": {"function": "mine.py:compute_score"}}],
    }
    document["dataset_path"] = str(tmp_path / "data.jsonl")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return tmp_path


def test_the_file_is_in_the_folder_of_the_recipe(folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    expected = f"{folder}/mine.py:compute_score"
    (step,) = load(folder / "recipe.yaml").steps
    assert step.operator.function == expected
    shutil.move(folder / "mine.py", elsewhere / "mine.py")
    (step,) = load(folder / "recipe.yaml").steps  # Else in the working directory.
    assert step.operator.function == f"{elsewhere}/mine.py:compute_score"
    written = elsewhere / "other.yaml"
    written.write_text(load(folder / "recipe.yaml").to_yaml())
    (step,) = load(written).steps
    assert step.operator.function == f"{elsewhere}/mine.py:compute_score"


def test_to_load_a_recipe_runs_nothing_of_the_function(folder):
    load(folder / "recipe.yaml")
    assert not (folder / "canary").exists()


def test_a_function_is_code_to_be_trusted(folder):
    code = code_of([folder / "recipe.yaml"])
    assert code.named == ("reward_function_mapper",)
    assert code.files == (folder / "mine.py",)
    text = (folder / "recipe.yaml").read_text().replace("mine.py:compute_score", "os:system")
    (folder / "recipe.yaml").write_text(text)
    code = code_of([folder / "recipe.yaml"])
    assert (code.named, code.files) == (("reward_function_mapper",), ())


@pytest.mark.parametrize(
    "edited", ["mine.py", "beside.py", "used/__init__.py", "used/other.py", "used/deep/part.py"]
)
def test_an_edit_of_what_a_function_may_import_ends_the_trust(folder, monkeypatch, edited):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    files = {
        "mine.py": "def compute_score(response):\n    import beside\n    return 1\n",
        "beside.py": "from used.deep.part import X\n",
        "used/__init__.py": "from .other import Y\n",
        "used/other.py": "Y = 1\n",
        "used/deep/part.py": "X = 1\n",
        "unused/part.py": "X = 1\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    code = code_of([folder / "recipe.yaml"])
    trust(folder, code)
    (folder / "unused" / "part.py").write_text("X = 2\n")
    assert is_trusted(folder, code)
    (folder / edited).write_text(f"{files[edited]}Z = 1\n")
    assert not is_trusted(folder, code)


def test_a_file_that_cannot_be_parsed_can_be_trusted(folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "beside.py").write_text("-" * 100_000 + "1")
    code = code_of([folder / "recipe.yaml"])
    assert not is_trusted(folder, code)
    trust(folder, code)
    assert is_trusted(folder, code)


@pytest.mark.slow
def test_a_run_of_a_stranger_runs_no_function_unasked(folder, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    run(load(folder / "recipe.yaml"))
    rewards = pq.read_table(folder / "out.parquet")["reward_function"].to_pylist()
    assert rewards == [0.0, 1.0, 0.0, 1.0]
    (folder / "canary").unlink()
    rejuice = runner(monkeypatch, capsys, folder)
    (step,) = load_without_code(folder / "out.run" / "recipe.yaml").steps
    assert type(step.operator).__name__ == "Stored"
    code, out, _ = rejuice("explain", folder / "out.run")
    assert code == 0
    assert "reward_function_mapper (its code is not run)" in out
    code, _, err = rejuice("check", folder / "out.run" / "recipe.yaml")
    assert code == 2
    assert "makes code run: reward_function_mapper; if you made it" in err
    (folder / "mine.py").unlink()  # What it did can be looked at without it.
    assert rejuice("explain", folder / "out.run")[0] == 0
    assert not (folder / "canary").exists()


@pytest.mark.slow
def test_an_edited_function_never_finds_old_rewards(folder):
    run(load(folder / "recipe.yaml"))
    source = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text(source.replace("==", "!="))
    run(load(folder / "recipe.yaml"), overwrite=True)
    rewards = pq.read_table(folder / "out.parquet")["reward_function"].to_pylist()
    assert rewards == [1.0, 0.0, 1.0, 0.0]


# --- The page -------------------------------------------------------------------------


def examples():
    """The file, its name and the step of each example of the page."""
    text = PAGE.read_text("utf-8")
    parts = re.findall(r"^```python\n# (\S+)\n(.*?)^```.*?^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)  # fmt: skip
    return {name: (source, step) for name, source, step in parts}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        (
            "my_reward.py",
            {"response": ["it is 12", "12", "13", None], "reference": ["12"] * 4},
            {
                "reward_function": [0.92, 0.98, -0.02, None],
                "reward_function_length": [8.0, 2.0, 2.0, None],
            },
        ),
        (
            "brief.py",
            {
                "prompt": [[{"role": "user", "content": "q"}]] * 3,
                "response": ["ab", "abc", "a"],
                "limit": pa.array([2, 2, None]),
            },
            {"reward_brief": [1.0, 0.0, None], "reward_brief_missing": [None, None, "no_value"]},
        ),
        (
            "overlap.py",
            {"response": ["a c", "", "a"], "reference": ["a b", "a", ""]},
            {
                "reward_overlap": [0.5, 0.0, None],
                "reward_overlap_missing": [None, None, "function_failed"],
            },
        ),
    ],
)
def test_the_examples_of_the_page(tmp_path, name, columns, expected):
    source, step = examples()[name]
    (tmp_path / name).write_text(source)
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    recipe = {"dataset_path": str(tmp_path / "data.parquet"), "export_path": str(tmp_path / "out.parquet")}  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "process": yaml.safe_load(step)}))  # fmt: skip
    run(load(tmp_path / "recipe.yaml"))
    table = pq.read_table(tmp_path / "out.parquet")
    assert {name: table[name].to_pylist() for name in expected} == expected


def test_each_example_of_the_page_is_tested():
    assert [*examples()] == ["my_reward.py", "brief.py", "overlap.py"]
    assert len(re.findall("^```python", PAGE.read_text("utf-8"), re.MULTILINE)) == 3
