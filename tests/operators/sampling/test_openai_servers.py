"""Sampling from each kind of server: what is sent, what comes back, and what a refusal says."""

import json

import pytest
from fake_server import FakeServer
from kinds_of_server import KINDS, KindOfServer, Vllm

from rejuice.operators.errors import EngineError, RecipeError
from rejuice.operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.operators.registry import build
from rejuice.operators.sampling.openai_engine import OpenAIEngine, read_group
from rejuice.operators.sampling.protocol import Failure, OpenAIOptions, Prompt, Sample, Settings
from rejuice.operators.servers.options import Dialect
from rejuice.operators.servers.wire import AttemptError

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "patience_s": 60.0, "attempts": 3, "api": "chat"}
THREE = Settings(n=3, max_tokens=30)
SEED = (1 << 61) + 12345
PROMPT = Prompt((("user", "x"),), SEED)


def sample(server, *prompts, settings=THREE, exact=False, concurrency=2, **fields):
    options = OpenAIOptions(base_url=server.url, concurrency=concurrency, server=fields, **QUICK)
    engine = OpenAIEngine("m", options, exact=exact)
    try:
        return [found for _, found in sorted(engine.sample(prompts or (PROMPT,), settings))]
    finally:
        engine.close()


def texts(group):
    return [each.text for each in group.samples]


def refused(server, **fields):
    """The one line by which a run ends."""
    with pytest.raises(EngineError) as error:
        sample(server, **fields)
    assert "\n" not in str(error.value)
    return str(error.value)


CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
DRAWN = {"temperature": 1.0, "top_p": 1.0}
LOW = SEED % (1 << 31)
SENT = {
    "vllm": [{**DRAWN, "n": 3, "max_tokens": 30, "seed": SEED}],
    "sglang": [{**DRAWN, "max_tokens": 30, "seed": SEED + k} for k in range(3)],
    "llama_cpp": [{**DRAWN, "max_tokens": 30, "seed": LOW + k} for k in range(3)],
    "ollama": [{**DRAWN, "max_tokens": 30, "seed": LOW + k} for k in range(3)],
    "tgi": [{"max_tokens": 30, "seed": SEED + k} for k in range(3)],
    "openai": [{"n": 3, "max_completion_tokens": 30, "seed": SEED}],
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_kind_is_sent_and_gives(kind):
    with KINDS[kind]() as server:
        (group,) = sample(server, kind=kind)
    sent = sorted(server.sent, key=lambda body: body["seed"])
    assert sent == [CHAT | fields for fields in SENT[kind]]
    first = sent[0]["seed"]
    assert texts(group) == [str(first + k) for k in range(3)], "each response is another one"
    assert {each.finish_reason for each in group.samples} == {"stop"}
    assert (group.policy, group.seed) == ("m", first)


WITHOUT = {
    "llama_cpp": "request_refused, 500: Only one completion choice is allowed; "
    "set openai: {server: {one_sample_per_request: true}}",
    "ollama": "too_few_samples, 1 of 3 responses; "
    "set openai: {server: {one_sample_per_request: true}}",
    "tgi": "request_refused, 422: Input validation error: `top_p` must be > 0.0 and < 1.0; "
    "set openai: {server: {defaults: left_out}}",
    "openai": "request_refused, 400: Unsupported parameter: 'max_tokens' is not supported with "
    "this model. Use 'max_completion_tokens' instead; "
    "set openai: {server: {token_limit: max_completion_tokens}}",
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_without_its_kind_a_run_ends_with_the_field_to_set(kind):
    with KINDS[kind]() as server:
        assert refused(server) == f"{server.url} answers no prompt: {WITHOUT[kind]}"


def test_following_the_lines_leads_to_what_the_kind_sets():
    with KINDS["tgi"]() as server:
        fields = {"defaults": "left_out"}
        assert "set openai: {server: {one_sample_per_request: true}}" in refused(server, **fields)
        fields["one_sample_per_request"] = True
        assert refused(server, **fields).endswith(
            "bad_response, choice 0 finished with 'eos_token'; set openai: {server: "
            "{finish_reasons: {eos_token: stop}}} if it is then complete, or length if it is cut off"
        )
        fields["finish_reasons"] = {"eos_token": "stop"}
        (group,) = sample(server, **fields)
        assert group == sample(server, kind="tgi")[0]


def test_requests_for_one_response_each_give_what_one_for_all_gives():
    """So they are no other samples: what was paid for with the one is found with the other."""
    prompts = [PROMPT._replace(seed=seed) for seed in (1, 100)]
    with Vllm() as server:
        assert sample(server, *prompts) == sample(server, *prompts, one_sample_per_request=True)
        exact = [sample(server, *prompts, exact=True, one_sample_per_request=one) for one in (0, 1)]
    assert exact[0] == exact[1]
    assert exact[0][0].samples[2] == Sample("3", (5, 6), (-0.5, -0.5), "stop")
    assert exact[0][0].prompt_token_ids == (1, 2)


def test_so_many_requests_are_bounded_by_concurrency():
    with Vllm(crowd=4, think_s=0.001) as server:
        prompts = [PROMPT._replace(seed=10 * seed) for seed in range(6)]
        groups = sample(server, *prompts, concurrency=4, one_sample_per_request=True)
        assert len(groups) == 6
        assert (server.peak, len(server.sent)) == (4, 18)


def test_one_response_that_fails_takes_its_prompt_along():
    class Refusing(Vllm):
        def refusal(self, path, body):
            super().refusal(path, body)
            return (400, {"error": {"message": "no"}}) if body["seed"] == 11 else None

    with Refusing() as server:
        prompts = [PROMPT._replace(seed=seed) for seed in (1, 10)]
        whole, failed = sample(server, *prompts, one_sample_per_request=True)
    assert texts(whole) == ["1", "2", "3"]
    assert failed == Failure("request_refused", "400: no")


@pytest.mark.parametrize("exact", [True, False])
def test_weights_that_change_between_the_requests_of_a_group(exact):
    class Trained(FakeServer):
        def answer(self, path, body, seed, attempt, n):
            self.version = "3" if seed == 1 else "2"
            return super().answer("/inference/v1/generate", body, seed, attempt, n)

        def seed_and_n(self, body):
            return body["sampling_params"]["seed"], 1

    options = OpenAIOptions(
        api="generate", attempts=1, server={"one_sample_per_request": True}, back_off_s=0.002
    )
    with Trained() as server:
        options = options.model_copy(update={"base_url": server.url})
        engine = OpenAIEngine("m", options, exact=exact, encode=lambda messages: [1, 2, 3])
        ((_, found),) = engine.sample([PROMPT._replace(seed=1)], Settings(n=2, max_tokens=30))
        engine.close()
    if exact:
        assert found == Failure("bad_response", "weights changed from 2 to 3 while it was sampled")
    else:
        assert (found.version, len(found.samples)) == (2, 2)


# Seeds


@pytest.mark.parametrize(("seed", "low"), [((1 << 31) - 1, 0), ((1 << 62) - 2, 0), (5, 6)])
def test_seeds_of_32_bits_stay_below_the_limit(seed, low):
    with Vllm() as server:
        sample(server, PROMPT._replace(seed=seed), seed="32_bit", one_sample_per_request=True)
    seeds = [body["seed"] for body in server.sent]
    assert low in seeds
    assert all(0 <= each < 1 << 31 for each in seeds)


def test_a_server_that_takes_no_seed():
    with KindOfServer(unseeded=True) as server:
        line = refused(server)
        assert line.endswith("Unsupported parameter: 'seed'; set openai: {server: {seed: none}}")
        (group,) = sample(server, seed="none")
        assert (texts(group), group.seed) == (["?"] * 3, None)
        assert "seed" not in server.sent[-1]


@pytest.mark.parametrize(
    ("message", "set_already", "right"),
    [
        ("Invalid value at 'seed' (TYPE_INT32), {seed}", "64_bit", "32_bit"),
        ("json: cannot unmarshal number {seed} into Go struct field .seed of type int32", "64_bit", "32_bit"),
        ("seed must be less than 2147483648", "64_bit", "32_bit"),
        ("unknown field `seed`", "64_bit", "none"),
        ("seed must be less than 100", "32_bit", "none"),
    ],
)  # fmt: skip
def test_a_seed_that_is_refused(message, set_already, right):
    class Refusing(Vllm):
        def refusal(self, path, body):
            return 400, {"error": {"message": message.format(seed=body.get("seed"))}}

    with Refusing() as server:
        line = refused(server, seed=set_already)
    assert line.endswith(f"; set openai: {{server: {{seed: {right}}}}}")


def test_rows_say_with_which_seed_they_were_sampled():
    def sampling(**fields):
        options = {"base_url": "http://h/v1", "api": "chat", "server": fields}
        step = PolicyRolloutMapper(engine="openai", model="m", on_policy=False, openai=options)
        seed = Dialect(**fields).seed_of(SEED)
        with Vllm() as server:
            (group,) = sample(server, **fields)
        assert group.seed == seed
        return step._sampling(group)

    settings = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 1024}
    assert sampling() == settings | {"seed": SEED}
    assert sampling(seed="32_bit") == settings | {"seed": LOW}
    assert sampling(seed="none") == settings | {"seed": None}


# Endings and places


def answer(*choices):
    return json.dumps({"choices": choices}).encode()


def choice(index=0, ending="stop", **message):
    found = {"index": index, "finish_reason": ending, "message": {"content": "a", **message}}
    return {name: value for name, value in found.items() if value != "left out"}


def read(*choices, n=1, exact=False, **fields):
    body, settings = answer(*choices), Settings(n=n, max_tokens=99)
    dialect = Dialect(**fields)
    return read_group(
        body, PROMPT, None, settings, policy="m", version=0, exact=exact, dialect=dialect
    ).samples


def bad(*choices, **fields):
    with pytest.raises(AttemptError) as error:
        read(*choices, **fields)
    return error.value.reason, error.value.line


@pytest.mark.parametrize(
    ("ending", "name"), [("eos_token", "eos_token"), (None, "null"), ("left out", "null")]
)
def test_finish_reasons_of_its_own(ending, name):
    shown = None if name == "null" else name
    assert bad(choice(ending=ending)) == (
        "bad_response",
        f"choice 0 finished with {shown!r}; set openai: {{server: {{finish_reasons: {{{name}: "
        "stop}}} if it is then complete, or length if it is cut off",
    )
    for meaning in ("stop", "length"):
        (found,) = read(choice(ending=ending), finish_reasons={name: meaning})
        assert found.finish_reason == meaning


@pytest.mark.parametrize("ending", ["abort", "error"])
def test_a_response_that_failed_is_whole_only_where_one_says_so(ending):
    right = (
        f"set openai: {{server: {{finish_reasons: {{{ending}: length}}}}}} to take it as cut off"
    )
    assert bad(choice(ending=ending)) == (
        "bad_response",
        f"choice 0 finished with '{ending}'; {right}",
    )
    (found,) = read(choice(ending=ending), finish_reasons={ending: "length"})
    assert found.finish_reason == "length"


BY_ORDER = "; set openai: {server: {index: by_order}}"


@pytest.mark.parametrize(
    ("indices", "line"),
    [
        ([0, 0, 0], "choices [0, 0, 0], not 0 to 2" + BY_ORDER),
        (["left out"] * 3, "3 choices without index" + BY_ORDER),
        ([None] * 3, "3 choices without index" + BY_ORDER),
        ([1, 2, 3], "choices [1, 2, 3], not 0 to 2" + BY_ORDER),
        ([0, 1, 1], "choices [0, 1, 1], not 0 to 2"),
        ([0, 1, None], "choices [0, 1], not 0 to 2"),
    ],
)
def test_choices_without_an_index_of_their_own(indices, line):
    choices = [choice(index, content=str(place)) for place, index in enumerate(indices)]
    assert bad(*choices, n=3) == ("bad_response", line)
    found = read(*choices, n=3, index="by_order")
    assert [each.text for each in found] == ["0", "1", "2"]


def test_the_order_of_a_server_is_no_reason_to_take_another_number_of_choices():
    choices = [choice(0), choice(0)]
    assert bad(*choices, n=1, index="by_order") == ("bad_response", "choices [0, 0], not 0 to 0")
    assert bad(*choices, n=3, index="by_order")[0] == "too_few_samples"


def test_the_only_choice_needs_no_index():
    (found,) = read(choice("left out"))
    assert found.text == "a"


# Thoughts and tool calls that the server takes out


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_thought_is_put_back(field):
    (found,) = read(choice(**{field: "3 * 4"}))
    assert found == Sample("<think>\n3 * 4\n</think>\n\na", None, None, "stop")


@pytest.mark.parametrize("message", [{}, {"reasoning": None}, {"reasoning": ""}])
def test_a_response_that_is_cut_in_its_thought_is_empty(message):
    (found,) = read(choice(ending="length", content=None, **message))
    assert found == Sample("", None, None, "length")


def test_a_thought_that_is_cut_is_not_closed():
    (found,) = read(choice(ending="length", content=None, reasoning="3 * 4 is"))
    assert found == Sample("<think>\n3 * 4 is", None, None, "length")


@pytest.mark.parametrize("message", [{"content": None}, {"role": "assistant"}, {"content": []}])
def test_a_response_without_text_is_an_empty_one(message):
    """Its first token ended it; the others of its prompt are none the worse for that."""
    empty = {"index": 1, "finish_reason": "stop", "message": message}
    found = read(choice(0), empty, choice(2), n=3)
    assert [(each.text, each.finish_reason) for each in found] == [
        ("a", "stop"), ("", "stop"), ("a", "stop"),
    ]  # fmt: skip


def test_a_choice_without_a_message_is_still_bad():
    bare = {"index": 0, "finish_reason": "stop"}
    assert bad(bare) == ("bad_response", "choice 0 has no text")
    call = {"name": None, "arguments": "{}"}
    assert bad(choice(content=None, function_call=call)) == (
        "bad_response", "choice 0 has no text",
    )  # fmt: skip
    line = bad(choice(content=None, ending="tool_calls"))[1]
    assert line.startswith("choice 0 finished with 'tool_calls'; ")


def test_a_text_in_parts_is_read():
    parts = [{"type": "output_text", "text": "It is "}, "\\boxed{12}."]
    (found,) = read(choice(content=parts))
    assert found.text == "It is \\boxed{12}."
    refusal = [{"type": "refusal", "refusal": "no"}]
    assert bad(choice(content=refusal)) == ("content_refused", "no")
    reason, line = bad(choice(content=[{"type": "audio"}]))
    assert reason == "bad_response"
    assert line.startswith("choices.0.message: content has a part of kind 'audio', not text: ")


def test_a_function_call_is_put_back_as_a_tool_call():
    function = {"name": "add", "arguments": '{"a": 1}'}
    (found,) = read(choice(ending="function_call", content=None, function_call=function))
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert found == Sample(text, None, None, "stop")


class Answering(Vllm):
    """Gives the same answer to each request."""

    given: object = None
    status = 200

    def refusal(self, path, body):
        super().refusal(path, body)
        return self.status, self.given


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"error": {"message": "context too long", "code": 400}, "choices": []}, "request_refused, 200, but an error: context too long"),
        ({"code": 500, "message": "internal"}, "server_error, 200, but an error: internal"),
    ],
)  # fmt: skip
def test_an_error_in_an_answer_is_what_the_run_ends_with(given, line):
    with Answering() as server:
        server.given = given
        assert refused(server) == f"{server.url} answers no prompt: {line}"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (402, {"message": "Insufficient balance"}),
        (200, {"message": "Insufficient credits", "code": 402}),
    ],
)
def test_a_key_without_credit_ends_the_run_at_its_first_request(status, error):
    with Answering() as server:
        server.status, server.given = status, {"error": error}
        line = refused(server)
        assert len(server.sent) == 1
        found = "200, but an error" if status == 200 else status
        right = "does the account of the key have credit? see api_key_env"
        assert line == f"{server.url} answers {found}: {error['message']}; {right}"


