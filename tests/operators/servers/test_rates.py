"""Limits of requests and tokens per minute, in virtual time."""

from collections.abc import Iterable

import pytest
from simulated_servers import A, B, Fault, all_once, run

from rejuice.operators.servers.endpoints import estimated_tokens


def most(sent: Iterable[tuple[float, float]], window_s: float = 60.0) -> float:
    """The largest sum of amounts (time, amount) in a window of that length."""
    sent = sorted(sent)
    return max(
        sum(amount for at, amount in sent if begin <= at < begin + window_s) for begin, _ in sent
    )


def sends(client, begin=0.0):
    return [(at, 1) for at, _, _ in client.sent if at >= begin]


def test_requests_per_minute():
    client, found = run({}, 300, requests_per_minute=60, concurrency=64, answer_s=0.1)
    assert all_once(client, found, 300)
    assert most(sends(client)) <= 60 + 1
    assert most(sends(client), 5) <= 5 + 2, "they pass evenly"
    assert client.now == pytest.approx(300, rel=0.05), "no slower than the limit"


def test_less_than_one_request_a_minute():
    client, _ = run({}, 3, requests_per_minute=0.5)
    assert most(sends(client), 120) == 1
    assert client.now < 3 * 130


@pytest.mark.slow
def test_many_requests_per_minute_need_no_timer_each():
    client, found = run({}, 3000, requests_per_minute=6000, concurrency=64, answer_s=0.1)
    assert all_once(client, found, 3000)
    assert most(sends(client), 1) <= 2 * 6000 / 60 + 1
    assert client.now == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize("kind", ["429", "down"])
def test_after_a_pause_of_all_servers_requests_pass_no_faster(kind):
    faults = {each: [Fault(30, 100, kind)] for each in (A, B)}
    fields = {"requests_per_minute": 60, "concurrency": 64, "answer_s": 0.1}
    client, found = run(faults, 200, addresses=(A, B), **fields)
    assert all_once(client, found, 200)
    assert most(sends(client, 100 if kind == "down" else 0)) <= 60 + 1
    assert most(sends(client, 100), 5) <= 5 + 2
    after = min(at for at, _ in sends(client, 100))
    assert client.now - after == pytest.approx(170, abs=15), "and no slower"


def test_what_reaches_no_server_for_half_a_minute_lets_no_others_pass_faster():
    fields = {"requests_per_minute": 60, "concurrency": 64, "answer_s": 0.1, "timeout_s": 600}
    client, found = run({A: [Fault(30, 60, "drops")]}, 200, addresses=A, **fields)
    assert all_once(client, found, 200)
    assert most(sends(client, 60)) <= 60 + 1
    assert most(sends(client, 60), 5) <= 5 + 2


def test_waiting_for_a_limit_is_not_giving_up():
    """Each attempt waits longer for it than a request may take."""
    fields = {"requests_per_minute": 1, "give_up_s": 50, "concurrency": 3}
    client, found = run({A: [Fault(0, 200, "500")]}, 3, addresses=A, **fields)
    assert all_once(client, found, 3)
    assert len([at for at, _, _ in client.sent if at < 200]) == 4


USED = {"prompt_tokens": 100, "completion_tokens": 400}


def test_tokens_per_minute_are_those_that_were_used():
    body = {"prompt": [1] * 100, "n": 4, "max_tokens": 1000}
    fields = {"tokens_per_minute": 60_000, "concurrency": 64, "answer_s": 2.0}
    client, found = run({}, 300, usage=USED, body=body, **fields)
    assert all_once(client, found, 300)
    assert most((at, 500) for at, _, _ in client.sent) <= 60_000
    assert client.now == pytest.approx(150_000 / 60_000 * 60, rel=0.2), "no slower than the limit"


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"input": [5, 6, 7]}, 3),
        ({"input_ids": [5, 6, 7]}, 3),
        ({"input": "x" * 9}, 3),
        ({"messages": [{"content": "x" * 9}], "use_activation": False}, 3),
        ({"prompt": [5, 6], "n": 2, "max_tokens": 10}, 22),
    ],
)
def test_tokens_of_prompts_in_all_their_fields(body, tokens):
    assert estimated_tokens(body) == tokens


def test_no_more_tokens_are_under_way_than_may_be_used():
    body = {"prompt": [1] * 100, "n": 4, "max_tokens": 1000}
    fields = {"tokens_per_minute": 60_000, "concurrency": 64, "answer_s": 2.0}
    usage = {"prompt_tokens": 100, "completion_tokens": 4000}  # As many as they may.
    client, found = run({}, 60, usage=usage, body=body, **fields)
    assert all_once(client, found)
    assert most((at, 4100) for at, _, _ in client.sent) <= 60_000


def test_a_request_that_may_use_more_than_the_limit_passes_alone():
    body = {"prompt": [1] * 100, "n": 4, "max_tokens": 1000}
    fields = {"tokens_per_minute": 1000, "concurrency": 64}
    client, found = run({}, 4, usage=USED, body=body, addresses=A, **fields)
    assert all_once(client, found, 4)
    assert most((at, 500) for at, _, _ in client.sent) <= 1000 + 500


@pytest.mark.parametrize("kind", ["429", "down"])
def test_tokens_of_a_request_that_was_not_worked_on_are_given_back(kind):
    body = {"prompt": [1] * 50, "max_tokens": 50}
    usage = {"prompt_tokens": 50, "completion_tokens": 50}
    fields = {"usage": usage, "body": body, "tokens_per_minute": 100}
    client, found = run({A: [Fault(0, 5, kind)]}, 1, addresses=A, **fields)
    assert all_once(client, found, 1)
    assert client.now < 35  # A minute, if they counted.


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0}, {"prompt_tokens": "many"}])
def test_without_a_usage_in_numbers_the_longest_response_counts(usage):
    body = {"prompt": [5, 6, 7], "n": 2, "max_tokens": 10}
    fields = {"usage": usage, "body": body, "tokens_per_minute": 60}
    client, results = run({}, 9, addresses=A, **fields)
    assert all_once(client, results, 9)
    assert most((at, 23) for at, _, _ in client.sent) == 46 < 60
