"""The prompt of Data-Juicer's filter: the same requests, and the same scores from the same answers."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pyarrow as pa
import pytest
from fake_judge import DIMENSIONS, FakeJudge
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.operators.cache_key import cache_key_json
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import (
    RATING,
    LlmQualityRewardMapper,
    data_juicer_schema,
    record,
)
from rejuice.operators.registry import build
from rejuice.operators.servers.verdict import MalformedError, ScorerAnswer, read_verdict

QUESTION = "What is {1 + 1}?"


def says(*scores, **more):
    named = dict(zip(DIMENSIONS, scores, strict=False))
    rest = {"flags": ["vague"], "rationale": "So {so}, \u00e9.", "recommendation": ["keep"]}
    return json.dumps({"dimension_scores": named, **rest, **more})


GOOD = {
    # Answers by attempt -> what Data-Juicer makes of them, as we do.
    "plain": ([says(4, 5, 3, 4)], 0.8),
    "highest": ([says(5, 5, 5, 5)], 1.0),
    "lowest": ([says(1, 1, 1, 1)], 0.2),
    "with a point": ([says(4.5, 4.0, 3.7, 1.1)], (4.5 + 4.0 + 3.7 + 1.1) / 4 / 5),
    "in a fence": ([f"```json\n{says(2, 2, 2, 2, rationale='')}\n```"], 0.4),
    "between sentences": ([f"Sure: {says(2, 3, 2, 3, rationale='')} That is all."], 0.5),
    "the same twice": ([says(1, 2, 1, 2) + says(1, 2, 1, 2)], 0.3),
    "one word as a recommendation": ([says(3, 3, 3, 3, recommendation=" review ")], 0.6),
    "no flags": (['{"dimension_scores": ' + json.dumps(dict.fromkeys(DIMENSIONS, 4)) + "}"], 0.8),
    "more dimensions": ([says(4, 4, 4, 4)[:-1] + ', "tags": {"topic": "sums"}}'], 0.8),
    "at the second attempt": (["I cannot say.", says(4, 4, 4, 4)], 0.8),
    "at the third attempt": (["", says("4", 4, 4, 4), says(5, 4, 4, 5)], 0.9),
}
FAILED = {
    # Answers by attempt -> what Data-Juicer makes of them; here they are missing.
    "prose": (["It is good."], 0.0),
    "nothing": ([""], 0.0),
    "no scores": (['{"flags": []}'], 0.0),
    "scores of its own": (['{"overall": 4}'], 0.0),
    "flat": ([json.dumps(dict.fromkeys(DIMENSIONS, 4))], 0.0),
    "a score too few": ([says(4, 4, 4)], 0.0),
    "a score as a string": ([says("4", 4, 4, 4)], 0.0),
    "a score of five": ([says("4/5", 4, 4, 4)], 0.0),
    "a score that is null": ([says(None, 4, 4, 4)], 0.0),
    "no JSON": ([says(4, 4, 4, 4).replace(",", ";")], 0.0),
    "braces in braces in braces": ([says({"value": 4}, 4, 4, 4)], 0.0),
    "cut before its end": ([says(4, 4, 4, 4)[:-20]], 0.0),
    "a quotation first": ([f"It claims {says(5, 5, 5, 5)}\n{says(1, 1, 1, 1)}"], 1.0),
    "a quotation last": ([f"{says(1, 2, 1, 2)}, not {says(5, 5, 5, 5)}"], 0.3),
    "a score below the scale": ([says(0, 0, 0, 0)], 0.0),
    "a score above the scale": ([says(9, 9, 9, 9)], 1.8),
}


def table_of(count):
    chat = [{"role": "user", "content": QUESTION}]
    return pa.table(
        {
            "prompt_id": ["p"] * count,
            "prompt": pa.array([chat] * count, MESSAGES),
            "response": [f"response {row} {{x}}" for row in range(count)],
        }
    )


def judged(server, count, **fields):
    mapper = LlmQualityRewardMapper(
        model="m", prompt="data_juicer", cache=None, server={"base_url": server.url}, **fields
    )
    try:
        return pa.table(dict(mapper.apply(table_of(count)).columns)).to_pylist()
    finally:
        mapper.close()


@pytest.fixture
def their_filter(monkeypatch):
    """Data-Juicer's own operator at a server."""
    model_utils = importlib.import_module("data_juicer.utils.model_utils")
    folder = str(Path(__file__).parents[2] / "support" / "openai_stub")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "openai", raising=False)
    monkeypatch.setattr(model_utils, "openai", importlib.import_module("openai"))
    from data_juicer.ops.filter import LLMQualityScoreFilter

    return lambda server: LLMQualityScoreFilter(
        "m",
        input_keys=["prompt", "response"],
        field_names=["prompt", "response"],
        try_num=3,
        model_params={"base_url": server.url, "api_key": "k"},
    )