def exactly(tokens, logprobs, **message):
    content = [{"logprob": -0.5}] * logprobs
    found = choice(**message) | {"token_ids": [7] * tokens, "prompt_token_ids": [1]}
    return found | {"logprobs": {"content": content}}


def test_a_thought_that_is_put_back_has_its_tokens():
    (found,) = read(exactly(9, 9, reasoning="3 * 4"), exact=True)
    assert (found.text, len(found.token_ids)) == ("<think>\n3 * 4\n</think>\n\na", 9)
    (found,) = read(exactly(9, 9, content=None, reasoning="3 * 4"), exact=True)
    assert (found.text, len(found.token_ids)) == ("<think>\n3 * 4", 9)


@pytest.mark.recommended(
    "operators/sampling/openai_engine.py", "start it without --reasoning-parser"
)
@pytest.mark.parametrize(
    ("choices", "found"),
    [
        (exactly(9, 4, reasoning="3 * 4"), "the server gives 9 token ids, 4 logprobs of a response whose thought it takes out"),
        (choice(reasoning="3 * 4"), "the server gives no prompt token ids and no token ids and no log-probabilities, which on-policy training needs"),
    ],
)  # fmt: skip
def test_tokens_that_cannot_be_those_of_the_thought_name_the_parser(choices, found):
    with pytest.raises(EngineError) as error:
        read(choices, exact=True)
    right = "start it without --reasoning-parser, or set on_policy: false"
    assert str(error.value) == f"{found}; {right}"


