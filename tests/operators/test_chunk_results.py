"""Rows of several tables are computed side by side, and each gets the result of its own item."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, chunk_results
from rejuice.operators.chunk_results import KnownResult, ToCompute, results_of_chunks
from rejuice.operators.operator import RowsOfChunk

KNOWN = 0
CHUNK = st.lists(st.integers(KNOWN, 4), min_size=1, max_size=6)


def items_of(table, rows):
    """Rows with the same number are one item; nothing is to be computed of a 0."""
    same = {}
    for row in rows:
        number = table["number"][row].as_py()
        if number == KNOWN:
            yield KnownResult([row], f"{table['chunk'][row]} is known")
        else:
            same.setdefault(number, []).append(row)
    for number, places in same.items():
        yield ToCompute(places, f"{table['chunk'][places[0]]}: {number}")


class Engine:
    """Works on so many items at a time, and finishes them in the order that it is given."""

    def __init__(self, capacity, choices):
        self.capacity, self.choices, self.under_way = capacity, iter(choices), []
        self.calls = 0

    def __call__(self, items):
        numbered, self.calls = enumerate(items), self.calls + 1
        while True:
            while len(self.under_way) < self.capacity and (item := next(numbered, None)):
                self.under_way.append(item)
            if not self.under_way:
                return
            index, item = self.under_way.pop(next(self.choices, 0) % len(self.under_way))
            yield index, f"result of {item}"


@given(
    st.lists(CHUNK, max_size=12),
    st.integers(1, 9),
    st.integers(1, 20),
    st.lists(st.integers(0, 99), max_size=60),
)
def test_each_row_has_the_result_of_its_item_in_any_order(numbers, capacity, most_known, choices):
    engine, left, taken = Engine(capacity, choices), {}, 0

    def chunks():
        nonlocal taken
        for number, chunk in enumerate(numbers):
            assert len(engine.under_way) < capacity, "no earlier than it is wanted"
            table = pa.table({"number": chunk, "chunk": [number] * len(chunk)})
            left[number], taken = set(range(len(chunk))), taken + 1
            yield RowsOfChunk(table, range(len(chunk)))

    sent = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_results, "_MOST_KNOWN", most_known)
        results = list(results_of_chunks(chunks(), items_of, engine))
    for number, (table, rows), result in results:
        wanted = {table["number"][row].as_py() for row in rows}
        assert {table["chunk"][row].as_py() for row in rows} == {number}
        (value,) = wanted
        known = value == KNOWN
        assert result == (f"{number} is known" if known else f"result of {number}: {value}")
        sent[number, value] += not known
        left[number] -= set(rows)
        if not left[number]:
            del left[number]
    assert (left, taken) == ({}, len(numbers))
    assert set(sent.values()) <= {0, 1}, "equal rows of a table are one item"


@given(st.integers(1, 40), st.integers(1, 9))
def test_one_call_of_the_engine_is_enough_where_nothing_is_known(chunks, capacity):
    """So it is never idle while there are rows."""
    engine = Engine(capacity, [])
    tables = (
        RowsOfChunk(pa.table({"number": [1, 2], "chunk": [n, n]}), range(2)) for n in range(chunks)
    )
    assert len(list(results_of_chunks(tables, items_of, engine))) == 2 * chunks
    assert engine.calls == 1


def test_what_is_known_does_not_gather_while_the_engine_works(monkeypatch):
    """The engine works long on one row; the others need none."""
    monkeypatch.setattr(chunk_results, "_MOST_KNOWN", 10)
    taken = 0

    def chunks():
        nonlocal taken
        for number in range(50):
            taken += 1
            yield table_of(number, [KNOWN, KNOWN] if number else [1])

    given = 0
    for _ in results_of_chunks(chunks(), items_of, Engine(4, [])):
        given += 1
        assert 2 * taken - given <= 10 + 2
    assert given == 2 * taken - 1 == 99


@given(st.lists(CHUNK, max_size=6), st.integers(1, 9), st.booleans(), st.integers(0, 5))
def test_an_error_of_a_chunk_comes_after_the_results_of_all_before_it(
    numbers, capacity, in_items, taken
):
    """They may have been paid for."""
    error = DataError("chunk is damaged", "run it again")

    def chunks():
        for number, chunk in enumerate(numbers):
            yield table_of(number, chunk)
        if not in_items:
            raise error
        yield table_of(len(numbers), [1] * taken)

    def items_or_error(table, rows):
        yield from items_of(table, rows)
        if in_items and table["chunk"].to_pylist()[:1] in ([], [len(numbers)]):
            raise error

    found = Counter()
    with pytest.raises(DataError) as raised:
        for number, (_, rows), _ in results_of_chunks(
            chunks(), items_or_error, Engine(capacity, [])
        ):
            found[number] += len(rows)
    assert raised.value is error
    last = {len(numbers): taken} if in_items else {}
    assert +found == Counter({**dict(enumerate(map(len, numbers))), **last}) + Counter()


def table_of(number, chunk):
    table = pa.table({"number": pa.array(chunk, pa.int64()), "chunk": [number] * len(chunk)})
    return RowsOfChunk(table, range(len(chunk)))
