import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.registry import build
from rejuice.operators.selector.diverse_response_selector import (
    DiverseResponseSelector,
    farthest_points,
)
from rejuice.operators.text import embedding


def table(*groups):
    return pa.table(
        {
            "prompt_id": pa.array([f"p{i}" for i, g in enumerate(groups) for _ in g], pa.string()),
            "response": pa.array([text for g in groups for text in g], pa.string()),
        }
    )


def kept(operator, *groups):
    reasons = check_operator(operator, table(*groups)).reasons.to_pylist()
    assert set(reasons) <= {None, "less_diverse"}
    return [row for row, reason in enumerate(reasons) if reason is None]


@pytest.fixture
def degrees(monkeypatch):
    """A response is an angle, and its embedding points there."""

    def embed(texts):
        turned = [math.radians(float(t)) for t in texts]
        return np.array([[math.cos(a), math.sin(a)] for a in turned], np.float32)

    monkeypatch.setattr(embedding.EmbeddingFields, "embedder", lambda _: embed)


@pytest.mark.usefixtures("degrees")
def test_farthest_points_by_hand():
    # The mean points to about 30 degrees: 100 is farthest; then 0; then 40, 40 from the nearest.
    group = ["0", "5", "10", "40", "100"]
    assert kept(DiverseResponseSelector(k=1), group) == [4]
    assert kept(DiverseResponseSelector(k=2), group) == [0, 4]
    assert kept(DiverseResponseSelector(k=3), group) == [0, 3, 4]
    assert kept(DiverseResponseSelector(k=4), group) == [0, 2, 3, 4]


@pytest.mark.usefixtures("degrees")
def test_the_earlier_of_equally_good_ones_is_kept():
    assert kept(DiverseResponseSelector(k=2), ["0", "0", "90", "90"]) == [0, 2]
    assert kept(DiverseResponseSelector(k=3), ["7", "7", "7", "7"]) == [0, 1, 2]


def test_empty_responses_are_taken_last():
    operator = DiverseResponseSelector(k=3)
    assert kept(operator, [None, "a", "", "b", "c", "a"]) == [1, 3, 4]
    assert kept(operator, [None, "a", "", " ", "b"]) == [0, 1, 4]
    assert kept(operator, [None, "", " ", "\n"]) == [0, 1, 2]


def test_small_groups_stay_as_they_are():
    assert kept(DiverseResponseSelector(k=3), ["a", None, "a"], ["b"], [None]) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "a b", "c", "", None, "4 2"]), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
@settings(max_examples=40)
def test_keeps_k_of_each_group_and_as_many_different_ones_as_fit(groups, k):
    rows = kept(DiverseResponseSelector(k=k), *groups)
    start = 0
    for group in groups:
        own = [row - start for row in rows if start <= row < start + len(group)]
        assert len(own) == min(k, len(group))
        different = {text for text in group if text}
        assert len({group[row] for row in own if group[row]}) == min(k, len(different))
        start += len(group)


@given(st.integers(2, 6), st.integers(0, 1000))
@settings(max_examples=30)
def test_the_least_distance_is_at_least_half_of_the_best(n, seed):
    # On chords, a metric; cosine distance is half the square of a chord, so the order is the same.
    from itertools import combinations

    vectors = np.random.default_rng(seed).normal(size=(n, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    chords = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)

    def least(rows):
        return min(chords[i, j] for i, j in combinations(rows, 2))

    for k in range(2, n + 1):
        greedy = farthest_points((vectors @ vectors.T)[None], k)[0].tolist()
        assert len(set(greedy)) == k
        assert least(greedy) >= max(map(least, combinations(range(n), k))) / 2 - 1e-6


def test_k_must_be_given_and_positive():
    with pytest.raises(RecipeError, match=r"^field 'k' is missing; it has no default$"):
        build(DiverseResponseSelector, {})
    with pytest.raises(RecipeError, match=r"^field 'k' is 0; "):
        build(DiverseResponseSelector, {"k": 0})
