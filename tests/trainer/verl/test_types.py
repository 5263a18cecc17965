"""The keys of TransferQueue are written and read by one type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.trainer.verl.advantage import TrajectoryKey

UIDS = st.text(min_size=1) | st.from_regex(r"[a-z0-9_-]+", fullmatch=True)


@given(UIDS, st.integers(0), st.integers(0))
def test_a_key_is_read_as_it_was_written(uid, session, output):
    key = TrajectoryKey(uid, session, output)
    assert TrajectoryKey.parse(str(key)) == key


@given(st.lists(st.tuples(UIDS, st.integers(0, 9)), unique=True))
def test_two_trajectories_never_have_one_key(parts):
    keys = {str(TrajectoryKey(uid, session)) for uid, session in parts}
    assert len(keys) == len(parts)


def test_an_underscore_in_a_uid():
    assert str(TrajectoryKey("gsm8k_train_12", 3)) == "gsm8k_train_12_3_0"
    assert TrajectoryKey.parse("gsm8k_train_12_3_0") == ("gsm8k_train_12", 3, 0)


@pytest.mark.parametrize("key", ["", "uid", "uid_0", "uid_a_b"])
def test_a_key_of_another_form_is_refused(key):
    with pytest.raises(ValueError, match=r"not enough values|invalid literal"):
        TrajectoryKey.parse(key)
