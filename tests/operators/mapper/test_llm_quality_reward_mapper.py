"""The quality reward of an LLM: what is requested, what becomes of it, and what a failure is."""

import asyncio
import json
import os
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from fake_judge import DIMENSIONS, PROBE, FakeJudge, Trouble, scores_of, verdict
from fake_server import FakeServer
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_recipes import OVERRIDES

from rejuice.operators import DataError, EngineError, RecipeError
from rejuice.operators.cache_key import cache_key_json
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.operator import RowsOfChunk, split
from rejuice.operators.registry import build
from rejuice.operators.servers.client import OpenAIClient
from rejuice.operators.servers.judge import key_of, open_cache, user_cache

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "slow_at_once")
QUICK = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 60, "concurrency": 3, "attempts": 6}
SCHEMA = pa.schema(
    {
        "prompt_id": pa.string(),
        "prompt": MESSAGES,
        "response": pa.string(),
        "reference": pa.string(),
    }
)


def table_of(*responses, question="1 + 1?"):
    chat = [{"role": "user", "content": question}]
    rows = [
        {"prompt_id": f"p{row // 3}", "prompt": chat, "response": text, "reference": "2"}
        for row, text in enumerate(responses)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def numbered(*numbers):
    return table_of(*(None if number is None else f"response {number}" for number in numbers))


def rewards(change):
    return change.columns["reward_quality"].to_pylist()


def missing(change):
    return change.columns["reward_quality_missing"].to_pylist()


def reward_of(number):
    return (sum(scores_of(number)) / 4 - 1) / 4 - 0.5


@pytest.fixture
def make(tmp_path):
    """Operators that are closed in the end."""
    made = []

    def make(at, *, cache=tmp_path / "scores", **fields):
        url = at if isinstance(at, str) else at.url
        options = {**QUICK, "base_url": url, **fields.pop("server", {})}
        made.append(LlmQualityRewardMapper(model="m", server=options, cache=cache, **fields))
        return made[-1]

    yield make
    for operator in made:
        operator.close()


def test_the_scores_the_mean_and_the_reward(make):
    says = {
        1: [verdict([1, 1, 1, 1])],
        2: [verdict([5, 5, 5, 5])],
        3: [verdict([5, 4, 2, 1])],
        4: [verdict([4, 4, 4, 3])],
    }
    with FakeJudge(says=says) as judge:
        change = make(judge).apply(numbered(1, 2, 3, 4))
    assert rewards(change) == [-0.5, 0.5, 0.0, 0.1875]
    assert change.columns["quality_score"].to_pylist() == [0.2, 1.0, 0.6, 0.75]
    assert missing(change) == [None] * 4
    assert change.columns["quality"][2].as_py() == {
        "accuracy": 5.0,
        "grammar": 4.0,
        "informativeness": 2.0,
        "coherence": 1.0,
    }
    for score, reward in zip(
        change.columns["quality_score"].to_pylist(), rewards(change), strict=True
    ):
        assert reward == pytest.approx((score - 0.2) / 0.8 - 0.5, abs=1e-15)


def test_the_request(make):
    with FakeJudge() as judge:
        make(judge).apply(table_of("response 7", question="{response} + 1?"))
    (body,) = judge.bodies[7]
    system, user = body.pop("messages")
    score = {"type": "integer", "enum": [1, 2, 3, 4, 5]}
    assert body == {
        "model": "m",
        "temperature": 0.0,
        "max_tokens": 512,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "verdict",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": dict.fromkeys(DIMENSIONS, score),
                    "required": list(DIMENSIONS),
                    "additionalProperties": False,
                },
            },
        },
    }
    assert system["role"] == "system"
    assert all(f"- {name}: " in system["content"] for name in DIMENSIONS)
    assert user["role"] == "user"
    assert user["content"].count("{response} + 1?") == 1
    assert user["content"].count("response 7") == 1


