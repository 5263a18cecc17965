"""Dialogues as public datasets write them: whose roles are named otherwise, and that are one text."""

import pyarrow as pa
import pytest

from rejuice.operators import DataError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper


def read(column):
    """The prompts of a column, as pairs of role and content, and the responses in the same one."""
    prompts = PromptTemplateMapper(question="chat", reference=None, on_bad_row="drop_row")
    table = pa.table({"chat": column})
    change = check_operator(prompts, table)
    for name, values in change.columns.items():
        table = table.append_column(name, values)
    responses = RecordedRolloutMapper(columns=["chat"])
    found = check_operator(responses, table).columns["response"].to_pylist()
    asked = change.columns["prompt"].to_pylist()
    return [[(m["role"], m["content"]) for m in chat or ()] for chat in asked], found


def sharegpt(*messages):
    return [{"from": by, "value": text} for by, text in messages]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("system user assistant tool assistant", "system user assistant tool"),  # ToolACE
        ("system human gpt tool gpt", "system user assistant tool"),  # hermes-function-calling
        (
            "human function_call observation gpt",
            "user assistant tool",
        ),  # Glaive as ShareGPT, APIGen-MT
        ("human function_call gpt", "user assistant"),
        ("user function-call function_response model", "user assistant tool"),
        ("user model", "user"),  # Gemma
        ("prompter assistant prompter assistant", "user assistant user"),  # OASST
        ("developer User IPython ASSISTANT", "system user tool"),
        ("human bard", "user"),
    ],
)
def test_roles_have_other_names(roles, expected):
    messages = [(role, f"text {n}") for n, role in enumerate(roles.split())]
    prompts, responses = read([sharegpt(*messages)])
    assert prompts == [[(role, f"text {n}") for n, role in enumerate(expected.split())]]
    assert responses == [messages[-1][1]]


def test_the_last_message_is_no_response_if_it_is_not_the_assistants():
    prompts, responses = read([sharegpt(("human", "a?"), ("gpt", "b"), ("observation", "c"))])
    assert prompts == [[("user", "a?"), ("assistant", "b"), ("tool", "c")]]
    assert responses == [None]


def test_an_unknown_role_is_refused_with_the_known_ones():
    for column in ([sharegpt(("human", "a?"), ("narrator", "b"))], ['[{"role": "narrator", "content": "a"}]']):  # fmt: skip
        with pytest.raises(DataError, match=r"'narrator'; roles are: system, .*observation"):
            read(column)


HH = "\n\nHuman: a?\n\nAssistant: b\n\n1. c\n\nHuman: d: e?\n\nAssistant: f"
READ = [("user", "a?"), ("assistant", "b\n\n1. c"), ("user", "d: e?")]
GLAIVE = (
    "USER: a?\n\n\nASSISTANT: <functioncall> {} <|endoftext|>\n\n\nFUNCTION RESPONSE: {}\n\n\n"
    "ASSISTANT: f <|endoftext|>\n\n\n"
)


@pytest.mark.parametrize(
    ("text", "prompt", "response"),
    [
        (HH, READ, "f"),
        (HH[2:], READ, "f"),
        ("\n\nHuman: a?\n\nAssistant:", [("user", "a?")], None),  # a prompt of full-hh-rlhf
        (GLAIVE, [("user", "a?"), ("assistant", "<functioncall> {}"), ("tool", "{}")], "f"),
        ("### Human: a?### Assistant: f", [("user", "a?")], "f"),
        (
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\nf<|im_end|>\n",
            [("system", "s"), ("user", "a?")],
            "f",
        ),
        ("<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant", [("user", "a?")], None),
        (
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nf<|eot_id|>",
            [("user", "a?")],
            "f",
        ),
        ("<bos><start_of_turn>user\na?<end_of_turn>\n<start_of_turn>model\nf", [("user", "a?")], "f"),
        ("<|user|>\na?</s>\n<|assistant|>\nf</s>", [("user", "a?")], "f"),
    ],
)  # fmt: skip
def test_a_dialogue_may_be_one_text(text, prompt, response):
    prompts, responses = read([text, text])
    assert prompts == [prompt] * 2
    if response is not None:  # Else it is the prompt alone.
        assert responses == [response] * 2


def test_a_text_that_only_speaks_of_people_is_none():
    for text in ("Human: who is that?", "He wrote:\n\nHuman: a?\n\nAssistant: b", "Who is Human:?"):
        assert read([text])[0] == [[("user", text)]]
    with pytest.raises(DataError, match=r"some texts are chats, but not this one: 'What\?'"):
        read([HH, "What?"])


def test_both_texts_of_hh_rlhf_are_responses_to_the_same_prompt():
    rows = pa.table({"prompt_id": ["p"], "chosen": [HH], "rejected": [HH[:-1] + "g"]})
    change = check_operator(RecordedRolloutMapper(columns=["chosen", "rejected"]), rows)
    assert change.columns["response"].to_pylist() == ["f", "g"]
    begun = ["<|im_start|>assistant\nf<|im_end|>", "Human: a?"]
    rows = pa.table({"prompt_id": ["p", "q"], "response": begun})
    change = RecordedRolloutMapper(columns=["response"]).apply(rows)
    assert change.columns["response"].to_pylist() == begun
