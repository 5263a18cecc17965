"""Any JSON is read as `json.loads` reads it, wherever blocks end, or refused by its line."""

import json
import math
import os
import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.pipelines.dataset import json_lines
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.schemas import added, conform, number_text, unify, without_marks

DRAWS = int(os.environ.get("REJUICE_JSON_DRAWS", "150"))
"""10,000 were drawn once."""

NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**25]),
)
LEAVES = {
    "number": NUMBERS,
    "text": st.text(max_size=4) | st.sampled_from(["2020-01-01", "\ud83d", "1.0"]),
    "boolean": st.booleans(),
}


def values_of(kind):
    """Values of one shape, of which any may be null: `number`, a list of a shape, or an object."""
    if isinstance(kind, str):
        values = LEAVES[kind]
    elif isinstance(kind, list):
        values = st.lists(values_of(kind[0]), max_size=4)
    else:
        values = st.fixed_dictionaries({}, optional={key: values_of(kind[key]) for key in kind})
    return st.none() | values


SHAPES = st.recursive(
    st.sampled_from(sorted(LEAVES)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=1)
        | st.dictionaries(st.sampled_from(["a", "b.c", "", "ü", 'q"', "text"]), inner, max_size=3)
    ),
    max_leaves=5,
)
ROWS = SHAPES.flatmap(
    lambda kind: st.lists(
        st.fixed_dictionaries({}, optional={"x": values_of(kind), "y": NUMBERS | st.none()}),
        min_size=1,
        max_size=12,
    ).filter(any)
)


def the_same(found, value):
    """Whether a value is that of `json.loads`, but for absent keys, surrogates, exact digits."""
    if isinstance(value, dict):
        return all(
            the_same((found or {}).get(key), value.get(key)) for key in {**(found or {}), **value}
        )
    if isinstance(value, list):
        return (
            isinstance(found, list)
            and len(found) == len(value)
            and all(map(the_same, found, value))
        )
    if isinstance(value, str):
        return found == re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(found, str):
        return found == number_text(value) and (json.loads(found) == value)
    return found == value and (value is None or isinstance(value, bool) == isinstance(found, bool))  # fmt: skip


def read(path, size, columns=None):
    """All rows of a file in blocks of a size, and their schema."""
    tables = list(json_lines.batches(DataFile.of(path), size, columns=columns))
    schema = without_marks(unify([table.schema for table in tables]))
    table = pa.concat_tables([conform(each, schema) for each in tables])
    table.validate(full=True)
    return table


@settings(
    max_examples=DRAWS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS, size=st.integers(1, 200))
def test_values_are_those_of_json(tmp_path, rows, size):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    whole = read(path, 1 << 20)
    assert [whole.num_rows, whole.column_names] == [len(rows), list(dict.fromkeys(k for row in rows for k in row))]  # fmt: skip
    for row, found in zip(rows, whole.to_pylist(), strict=True):
        assert the_same(found, row), (found, row)
    parts = read(path, size)
    assert parts.schema.equals(whole.schema)
    assert parts.equals(whole)
    only = read(path, size, columns=["x"])
    assert "x" not in whole.column_names or only.equals(whole.select(["x"]))


def test_a_type_does_not_depend_on_the_order_of_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"n": 3}, {"n": [None, 2**60 + 1][1]}, {"n": None}, {"n": 0.5}, {"n": 2.0}]
    seen = set()
    for first in range(5):
        turned = rows[first:] + rows[:first]
        path.write_text("\n".join(map(json.dumps, turned)))
        for size in (1, 20, 1000):
            table = read(path, size)
            seen.add(table.schema.field("n").type)
            got = dict(
                zip(map(str, (row["n"] for row in turned)), table["n"].to_pylist(), strict=True)
            )
            assert got == {"3": "3", str(2**60 + 1): str(2**60 + 1), "None": None, "0.5": "0.5", "2.0": "2"}  # fmt: skip
    assert seen == {pa.string()}


def test_digits_do_not_go_together_with_texts(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 18446744073709551617}\n{"n": "x"}\n')
    with pytest.raises(
        DataError, match=r"line 2: column 'n' is string, but number in earlier rows"
    ):
        read(path, 100)
    number, text = json_lines.batches(DataFile.of(path), 1)
    with pytest.raises(DataError, match=r"column 'n' is string, but number in earlier rows"):
        added(number.schema, text.schema, path)


def test_large_numbers_that_are_no_integers_stay_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1e300}\n{"n": 3}\n')
    assert read(path, 100)["n"].to_pylist() == read(path, 1)["n"].to_pylist() == [1e300, 3.0]
    assert not math.isinf(read(path, 1)["n"][0].as_py())


def test_contents_of_messages_are_texts_and_lists_of_parts(tmp_path):
    path = tmp_path / "a.jsonl"
    parts = [{"type": "text", "text": "b"}, {"type": "image", "image": "c.png"}]
    rows = [{"m": [{"role": "user", "content": each}]} for each in ("a", parts, None, [])]
    text = {"type": "text", "text": "a", "image": None}
    for order in (rows, rows[::-1]):
        path.write_text("\n".join(map(json.dumps, order)))
        tables = [read(path, size) for size in (1, 1000)]
        assert tables[0].equals(tables[1].cast(tables[0].schema))
        by_row = dict(zip(map(str, order), tables[1]["m"].to_pylist(), strict=True))
        found = [by_row[str(row)][0]["content"] for row in rows]
        assert found == [
            [text],
            [{"image": None, **parts[0]}, {"text": None, **parts[1]}],
            None,
            [],
        ]