def test_optional_fields_of_the_request(make):
    with FakeJudge() as judge:
        fields = {
            "dimensions": ("accuracy", "rigour"),
            "template": "{reference}|{question}|<response>{response}|{x}",
            "system": "Be fair.",
            "answer_format": "json_object",
            "expected_score": True,
            "temperature": 0.5,
            "max_tokens": 9,
            "chat_template_kwargs": {"enable_thinking": False},
            "parameters": {"top_p": 0.9},
        }
        make(judge, **fields).apply(table_of("response 7"))
    seed = judge.bodies[7][0].pop("seed")
    assert 0 <= seed < 2**31
    assert judge.bodies[7][0] == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be fair."},
            {"role": "user", "content": "2|1 + 1?|<response>response 7|{x}"},
        ],
        "temperature": 0.5,
        "max_tokens": 9,
        "response_format": {"type": "json_object"},
        "logprobs": True,
        "top_logprobs": 20,
        "chat_template_kwargs": {"enable_thinking": False},
        "top_p": 0.9,
    }


def test_a_chat_is_shown_whole(make):
    chat = [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1, 1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and 3"},
    ]
    table = pa.table(
        {
            "prompt": pa.array([chat], MESSAGES),
            "response": pa.array(["response 5"], pa.large_string()),
        }
    )
    with FakeJudge() as judge:
        make(judge, template="{question}\n<response>{response}").apply(table)
    shown = judge.bodies[5][0]["messages"][1]["content"]
    assert shown == (
        "system: Add.\n\nuser: 1, 1\n\nassistant: 2\n\nuser: and 3\n<response>response 5"
    )


def test_expected_score(make):
    with FakeJudge(says={1: [verdict([3, 1, 5, 2])]}) as judge:
        change = make(judge, expected_score=True).apply(numbered(1))
    # The sampled digit has half of the probability, its neighbours a quarter each; 0 and 6 do not
    # count, so 1 stands for (1 / 2 + 2 / 4) / (3 / 4).
    expected = {"accuracy": 3, "grammar": 4 / 3, "informativeness": 14 / 3, "coherence": 2}
    assert change.columns["quality"][0].as_py() == pytest.approx(expected)
    assert rewards(change)[0] == pytest.approx((sum(expected.values()) / 20 - 0.2) / 0.8 - 0.5)


@pytest.mark.parametrize("output", ["good", verdict([4, 4, 4, 7])])
@pytest.mark.parametrize("expected_score", [False, True])
def test_a_malformed_verdict_is_missing_and_not_retried_at_temperature_0(
    make, output, expected_score
):
    with FakeJudge(says={2: [output]}) as judge:
        operator = make(judge, expected_score=expected_score)
        change = operator.apply(numbered(1, 2, 3))
        assert missing(change) == [None, "scorer_malformed", None]
        assert rewards(change)[1] is None
        assert change.columns["quality"][1].as_py() is None
        assert change.columns["quality_score"][1].as_py() is None
        assert change.notes["fault_malformed"] == 1
        # It is not kept: the next run requests it again.
        operator.apply(numbered(1, 2, 3))
        assert judge.attempts == {1: 1, 2: 2, 3: 1}


def test_a_malformed_verdict_is_retried_with_another_seed(make):
    with FakeJudge(says={1: ["no", "no", verdict([5, 5, 5, 5])], 2: ["no"]}) as judge:
        change = make(judge, temperature=0.7).apply(numbered(1, 2))
        assert rewards(change) == [0.5, None]
        first, *others = [body["seed"] for body in judge.bodies[1]]
        assert others == [first + 1, first + 2]
        assert judge.bodies[2][0]["seed"] != first  # Or one chance would decide about all.
        assert judge.attempts[2] == 3
        assert change.notes["fault_malformed"] == 5
        # Found again, although the try that succeeded had another seed.
        make(judge, temperature=0.7).apply(numbered(1))
        assert judge.attempts[1] == 3