def test_a_tool_call_is_put_back_as_text():
    function = {"name": "add", "arguments": '{"a": 1}'}
    call = {"id": "1", "type": "function", "function": function}
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    (found,) = read(choice(ending="tool_calls", content=None, tool_calls=[call]))
    assert found == Sample(text, None, None, "stop")
    (found,) = read(choice(content="I add.", reasoning="1", tool_calls=[call]))
    assert found.text == f"<think>\n1\n</think>\n\nI add.\n{text}"
    assert bad(choice(ending="tool_calls"))[1].startswith("choice 0 finished with 'tool_calls'; ")


# Recipes


def test_settings_that_decide_no_sample_keep_what_was_paid_for():
    def key(**server):
        return PolicyRolloutMapper(
            engine="openai", model="m", on_policy=False, openai={"server": server}
        ).cache_key_fields()

    plain = key()
    seeds = {"server": {"seed": "64_bit"}}
    assert plain["options"] == {"api": "completions", "tokenizer": None} | seeds
    fields = {"one_sample_per_request": True, "token_limit": "max_completion_tokens"}
    fields |= {"defaults": "left_out", "finish_reasons": {"eos": "stop"}, "index": "by_order"}
    assert key(**fields, models=False) == key(kind="vllm") == key(kind="sglang") == plain
    assert key(seed="32_bit")["options"]["server"] == {"seed": "32_bit"}
    assert key(kind="llama_cpp") == key(seed="32_bit") != plain
    assert key(seed="none") not in (plain, key(seed="32_bit"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"openai": {"server": {"kind": "ollama"}}}, "ollama takes no token ids as a prompt: set openai: {api: chat}"),
        ({"openai": {"server": {"kind": "sglang"}, "api": "generate"}}, "api: generate is an endpoint of vllm: set openai: {api: chat}"),
        ({"openai": {"server": {"kind": "tgi"}, "api": "chat"}, "on_policy": True}, "tgi does not give the token ids that on_policy: true needs; set on_policy: false, or sample from vllm"),
        ({"openai": {"server": {"kind": "olama"}}}, "field 'openai.server.kind' is 'olama'; input should be 'vllm', 'sglang', 'llama_cpp', 'ollama', 'tgi' or 'openai'"),
        ({"openai": {"server": {"seeds": "none"}}}, "unknown field 'openai.server.seeds'; did you mean 'seed'?"),
        ({"openai": {"server": {"finish_reasons": {"stop": "length"}}}}, "field 'openai.server' is {'finish_reasons': {'stop': 'length'}}; finish_reasons must not name 'stop', which has its meaning"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [PolicyRolloutMapper, AgentRolloutMapper])
def test_what_a_kind_cannot_give_is_refused_before_anything_is_sampled(kind, fields, message):
    with pytest.raises(RecipeError) as error:
        build(kind, {"engine": "openai", "model": "m", "on_policy": False, **fields})
    assert str(error.value) == message


def test_the_kind_of_a_server_that_is_not_asked_is_ignored():
    assert PolicyRolloutMapper(openai={"server": {"kind": "ollama"}}).on_policy


def test_the_step_says_which_dropped_prompts_may_be_sampled_yet():
    assert PolicyRolloutMapper.may_pass < PolicyRolloutMapper.reasons.keys()
    assert "no_prompt" not in PolicyRolloutMapper.may_pass


def test_a_server_of_the_usual_kind_is_sent_what_it_always_was():
    with FakeServer(token_ids=False) as server:
        sample(server)
    fields = {"n": 3, "temperature": 1.0, "top_p": 1.0, "max_tokens": 30, "seed": SEED}
    assert server.bodies[SEED] == [CHAT | fields]
