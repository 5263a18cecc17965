"""Dialogues as public datasets write them: whose roles are named otherwise, and that are one text."""

import json

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
    return messages_of(change), found


def messages_of(change):
    asked = change.columns["prompt"].to_pylist()
    return [[(m["role"], m["content"]) for m in chat or ()] for chat in asked]


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


@pytest.mark.parametrize("column", [
    [sharegpt(("human", "a?"), ("narrator", "b"), ("gpt", "c"))],
    [[{"role": "user", "content": "a?"}, {"role": "narrator", "content": "b"}, {"role": "assistant", "content": "c"}]],
])  # fmt: skip
def test_an_unknown_role_stays_as_it_is(column):
    assert read(column) == ([[("user", "a?"), ("narrator", "b")]], ["c"])


@pytest.mark.parametrize(
    "roles", [("question", "answer"), ("user", "botty"), ("Customer", "Agent")]
)
def test_a_last_message_of_an_unknown_role_is_refused(roles):
    chat = [{"role": each, "content": each} for each in roles]
    for column in ([chat], [json.dumps(chat)]):
        with pytest.raises(DataError, match=f"'{roles[1]}'; write it as one of: system, .*gpt"):
            read(column)


def test_a_developer_is_no_second_system():
    messages = [("system", "s"), ("developer", "d"), ("user", "a?")]
    assert read([sharegpt(*messages)])[0] == [messages]
    assert read([sharegpt(*messages[1:])])[0] == [[("system", "d"), ("user", "a?")]]


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
        *((f"<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\nf{end}", [("user", "a?")], "f") for end in (
            "<|im_end|>\n<|endoftext|>", "<end_of_turn><eos>\n", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>" * 3,
        )),
        ("[{'content': 'a?', 'role': 'user'}\n {'content': 'f', 'role': 'assistant'}]", [("user", "a?")], "f"),  # numpy
    ],
)  # fmt: skip
def test_a_dialogue_may_be_one_text(text, prompt, response):
    prompts, responses = read([text, text])
    assert prompts == [prompt] * 2
    if response is not None:  # Else it is the prompt alone.
        assert responses == [response] * 2


QUOTED = "USER: hi\n\nASSISTANT: hello\n\nSummarize the dialogue above."
PLAIN = [
    "Human: who is that?",
    "He wrote:\n\nHuman: a?\n\nAssistant: b",
    "Who is Human:?",
    QUOTED,
    "ASSISTANT: x <|endoftext|>",
    "<|im_start|>user\na?<|im_end|>",
    "Assistant: b\n\nHuman: c",
]


def prompts_change(column, **fields):
    operator = PromptTemplateMapper(question="chat", reference=None, **fields)
    return check_operator(operator, pa.table({"chat": column}))


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_that_only_speaks_of_people_is_a_question(text):
    for column, expected, count in (([text], [], 0), ([HH, text], [READ], 1)):
        change = prompts_change(column)
        assert messages_of(change) == [*expected, [("user", text)]]
        assert change.notes == ({"dialogues": count} if count else {})


def test_a_template_or_a_brace_leaves_a_dialogue_as_it_is():
    for fields in ({"template": "{question} Go on."}, {"question": "{chat} Go on."}):
        operator = PromptTemplateMapper(**{"question": "chat", "reference": None, **fields})
        change = check_operator(operator, pa.table({"chat": [HH, "a?"]}))
        assert messages_of(change)[1] == [("user", "a? Go on.")]
        assert [len(chat) for chat in messages_of(change)] == [1, 1]
        assert not change.notes


def test_a_long_text_is_read_in_time_that_grows_with_its_length():
    text = "<|user|> a <|assistant|> x" + " " * 200_000 + "y"
    assert messages_of(prompts_change([text], final_message="response")) == [[("user", "a")]]


def recorded(prompt, *responses, **columns):
    rows = {"prompt_id": ["p"] * len(responses), "response": responses}
    if prompt is not None:
        messages = [{"role": role, "content": content} for role, content in prompt]
        rows["prompt"] = [messages] * len(responses)
    operator = RecordedRolloutMapper(columns=["response"])
    change = check_operator(operator, pa.table({**rows, **columns}))
    return change.columns["response"].to_pylist(), change.notes.get("prompt_cut", 0)


OTHER = HH[:-1] + "g"
ONE_TURN = "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\nf<|im_end|>"


@pytest.mark.parametrize(
    ("prompt", "responses", "expected"),
    [
        (READ, [HH, OTHER], ["f", "g"]),
        ([("system", "of the recipe"), *READ], [HH, None], ["f", None]),
        ([("user", " a? ")], [ONE_TURN], ["f"]),
        (READ, [HH, "another"], [HH, "another"]),
        (READ[:1], [HH], [HH]),  # another prompt
        (None, [HH], [HH]),
        *(([("user", "hi")], [text], [text]) for text in PLAIN),
        (
            [("user", "How?")],
            ["USER: how do I log in?\n\nASSISTANT: click X.\n\nUSER: thanks"],
            ["USER: how do I log in?\n\nASSISTANT: click X.\n\nUSER: thanks"],
        ),
    ],
)
def test_a_dialogue_is_a_response_unless_it_begins_with_the_prompt(prompt, responses, expected):
    changed = sum(old != new for old, new in zip(responses, expected, strict=True))
    assert recorded(prompt, *responses) == (expected, changed)


def test_an_empty_answer_of_a_dialogue_is_no_response():
    assert recorded(READ, HH, HH[:-2]) == (["f", None], 1)
    assert recorded([("user", "a?")], "Human: a?\n\nAssistant:") == ([None], 0)


def test_a_message_of_the_assistant_alone_answers_any_prompt():
    asked = [{"role": "user", "content": "a?"}]
    answers = [
        [*asked, {"role": "assistant", "content": "b"}],
        [{"role": "assistant", "content": "c"}],
    ]
    rows = pa.table(
        {"prompt_id": ["p"], "prompt": [asked], "chosen": answers[:1], "rejected": answers[1:]}
    )
    change = check_operator(RecordedRolloutMapper(columns=["chosen", "rejected"]), rows)
    assert change.columns["response"].to_pylist() == ["b", "c"]