def test_what_the_scorer_thinks_before_is_no_answer():
    """Where Data-Juicer would take the first object of the thought."""
    thought = f"<think>perhaps {says(1, 1, 1, 1)}</think>"
    found = read_verdict(ScorerAnswer(thought + says(4, 5, 3, 4), "stop"), DIMENSIONS, RATING)
    assert found == (4.0, 5.0, 3.0, 4.0)
    with pytest.raises(MalformedError, match="it ends within its thought"):
        read_verdict(ScorerAnswer(f"<think>perhaps {says(1, 1, 1, 1)}", "stop"), DIMENSIONS, RATING)


@pytest.mark.slow  # Imports Data-Juicer.
@pytest.mark.parametrize("answer_format", ["text", "json_schema"])
def test_scores_and_records_are_those_of_data_juicer_cell_by_cell(their_filter, answer_format):
    cases = [*GOOD.values(), *FAILED.values()]
    answers = {row: texts for row, (texts, _) in enumerate(cases)}
    with FakeJudge(says=answers) as their_server, FakeJudge(says=answers) as our_server:
        theirs = their_filter(their_server)
        ours = judged(our_server, len(cases), temperature=0.7, answer_format=answer_format)
        for row, (_, score) in enumerate(cases):
            text = f"response {row} {{x}}"
            sample = {"prompt": QUESTION, "response": text, "__dj__stats__": {}}
            stats = theirs.compute_stats_single(sample)["__dj__stats__"]
            assert stats["llm_quality_score"] == score
            found = ours[row]
            if row < len(GOOD):
                assert found["quality_score"] == score
                assert found["reward_quality"] == pytest.approx(
                    (score - 0.2) / 0.8 - 0.5, abs=1e-12
                )
                assert found["quality_record"] == stats["llm_quality_record"]
                assert found["reward_quality_missing"] is None
            else:
                empty = ("quality", "quality_score", "reward_quality", "quality_record")
                assert [found[name] for name in empty] == [None] * 4
                assert found["reward_quality_missing"] == "scorer_malformed"
            mine, other = our_server.bodies[row][0], their_server.bodies[row][0]
            assert mine["messages"] == other["messages"]


PARTS = [says(4, 4, 4, 4), says(1, 2, 3, 4.5), says("4", 4, 4, 4), "{", "}", "{}", "[]", "```json",
         '"dimension_scores": ', json.dumps(dict.fromkeys(DIMENSIONS, 2)), ", ", "text", "null"]  # fmt: skip


@pytest.mark.slow  # Imports Data-Juicer.
@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))
@settings(deadline=None)
def test_any_text_is_read_as_by_data_juicer(text):
    from data_juicer.ops.filter import LLMQualityScoreFilter as Theirs

    bare = SimpleNamespace(
        dim_required_keys=list(DIMENSIONS),
        # private: py-data-juicer==1.6.1, this test
        _normalize_recommendation_to_str_list=Theirs._normalize_recommendation_to_str_list,
    )
    try:
        score, found, _ = Theirs.parse_output(bare, text)
    except (KeyError, TypeError):
        score, found = 0.0, None
    try:
        scores = read_verdict(ScorerAnswer(text, "stop"), DIMENSIONS, RATING)
        own = (sum(scores) / 4 / 5, record(text))
        # Of no object but the first it says anything.
        assert score == 0.0 or own == (score, json.dumps(found, ensure_ascii=False))
    except MalformedError:
        # Data-Juicer takes the first object with scores, whatever the others say.
        assert score == 0.0 or text.count('"dimension_scores": ') > 1


