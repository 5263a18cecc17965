"""Rewards by reward models behind servers: what they are asked, and what becomes of an answer.

Those of a folder are in tests/operators/mapper/test_reward_model_folder.py.
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from fake_rewards import PATHS, PROBE, FakeRewards, reward_of
from fake_server import Trouble

from rejuice.operators import DataError, EngineError, RecipeError, build
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.reward_model_mapper import RewardModelMapper, read_reward
from rejuice.operators.servers.judge import ScoringOutcome

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 0.2, "attempts": 3}
APIS = ["classify", "pooling", "sglang", "openrlhf"]


def table_of(*numbers, prompt="Why?"):
    """Responses by number; None stands for no response."""
    chat = [{"role": "user", "content": prompt}]
    texts = [None if number is None else f"response {number}" for number in numbers]
    return pa.table(
        {
            "prompt_id": ["p"] * len(texts),
            "prompt": pa.array([chat] * len(texts), MESSAGES),
            "response": pa.array(texts, pa.string()),
        }
    )


@pytest.fixture
def make(tmp_path):
    """Operators that are closed in the end."""
    made = []

    def make(at, *, cache=tmp_path / "rewards.answers", **fields):
        options = {**QUICK, "base_url": at.url, **fields.pop("server", {})}
        fields = {"model": "m", "server": options, "api": at.api, **fields}
        made.append(RewardModelMapper(cache=cache, **fields))
        return made[-1]

    yield make
    for operator in made:
        operator.close()


def rewards(change, name="model"):
    """The rewards, and why they are missing."""
    return [change.columns[f"reward_{name}{end}"].to_pylist() for end in ("", "_missing")]


@pytest.fixture
def plain_tokenizer(monkeypatch):
    """A tokenizer by the name of `rm`: characters, and a chat template; transformers is not used."""
    from rejuice.operators.mapper import reward_model_mapper as module

    def rendered(name, messages, opens=True):
        if any(role == "tool" for role, _ in messages):
            raise module.TemplateRefusedError("no tools")
        text = "".join(f"<{role}>{content}" for role, content in messages)
        return text + "<assistant>" * opens

    def chat_encoder(name, opens):
        return lambda messages: [*map(ord, rendered(name, messages, opens))]

    monkeypatch.setattr(module, "chat_text", rendered)
    monkeypatch.setattr(module, "chat_encoder", chat_encoder)
    monkeypatch.setattr(module, "text_encoder", lambda name: lambda text: [*map(ord, text)])
    for cached in (module._chats_encoded, module._texts_encoded):
        cached.cache_clear()
    yield {"tokenizer": "rm"}
    for cached in (module._chats_encoded, module._texts_encoded):
        cached.cache_clear()


def decode(ids):
    return "".join(map(chr, ids))


# --- Servers --------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_rewards_of_each_server(make, plain_tokenizer, api):
    with FakeRewards(api=api, decode=decode) as server:
        operator = make(server, **plain_tokenizer)
        operator.preflight()
        change = operator.apply(table_of(3, 9, None))
        assert server.paths == {PATHS[api]}
    assert rewards(change) == [[reward_of(3), reward_of(9), None], [None, None, "no_response"]]
    assert change.notes["asked"] == 2
    assert change.notes["prompt_tokens"] == (0 if api == "openrlhf" else 14)


def test_what_vllm_is_asked(make, plain_tokenizer):
    with FakeRewards() as server:
        make(server).apply(table_of(3))
        make(server, **plain_tokenizer, revision="2").preflight()
        (body,) = server.bodies[3]
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "response 3"}]
    # Without it, `probs` are probabilities.
    assert body == {"model": "m", "messages": chat, "use_activation": False}


@pytest.mark.parametrize("api", ["classify", "pooling"])
def test_vllm_gets_tokens_where_there_is_a_tokenizer(make, plain_tokenizer, api):
    with FakeRewards(api=api, decode=decode) as server:
        make(server, **plain_tokenizer).apply(table_of(3))
        (body,) = server.bodies[3]
    ids = [*map(ord, "<user>Why?<assistant>response 3")]
    assert body == {"model": "m", "input": ids, "use_activation": False}


def test_what_sglang_is_asked(make, plain_tokenizer):
    with FakeRewards(api="sglang", decode=decode) as server:
        make(server, **plain_tokenizer).apply(table_of(3))
        (body,) = server.bodies[3]
    # Of a text it would add special tokens that the template has.
    assert body == {"model": "m", "input_ids": [*map(ord, "<user>Why?<assistant>response 3")]}


def test_what_openrlhf_is_asked(make, plain_tokenizer):
    table = table_of(3, 4).append_column("reference", pa.array(["12", None]))
    with FakeRewards(api="openrlhf") as server:
        make(server, **plain_tokenizer).apply(table)
        ((first,), (second,)) = server.bodies[3], server.bodies[4]
    assert first == {
        "query": ["<user>Why?<assistant>response 3"],
        "prompts": ["<user>Why?<assistant>"],
        "labels": ["12"],
    }
    assert second["labels"] == [""]


def test_addresses_as_users_have_them(make, plain_tokenizer):
    with FakeRewards(api="openrlhf") as server:
        root = server.url.removesuffix("/v1")
        for url in (root, f"{root}/", f"{root}/get_reward"):
            operator = make(server, **plain_tokenizer, cache=None, server={"base_url": url})
            operator.preflight()
            assert rewards(operator.apply(table_of(3)))[0] == [reward_of(3)]


def test_prompts_that_are_texts(make, plain_tokenizer):
    table = table_of(3).set_column(1, "prompt", pa.array(["Q: why? A: "]))
    with FakeRewards(api="openrlhf") as server:
        make(server, **plain_tokenizer).apply(table)
        (body,) = server.bodies[3]
    assert body == {
        "query": ["Q: why? A: response 3"],
        "prompts": ["Q: why? A: "],
        "labels": [""],
    }
    with FakeRewards() as server:
        make(server).apply(table)
        (body,) = server.bodies[3]
    assert body["input"] == "Q: why? A: response 3"


def test_rewards_of_each_token_end_with_that_of_the_text(make):
    with FakeRewards(api="pooling", outputs={3: [[0.5], [0.25], [-2.0]]}) as server:
        assert rewards(make(server).apply(table_of(3)))[0] == [-2.0]


def test_a_label_and_an_activation(make):
    with FakeRewards(outputs={3: [0.5, -1.0], 4: [9.0, 2.0]}) as server:
        fields = {"label": 1, "activation": "sigmoid", "component": "harmless"}
        change = make(server, **fields).apply(table_of(3, 4))
        # Stored are the outputs: another label asks nothing.
        again = make(server, label=0).apply(table_of(3, 4))
        assert sorted(server.asked) == [3, 4]
    expected = [1 / (1 + math.exp(1.0)), 1 / (1 + math.exp(-2.0))]
    assert rewards(change, "harmless")[0] == pytest.approx(expected, rel=1e-12)
    assert rewards(again)[0] == [0.5, 9.0]


def test_two_labels_at_the_same_moment_have_their_own_outputs(make):
    with FakeRewards(outputs={n: [float(n), -float(n)] for n in range(40)}) as server:
        steps = [make(server, label=label) for label in (0, 1)]
        with ThreadPoolExecutor(2) as threads:
            changes = list(threads.map(lambda step: step.apply(table_of(*range(40))), steps))
        assert len(server.asked) == 40
    first, second = (rewards(change)[0] for change in changes)
    assert (first, second) == ([float(n) for n in range(40)], [-float(n) for n in range(40)])


def test_stored_outputs_that_another_label_does_not_fit(make):
    with FakeRewards(outputs={3: [0.5, -1.0], PROBE: [0.5, -1.0]}) as server:
        stored = make(server, label=1)
        stored.apply(table_of(3))
        stored.close()
        with pytest.raises(EngineError, match="the model has 2 outputs"):
            make(server).apply(table_of(3))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the model has 2 outputs, [0.5, 1.0]; set label to the one that is the reward"),
        ({"label": 2}, "label is 2, and the model has 2 outputs, [0.5, 1.0]; count from 0"),
    ],
)
def test_a_model_of_several_outputs_is_refused_at_once(make, fields, message):
    with FakeRewards(outputs={3: [0.5, 1.0], PROBE: [0.5, 1.0]}) as server:
        with pytest.raises(EngineError) as error:
            make(server, **fields).apply(table_of(3))
        assert message in str(error.value)
        assert server.asked[0] == 3
        assert set(server.asked[1:]) == {PROBE}


# --- Failures -------------------------------------------------------------------------

ONE = {"index": 0, "probs": [1.0]}


@pytest.mark.parametrize(
    ("api", "raw"),
    [
        ("classify", {"data": []}),
        ("classify", {"data": [ONE, ONE]}),
        ("classify", {"data": [{"probs": []}]}),
        ("classify", {"data": [{"probs": ["high"]}]}),
        ("classify", {"data": [{"probs": [True]}]}),
        ("classify", {"data": [{"embedding": [1.0]}]}),
        ("classify", [1.0]),
        ("pooling", {"data": [{"data": []}]}),
        ("pooling", {"data": [{"data": [[]]}]}),
        ("pooling", {"data": [{"data": "AACAPw=="}]}),
        ("sglang", []),
        ("sglang", [{"embedding": [1.0]}] * 2),
        ("sglang", {"embedding": None}),
        ("openrlhf", {"rewards": []}),
        ("openrlhf", {"rewards": [1.0, 2.0]}),
        ("openrlhf", {"rewards": 1.0}),
        ("openrlhf", {"rewards": [[1.0]]}),
        ("openrlhf", {"scores": [1.0]}),
    ],
)
def test_an_answer_of_another_form_is_missing(make, plain_tokenizer, api, raw):
    with FakeRewards(api=api, raw={3: raw}, decode=decode) as server:
        change = make(server, **plain_tokenizer).apply(table_of(3, 4, 3))
        assert rewards(change) == [
            [None, reward_of(4), None],
            ["scorer_error", None, "scorer_error"],
        ]
        # Three attempts, for both rows together.
        assert server.asked.count(3) == 3


@pytest.mark.parametrize("api", APIS)
def test_what_fails_is_missing_and_sent_once_for_equal_rows(make, plain_tokenizer, api):
    script = {1: [Trouble.REFUSED] * 9, 2: [Trouble.ERROR_500] * 9, 3: [Trouble.ERROR_503]}
    with FakeRewards(script, api=api, decode=decode) as server:
        operator = make(server, **plain_tokenizer)
        change = operator.apply(table_of(1, 2, 3, 4, 2, 3))
        assert server.attempts == {1: 1, 2: 3, 3: 2, 4: 1, **_probes(server)}
        again = make(server, **plain_tokenizer).apply(table_of(3, 4))
        assert server.attempts[3] + server.attempts[4] == 3
    third, fourth = reward_of(3), reward_of(4)
    assert rewards(change) == [
        [None, None, third, fourth, None, third],
        ["scorer_refused", "scorer_error", None, None, "scorer_error", None],
    ]
    assert rewards(again) == [[third, fourth], [None, None]]
    assert again.notes["from_cache"] == 2


def _probes(server):
    return {PROBE: server.attempts[PROBE]} if PROBE in server.attempts else {}


def test_connection_refused_ends_the_run_or_leaves_rewards_missing(make):
    with FakeRewards() as server:
        one = make(server, server={"patience_s": 0.01})
        other = make(server, on_server_down="missing", server={"patience_s": 0.01})
        server.kill()
        with pytest.raises(EngineError, match="is the server up"):
            one.apply(table_of(3))
        change = other.apply(table_of(3, None))
    assert rewards(change) == [[None, None], ["scorer_unreachable", "no_response"]]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "null"])
def test_no_finite_number_is_missing_and_stored(make, text):
    body = f'{{"data": [{{"probs": [{text}]}}]}}'.encode()
    assert json.loads(read_reward(body, "classify").text) != [0.0]
    with FakeRewards(outputs={3: json.loads(f"[{text}]")}) as server:
        change = make(server).apply(table_of(3))
        again = make(server).apply(table_of(3))
        assert server.asked == [3]
    for found in (change, again):
        assert rewards(found) == [[None], ["not_a_number"]]


def test_what_the_model_is_not_asked_about(make, plain_tokenizer):
    table = table_of(1, 22, 3, 4)
    tool = [{"role": "tool", "content": "5"}]
    user = [{"role": "user", "content": "Why?"}]
    table = table.set_column(1, "prompt", pa.array([tool, user, [], None], MESSAGES))
    with FakeRewards() as server:
        change = make(server, **plain_tokenizer, max_length=31).apply(table)
        assert server.asked == []
    reasons = ["template_refused", "too_long", "no_prompt", "no_prompt"]
    assert rewards(change) == [[None] * 4, reasons]


def test_a_text_of_the_longest_length_is_scored(make, plain_tokenizer):
    length = len("<user>Why?<assistant>response 3")
    with FakeRewards(decode=decode) as server:
        at = make(server, **plain_tokenizer, max_length=length).apply(table_of(3))
        over = make(server, **plain_tokenizer, max_length=length - 1).apply(table_of(3))
    assert rewards(at)[0] == [reward_of(3)]
    assert rewards(over)[1] == ["too_long"]


def test_models_apis_and_revisions_have_answers_of_their_own(make, plain_tokenizer):
    with FakeRewards(api="openrlhf") as server:
        for fields in ({}, {"model": "n"}, {"revision": "2"}, {}):
            make(server, **plain_tokenizer, **fields).apply(table_of(3))
        assert server.asked == [3, 3, 3]
    for api in ("classify", "pooling"):
        with FakeRewards(api=api) as server:
            make(server).apply(table_of(3))
            assert server.asked == [3]


def test_a_server_without_the_model_or_the_endpoint(make):
    with FakeRewards() as server:
        with pytest.raises(EngineError, match="has no model 'n'; it has m, other"):
            make(server, model="n").preflight()
        with pytest.raises(EngineError, match="does it serve a reward model, and is api: pooling"):
            make(server, api="pooling").apply(table_of(3))


@pytest.mark.parametrize("api", APIS)
def test_the_operator_keeps_its_contract(make, plain_tokenizer, api):
    with FakeRewards(api=api, decode=decode) as server:
        operator = make(server, **plain_tokenizer)
        check_operator(operator, table_of(3, 9, None, 3))


def test_bad_columns_are_one_line(make):
    with FakeRewards() as server:
        with pytest.raises(DataError, match="column 'response' is list<item: string>, not text"):
            bad = table_of(3).set_column(2, "response", pa.array([["a"]]))
            make(server).apply(bad)
        with pytest.raises(DataError, match="column 'prompt' is int64"):
            make(server).apply(table_of(3).set_column(1, "prompt", pa.array([1])))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give either model, a name on a server, or folder"),
        ({"model": "m", "folder": "f"}, "give either model, a name on a server, or folder"),
        ({"model": "m", "api": "sglang"}, "api: sglang takes no chats; set tokenizer"),
        ({"model": "m", "api": "openrlhf"}, "api: openrlhf takes no chats; set tokenizer"),
        ({"model": "m", "max_length": 9}, "max_length counts tokens; set tokenizer"),
        ({"folder": "f", "tokenizer": "t"}, "tokenizer is for a server; a folder has its own"),
        ({"folder": "f", "api": "pooling"}, "api is for a server; a folder has its own"),
        ({"model": "m", "component": "a b"}, "'a b' cannot be part of a column's name"),
        ({"model": "m", "label": -1}, "label: -1 is below 0"),
        (
            {"model": "m", "api": "openrlhf", "tokenizer": "t", "label": 0},
            "a server of OpenRLHF gives one number",
        ),
    ],
)
def test_wrong_fields_are_one_line(fields, message):
    with pytest.raises(RecipeError) as error:
        build(RewardModelMapper, fields)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_infinite_output_is_missing_whatever_the_activation():
    outcomes = [ScoringOutcome((value,)) for value in (math.inf, 0.0, math.nan, -math.inf)]
    operator = RewardModelMapper(model="m", activation="sigmoid")
    found = rewards(operator._change(table_of(1, 2, 3, 4), outcomes))
    missing = "not_a_number"
    assert found == [[None, 0.5, None, None], [missing, None, missing, missing]]


@pytest.mark.parametrize("api", ["classify", "sglang"])
def test_the_probe_is_of_the_kind_that_rows_have(api, plain_tokenizer):
    """A server without a chat template takes tokens or texts, and would refuse a chat."""
    chats, texts = table_of(1), pa.table({"prompt": ["Why?"], "response": ["Because."]})
    for table in (chats, texts):
        operator = RewardModelMapper(model="m", api=api, tokenizer="rm")
        (request,) = operator._requests(table, [0])
        assert operator._probe().sent[0].body.keys() == request.sent[0].body.keys()


def test_a_null_message_is_left_out():
    chat = [{"role": "user", "content": "Why?"}, None]
    table = pa.table({"prompt": pa.array([chat], MESSAGES), "response": ["Because."]})
    (request,) = RewardModelMapper(model="m")._requests(table, [0])
    assert [each["role"] for each in request.sent[0].body["messages"]] == ["user", "assistant"]
