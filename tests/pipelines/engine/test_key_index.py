"""The index finds every row that was added, and no other."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from rejuice.pipelines.engine.paid_rows import KeyIndex

# Few halves, so that keys are repeated, and different keys begin alike.
HALVES = st.sampled_from(["0" * 16, "0" * 15 + "1", "f" * 16, "8" + "0" * 15])
KEYS = st.lists(st.builds(str.__add__, HALVES, HALVES), max_size=12)


@given(st.lists(KEYS, max_size=6), KEYS)
def test_it_finds_what_was_added(chunks, wanted):
    index = KeyIndex()
    known = defaultdict(list)
    for number, keys in enumerate(chunks):
        index.add(str(number), keys)
        for place, key in enumerate(keys):
            known[key].append((str(number), place))
        expected = defaultdict(list)
        for at, key in enumerate(wanted):
            for chunk, place in known[key]:
                expected[chunk].append((place, at))
        found = index.find(wanted)
        assert list(found) == sorted(expected)
        assert found == {chunk: sorted(places) for chunk, places in expected.items()}
    assert len(index) == sum(map(len, chunks))


def test_nothing_is_in_an_empty_index():
    assert KeyIndex().find(["0" * 32]) == {}
    assert KeyIndex().find([]) == {}