def test_text_may_stand_around_the_verdict(make):
    output = f"<think>{verdict([1, 1, 1, 1])}?</think>I say ```json\n{verdict([5, 5, 5, 5])}\n```."
    with FakeJudge(says={1: [output], 2: ["none"], 3: ["} {"]}) as judge:
        operator = make(judge, answer_format="text", expected_score=True)
        change = operator.apply(numbered(1, 2, 3))
        assert missing(change) == [None, "scorer_malformed", "scorer_malformed"]
        assert rewards(change)[0] == pytest.approx((14 / 3 - 1) / 4 - 0.5)
        assert "response_format" not in judge.bodies[1][0]


def test_a_server_without_log_probabilities_gives_no_expected_score(make):
    class Mute(FakeJudge):
        def answer(self, *request):
            answer = super().answer(*request)
            del answer["choices"][0]["logprobs"]
            return answer

    with Mute() as judge:
        assert missing(make(judge, expected_score=True).apply(numbered(1))) == ["scorer_malformed"]


def test_an_answer_that_is_cut_is_malformed(make):
    class Terse(FakeJudge):
        def answer(self, *request):
            answer = super().answer(*request)
            answer["choices"][0]["finish_reason"] = "length"
            return answer

    with Terse() as judge:
        assert missing(make(judge).apply(numbered(1))) == ["scorer_malformed"]


def test_rows_without_response_or_prompt_are_not_sent(make):
    chat = [{"role": "user", "content": "1 + 1?"}]
    rows = [
        (chat, "", "2", None),
        (chat, " \n", "2", None),
        (chat, None, "2", "no_response"),
        (None, "response 1", "2", "no_prompt"),
        ([], "response 1", "2", "no_prompt"),
        ([{"role": "user", "content": None}], "response 1", "2", "no_prompt"),
        (chat, "response 1", None, "no_reference"),
        (chat, "response 1", "2", None),
    ]
    columns = zip(*rows, strict=True)
    types = (MESSAGES, pa.string(), pa.string(), pa.string())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    table = pa.table(dict(zip(("prompt", "response", "reference", "reason"), arrays, strict=True)))
    with FakeJudge() as judge:
        operator = make(judge, template="{question}{reference}<response>{response}")
        change = operator.apply(table)
        assert missing(change) == table["reason"].to_pylist()
        assert rewards(change)[:2] == [-0.5, -0.5]
        assert judge.attempts == {1: 1}
    # Nor is a server needed where nothing is requested.
    unused = make("http://127.0.0.1:9/v1")
    assert missing(unused.apply(table_of("", None))) == [None, "no_response"]
    assert missing(unused.apply(table_of())) == []


def test_the_contract_of_operators(make):
    table = table_of("response 1", "response 2", "", "response 4", "response 2", "response 6")
    with FakeJudge({4: [Trouble.REFUSED] * 999}) as judge:
        operator = make(judge)
        change = check_operator(operator, table)
        assert missing(change) == [None, None, None, "scorer_refused", None, None]
        assert {k: n for k, n in judge.attempts.items() if k not in (4, PROBE)} == {
            1: 1,
            2: 1,
            6: 1,
        }
        check_operator(make(judge, template="{question}{response}<response>{reference}"), table)


def test_columns_of_the_wrong_kind(make):
    operator = make("http://127.0.0.1:9/v1")
    with pytest.raises(
        DataError, match=r"^column 'prompt' is string; prompt_template_mapper makes"
    ):
        operator.apply(pa.table({"prompt": ["a"], "response": ["b"]}))
    messages = pa.array([[{"content": "a"}]])
    with pytest.raises(DataError, match=r"^column 'prompt' is list<"):
        operator.apply(pa.table({"prompt": messages, "response": ["b"]}))
    with pytest.raises(DataError, match=r"^column 'response' is list<.*, not text; give strings$"):
        operator.apply(pa.table({"prompt": pa.nulls(1), "response": [["b"]]}))


def test_it_asks_by_the_shared_client(make, asked_of_shared_client):
    change = make("http://nowhere.invalid/v1").apply(numbered(1, 2))
    assert missing(change) == ["scorer_refused"] * 2
    assert len(asked_of_shared_client) == 2


