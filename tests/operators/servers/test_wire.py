import json

import pytest
import yaml

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.openai_engine import read_group, request_body
from rejuice.operators.sampling.protocol import Group, Prompt, Sample, Settings
from rejuice.operators.servers.wire import (
    AttemptError,
    HttpResponse,
    RetryClass,
    check_status,
    endpoint,
    error_in_answer,
    error_text,
    served_models,
    unknown_ending,
)

PROMPT = Prompt((("system", "s"), ("user", "u")), 9)


def test_half_of_a_surrogate_pair_is_lost_alone():
    texts = ["It is 4. \ud83d", "It is 5. \U0001f600", "\\ud83d"]
    choices = [
        {"index": at, "text": text, "finish_reason": "stop"} for at, text in enumerate(texts)
    ]
    body = json.dumps({"choices": choices}).encode()
    group = read_group(body, PROMPT, None, Settings(n=3), policy="m", version=0, exact=False)
    assert [each.text for each in group.samples] == ["It is 4. ?", *texts[1:]]
    with pytest.raises(AttemptError) as caught:
        read_group(body[:-9], PROMPT, None, Settings(n=3), policy="m", version=0, exact=False)
    assert "JSON" in caught.value.detail


@pytest.mark.parametrize(
    ("api", "url"),
    [
        ("completions", "http://h/v1/completions"),
        ("chat", "http://h/v1/chat/completions"),
        ("generate", "http://h/inference/v1/generate"),
    ],
)
def test_endpoints(api, url):
    assert endpoint("http://h/v1", api) == url


def test_all_that_changes_the_distribution_is_switched_off():
    body = request_body("generate", "m", PROMPT, [1, 2], Settings(n=3, max_tokens=5), True)
    assert body == {
        "model": "m",
        "token_ids": [1, 2],
        "output_mode": "text",
        "return_token_ids": True,
        "sampling_params": {
            "n": 3,
            "temperature": 1.0,
            "top_p": 1.0,
            "max_tokens": 5,
            "seed": 9,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
        },
    }


def test_text_only_asks_for_nothing_that_some_server_does_not_know():
    body = request_body("chat", "m", PROMPT, None, Settings(n=1, max_tokens=5), False)
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    known = {"n": 1, "temperature": 1.0, "top_p": 1.0, "max_tokens": 5, "seed": 9}
    assert body == {"model": "m", "messages": messages, **known}


def test_template_arguments_are_sent_if_the_server_applies_the_template():
    kwargs, settings = {"enable_thinking": False}, Settings()
    body = request_body("chat", "m", PROMPT, None, settings, True, kwargs)
    plain = request_body("chat", "m", PROMPT, None, settings, True)
    assert body == {**plain, "chat_template_kwargs": kwargs}
    for api in ("completions", "generate"):
        bodies = [
            request_body(api, "m", PROMPT, [1], settings, True, each) for each in (kwargs, {})
        ]
        assert bodies[0] == bodies[1]


def test_costs():
    costs = {each.name: [each.cost(n) for n in (1, 2, 3, 10)] for each in RetryClass}
    assert costs == {
        "OVERLOADED": [0, 0, 0, 0],
        "SERVER_FAILED": [1, 1, 1, 1],
        "BAD_ANSWER": [1, 1, 1, 4],
        "REFUSED": [1, 2, 3, 10],
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too\\nlong", "code": 400}}', "too long"),
        (b'{"error": "no"}', "no"),
        (b'{"detail": "x"}', '{"detail": "x"}'),
        (b"<html>\n <b>502</b>", "<html> <b>502</b>"),
        (b"\xff" * 400, "\ufffd" * 300),
        (b"", ""),
    ],
)
def test_error_text_is_one_short_line(body, message):
    assert error_text(body) == message


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 529])
def test_statuses_that_may_pass(status):
    with pytest.raises(AttemptError) as caught:
        check_status(HttpResponse(status, b""), "http://h/v1")
    assert (caught.value.reason, caught.value.retry_class) == (
        "server_error",
        RetryClass.SERVER_FAILED,
    )


@pytest.mark.parametrize("status", [400, 413, 414, 422])
def test_statuses_of_a_prompt(status):
    with pytest.raises(AttemptError) as caught:
        check_status(HttpResponse(status, b""), "http://h/v1")
    assert (caught.value.reason, caught.value.retry_class) == (
        "request_refused",
        RetryClass.REFUSED,
    )


@pytest.mark.parametrize("status", [201, 301, 403, 405, 410])
def test_statuses_that_end_the_run(status):
    with pytest.raises(EngineError):
        check_status(HttpResponse(status, b""), "http://h/v1")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        (b'{"data": []}', []),
        (b"<html>", []),
    ],
)
def test_models_that_a_server_lists(body, names):
    assert served_models(HttpResponse(200, body)) == names


