"""What a training run has learned about each prompt."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.mapper.history_mapper import HistoryMapper, summary
from rejuice.trainer.verl.history import HISTORY


def visits(rows):
    """History of (step, prompt, pass rate, rows trained)."""
    given = [
        {
            "step": step,
            "prompt_id": name,
            "pass_rate": rate,
            "trained": trained,
            "n": 4,
            "graded": 4,
        }
        for step, name, rate, trained in rows
    ]
    return pa.Table.from_pylist(given, HISTORY)


VISIT = st.tuples(st.sampled_from("abc"), st.sampled_from([None, 0.0, 0.5, 1.0]), st.integers(0, 2))


@given(rows=st.lists(VISIT, max_size=15), last=st.integers(1, 4))
def test_the_summary_is_that_of_reading_the_visits_one_by_one(rows, last):
    rows = [(step, *each) for step, each in enumerate(rows, 1)]
    codes = pa.array(["abc".index(name) * 10 for _, name, *_ in rows], pa.int64())
    found = summary(visits(rows).append_column("prompt_row", codes), last, 0.5)
    names = ["abc"[code // 10] for code in found.prompts]
    assert set(names) == {name for _, name, _, _ in rows}
    for at, name in enumerate(names):
        own = [each for each in rows if each[1] == name]
        rates = [rate for _, _, rate, _ in own]
        known = [rate for rate in rates[-last:] if rate is not None]
        solved = next((k for k, rate in enumerate(reversed(rates)) if rate != 1), len(rates))
        got = {key: column[at].as_py() for key, column in found.columns.items()}
        assert got["pass_rate"] == rates[-1]
        assert got["mean_pass_rate"] == (pytest.approx(np.mean(known)) if known else None)
        assert got["visits"] == len(own)
        graded = sum(4 * 0.5**ago for ago in range(len(own)))
        assert got["discounted_graded"] == pytest.approx(graded)
        right = sum(4 * (rate or 0) * 0.5**ago for ago, rate in enumerate(reversed(rates)))
        assert got["discounted_right"] == pytest.approx(right)
        assert got["trained"] == sum(trained > 0 for *_, trained in own)
        assert got["solved"] == solved


@pytest.fixture
def run(tmp_path):
    for step, rows in ((1, [("a", 0.5, 4), ("b", 1.0, 0)]), (2, [("b", 1.0, 0)])):
        folder = tmp_path / "run" / "steps" / f"{step:06d}"
        folder.mkdir(parents=True)
        pq.write_table(visits([(step, *each) for each in rows]), folder / "history.parquet")
    return tmp_path / "run"


def test_prompts_get_what_a_run_knows_of_them(run):
    found = HistoryMapper(run=str(run)).map(pa.table({"prompt_id": ["b", "new", "a"]}))
    shown = {name: column.to_pylist() for name, column in found.items()}
    assert set(shown) == set(HistoryMapper(run="x").writes())
    assert shown["history_pass_rate"] == [1.0, None, 0.5]
    assert shown["history_visits"] == [2, 0, 1]
    assert shown["history_solved"] == [2, 0, 0]
    assert shown["history_trained"] == [0, 0, 1]
    assert shown["history_age"] == [0, None, 1]


def test_the_history_is_numbered_once_for_all_chunks(run):
    step = HistoryMapper(run=str(run))
    found, ids = step.earlier()
    assert [ids[row].as_py() for row in found["prompt_row"].to_pylist()] == ["a", "b", "b"]
    assert found["step"].to_pylist() == [-1, -1, 0]
    assert step.earlier()[0] is found
    assert HistoryMapper().earlier()[0].num_rows == 0


def test_another_step_changes_the_key(run):
    step = HistoryMapper(run=str(run))
    before = step.cache_key_fields()
    folder = run / "steps" / "000003"
    folder.mkdir()
    pq.write_table(visits([(3, "a", 1.0, 0)]), folder / "history.parquet")
    assert step.cache_key_fields() != before
    assert step.map(pa.table({"prompt_id": ["a"]}))["history_visits"].to_pylist() == [2]


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(DataError, match="is no training run: there is no steps/000001/history"):
        HistoryMapper(run=str(tmp_path)).preflight()
    (tmp_path / "steps" / "000001").mkdir(parents=True)
    with pytest.raises(DataError, match="has no history"):
        HistoryMapper(run=str(tmp_path)).preflight()


def test_a_visit_without_responses_counts_for_the_age_alone(run):
    folder = run / "steps" / "000003"
    folder.mkdir()
    failed = {"step": 3, "n": 0, "graded": 0, "trained": 0, "reason": "failed_prompt"}
    table = pa.Table.from_pylist([{**failed, "prompt_id": name} for name in "bc"], HISTORY)
    pq.write_table(table, folder / "history.parquet")
    found = HistoryMapper(run=str(run)).map(pa.table({"prompt_id": ["a", "b", "c", "d"]}))
    shown = {name: column.to_pylist() for name, column in found.items()}
    assert shown["history_visits"] == [1, 2, 0, 0]
    assert shown["history_solved"] == [0, 2, 0, 0]
    assert shown["history_age"] == [2, 0, 0, None]
    assert shown["history_mean_pass_rate"] == [0.5, 1.0, None, None]