def test_a_failure_passes_or_is_missing_with_its_reason(make):
    """That of the last attempt, in the scorer's words."""
    reasons = {
        Trouble.ERROR_500: "scorer_error",
        Trouble.CUT_JSON: "scorer_error",
        Trouble.SLOW: "scorer_timeout",
        Trouble.RATE_LIMIT_AFTER: "scorer_busy",
        Trouble.REFUSED: "scorer_refused",
        Trouble.FILTERED: "scorer_refused",
    }
    lasting = {10 + number: [trouble] * 9 for number, trouble in enumerate(reasons)}
    script = {1: [Trouble.ERROR_503, Trouble.RESET]} | lasting
    # The wait that it asks for is longer than any request may take.
    with FakeJudge(script, retry_after="61") as judge:
        change = make(judge, server={"give_up_s": 60}).apply(numbered(0, 1, *lasting, 3))
        assert missing(change) == [None, None, *reasons.values(), None]
        wanted = [reward_of(0), reward_of(1), *[None] * len(lasting), reward_of(3)]
        assert rewards(change) == wanted
        faults = {name: n for name, n in change.notes.items() if name.startswith("fault_")}
        assert faults == {
            "fault_server_error": 1 + QUICK["attempts"],
            "fault_connection_lost": 1,
            "fault_bad_response": 3,
            "fault_timeout": QUICK["attempts"],
            "fault_rate_limited": 1,
            "fault_request_refused": 1,
            "fault_content_refused": 1,
        }
        assert sum(faults.values()) == sum(judge.attempts[k] for k in lasting) + 2


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=20),
    st.sets(st.integers(1, 19)),
    st.sets(st.integers(0, 6)),
)
def test_chunks_side_by_side_give_what_one_table_gives(numbers, starts, refused):
    bounds = [0, *sorted(start for start in starts if start < len(numbers)), len(numbers)]
    tables = [numbered(*numbers[start:stop]) for start, stop in pairwise(bounds)]
    chunks = iter([RowsOfChunk(table, range(table.num_rows)) for table in tables])
    with FakeJudge(dict.fromkeys(refused, [Trouble.REFUSED] * 99)) as judge:
        server = {**QUICK, "base_url": judge.url}
        operator, found = LlmQualityRewardMapper(model="m", server=server, cache=None), {}
        try:
            whole = list(split(operator.apply(numbered(*numbers)), range(len(numbers) + 1)))
            for number, row, change in operator.process_chunks(chunks):
                assert found.setdefault(bounds[number] + row, change) is change
        finally:
            operator.close()
    assert sorted(found) == list(range(len(numbers)))
    for row, change in found.items():
        assert change.columns == whole[row].columns


def test_no_chunk_waits_for_the_one_before_it(make):
    """No answer before more requests are under way than two chunks have."""
    with FakeJudge(crowd=5) as judge:
        operator = make(judge, server={"concurrency": 6})
        chunks = (RowsOfChunk(numbered(k, k + 1), range(2)) for k in range(0, 20, 2))
        found = [(number, row) for number, row, _ in operator.process_chunks(chunks)]
        assert judge.attempts == dict.fromkeys(range(20), 1)
        assert 5 <= judge.peak <= 6
    assert sorted(found) == [(number, row) for number in range(10) for row in range(2)]


def test_chunks_are_taken_as_slots_become_free(make):
    taken, finished = 0, 0

    def chunks():
        nonlocal taken
        for k in range(20):
            # Of three under way and one that waits, another one is wanted.
            assert taken - finished < 3 + 1
            taken += 1
            yield RowsOfChunk(numbered(k), range(1))

    with FakeJudge() as judge:
        for _ in make(judge).process_chunks(chunks()):
            finished += 1
    assert (taken, finished) == (20, 20)