QUOTA = {"message": "You exceeded your current quota.", "type": "insufficient_quota"}
CREDIT = "does the account of the key have credit? see api_key_env"


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (429, QUOTA | {"code": "insufficient_quota"}, "You exceeded your current quota"),
        (429, QUOTA | {"code": 429}, "You exceeded your current quota"),
        (403, QUOTA, "You exceeded your current quota"),
        (402, {"message": "Insufficient\nBalance", "code": "x"}, "Insufficient Balance"),
        (402, "Insufficient balance", "Insufficient balance"),
    ],
)
def test_what_someone_has_to_pay_for_ends_the_run(status, error, message):
    body = json.dumps({"error": error}).encode()
    with pytest.raises(EngineError) as caught:
        check_status(HttpResponse(status, body, "7"), "http://h/v1")
    assert str(caught.value) == f"http://h/v1 answers {status}: {message}; {CREDIT}"


@pytest.mark.parametrize("error", [QUOTA, {"message": QUOTA["message"], "code": 402}])
def test_what_someone_has_to_pay_for_in_an_answer(error):
    with pytest.raises(EngineError) as caught:
        error_in_answer(json.dumps({"error": error}).encode(), "http://h/v1")
    message = "200, but an error: You exceeded your current quota"
    assert str(caught.value) == f"http://h/v1 answers {message}; {CREDIT}"


def test_another_429_is_waited_for():
    error = {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}
    with pytest.raises(AttemptError) as caught:
        check_status(HttpResponse(429, json.dumps({"error": error}).encode()), "http://h/v1")
    assert caught.value.reason == "rate_limited"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": {"message": "no", "code": 400}, "choices": []}, "request_refused"),
        ({"error": {"message": "no", "code": "400"}}, "request_refused"),
        ({"error": {"message": "no", "code": 429}}, "rate_limited"),
        ({"error": {"message": "no", "code": "invalid"}}, "server_error"),
        ({"error": "no", "choices": None}, "server_error"),
        ({"code": 500, "message": "no"}, "server_error"),
        ({"code": "500", "message": "no"}, "server_error"),
        ({"code": 400, "message": "no"}, "request_refused"),
        ({"object": "error", "message": "no", "code": None}, "server_error"),
    ],
)
def test_errors_in_an_answer(body, reason):
    error = error_in_answer(json.dumps(body).encode(), "http://h/v1")
    assert (error.reason, error.detail) == (reason, "200, but an error: no")


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"error": None, "choices": []},
        {"code": 500, "message": "no", "choices": []},
        {"code": 0, "message": "success"},
        {"code": 200, "message": "OK"},
        {"code": True, "message": "no"},
        {"code": 500},
        {"message": "no"},
        [],
    ],
)
def test_answers_that_are_no_errors(body):
    assert error_in_answer(json.dumps(body).encode(), "http://h/v1") is None


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("eos_token", "eos_token"),
        ("end-turn", "end-turn"),
        ("", '""'),
        ("null", '"null"'),
        ("Yes", '"Yes"'),
        ("y", '"y"'),
        ("1", '"1"'),
        ("a: b", '"a: b"'),
        ("}", '"}"'),
        ('"', '"\\""'),
        ("é ü", '"é ü"'),
        ("a\x85\n\x7f", '"a\\u0085\\n\\u007f"'),
    ],
)
def test_a_finish_reason_is_shown_as_yaml(reason, key):
    right = unknown_ending("it", reason).right
    assert right.startswith(f"set server: {{finish_reasons: {{{key}: stop}}}} if ")
    shown = right.removeprefix("set ").partition(" if it")[0]
    assert yaml.safe_load(shown) == {"server": {"finish_reasons": {reason: "stop"}}}


def answer(**fields):
    choice = {"index": 0, "text": "a", "finish_reason": "stop", "token_ids": [5, 6]}
    choice |= {"logprobs": {"token_logprobs": [-1.0, -2.0]}, **fields}
    return json.dumps({"prompt_token_ids": [1, 2], "choices": [choice]}).encode()


def read(body, ids=(1, 2), *, exact=True):
    ids = None if ids is None else list(ids)
    return read_group(body, PROMPT, ids, Settings(n=1), policy="m", version=3, exact=exact)


def test_reads_an_answer():
    sample = Sample("a", (5, 6), (-1.0, -2.0), "stop")
    assert read(answer()) == read(answer(), None) == Group("m", 3, 9, (1, 2), (sample,))


