from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.servers import answer_cache
from rejuice.operators.servers.answer_cache import AnswerIndex


@pytest.fixture(autouse=True, scope="module")
def merged_often():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_cache, "_FEWEST_MERGED", 3)
        yield


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**63 - 1)), max_size=60))
def test_all_places_of_a_key_are_found(added):
    found, expected = AnswerIndex(), defaultdict(list)
    for number, place in added:
        found.add(number.to_bytes(8, "little") * 4, place)
        expected[number].append(place)
    assert len(found) == len(added)
    for number in range(6):
        assert found.find(number.to_bytes(8, "little") * 4) == expected[number]


def test_keys_with_the_same_beginning_share_their_places():
    found = AnswerIndex()
    found.add(b"12345678" + b"a" * 24, 1)
    found.add(b"12345678" + b"b" * 24, 2)
    assert found.find(b"12345678" + b"c" * 24) == [1, 2]
    assert found.find(b"1234567_" + b"a" * 24) == []
