"""Columns whose parts have different types, as those of users have."""

import pyarrow as pa
import pytest

from rejuice.operators import Change
from rejuice.pipelines.analysis.page.build import excerpts
from rejuice.pipelines.analysis.written import WrittenValues, joined, texts
from rejuice.pipelines.engine.frame import Frame

STRUCT = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([pa.array([None, None]), pa.array(["a"])], [None, None, "a"]),
        ([pa.array(["a"], pa.large_string()), pa.array(["b"])], ["a", "b"]),
        ([pa.array([1]), pa.array([1.5])], [1, 1.5]),
        ([pa.array([1]), pa.array(["b", None])], ["1", "b", None]),
        ([pa.array([{"a": 1}]), pa.array([{"a": 2, "b": "c"}])], [{"a": 1, "b": None}, {"a": 2, "b": "c"}]),
        ([pa.array([[1, 2]]), pa.array(["b"])], ["[1,2]", "b"]),
        ([pa.array([], pa.string())], []),
    ],
)  # fmt: skip
def test_no_value_is_lost(parts, expected):
    assert joined([pa.chunked_array([part]) for part in parts]).to_pylist() == expected


def test_texts_of_values():
    assert texts(pa.chunked_array([pa.array([[1], None])])).to_pylist() == ["[1]", None]
    assert texts(pa.chunked_array([pa.array(["a", None])])).to_pylist() == ["a", None]
    assert texts(pa.chunked_array([pa.nulls(2)])).to_pylist() == [None, None]


class _Applied:
    """What `WrittenValues` reads of a step."""

    def __init__(self, number, change):
        self.step = type("Step", (), {"number": number, "operator": None})
        self.result = type("Result", (), {"change": change})


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string()])
def test_a_dropped_row_keeps_what_it_had_before_a_later_step_wrote_another_type(kind):
    values = WrittenValues(Frame.of(pa.table({"response": pa.array(["a", "b"], kind)})))
    values.add(_Applied(1, Change(reasons=pa.array([None, "too_long"]))))
    values.add(_Applied(2, Change({"response": pa.array(["A"], pa.string())})))
    assert values.last("response").to_pylist() == ["A", "b"]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([{"role": "user", "content": "a  b"}], "a b"),
        ([{"from": "human", "value": "a"}], '{"from":"human","value":"a"}'),
        (["a", "b"], "b"),
        ({"text": "a"}, '{"text":"a"}'),
        (7, "7"),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            '{"role":"user","content":[{"type":"text"}]}',
        ),
        ([], ""),
        (None, ""),
        ("x" * 200, "x" * 90 + "…"),
    ],
)
def test_an_excerpt_of_any_prompt(prompt, expected):
    assert excerpts(pa.chunked_array([pa.array([prompt])])) == [expected]
