"""How servers differ: presets, what is sent of a request, and what a refusal is understood as."""

import json

import pytest
from pydantic import ValidationError

from rejuice.operators.agents.flows.agentflow import Agentflow
from rejuice.operators.agents.model import FrozenModel
from rejuice.operators.servers.options import (
    Dialect,
    ScorerOptions,
    ServerOptions,
    dialect_of,
)
from rejuice.operators.servers.wire import (
    AttemptError,
    ChatCompletion,
    ChatMessage,
    advice,
    error_text,
    parse_body,
)

KINDS = ["vllm", "sglang", "llama_cpp", "ollama", "tgi", "openai"]


# Presets


def test_vllm_is_what_is_expected_of_a_server_that_is_not_named():
    assert Dialect(kind="vllm").model_copy(update={"kind": None}) == Dialect()


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_of_a_preset_can_be_set(kind):
    plain = {"one_sample_per_request": False, "seed": "64_bit", "token_limit": "max_tokens"}
    plain |= {"defaults": "sent", "index": "required", "models": True}
    found = Dialect(kind=kind, **plain)
    assert found.model_dump(include=set(plain)) == plain
    preset = Dialect(kind=kind)
    assert Dialect.model_validate(preset.model_dump()) == preset


def test_finish_reasons_are_added_to_those_of_the_kind():
    found = Dialect(kind="tgi", finish_reasons={"eos_token": "length", None: "stop"})
    assert [found.ending(each) for each in ("eos_token", "stop_sequence", None, "stop", "x")] == [
        "length", "stop", "stop", "stop", "x",
    ]  # fmt: skip


@pytest.mark.parametrize("fields", [{"kind": "tgi "}, {"finish_reasons": {"eos": "end"}}, {"n": 1}])
def test_what_is_no_dialect(fields):
    with pytest.raises(ValidationError):
        Dialect(**fields)


def test_options_with_a_dialect_are_keys():
    scorer = ScorerOptions(kind="tgi")
    assert {scorer: 1}[ScorerOptions(kind="tgi")] == 1
    assert hash(scorer) != hash(ScorerOptions(kind="ollama"))
    model = FrozenModel(model="m", server={"kind": "tgi"})
    assert [dialect_of(each).kind for each in (scorer, model, ServerOptions())] == [
        "tgi",
        "tgi",
        None,
    ]


def test_of_a_server_only_its_seeds_decide_what_a_frozen_model_answers():
    plain = FrozenModel(model="m").cache_key_fields()
    assert plain["server"] == {"seed": "64_bit"}
    assert FrozenModel(model="m", server={"kind": "openai"}).cache_key_fields() == plain
    unseeded = {"model": "m", "server": {"seed": "none"}}
    assert FrozenModel(**unseeded).cache_key_fields() == plain | {"server": {"seed": "none"}}
    assert Agentflow(frozen=unseeded).cache_key_fields()["frozen"]["server"] == {"seed": "none"}


# Requests


