"""Looking at the run of a stranger runs none of its code."""

import os
import sys

import pytest
from command import runner

from rejuice.pipelines.engine import run
from rejuice.pipelines.recipe.read import load

OPERATORS = """
import os
open(os.environ["CANARY"], "w").close()
import pyarrow as pa, pyarrow.compute as pc
from rejuice.operators import Filter, Mapper, drop

class MarkMapper(Mapper):
    def reads(self): return ("response",)
    def writes(self): return ("mark",)
    def map(self, table): return {"mark": pc.utf8_length(table["response"]).cast(pa.float64())}

class FourFilter(Filter):
    reasons = {"four": "the response has a 4"}
    def reads(self): return ("response",)
    def decide(self, table): return drop({"four": pc.match_substring(table["response"], "4")})
"""
ROWS = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}", "responses": [f"It is {n + 1}.", f"It is {n}."]} for n in range(6)]  # fmt: skip
PROCESS = [
    {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    "mark_mapper",
    "math_verify_mapper",
    "four_filter",
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
    "grpo_advantage_mapper",
]


@pytest.fixture
def canary(tmp_path, monkeypatch):
    path = tmp_path / "canary"
    monkeypatch.setenv("CANARY", str(path))
    return path


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def hostile(recipe_file, tmp_path, canary):
    """A run with operators of its own, which write the canary once they are imported."""
    (tmp_path / "mine.py").write_text(OPERATORS)
    path = recipe_file(PROCESS, ROWS, custom_operator_paths=[str(tmp_path / "mine.py")])
    run(load(path))
    forget(canary)
    path.unlink()
    return tmp_path / "out" / "curated.run"


def forget(canary):
    """As a new process: what is imported now writes the canary again."""
    for name in [name for name in sys.modules if name.startswith("rejuice_custom_")]:
        del sys.modules[name]
    canary.unlink(missing_ok=True)

LOOKING = (
    ("explain", "{run}/recipe.yaml"),
    ("explain", "{run}"),
    ("explain", "{run}", "row 5"),
    ("explain", "{run}/recipe.yaml", "row 5"),
    ("explain", "{export}", "row 5"),
    ("report", "{run}"),
    ("report", "{run}/recipe.yaml"),
    ("view", "{run}", "--no_open", "-o", "p.html"),
    ("view", "{run}/recipe.yaml", "--no_open", "-o", "p.html"),
    ("diff", "{run}", "{export}"),
    ("diff", "{run}/recipe.yaml", "{run}/recipe.yaml"),
    ("audit", "{run}"),
    ("audit", "{run}/recipe.yaml"),
    ("cache", "list", "{run}/recipe.yaml"),
    ("export", "hf", "{export}", "hf"),
    ("whatif", "{run}"),
    ("check", "{run}/recipe.yaml"),
)

@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_runs_no_code_of_the_run(rejuice, hostile, canary, words):
    words = [word.format(run=hostile, export=hostile.with_suffix(".parquet")) for word in words]
    code, out, err = rejuice(*words)
    print(out, err)
    assert not canary.exists()
    assert (code, err) == (0, "")
