"""Tokens of responses: their texts by the tokenizer of a local policy, and why there are none."""

import math

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from rejuice.operators.sampling.engines import policy_path
from rejuice.pipelines.analysis.page.tokens import response_tokens, tokenizer_file

TEXTS = ["First 3 + 4 = 7.</think><answer>7</answer>", "café \U0001f600 is 7", "another"]


def encoded(texts):
    tokenizer = Tokenizer.from_file(str(tokenizer_file("embedded")))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def found(ids, logprobs, texts, model="embedded", weights=None):
    columns = pa.array(ids, pa.list_(pa.int32())), pa.array(logprobs, pa.list_(pa.float64()))
    return response_tokens(*map(pa.chunked_array, ([each] for each in columns)), pa.chunked_array([texts]), model, weights)  # fmt: skip


@pytest.mark.parametrize("model", ["embedded", policy_path("embedded")])
def test_each_token_has_its_part_of_the_text(model):
    ids = encoded(TEXTS)
    ids[2] = ids[0]  # Of another text: what is not certain is not shown.
    logprobs = [[-0.014 * at for at in range(len(own))] for own in ids]
    rows = found(ids, logprobs, TEXTS, model).column.to_pylist()
    for text, row, own in zip(TEXTS[:2], rows, logprobs, strict=False):
        assert sum(row["lengths"]) == len(text.encode("utf-16-le")) // 2
        assert row["logprobs"] == [round(100 * each) for each in own]
    start = rows[0]["lengths"]
    assert TEXTS[0][: start[0]] == "First"
    assert rows[2] is None


@pytest.mark.parametrize(
    ("ids", "logprobs"),
    [(None, None), ([3, 4], [-0.1]), ([3], [math.nan]), ([3], [None]), ([], [])],
)
def test_a_row_without_them_has_none(ids, logprobs):
    known = encoded(["7"])[0]
    rows = found([known, ids], [[-1.0] * len(known), logprobs], ["7", "7"]).column.to_pylist()
    assert rows[0] is not None
    assert rows[1] is None


def test_weights_are_those_of_the_tokens_where_there_is_one_for_each():
    ids = encoded(TEXTS[:2]) * 2
    logprobs = [[-1.0] * len(own) for own in ids]
    given = [[0.0, 0.25] + [1.0] * (len(ids[0]) - 2), None, [1.0], [None] * len(ids[1])]
    weights = pa.chunked_array([pa.array(given, pa.list_(pa.float32()))])
    rows = found(ids, logprobs, TEXTS[:2] * 2, weights=weights).column.to_pylist()
    assert rows[0]["weights"] == [0, 25] + [100] * (len(ids[0]) - 2)
    assert [row["weights"] for row in rows[1:]] == [None] * 3
    assert rows[0]["logprobs"] == rows[2]["logprobs"]


def test_without_a_local_tokenizer_the_page_says_so():
    note = found([[1]], [[-1.0]], ["a"], "someone/policy").note
    assert note == "Log-probabilities are stored but not shown: the tokenizer of someone/policy is not in a local folder."  # fmt: skip
    assert found([None], [None], ["a"], "someone/policy") == (None, "")