def test_a_server_that_is_down_is_tried_again_by_the_next_request(make):
    with FakeJudge(always=Trouble.ERROR_500) as judge:
        operator = make(judge, on_server_down="missing", server={"attempts": 1, "concurrency": 1})

        def chunks():
            yield RowsOfChunk(numbered(*range(3)), range(3))
            judge.always = None
            yield RowsOfChunk(numbered(9, 10), range(2))

        found = [missing(change)[0] for _, _, change in operator.process_chunks(chunks())]
    assert set(found[:2]) == {"scorer_unreachable"}
    assert found[3:] == [None] * 2


@pytest.fixture
def nowhere():
    """An address where no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def test_an_unreachable_server_is_waited_for_once(make, nowhere, monkeypatch):
    exchange, sent = OpenAIClient._exchange_http, []

    async def exchange_counted(self, method, *arguments):
        sent.append(method)
        return await exchange(self, method, *arguments)

    monkeypatch.setattr(OpenAIClient, "_exchange_http", exchange_counted)
    operator = make(nowhere, server={"patience_s": 0.05}, on_server_down="missing")
    change = operator.apply(numbered(*range(200), None))
    assert missing(change) == ["scorer_unreachable"] * 200 + ["no_response"]
    assert rewards(change) == [None] * 201
    assert sent.count("POST") <= 2 * QUICK["concurrency"], "the others were not sent"
    assert missing(operator.apply(numbered(1, 2))) == ["scorer_unreachable"] * 2


def test_a_server_that_comes_back_scores_again(make):
    with FakeJudge() as judge:
        operator = make(judge, server={"patience_s": 0.05}, on_server_down="missing")
        judge.kill()
        assert missing(operator.apply(numbered(1, 2))) == ["scorer_unreachable"] * 2
        judge.start()
        for _ in range(1000):  # Until a probe has found it.
            found = missing(operator.apply(numbered(1, 2)))
            if found == [None] * 2:
                return
            time.sleep(0.01)
    raise AssertionError(found)


@pytest.mark.parametrize("on_server_down", ["fail", "missing"])
def test_a_server_that_dies_in_the_middle(make, on_server_down):
    with FakeJudge(think_s=0.02) as judge:
        operator = make(judge, server={"patience_s": 0.05}, on_server_down=on_server_down)
        found = {}
        stream = operator.process_rows(numbered(*range(40)), range(40))
        for _ in range(5):
            row, change = next(stream)
            found[row] = change
        judge.kill()
        if on_server_down == "fail":
            with pytest.raises(EngineError, match=r"could not be reached for 0.05 s"):
                found.update(stream)
            assert 5 <= len(found) < 40
        else:
            found.update(stream)
            assert sorted(found) == list(range(40))
        scored = [row for row, change in found.items() if rewards(change) == [reward_of(row)]]
        others = {reason for row in set(found) - set(scored) for reason in missing(found[row])}
        assert 5 <= len(scored) < 40
        assert others == (set() if on_server_down == "fail" else {"scorer_unreachable"})
        # What was scored is found again.
        judge.start()
        before = dict(judge.attempts)
        assert rewards(operator.apply(numbered(*scored))) == [reward_of(row) for row in scored]
        assert judge.attempts == before


def test_a_server_that_answers_no_request_is_down(make):
    with FakeJudge(always=Trouble.ERROR_500) as judge:
        with pytest.raises(
            EngineError, match=rf"^{judge.url} answers no prompt: server_error, 500"
        ):
            make(judge).apply(numbered(*range(5)))
        assert judge.attempts[PROBE] > 0
        judge.attempts.clear()
        change = make(judge, on_server_down="missing").apply(numbered(*range(50)))
        assert missing(change) == ["scorer_unreachable"] * 50
        # The first of them find it out, the others are not requested.
        assert len(judge.attempts) <= 2 * QUICK["concurrency"] + 1


@pytest.mark.parametrize("on_server_down", ["fail", "missing"])
def test_errors_that_no_retry_can_fix_always_end_the_run(make, on_server_down):
    for trouble, message in {
        Trouble.NO_KEY: "{url} answers 401: 401; is the key right? see api_key_env",
        Trouble.REFUSED: "{url} answers no prompt: request_refused, 400: 400",
    }.items():
        with FakeJudge(always=trouble) as judge:
            with pytest.raises(EngineError) as error:
                make(judge, on_server_down=on_server_down).apply(numbered(*range(5)))
            assert str(error.value) == message.format(url=judge.url)


def test_the_api_key_is_sent_and_never_cached(make, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", "top-secret")
    with FakeJudge() as judge:
        operator = make(judge, server={"api_key_env": "MY_KEY"})
        operator.apply(numbered(1))
        operator.close()
        assert judge.keys == {"Bearer top-secret"}
    (log,) = (tmp_path / "scores.answers").iterdir()
    assert b"top-secret" not in log.read_bytes()


def test_equal_responses_are_scored_once(make):
    for cache in (None, Path("unused")):
        with FakeJudge(think_s=0.01) as judge:
            operator = make(judge, **({} if cache else {"cache": None}))
            change = operator.apply(numbered(*[1, 2, 3] * 10))
            assert judge.attempts == {1: 1, 2: 1, 3: 1}
            assert rewards(change) == [reward_of(number) for number in [1, 2, 3] * 10]
            assert change.notes["asked"] == 3
            assert change.notes["same_as_another"] == 27
            assert (change.notes["prompt_tokens"], change.notes["completion_tokens"]) == (300, 30)


def test_a_failure_is_shared_too(make):
    with FakeJudge({1: [Trouble.REFUSED] * 9}) as judge:
        change = make(judge).apply(numbered(0, 1, 1, 1))
        assert missing(change) == [None] + ["scorer_refused"] * 3
        assert judge.attempts[1] == 1


@pytest.mark.parametrize("cache", [True, False])
def test_concurrent_threads_send_each_request_once_and_share_one_limit(make, cache):
    with FakeJudge(think_s=0.01, crowd=QUICK["concurrency"]) as judge:
        operator = make(judge, **({} if cache else {"cache": None}))
        tables = [numbered(*range(first, first + 12)) for first in (0, 4, 8, 0, 4, 8)]
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(operator.apply, tables))
        for table, change in zip(tables, found, strict=True):
            numbers = [int(text.split()[1]) for text in table["response"].to_pylist()]
            assert rewards(change) == [reward_of(number) for number in numbers]
        if cache:
            assert set(judge.attempts.values()) == {1}
        assert sum(change.notes.get("asked", 0) for change in found) == judge.attempts.total()
        assert judge.peak == QUICK["concurrency"]
        names = [thread.name for thread in threading.enumerate()]
        assert names.count(f"scorer at {judge.url}") == 1


def test_waiting_for_a_slot_is_not_a_timeout(make, monkeypatch):
    exchange, timed, peak = OpenAIClient._exchange_http, set(), 0

    async def exchange_counted(self, *arguments):
        nonlocal peak
        timed.add(asyncio.current_task())
        peak = max(peak, len(timed))
        try:
            return await exchange(self, *arguments)
        finally:
            timed.remove(asyncio.current_task())

    monkeypatch.setattr(OpenAIClient, "_exchange_http", exchange_counted)
    with FakeJudge(crowd=QUICK["concurrency"]) as judge:
        operator = make(judge)
        tables = [numbered(*range(first, first + 3)) for first in range(0, 90, 3)]
        with ThreadPoolExecutor(30) as pool:
            list(pool.map(operator.apply, tables))
    # No request that waits is one whose time runs.
    assert peak == QUICK["concurrency"]


def test_leaving_early_does_not_affect_others(make):
    with FakeJudge(think_s=0.1) as judge:
        operator = make(judge)
        leaving = operator.process_rows(numbered(*range(6)), range(6))
        next(leaving)
        with ThreadPoolExecutor(1) as pool:
            staying = pool.submit(operator.apply, numbered(*range(6)))
            time.sleep(0.05)
            leaving.close()
            assert rewards(staying.result()) == [reward_of(number) for number in range(6)]


def test_leaving_early_leaves_no_request(make):
    with FakeJudge(think_s=0.05) as judge:
        stream = make(judge).process_rows(numbered(*range(2000)), range(2000))
        next(stream)
        stream.close()
        while judge.under_way:
            time.sleep(0.01)
        attempts = judge.attempts.total()
        time.sleep(0.1)
        assert judge.attempts.total() == attempts < 2000


def test_closing_in_the_middle(make):
    with FakeJudge(think_s=0.05) as judge:
        operator = make(judge)
        stream = operator.process_rows(numbered(*range(50)), range(50))
        next(stream)
        operator.close()
        operator.close()
        with pytest.raises(EngineError, match=r"^the scorer was closed while it worked$"):
            list(stream)
        # And it may be opened again.
        assert missing(operator.apply(numbered(1))) == [None]


def test_what_decides_the_score_is_in_the_cache_key(make):
    with FakeJudge() as judge:
        one = numbered(1)
        make(judge).apply(one)
        same = [
            {"server": {"concurrency": 9}},
            {"on_server_down": "missing"},
            {"tries": 5},
        ]
        for fields in same:
            assert make(judge, **fields).apply(one).notes == {"from_cache": 1}
        other = [
            {"revision": "b"},
            {"temperature": 0.1},
            {"max_tokens": 9},
            {"system": "Be fair."},
            {"answer_format": "text"},
            {"template": "{question}<response>{response}"},
            {"parameters": {"top_p": 0.5}},
            {"expected_score": True},
        ]
        for fields in other:
            assert make(judge, **fields).apply(one).notes["asked"] == 1
        make(judge).apply(table_of("response 1", question="2 + 2?"))
        assert judge.attempts[1] == 1 + len(other) + 1


def test_a_cached_answer_is_read_in_another_way_without_a_request(make, tmp_path):
    """What is kept is the answer, not what was made of it."""
    with FakeJudge(says={1: [verdict([3, 1, 5, 2])]}) as judge:
        expected = make(judge, expected_score=True).apply(numbered(1))
        with sqlite3.connect(tmp_path / "scores.answers" / "rows.sqlite") as file:
            ((stored,),) = file.execute("SELECT payload FROM rows").fetchall()
        text, finish_reason, tokens, *cost = json.loads(stored)
        assert (text, finish_reason, cost) == (verdict([3, 1, 5, 2]), "stop", [100, 10])
        assert "".join(token for token, _ in tokens) == text
        assert [len(top) for token, top in tokens if token.isdigit()] == [3] * 4
        again = make(judge, expected_score=True).apply(numbered(1))
        assert rewards(again) == rewards(expected)
        assert judge.attempts[1] == 1


def test_an_answer_is_stored_before_its_score_is_given(make, tmp_path):
    """So that a run that is killed loses only what it waits for."""
    with FakeJudge() as judge:
        operator = make(judge, server={"concurrency": 1})
        for given, _ in enumerate(operator.process_rows(numbered(*range(30)), range(30)), 1):
            stored = open_cache(tmp_path / "scores", writes=False)
            assert given <= len(stored._rows) <= judge.answered.total()
        again = make(judge, cache=tmp_path / "new" / "folder" / "scores")
        assert again.apply(numbered(1)).notes["asked"] == 1
        assert (tmp_path / "new" / "folder" / "scores.answers").is_dir()


def test_the_cache_of_the_user(make, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with FakeJudge() as judge:
        operator = make(judge, cache="user")
        operator.apply(numbered(1))
        operator.close()
        assert user_cache() == tmp_path / "xdg" / "rejuice" / "scores.answers"
        assert user_cache().exists()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/somewhere")
    assert user_cache() == Path("/somewhere/.cache/rejuice/scores.answers")
    for cache in ("user", None, "a/b.sqlite"):
        operator = LlmQualityRewardMapper(model="m", cache=cache)
        assert build(LlmQualityRewardMapper, operator.model_dump(mode="json")) == operator


def test_without_a_cache_nothing_is_written(make, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with FakeJudge() as judge:
        for _ in range(2):
            make(judge, cache=None).apply(numbered(1))
        assert judge.attempts == {1: 2}
    assert os.listdir(tmp_path) == []


def test_where_the_scorer_is_does_not_decide_the_result():
    one = LlmQualityRewardMapper(model="m", server={"base_url": "http://a/v1"}, cache=None)
    assert cache_key_json(one) == cache_key_json(LlmQualityRewardMapper(model="m"))
    assert cache_key_json(one) != cache_key_json(LlmQualityRewardMapper(model="m", revision="2"))


def test_what_is_explained():
    lines = LlmQualityRewardMapper(model="m").explain()
    assert list(lines) == ["the scorer's system", "the scorer's user"]
    assert "{question}" in lines["the scorer's user"]
    assert LlmQualityRewardMapper(model="m").explain({"response": "a"}) == {}


def test_the_first_failure_of_a_kind_is_logged_in_full(make, caplog):
    with FakeJudge({1: [Trouble.REFUSED], 2: [Trouble.REFUSED]}) as judge:
        make(judge).apply(numbered(0, 1, 2))
    (line,) = [record.message for record in caplog.records]
    assert line == "a response has no score, scorer_refused: request_refused: 400: 400"


WRONG = [
    ({"template": "{question}"}, "template contains {response} 0 times; it must contain it once"),
    ({"template": "{question} {response} {question}"}, "template contains {question} 2 times"),
    ({"template": "{response}"}, "template contains {question} 0 times"),
    (
        {"template": "{prompt} {question} {response}"},
        "template contains {prompt}, which is not a placeholder",
    ),
    (
        {"system": "Judge {response}."},
        "system contains {response}, which is allowed in template only",
    ),
    ({"dimensions": []}, "name at least one"),
    ({"dimensions": ["a b"]}, "'a b' is not a name such as accuracy"),
    ({"dimensions": ["a", "a"]}, "a dimension is listed twice"),
    ({"parameters": {"model": "n"}}, "parameters must not name 'model', which is set already"),
    ({"parameters": {"n": 2}}, "parameters must not name 'n', which is set already"),
    ({"server": {"base_url": "localhost"}}, "it must begin with http:// or https://"),
    ({"server": {"api": "chat"}}, "unknown field 'server.api'"),
    ({"temperature": -1}, "input should be greater than or equal to 0"),
]


@pytest.mark.parametrize(("fields", "output"), WRONG)
def test_wrong_fields_are_errors_when_the_recipe_is_read(fields, output):
    with pytest.raises(RecipeError) as error:
        build(LlmQualityRewardMapper, {"model": "m", **fields})
    assert output in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_that_gives_no_verdicts_is_reported_as_malformed(make):
    """It answers, but gives no verdicts."""

    class Seeded(FakeServer):
        def seed_and_n(self, body):
            return 0, 1

    with Seeded(token_ids=False) as server:
        assert missing(make(server).apply(numbered(1))) == ["scorer_malformed"]


FORMER = OVERRIDES["grpo_gsm8k_quality"]
"""With the prompt that was the default before its texts were delimited by a mark."""
# Computed by version 0.4.0: under other keys, all stored answers would be paid for again.
KEYS = {
    "8e31421ea39744581419307fb639b8429883fff351e8d5ad541ee06e8b5627ac": {
        name: json.loads(FORMER[f"llm_quality_reward_mapper.{name}"])
        for name in ("system", "template")
    },
    "1a71447b667be10f7a437f2d1367af20935b455c5f18bf0c6abc94082c3fc973": {
        "temperature": 1,
        "template": "{question}{response}{reference}",
        "expected_score": True,
        "answer_format": "text",
    },
}


@pytest.mark.parametrize("key", KEYS)
def test_stored_answers_of_earlier_versions_are_found(key):
    mapper = LlmQualityRewardMapper(model="m", **KEYS[key])
    assert key_of(mapper._body(("q", "r", "f")), mapper.revision).hex() == key
