"""Texts whose embeddings are near."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_embedder import save_embedder

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.deduplicator import semantic_deduplicator as module
from rejuice.operators.deduplicator.semantic_deduplicator import (
    SemanticDeduplicator,
    Vectors,
    near_kept,
)

EAST, NORTH_EAST, NORTH = [1.0, 0.0], [0.98, 0.199], [0.0, 2.0]


def table(*groups, **columns):
    """Rows of groups, each a list of vectors."""
    n = sum(map(len, groups))
    return pa.table(
        {
            "prompt_id": [f"p{at}" for at, group in enumerate(groups) for _ in group],
            "response": columns.pop("texts", [f"text {row}" for row in range(n)]),
            "vector": pa.array([each for group in groups for each in group], pa.list_(pa.float32())),
            **columns,
        }
    )  # fmt: skip


def kept(rows, **fields):
    step = SemanticDeduplicator(vectors="vector", **{"threshold": 0.9, **fields})
    reasons = check_operator(step, rows).reasons
    return [row for row, reason in enumerate(reasons.to_pylist()) if reason is None]


def test_a_response_near_an_earlier_one_of_its_prompt_is_dropped():
    rows = table([EAST, NORTH, NORTH_EAST, [3.0, 0.0]], [EAST, NORTH])
    assert kept(rows) == [0, 1, 4, 5]
    assert kept(rows, within="all") == [0, 1]
    assert kept(rows, threshold=0.99) == [0, 1, 2, 4, 5]


def test_no_chain_of_small_differences():
    angles = [0.0, 0.3, 0.6, 0.9]
    rows = table([[np.cos(each), np.sin(each)] for each in angles])
    assert kept(rows) == [0, 2]  # cos 0.3 is 0.955, cos 0.6 is 0.825


def test_which_of_them_stays():
    rows = table([EAST, NORTH_EAST, EAST], texts=["aa", "aaaa", "a"], reward=[0.5, None, 1.0])
    assert kept(rows) == [0]
    assert kept(rows, keep="longest") == [1]
    assert kept(rows, keep="highest", by="reward") == [2]


def test_prompts_are_compared_by_their_first_rows_and_dropped_whole():
    rows = table([EAST, NORTH], [NORTH], [NORTH_EAST, NORTH])
    rows = rows.append_column("question", pa.array(["a", "a", "b", "c", "c"]))
    assert kept(rows, unit="prompt", column="question") == [0, 1, 2]


def test_what_has_no_text_or_no_vector_stays():
    rows = table([EAST, EAST, EAST, None], texts=["a", " ", None, "b"])
    assert kept(rows) == [0, 1, 2, 3]


def test_equal_texts_repeat_each_other_at_the_highest_threshold():
    vectors = np.random.default_rng(0).normal(size=(200, 384)).astype(np.float32)
    rows = table([list(each) for each in np.repeat(vectors, 2, axis=0)])
    assert kept(rows, threshold=1, within="all") == list(range(0, 400, 2))


def test_of_a_prompt_only_the_first_row_has_to_have_a_vector():
    rows = table([EAST, [0.0, 0.0]], [NORTH_EAST, None])
    rows = rows.append_column("question", pa.array(["a", "a", "b", "b"]))
    assert kept(rows, unit="prompt", column="question") == [0, 1]


@pytest.mark.slow
def test_a_model_embeds_the_texts(tmp_path):
    step = SemanticDeduplicator(
        backend="sentence_transformers", model=save_embedder(tmp_path), threshold=0.999
    )
    rows = pa.table({"prompt_id": ["p"] * 3, "response": ["2 + 2 is 4", "No idea", "2 + 2 is 4"]})
    assert check_operator(step, rows).reasons.to_pylist() == [None, None, "same_meaning"]


def near(vectors_MD, threshold):
    """What `near_kept` says of vectors in their order, stored in two parts, with rows without any."""
    unit = vectors_MD / np.linalg.norm(vectors_MD.astype(np.float64), axis=1, keepdims=True)
    raw = [each.astype(np.float16).tobytes() for each in unit]
    half = len(raw) // 2
    parts = [pa.array([None, *part], pa.large_binary()) for part in (raw[:half], raw[half:])]
    rows = np.concatenate([1 + np.arange(half), 2 + half + np.arange(len(raw) - half)])
    return near_kept(Vectors(pa.chunked_array(parts)), rows, threshold)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_blocks_change_nothing(angles, block):
    radians = np.array(angles) * 0.3
    vectors_MD = np.stack([np.cos(radians), np.sin(radians)], axis=1)
    expected = np.zeros(len(angles), bool)
    for row, each in enumerate(vectors_MD):
        expected[row] = ((vectors_MD[:row] @ each >= 0.9) & ~expected[:row]).any()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        assert near(vectors_MD, 0.9).tolist() == expected.tolist()


def planted(pairs=3000, dimensions=32):
    """Vectors around some directions, and one near each of them."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(20, dimensions))
    first = topics[rng.integers(20, size=pairs)] + rng.normal(size=(pairs, dimensions))
    second = first + 0.15 * rng.normal(size=(pairs, dimensions))
    return np.concatenate([first, second])


