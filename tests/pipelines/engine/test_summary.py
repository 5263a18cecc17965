"""Figures add up over chunks, and survive numbers that break naive sums."""

import json
import math
import statistics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import MathVerifyMapper
from rejuice.pipelines.engine.report import StepReport, empty_result, merge, summarise


def figures(*chunks):
    """Figures of a column `x` that comes in chunks, as they are kept: through JSON."""
    kept = [json.loads(json.dumps(summarise({"x": pa.array(chunk)}))) for chunk in chunks]
    return merge(kept).get("x")


def test_by_hand():
    assert figures([1.0, None, 2.0], [6.0]) == {
        "n": 3,
        "null": 1,
        "mean": 3.0,
        "std": round(math.sqrt((4 + 1 + 9) / 3), 6),
        "min": 1.0,
        "max": 6.0,
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(-1000, 1000), min_size=1), min_size=1, max_size=5))
def test_the_same_in_one_chunk_and_in_many(chunks):
    chunks = [pa.array(chunk, pa.int64()) for chunk in chunks]
    values = [v for chunk in chunks for v in chunk.to_pylist() if v is not None]
    found = figures(*chunks)
    assert found["n"] == len(values)
    assert found["null"] == sum(map(len, chunks)) - len(values)
    if values:
        assert found["mean"] == pytest.approx(statistics.fmean(values), abs=1e-6)
        assert found["std"] == pytest.approx(statistics.pstdev(values), abs=1e-6)
        assert (found["min"], found["max"]) == (min(values), max(values))


def test_numbers_far_from_zero_keep_their_spread():
    assert figures([1e9], [1e9 + 1])["std"] == 0.5
    assert figures([1e9, 1e9 + 1])["std"] == 0.5


def test_numbers_that_are_too_large_for_float64_are_rounded():
    assert figures([2**60 + 1])["mean"] == float(2**60)
    assert summarise({"x": pa.array([2**64 - 1], pa.uint64())})["x"]["max"] == float(2**64)


def test_what_is_not_a_number_counts_as_null_so_that_json_holds_it():
    assert figures([math.nan, math.inf, 1.0]) == {
        "n": 1, "null": 2, "mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0,
    }  # fmt: skip
    json.dumps(summarise({"x": pa.array([math.nan])}), allow_nan=False)


def test_columns_without_a_value():
    assert figures(pa.array([], pa.float64())) == {"n": 0, "null": 0}
    nothing, one = pa.array([None, None], pa.float64()), [4.0]
    expected = {"n": 1, "null": 2, "mean": 4.0, "std": 0.0, "min": 4.0, "max": 4.0}
    assert figures(nothing, one) == figures(one, nothing) == expected


def test_slugs_are_counted_in_the_columns_that_hold_slugs():
    columns = {
        "verdict": pa.array(["correct", None, "correct", "timeout"]),
        "reward_x_missing": pa.array(["group_too_small"], pa.large_string()),
        "response": pa.array(["never counted"]),
    }
    again = {"verdict": pa.chunked_array([["timeout"], ["no_answer"]])}
    assert merge([summarise(columns), summarise(again)]) == {
        "verdict": {"counts": {"correct": 2, "timeout": 2, "no_answer": 1}},
        "reward_x_missing": {"counts": {"group_too_small": 1}},
    }


@pytest.mark.parametrize(
    "column", [pa.array([["Yes"]]), pa.array([{"a": 1}]), pa.array([True]), pa.nulls(2)]
)
def test_a_label_of_another_type_is_left_alone(column):
    assert summarise({"label": column}) == {}


def test_only_the_commonest_values_are_kept():
    values = pa.array([str(at) for at in range(200)] + ["7"])
    counts = summarise({"policy": values})["policy"]["counts"]
    assert len(counts) == 50
    assert counts["7"] == 2


def test_types_of_numbers():
    for kind in (np.int8, np.uint16, np.float16, np.float32):
        assert figures(np.array([1, 2], kind))["mean"] == 1.5


def test_a_reward_that_is_true_or_false_has_values():
    kind = pa.bool_()
    found = merge(
        summarise({"reward_s": pa.array(c, kind)}) for c in ([True, None], [None], [False])
    )
    assert found["reward_s"] == {"n": 2, "null": 2, "mean": 0.5, "std": 0.5, "min": 0, "max": 1}
    assert empty_result(MathVerifyMapper(), line(found)) is None
    nothing = merge([summarise({"reward_s": pa.nulls(2, kind)})])
    found = empty_result(MathVerifyMapper(), line(nothing))
    assert found == "none of 2 rows has a reward_s: no_value 2"


def line(columns):
    counts = {"counts": {"no_value": 2}}
    return StepReport(
        step="s",
        rows_in=2,
        rows_out=2,
        added=0,
        dropped={},
        seconds=0,
        cached=False,
        notes={},
        columns={**columns, "reward_s_missing": counts},
    )


def masked(name, *chunks, kind=None):
    found = merge([summarise({name: pa.array(chunk, kind)}) for chunk in chunks])
    return found.get(f"{name}_masked")


def test_the_share_of_tokens_that_weights_mask():
    """A response is one, however many tokens it has; one without weights is none."""
    found = masked("token_weight", [[0.0, 1.0], None, [0.5]], [[0.0] * 7])
    spread = {"std": pytest.approx(math.sqrt(1 / 6), abs=1e-6), "min": 0, "max": 1}
    assert found == {"n": 3, "null": 1, "mean": 0.5, **spread}
    assert masked("token_weight", [[1.0, 0.5]])["mean"] == 0
    assert masked("loss_weight", [0.0, 0.5, 1.0, None], [0.0])["mean"] == 0.5
    assert masked("loss_weight", [None, None], kind=pa.float64()) == {"n": 0, "null": 2}
    assert masked("token_weight", [[], None], kind=pa.list_(pa.float32())) == {"n": 0, "null": 2}
    assert masked("token_weight", [["a"], ["b"]]) is None
    assert masked("reward", [0.0, 1.0]) is None


def test_figures_of_weights_are_not_those_of_what_they_mask():
    found = merge([summarise({"loss_weight": pa.array([0.0, 0.0, 0.5])})])
    assert found["loss_weight"]["max"] == 0.5
    assert found["loss_weight"].keys() == found["loss_weight_masked"].keys()
    assert "token_weight" not in summarise({"token_weight": pa.array([[0.0, 2.0]])})