@pytest.mark.parametrize(
    ("labels", "oldest", "newest"),
    [
        ([], 3, 3),
        (["8", "8"], 8, 8),
        (["9", "8", "10"], 8, 10),
        (["default"], 3, 3),
        (["default", "3"], 3, 3),  # Labelled, not changed.
        (["default", "4"], 3, 4),
    ],
)
def test_weights_that_changed_meanwhile(labels, oldest, newest):
    spans = [{"version": label, "start": 0, "end": 1} for label in labels]
    body = answer(weight_versions=spans)
    assert read(body, exact=False).version == oldest
    if oldest == newest:
        assert read(body).version == oldest
        return
    with pytest.raises(AttemptError) as caught:
        read(body)
    message = f"weights changed from {oldest} to {newest} while it was sampled"
    assert caught.value.args == ("bad_response", message)
    assert caught.value.retry_class is RetryClass.BAD_ANSWER


def test_weights_that_changed_between_samples_of_a_group():
    def choice(index, label):
        spans = [{"version": label, "start": 0, "end": 1}]
        return {"index": index, "text": "a", "finish_reason": "stop", "weight_versions": spans}

    body = json.dumps({"choices": [choice(0, "7"), choice(1, "6")]}).encode()
    group = read_group(body, PROMPT, [1], Settings(n=2), policy="m", version=3, exact=False)
    assert (group.version, len(group.samples)) == (6, 2)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"token_ids": [5]}, "choice 0 has 1 token ids, 2 logprobs"),
        ({"token_ids": [5, 6, 7]}, "choice 0 has 3 token ids, 2 logprobs"),
        (
            {"token_ids": [5, -1]},
            "choices.0.token_ids.1: Input should be greater than or equal to 0",
        ),
        (
            {"token_ids": [5, 1 << 40]},
            "choices.0.token_ids.1: Input should be less than 2147483648",
        ),
        ({"text": None}, "choice 0 has no text"),
        ({"finish_reason": None}, "choice 0 finished with None"),
        ({"index": 1}, "choices [1], not 0 to 0"),
        (
            {"logprobs": {"token_logprobs": [-1.0, float("nan")]}},
            "choices.0.logprobs.token_logprobs.1: Input should be a finite number: b'",
        ),
    ],
)
def test_answers_that_cannot_be_used(fields, detail):
    with pytest.raises(AttemptError) as caught:
        read(answer(**fields))
    assert (caught.value.reason, caught.value.retry_class) == (
        "bad_response",
        RetryClass.BAD_ANSWER,
    )
    assert caught.value.detail.startswith(detail)


@pytest.mark.parametrize(
    ("indices", "reason", "detail"),
    [
        ([], "too_few_samples", "0 of 3 responses"),
        ([0, 1], "too_few_samples", "2 of 3 responses"),
        ([0, 1, 0], "bad_response", "choices [0, 0, 1], not 0 to 2"),
        ([0, 1, 2, 3], "bad_response", "choices [0, 1, 2, 3], not 0 to 2"),
    ],
)
def test_groups_that_are_not_whole(indices, reason, detail):
    choices = [{"index": k, "text": "a", "finish_reason": "stop"} for k in indices]
    body = json.dumps({"choices": choices}).encode()
    with pytest.raises(AttemptError) as caught:
        read_group(body, PROMPT, [1], Settings(n=3), policy="m", version=3, exact=False)
    assert caught.value.args == (reason, detail)
    assert caught.value.retry_class is RetryClass.BAD_ANSWER


@pytest.mark.parametrize(
    ("fields", "ids", "error"),
    [
        ({}, (1, 3), "the server samples from other prompt token ids than those it was sent"),
        ({"token_ids": None}, (1, 2), "the server gives no token ids, which on-policy"),
        ({"logprobs": {"content": None}}, (1, 2), "the server gives no log-probabilities, which"),
    ],
)
def test_servers_that_cannot_be_used(fields, ids, error):
    with pytest.raises(EngineError, match=f"^{error}"):
        read(answer(**fields), ids)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 0), ("7", 7), ("0.5", 0.5), ("-1", 0), ("soon", 0), ("nan", 0), ("inf", 0), ("9" * 400, 0),
     ("Mon, 01 Jan 2001 00:00:00 GMT", 0)],
)  # fmt: skip
def test_retry_after(status, header, seconds):
    with pytest.raises(AttemptError) as caught:
        check_status(HttpResponse(status, b"slow down", header), "http://h/v1")
    assert (caught.value.after, caught.value.detail) == (seconds, f"{status}: slow down")


def test_what_the_server_does_not_report_is_none():
    group = read(answer(token_ids=None, logprobs=None), exact=False)
    assert group.samples == (Sample("a", None, None, "stop"),)
    bare = json.dumps({"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}).encode()
    assert read(bare, None, exact=False).prompt_token_ids is None
    with pytest.raises(EngineError, match="no prompt token ids and no token ids and no log-prob"):
        read(bare, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"message": {"refusal": "I cannot"}}, "I cannot"),
        ({"finish_reason": "content_filter"}, "the server's content filter"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(AttemptError) as caught:
        read(answer(**fields))
    assert caught.value.args == ("content_refused", message)
    assert caught.value.retry_class is RetryClass.REFUSED