BODY = {"model": "m", "n": 4, "temperature": 1.0, "top_p": 1, "max_tokens": 9, "seed": 1 << 40}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, BODY),
        ({"one_sample_per_request": True}, {k: v for k, v in BODY.items() if k != "n"}),
        ({"seed": "none"}, {k: v for k, v in BODY.items() if k != "seed"}),
        ({"seed": "32_bit"}, BODY | {"seed": 0}),
        ({"defaults": "left_out"}, {k: v for k, v in BODY.items() if k not in ("temperature", "top_p")}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chat", [True, False])
def test_what_is_sent(fields, sent, chat):
    assert Dialect(**fields).sent(BODY, chat=chat) == sent


def test_only_chats_know_two_names_of_their_limit():
    dialect = Dialect(token_limit="max_completion_tokens")
    assert dialect.sent({"max_tokens": 9}) == {"max_completion_tokens": 9}
    assert dialect.sent({"max_tokens": 9}, chat=False) == {"max_tokens": 9}


def test_only_what_is_a_default_is_left_out():
    drawn = {"temperature": 0.7, "top_p": 0.9}
    assert Dialect(defaults="left_out").sent(drawn) == drawn


# Refusals, as servers word them


def of_openai(message, **more):
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


FIELDS = {
    "model": "m", "messages": [], "n": 4, "temperature": 1.0, "top_p": 1.0, "max_tokens": 9,
    "seed": 3000000000, "response_format": {}, "chat_template_kwargs": {}, "return_token_ids": True,
    "top_k": -1,
}  # fmt: skip
REFUSALS = [
    (of_openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", param="max_tokens"), "server: {token_limit: max_completion_tokens}"),
    (of_openai("Unknown parameter: max_tokens"), "server: {token_limit: max_completion_tokens}"),
    (of_openai("max_tokens is too large: 100000. This model supports at most 16384 completion tokens."), ""),
    ({"object": "error", "message": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens.", "type": "BadRequestError", "code": 400}, ""),
    (of_openai("This model's maximum context length is 4096 tokens."), ""),
    (of_openai("Unsupported value: 'n' does not support 4 with this model. Only the default (1) value is supported.", param="n"), "server: {one_sample_per_request: true}"),
    (of_openai("Invalid n value (currently only n = 1 is supported)"), "server: {one_sample_per_request: true}"),
    (of_openai("'n' : number must be at most 1"), "server: {one_sample_per_request: true}"),
    (of_openai("n_cmpl cannot be greater than the number of slots, please increase -np"), "server: {one_sample_per_request: true}"),
    ({"error": {"code": 500, "message": "Only one completion choice is allowed", "type": "server_error"}}, "server: {one_sample_per_request: true}"),
    ({"detail": [{"type": "less_than_equal", "loc": ["body", "n"], "msg": "Input should be less than or equal to 1", "input": 4}]}, "server: {one_sample_per_request: true}"),
    ({"detail": [{"loc": ["body", "seed"], "msg": "Input should be less than 2147483648", "input": 3000000000}]}, "server: {seed: 32_bit}"),
    ({"detail": [{"loc": ["body", "messages"], "msg": "Field required", "input": {"seed": 3000000000, "n": 4}}]}, ""),
    (of_openai("3000000000 is out of range for int32"), "server: {seed: 32_bit}"),
    (of_openai("seed is not supported by this model"), "server: {seed: none}"),
    ({"error": "Input validation error: `top_p` must be > 0.0 and < 1.0", "error_type": "validation"}, "server: {defaults: left_out}"),
    (of_openai("Unsupported parameter: 'temperature'"), "server: {defaults: left_out}"),
    (of_openai("response_format is not supported"), "answer_format: text"),
    (of_openai("Invalid schema for json_schema"), "answer_format: text"),
    (of_openai("Unrecognized request argument supplied: return_token_ids"), "on_policy: false"),
    (of_openai("top_k: Extra inputs are not permitted"), "on_policy: false"),
    (of_openai("Unknown name \"chat_template_kwargs\""), "chat_template_kwargs: {}"),
    (of_openai("Your request was flagged as seditious; nothing is known of it."), ""),
    (of_openai("the prompt names no one"), ""),
    ("it is a teapot", ""),
    ([], ""),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field"), REFUSALS)
def test_a_refusal_names_the_field_to_set(body, field):
    found = advice(json.dumps(body).encode(), FIELDS, Dialect())
    assert found == (f"set {field}" if field else "")
    placed = advice(json.dumps(body).encode(), FIELDS, Dialect(), "openai")
    inner = f"openai: {{{field}}}" if field.startswith("server") else field
    assert placed == (f"set {inner}" if field else "")


@pytest.mark.parametrize("body", [body for body, field in REFUSALS if field])
def test_nothing_is_advised_about_what_was_not_sent(body):
    assert advice(json.dumps(body).encode(), {"model": "m", "messages": []}, Dialect()) == ""


def test_a_temperature_that_is_not_the_default():
    body = json.dumps(of_openai("Unsupported value: 'temperature' does not support 0")).encode()
    assert advice(body, {"temperature": 0.0}, Dialect()) == "set temperature: 1"


def test_sampling_parameters_of_vllms_own_endpoint():
    body = json.dumps(of_openai("n must be 1")).encode()
    sent = {"token_ids": [1], "sampling_params": {"n": 2}}
    right = "set openai: {server: {one_sample_per_request: true}}"
    assert advice(body, sent, Dialect(), "openai") == right


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"object": "error", "message": "too\nlong", "code": 400}, "too long"),
        ({"detail": [{"loc": ["body", "n"], "msg": "too large"}]}, "n: too large"),
        ({"detail": "no"}, '{"detail": "no"}'),
        ({"error": {"code": 3}}, '{"error": {"code": 3}}'),
        ({"error": None, "message": "no"}, "no"),
        ({"error": []}, '{"error": []}'),
        ({"detail": []}, '{"detail": []}'),
    ],
)
def test_messages_of_errors(body, text):
    assert error_text(json.dumps(body).encode()) == text


# Messages


CALL = {"function": {"name": "f", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "a"}, "a"),
        ({"content": ""}, ""),
        ({"content": None}, ""),
        ({"role": "assistant"}, ""),
        ({"content": []}, ""),
        ({"content": [{"type": "output_text", "text": "a"}]}, "a"),
        ({"content": [{"type": None, "text": "a"}, "b", {"type": "text", "text": ["c", {"type": "text", "text": "d"}]}]}, "abcd"),
        ({"content": [{"type": "thinking", "thinking": ["t"]}, "a"]}, "<think>\nt\n</think>\n\na"),
        ({}, None),
        ({"content": "a", "reasoning": "t"}, "<think>\nt\n</think>\n\na"),
        ({"content": "\n\na", "reasoning": "\nt\n"}, "<think>\nt\n</think>\n\na"),
        ({"content": "a", "reasoning_content": "t", "reasoning": "t"}, "<think>\nt\n</think>\n\na"),
        ({"content": "a", "reasoning_content": "", "reasoning": "t"}, "<think>\nt\n</think>\n\na"),
        ({"content": "<think>t</think>a", "reasoning": "t"}, "<think>t</think>a"),
        ({"content": "", "reasoning": "t"}, "<think>\nt"),
        ({"content": None, "reasoning": "t"}, "<think>\nt"),
        ({"content": "a", "reasoning": {"effort": "low"}}, "a"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "a"}]}, "<think>\nt\n</think>\n\na"),
        ({"content": [{"type": "thinking", "thinking": "t"}]}, "<think>\nt"),
        ({"tool_calls": [CALL]}, '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'),
        ({"content": "a", "tool_calls": [CALL, CALL]}, "\n".join(["a"] + ['<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'] * 2)),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"x": "é"}}}]}, '<tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call>'),
        ({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{x"}}]}, '<tool_call>\n{"name": "f", "arguments": "{x"}\n</tool_call>'),
        ({"tool_calls": [{"function": {"arguments": "{}"}}, None]}, None),
        ({"tool_calls": None}, ""),
        ({"content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}, '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'),
        ({"function_call": CALL["function"], "tool_calls": [CALL]}, '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'),
        ({"content": None, "function_call": {"arguments": "{}"}}, None),
        ({"content": "a", "function_call": None}, "a"),
        ({"content": "a", "function_call": {"name": "", "arguments": ""}}, "a"),
    ],
)  # fmt: skip
def test_the_text_of_a_message(message, text):
    assert ChatMessage.model_validate(message).whole_text() == text


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"type": "image_url", "image_url": {}}, "content has a part of kind 'image_url', not text"),
        ({"type": "x" * 99}, f"content has a part of kind '{'x' * 40}', not text"),
        ({"type": {}, "input": "a"}, "content has a part of kind 'text' without a text"),
        ({"type": 7, "text": "a"}, "content has a part of kind '7', not text"),
        ({"type": "text"}, "content has a part of kind 'text' without a text"),
        ({"type": "thinking", "thinking": [{"type": "reference"}]}, "content has a part of kind 'reference', not text"),
        (7, "content has a part that is '7'"),
    ],
)  # fmt: skip
def test_a_part_that_is_no_text_is_no_silence(part, fault):
    body = {"choices": [{"message": {"content": ["a", part]}, "finish_reason": "stop"}]}
    with pytest.raises(AttemptError) as error:
        parse_body(ChatCompletion, json.dumps(body).encode())
    assert error.value.reason == "bad_response"
    assert error.value.detail.startswith(f"choices.0.message: {fault}: b'")


def test_a_refusal_in_parts_is_a_refusal():
    parts = [{"type": "refusal", "refusal": "n"}, {"type": "refusal", "refusal": "o"}]
    assert ChatMessage.model_validate({"content": parts}).refusal == "no"
