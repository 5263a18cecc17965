"""What a user's own resumable operator computed is paid for once, whatever becomes of rejuice."""

import pyarrow.parquet as pq
import pytest

from rejuice.operators import cache_key
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

PAID = '''
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator, component

class PaidMapper(ResumableOperator):
    """Each row that it computes is a line in a log."""
    log: str
    reasons = {"gone": "it ends in 1"}
    def reads(self): return ("response_id",)
    def writes(self): return ("bought",)
    def apply(self, table): return self._change(table["response_id"].to_pylist())
    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for row in rows:
            with open(self.log, "a") as log:
                log.write(ids[row] + "\\n")
            yield row, self._change(ids[row:row + 1])
    def _change(self, ids):
        gone = pa.array(["gone" if each.endswith("-1") else None for each in ids], pa.string())
        return Change({"bought": pa.array([f"{each}!" for each in ids], pa.string())}, gone)
'''


@pytest.fixture
def recipe(recipe_file, rollouts, tmp_path, monkeypatch):
    """A recipe with a resumable operator of a user."""
    # Data-Juicer, where another test has loaded it, must not learn of a class that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    (tmp_path / "paid.py").write_text(PAID)
    return recipe_file(
        [
            {"group_size_filter": {"min": 2}},
            {"paid_mapper": {"log": str(tmp_path / "log")}},
            {"length_filter": {"column": "bought", "min": 1}},
        ],
        rollouts(12).to_pylist(),
        custom_operator_paths=[str(tmp_path / "paid.py")],
    )


@pytest.fixture
def paid(tmp_path):
    """A function that gives the rows that were paid for since it was last called."""

    def read():
        log = tmp_path / "log"
        found = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    return read


def ran(path):
    """Which steps were found."""
    report = engine.run(load(path), overwrite=True, chunk_rows=7)
    return [step.cached for step in report.steps]


def test_no_edit_of_rejuice_is_paid_for(recipe, paid, monkeypatch):
    assert ran(recipe) == [False] * 3
    assert len(paid()) == 30
    cache_key.code_version.cache_clear()
    monkeypatch.setattr(cache_key, "_package_digest", lambda name: "edited")
    assert ran(recipe) == [False, True, False]
    assert not paid()
    cache_key.code_version.cache_clear()


def test_an_edit_of_the_users_file_is_paid_for(recipe, paid, tmp_path):
    ran(recipe)
    every = sorted(paid())
    (tmp_path / "paid.py").write_text(PAID.replace("}!", "}!!"))
    assert ran(recipe) == [True, False, False]
    assert sorted(paid()) == every
    values = pq.read_table(load(recipe).head.export_path)["bought"].to_pylist()
    assert all(value.endswith("!!") for value in values)
    (tmp_path / "paid.py").write_text(PAID)
    assert ran(recipe) == [True] * 3
    assert not paid()
