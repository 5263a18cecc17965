import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.agents.model import _read
from rejuice.operators.sampling.openai_engine import read_group
from rejuice.operators.sampling.protocol import Prompt, Settings
from rejuice.operators.servers.options import Dialect
from rejuice.operators.servers.verdict import STORED_ANSWER, AnswerToken, ScorerAnswer, read_answer
from rejuice.operators.servers.wire import AttemptError, RetryClass


def body(**choice):
    whole = {"finish_reason": "stop", "message": {"content": "4"}, **choice}
    return json.dumps({"choices": [whole]}).encode()


def test_log_probabilities_are_kept_where_a_digit_is():
    content = [
        {"token": "{", "logprob": -1, "top_logprobs": [{"token": "[", "logprob": -2}]},
        {"token": " 4", "logprob": -0.5, "top_logprobs": [{"token": "5", "logprob": -1.5}]},
    ]
    assert read_answer(body(logprobs={"content": content})).tokens == (
        AnswerToken("{", ()),
        # The token that was sampled may not be among the most probable ones.
        AnswerToken(" 4", (("5", -1.5), (" 4", -0.5))),
    )


def test_optional_fields_of_an_answer_may_be_absent():
    assert read_answer(body()) == ScorerAnswer("4", "stop")
    assert read_answer(body(logprobs=None)).tokens is None
    assert read_answer(body(message={"content": None}, finish_reason="length")).text == ""
    with_usage = json.loads(body()) | {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    assert read_answer(json.dumps(with_usage).encode())[3:] == (7, 2)


def test_no_answer_is_lost_for_what_nobody_reads_in_it():
    null = {"token": None, "logprob": None}
    content = [{**null, "logprob": -1, "top_logprobs": each} for each in (None, [null])]
    settings = Settings(n=1, temperature=1, top_p=1, max_tokens=9)
    raw, prompt = body(index=0, logprobs={"content": content}), Prompt((("user", "Hi"),), 1)
    group = read_group(raw, prompt, [1], settings, policy="m", version=0, exact=False)
    assert group.samples[0].logprobs == (-1, -1)

    for usage in ({"prompt_tokens": None}, {"prompt_tokens": 0.5}):
        raw = json.dumps(json.loads(body(logprobs=[])) | {"usage": usage}).encode()
        assert _read(raw, Dialect()) == "4"


def test_what_is_null_in_the_answer_of_a_scorer_is_not_reported():
    token = {"token": "4", "logprob": -1, "top_logprobs": None}
    whole = json.loads(body(logprobs={"content": [token]}))
    found = read_answer(json.dumps(whole | {"usage": {"prompt_tokens": None}}).encode())
    assert found.tokens == (AnswerToken("4", (("4", -1),)),)
    assert found.prompt_tokens == 0


@pytest.mark.parametrize(
    ("raw", "reason", "detail", "retry_class"),
    [
        (b"<html>", "bad_response", "body: Invalid JSON: expected value", RetryClass.BAD_ANSWER),
        (b'{"choices": []}', "bad_response", "0 choices, not 1", RetryClass.BAD_ANSWER),
        (
            body(finish_reason="abort"),
            "bad_response",
            "it finished with 'abort'",
            RetryClass.BAD_ANSWER,
        ),
        (body(finish_reason=None), "bad_response", "it finished with None", RetryClass.BAD_ANSWER),
        (body(message={"refusal": "No."}), "content_refused", "No.", RetryClass.REFUSED),
        (
            body(finish_reason="content_filter"),
            "content_refused",
            "the server's content filter",
            RetryClass.REFUSED,
        ),
    ],
)
def test_what_is_no_answer(raw, reason, detail, retry_class):
    with pytest.raises(AttemptError) as error:
        read_answer(raw)
    assert (error.value.reason, error.value.retry_class) == (reason, retry_class)
    assert error.value.detail.startswith(detail)


tops = st.lists(st.tuples(st.text(), st.floats(-99, 0)), max_size=3).map(tuple)
tokens = st.none() | st.lists(st.builds(AnswerToken, st.text(), tops), max_size=4).map(tuple)


@given(st.builds(ScorerAnswer, st.text(), st.just("stop"), tokens, st.integers(0), st.integers(0)))
def test_an_answer_survives_a_cache(answer):
    assert STORED_ANSWER.validate_json(STORED_ANSWER.dump_json(answer)) == answer
