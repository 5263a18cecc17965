"""`check_operator` finds a `shard` under which a row's fate depends on rows of other shards."""

import re
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import Change, Filter, Operator, OperatorError, Scope, drop
from rejuice.operators.check import check_operator
from rejuice.operators.groups import Groups
from rejuice.operators.operator import interleave

SCORES = pa.table(
    {
        "prompt_id": ["a", "a", "b", "b", "c", "d", "d"],
        "score": pa.array([1.0, 2.0, 2.0, 3.0, 1.0, None, 2.0]),
    }
)


class Repeated(Filter):
    """A filter of dataset scope that keeps every promise: drop scores that occurred before."""

    scope: ClassVar = Scope.DATASET

    def reads(self):
        return ("prompt_id", "score")

    def shard(self, digest):
        return np.asarray(pc.fill_null(digest["score"], 0.0)).astype(np.uint64)

    def decide(self, table):
        scores = table["score"].to_pylist()
        return drop({"again": [score in scores[:at] for at, score in enumerate(scores)]})


class ByPrompt(Repeated):
    """Its shards are prompts, but it compares scores of all of them."""

    def shard(self, digest):
        return Groups.of(digest).codes_N.astype(np.uint64)


class PerRow(Repeated):
    """Rows with the same score are in different shards."""

    def shard(self, digest):
        prompts = digest["prompt_id"].to_pylist()
        return np.array([ord(prompt) for prompt in prompts], np.uint64)


class Signed(Repeated):
    """Its shards are no hashes."""

    def shard(self, digest):
        return super().shard(digest).astype(np.int64)


class Short(Repeated):
    """A row has no shard."""

    def shard(self, digest):
        return super().shard(digest)[1:]


class Copied(Operator):
    """Each row twice, in shards."""

    scope: ClassVar = Scope.DATASET

    def reads(self):
        return ("prompt_id", "score")

    def shard(self, digest):
        return np.zeros(digest.num_rows, np.uint64)

    def apply(self, table):
        return Change(parents=np.repeat(np.arange(table.num_rows), 2))


class CountedKinds(Operator):
    """A figure that does not add up."""

    scope: ClassVar = Scope.DATASET

    def reads(self):
        return ("score",)

    def shard(self, digest):
        return np.asarray(pc.fill_null(digest["score"], 0.0)).astype(np.uint64)

    def apply(self, table):
        return Change(notes={"runs": 1.0})


def test_shards_that_are_independent_pass():
    reasons = check_operator(Repeated(), SCORES).reasons.to_pylist()
    assert reasons == [None, None, "again", None, "again", None, "again"]


@pytest.mark.parametrize(
    ("operator", "promise"),
    [
        (PerRow(), "reasons differ after deciding its shards apart"),
        (ByPrompt(), "shards differ after a split at row 2"),
        (Signed(), "gave shards as int64, not as an array of uint64"),
        (Short(), "gave 1 shards for 2 rows"),
        (Copied(), "makes rows, so that shard() must return None"),
        (CountedKinds(), "notes do not add up after deciding its shards apart"),
    ],
)
def test_a_shard_that_breaks_its_promise(operator, promise):
    message = f"{operator.name()} {promise}"
    with pytest.raises(
        OperatorError, match="^" + re.escape(message) + "; see CONTRIBUTING"
    ) as caught:
        check_operator(operator, SCORES)
    assert caught.value.right == "see CONTRIBUTING.md, the operator contract"


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.data())
def test_changes_to_parts_between_each_other_are_put_together(parts, data):
    n = len(parts)
    part_N = np.array(parts)
    failed = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)
    reasons = data.draw(st.lists(st.none() | st.sampled_from(["a", "b"]), min_size=n, max_size=n))
    whole = Change({"x": pa.array(range(n))}, pa.array(reasons, pa.string()), failed=failed)
    rows = [np.flatnonzero(part_N == part) for part in sorted(set(parts))]
    changes = [
        Change(
            {"x": pa.array(own)},
            whole.reasons.take(pa.array(own)),
            notes={"n": float(len(own))},
            failed=np.flatnonzero(np.isin(own, failed)),
        )
        for own in rows
    ]
    joined = interleave(changes, rows)
    assert joined.columns["x"].to_pylist() == list(range(n))
    assert joined.reasons.to_pylist() == reasons
    assert joined.failed.tolist() == failed.tolist()
    assert joined.notes == {"n": float(n)}
