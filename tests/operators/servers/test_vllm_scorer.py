"""The quality reward against a real server: vLLM on CPU, with the embedded policy as the scorer.

The policy has never seen JSON: its answer is a verdict only because the server
constrains it.
"""

import json
import math
import urllib.request

import pyarrow as pa
import pytest
from true_policy import TruePolicy
from vllm_server import EMBEDDED, VllmServer, vllm_python

from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.servers.verdict import read_answer, read_verdict, schema

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
DIMENSIONS = ("accuracy", "grammar")
# Otherwise a grammar of JSON lets a weak model write blanks for ever.
FLAGS = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    vllm_python()
    server = VllmServer(EMBEDDED, "scorer", tmp_path_factory.mktemp("vllm") / "log", *FLAGS)
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture
def make(server, tmp_path):
    made = []

    def make(**fields):
        made.append(
            LlmQualityRewardMapper(
                model="scorer",
                server={"base_url": server.url, "concurrency": 8},
                cache=tmp_path / "scores.sqlite",
                **{"dimensions": DIMENSIONS, "system": "Judge.", "max_tokens": 48, **fields},
                template="{question}\n{response}",
            )
        )
        return made[-1]

    yield make
    for operator in made:
        operator.close()


def responses(count):
    texts = [f"<think>{k} + 5 = {k + 5}.</think><answer>{k + 5}</answer>" for k in range(count)]
    chat = [{"role": "user", "content": f"Tom has 5 apples and buys some more ({count})."}]
    return pa.table({"prompt": pa.array([chat] * count, MESSAGES), "response": texts})


def test_the_schema_makes_a_verdict_of_every_answer(make):
    change = make(temperature=2.0, tries=1).apply(responses(40))
    assert change.columns["reward_quality_missing"].null_count == 40
    assert set(change.notes) == {"asked", "prompt_tokens", "completion_tokens"}
    given = {tuple(each.values()) for each in change.columns["quality"].to_pylist()}
    assert len(given) > 1
    assert {score for scores in given for score in scores} <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_without_a_constraint_there_is_none(make):
    change = make(answer_format="text").apply(responses(8))
    assert change.columns["reward_quality_missing"].to_pylist() == ["scorer_malformed"] * 8


def test_a_regular_expression_constrains_text(make):
    """Which needs no flag of the server."""
    pattern = r'\{"accuracy": [1-5], "grammar": [1-5]\}'
    parameters = {"structured_outputs": {"regex": pattern}}
    change = make(answer_format="text", parameters=parameters).apply(responses(8))
    assert change.columns["reward_quality_missing"].null_count == 8


def test_the_expected_score_is_that_of_a_full_forward_pass(server, make):
    from transformers import AutoTokenizer

    tokenizer, truth = AutoTokenizer.from_pretrained(EMBEDDED), TruePolicy(EMBEDDED)
    digits = tokenizer.convert_tokens_to_ids(list("12345"))
    body = {
        "model": "scorer",
        "messages": [{"role": "user", "content": "Tom has 5 apples."}],
        "temperature": 0.0,
        "max_tokens": 48,
        "logprobs": True,
        "top_logprobs": 20,
        "return_token_ids": True,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "schema": schema(DIMENSIONS)},
        },
    }
    request = urllib.request.Request(
        f"{server.url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    message = urllib.request.urlopen(request).read()
    found = read_verdict(read_answer(message), DIMENSIONS, expected=True)
    whole = json.loads(message)
    sampled = whole["choices"][0]["token_ids"]
    rows = truth.rows(whole["prompt_token_ids"], sampled)
    expected = [
        sum(score * math.exp(row[digit]) for score, digit in enumerate(digits, 1))
        / sum(math.exp(row[digit]) for digit in digits)
        for row, token in zip(rows.tolist(), sampled, strict=True)
        if token in digits
    ]
    assert found == pytest.approx(expected, abs=1e-3)
    assert len(found) == 2
    assert all(score % 1 for score in found)


def test_the_contract_and_the_cache(make):
    table = responses(6)
    operator = make(expected_score=True)
    first = check_operator(operator, table)
    again = operator.apply(table)
    assert again.notes == {"from_cache": 6}
    for name, column in first.columns.items():
        assert again.columns[name].equals(column)
    sampled = make().apply(table).columns["reward_quality"].to_pylist()
    assert sampled != first.columns["reward_quality"].to_pylist()