def test_by_clusters_nearly_all_are_found_and_none_that_is_not_near(monkeypatch):
    vectors_MD = planted()
    exact = near(vectors_MD, 0.95)
    assert exact.sum() > 2500
    monkeypatch.setattr(module, "_EXACT", 100)
    found = near(vectors_MD, 0.95)
    assert (found & exact).sum() > 0.99 * exact.sum()
    # One that is missed may take another's place.
    assert (found & ~exact).sum() <= 2 * (exact & ~found).sum()
    assert near(vectors_MD, 0.95).tolist() == found.tolist()


def test_faiss_is_named_only_where_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors_MD = planted(pairs=100)
    near(vectors_MD, 0.95)
    monkeypatch.setattr(module, "_EXACT", 100)
    with pytest.raises(RecipeError, match=r"100 texts needs faiss.*; pip install 'rejuice\[semantic\]'"):  # fmt: skip
        near(vectors_MD, 0.95)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 0.0], [0.0, 0.0]], "an embedding is zero or not finite"),
        ([[1.0, 0.0], [float("nan"), 0.0]], "an embedding is zero or not finite"),
        ([[1.0, 0.0], [1.0]], "vectors of column 'vector' have 1 to 2 numbers"),
    ],
)
def test_vectors_that_cannot_be_compared(vectors, message):
    with pytest.raises(DataError, match=message):
        SemanticDeduplicator(vectors="vector").digest(table(vectors))


@pytest.mark.parametrize(("values", "kind"), [(["1 0"], "string"), ([1.0], "double"), ([["1"]], "list<item: string>")])  # fmt: skip
def test_a_column_that_has_no_vectors(values, kind):
    other = table([EAST]).set_column(2, "vector", pa.array(values))
    with pytest.raises(DataError, match=f"column 'vector' is {kind}; give a column of embeddings"):
        SemanticDeduplicator(vectors="vector").digest(other)


def test_vectors_of_two_models_in_two_chunks():
    step = SemanticDeduplicator(vectors="vector", within="all")
    digests = [step.digest(table([vector])) for vector in ([1.0, 0.0], [1.0, 0.0, 0.0, 0.0])]
    with pytest.raises(DataError, match="embeddings have 2 to 4 numbers; give embeddings of one"):
        step.decide(pa.concat_tables(digests))


def test_other_kinds_of_lists():
    kinds = [pa.list_(pa.float64()), pa.large_list(pa.int64()), pa.list_(pa.float32(), 2)]
    for kind in kinds:
        rows = table([EAST, NORTH, EAST])
        rows = rows.set_column(2, "vector", rows["vector"].cast(kind))
        assert kept(rows) == [0, 1]
    none = table([None, None]).set_column(2, "vector", pa.nulls(2))
    assert kept(none) == [0, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vectors": "v", "keep": "highest"}, "keep highest needs by"),
        ({"vectors": "v", "by": "reward"}, "keep highest needs by"),
        ({"vectors": "v", "backend": "sentence_transformers", "model": "m"}, "or vectors"),
        ({}, "give model, with backend: sentence_transformers, or vectors"),
    ],
)
def test_fields_that_do_not_fit_together(fields, message):
    with pytest.raises(ValueError, match=message):
        SemanticDeduplicator(**fields)