def test_the_request_asks_as_data_juicer_does_and_for_its_schema():
    with FakeJudge(says={0: [says(4, 5, 3, 4)]}) as judge:
        (row,) = judged(judge, 1)
        (body,) = judge.bodies[0]
    assert row["quality"] == dict(zip(DIMENSIONS, (4.0, 5.0, 3.0, 4.0), strict=True))
    assert row["reward_quality"] == pytest.approx(0.25)
    assert json.loads(row["quality_record"])["flags"] == ["vague"]
    system, user = body["messages"]
    assert "meticulous data quality assessor" in system["content"]
    assert "Compare with similar data points" in system["content"]
    assert user["content"].count(QUESTION) == user["content"].count("response 0 {x}") == 1
    assert body["response_format"]["json_schema"]["schema"] == data_juicer_schema()
    example = system["content"].split("Example Response:")[1]
    jsonschema.validate(json.loads(example[example.index("{") :]), data_juicer_schema())


def test_half_of_an_emoji_in_an_answer_is_kept_escaped():
    with FakeJudge(says={0: [says(4, 4, 4, 4, rationale="\ud83d \u00e9")]}) as judge:
        (row,) = judged(judge, 1)
    assert row["reward_quality"] == pytest.approx(0.25)
    assert "\\ud83d \u00e9" in row["quality_record"]
    assert json.loads(row["quality_record"])["rationale"] == "\ud83d \u00e9"


def test_some_of_the_dimensions_count_for_the_mean():
    with FakeJudge(says={0: [says(5, 1, 1, 1)]}) as judge:
        (row,) = judged(judge, 1, dimensions=("accuracy",))
        assert list(judge.bodies[0][0]["response_format"]["json_schema"]["schema"]["properties"]
                    ["dimension_scores"]["properties"]) == list(DIMENSIONS)  # fmt: skip
    assert (row["quality"], row["reward_quality"]) == ({"accuracy": 5.0}, 0.5)


def test_the_contract_of_operators():
    with FakeJudge(says={0: [says(5, 1, 1, 1)], 1: ["no"]}) as judge:
        fields = {"model": "m", "prompt": "data_juicer", "cache": None, "answer_format": "text"}
        mapper = build(LlmQualityRewardMapper, {**fields, "server": {"base_url": judge.url}})
        change = check_operator(mapper, table_of(2))
        mapper.close()
        assert "response_format" not in judge.bodies[0][0]
    assert change.columns["reward_quality_missing"].to_pylist() == [None, "scorer_malformed"]


REFUSED = [
    ({"system": "Be fair."}, "prompt: data_juicer does not take system; leave one of them out"),
    (
        {"template": "{question}{response}"},
        "prompt: data_juicer does not take template; leave one of them out",
    ),
    ({"expected_score": True}, "prompt: data_juicer does not take expected_score; leave one of"),
    ({"dimensions": ["wit"]}, "prompt: data_juicer has no dimension 'wit', only accuracy, gram"),
    ({"prompt": "long"}, "field 'prompt' is 'long'; input should be 'short' or 'data_juicer'"),
]


@pytest.mark.parametrize(("fields", "line"), REFUSED)
def test_fields_that_do_not_fit_are_refused_in_one_line(fields, line):
    with pytest.raises(RecipeError) as error:
        build(LlmQualityRewardMapper, {"model": "m", "prompt": "data_juicer", **fields})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_the_prompt_is_in_the_cache_key_only_where_it_is_not_the_short_one():
    short = LlmQualityRewardMapper(model="m")
    theirs = LlmQualityRewardMapper(model="m", prompt="data_juicer")
    assert "prompt" not in short.cache_key_fields()
    assert "meticulous" in cache_key_json(theirs)
    assert "meticulous" in theirs.explain()["the scorer's system"]
    assert short.writes() == theirs.writes()[:-1]
