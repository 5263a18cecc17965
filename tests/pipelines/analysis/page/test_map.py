"""The map of responses against a whole decomposition, and which rows are on it."""

import numpy as np
import pyarrow as pa

from rejuice.operators.text.embedding import hashed_ngram
from rejuice.pipelines.analysis.page.rows import MOST_POINTS, map_columns


def test_it_has_the_first_two_principal_components():
    words = ["one apple and a pear", "two pears", "the answer is seven", "no idea at all"]
    texts = [f"{words[at % 4]} {'again ' * (at % 3)}{at % 5}" for at in range(60)]
    ids = pa.chunked_array([[f"r{at}" for at in range(60)]])
    verdicts = pa.chunked_array([["correct", "wrong_answer"] * 30])
    x, y = map_columns(pa.chunked_array([texts]), ids, verdicts)
    vectors = hashed_ngram(texts).astype(float)
    left, values, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    for column, expected in ((x, left[:, 0] * values[0]), (y, left[:, 1] * values[1])):
        assert abs(np.corrcoef(column.values, expected)[0, 1]) > 0.99
        assert np.abs(column.values).max() == column.values.max()
    again = map_columns(pa.chunked_array([texts]), ids, verdicts)
    assert again[0].values.tobytes() == x.values.tobytes()


def test_it_is_a_sample_with_every_verdict():
    n = 4000
    texts = pa.chunked_array([[f"text {at % 97}" for at in range(n)]])
    ids = pa.chunked_array([[f"r{at}" for at in range(n)]])
    verdicts = pa.chunked_array([["timeout"] * 10 + ["correct"] * (n - 10)])
    x, _ = map_columns(texts, ids, verdicts)
    known = np.isfinite(x.values)
    assert known[:10].all()
    assert abs(known.sum() - MOST_POINTS) <= 60


def test_few_or_no_responses_have_no_map():
    none = pa.chunked_array([pa.array([None, None, "a"], pa.string())])
    assert map_columns(none, none, none) == ()
