"""A function of the user's gives the same rewards under `dj-process`."""

import pytest
from two_runners import check_equal, written

from rejuice.operators.functions.pool import close_pools

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    close_pools()


def test_the_same_rewards(tmp_path):
    source = "def short(response, limit=3, share=None): return None if share is None else share + (len(response) < limit)"  # fmt: skip
    (tmp_path / "mine.py").write_text(source)
    # In the folder of the recipe, which is not the working directory.
    step = {"function": "mine.py:short", "component": "short", "reward_kwargs": {"limit": 5}}
    rows = check_equal(written(tmp_path, [{"reward_function_mapper": step}]))
    assert {row["reward_short_missing"] for row in rows} == {None, "no_value"}
    assert {1.0, 1 / 3} <= {row["reward_short"] for row in rows}
