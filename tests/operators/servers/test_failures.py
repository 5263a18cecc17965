"""What a scorer answered instead of a score is kept with its text, and its scores stay what they were."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from fake_judge import FakeJudge, Trouble, verdict

from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.servers.judged_mapper import RawAnswer

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 60, "attempts": 2}
RAW = 'I would\0 rather not.\n<script>window.hit=1</script>\u202e {"accuracy": 9}'


def rows_of(*numbers):
    chat = [{"role": "user", "content": "1 + 1?"}]
    texts = [None if number is None else f"response {number}" for number in numbers]
    kinds = {"prompt_id": pa.string(), "prompt": MESSAGES, "response": pa.string()}
    rows = [{"prompt_id": "p", "prompt": chat, "response": text} for text in texts]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


@pytest.fixture
def judged(tmp_path):
    made = []

    def judged(judge, table, **fields):
        options = {**QUICK, "base_url": judge if isinstance(judge, str) else judge.url}
        fields = {"cache": tmp_path / "scores", **fields}
        operator = LlmQualityRewardMapper(model="m", server=options, **fields)
        made.append(operator)
        return operator, operator.apply(table)

    yield judged
    for operator in made:
        operator.close()


def test_a_malformed_answer_is_kept_as_it_came(judged):
    table = rows_of(1, 2, None)
    with FakeJudge(says={2: [RAW]}) as judge:
        operator, change = judged(judge, table)
    assert change.columns["reward_quality_missing"].to_pylist() == [
        None,
        "scorer_malformed",
        "no_response",
    ]
    scored, malformed, none = operator.raw_answers(table)
    assert (scored.reason, none) == (None, None)
    assert scored.text.startswith('{"accuracy": 2')
    assert malformed == RawAnswer(RAW, "scorer_malformed")


def test_the_last_of_several_tries_is_kept(judged):
    with FakeJudge(says={1: ["first", "second", "third"]}) as judge:
        operator, _ = judged(judge, rows_of(1), temperature=0.5)
    assert operator.raw_answers(rows_of(1)) == [RawAnswer("third", "scorer_malformed")]


def test_an_answer_that_can_be_read_outdates_a_failure(judged):
    with FakeJudge(says={1: ["no", verdict([5, 5, 5, 5])]}) as judge:
        operator, first = judged(judge, rows_of(1))
        assert operator.raw_answers(rows_of(1))[0].text == "no"
        _, again = judged(judge, rows_of(1))
    assert first.columns["reward_quality"].to_pylist() == [None]
    assert again.columns["reward_quality"].to_pylist() == [0.5]
    assert operator.raw_answers(rows_of(1)) == [RawAnswer(verdict([5, 5, 5, 5]), None)]


def test_of_a_refused_request_the_message_is_kept(judged):
    with FakeJudge({1: [Trouble.REFUSED] * 9}) as judge:
        operator, _ = judged(judge, rows_of(1, 2))
    refused, scored = operator.raw_answers(rows_of(1, 2))
    assert refused.reason == "scorer_refused"
    assert refused.text.startswith("request_refused: ")
    assert scored.reason is None


def test_equal_requests_of_several_threads_have_one_failure(judged):
    with FakeJudge(says={1: [RAW]}, crowd=1) as judge, ThreadPoolExecutor(4) as pool:
        changes = list(pool.map(lambda _: judged(judge, rows_of(1, 1))[1], range(4)))
        operator, _ = judged(judge, rows_of(2))
    for change in changes:
        assert change.columns["reward_quality_missing"].to_pylist() == ["scorer_malformed"] * 2
    assert operator.raw_answers(rows_of(1)) == [RawAnswer(RAW, "scorer_malformed")]


@pytest.mark.parametrize("table", [rows_of(), rows_of(None, None)])
def test_where_the_scorer_is_not_needed_nothing_is_opened(judged, table, tmp_path):
    threads = threading.active_count()
    judged("http://nowhere.invalid/v1", table)
    assert threading.active_count() == threads
    assert not (tmp_path / "scores.answers").exists()


def test_without_a_cache_nothing_is_kept(judged):
    with FakeJudge(says={1: [RAW]}) as judge:
        operator, change = judged(judge, rows_of(1), cache=None)
    assert change.columns["reward_quality_missing"].to_pylist() == ["scorer_malformed"]
    assert operator.raw_answers(rows_of(1)) == [None]


def test_a_file_that_is_no_cache(judged, tmp_path):
    cache = tmp_path / "scores.answers"
    operator, _ = judged("http://nowhere.invalid/v1", rows_of(None), cache=cache)
    cache.mkdir()
    (cache / "rows.sqlite").write_text("no database, and long enough to be taken for one" * 9)
    assert operator.raw_answers(rows_of(1)) == [None]
