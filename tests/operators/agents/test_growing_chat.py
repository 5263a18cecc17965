"""Chats that grow by token ids."""

from pathlib import Path

import pytest
from played import END, ScriptedPolicy, encode, played

import rejuice.operators.sampling
from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.play import GrowingChat
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.tokenizer import TemplateRefusedError, chat_encoder, decoded

EMBEDDED = str(Path(rejuice.operators.sampling.__file__).parent / "embedded")
FLOW = React(format="lines", context="append")


def test_a_prompt_is_the_one_before_and_all_that_followed():
    policy = ScriptedPolicy("hm", "hm", "answer: a")
    found = played(FLOW, policy=policy)
    expected = b"expected one line: answer: ..."
    first = (*b"u:why?", END, *b"a:")
    then = (*b"hm", END, *b"u:", *expected, END, *b"a:")
    assert [prompt.token_ids for prompt in policy.prompts] == [
        first,
        (*first, *then),
        (*first, *then, *then),
    ]
    assert found.response == "a"


@pytest.mark.slow  # It loads transformers.
def test_the_template_writes_the_same_chat():
    """A real tokenizer; the text of the action is encoded to what was sampled."""
    encode = chat_encoder(EMBEDDED)
    chat, more = (("user", "How many?"),), ("user", "Go on.")
    whole = tuple(encode((*chat, ("assistant", "12 + 5 = 17"), more)))
    without = encode((*chat, ("assistant", ""), more))
    prompt = encode(chat)
    between = len(without) - len(prompt)
    action = whole[len(prompt) : len(whole) - between + 1]
    assert decoded(EMBEDDED, action) == "12 + 5 = 17<|im_end|>"
    assert GrowingChat(encode).after(prompt, action, True, "Go on.") == whole


def test_what_was_sampled_is_not_tokenised_again():
    """An action of other tokens than its text would be encoded to stays as it is."""
    grown = GrowingChat(encode)
    assert grown.after([1, 2], [999, 998, END], True, "b") == (
        1, 2, 999, 998, END, *b"u:b", END, *b"a:",
    )  # fmt: skip


def test_an_action_that_was_cut_off_gets_its_end():
    grown = GrowingChat(encode)
    assert grown.after([1], [999], False, "b") == (1, 999, END, *b"u:b", END, *b"a:")


def forgetful(messages):
    """Leaves out what the assistant wrote, as some templates leave out thoughts."""
    return encode(tuple(each for each in messages if each[0] != "assistant"))


def numbered(messages):
    return encode(tuple((role, f"{len(messages)} {text}") for role, text in messages))


def thoughtless(messages):
    """Leaves out the thoughts of all messages but the last, as the template of Qwen3 does."""
    *earlier, last = messages
    shown = [(role, text.rsplit("</think>", 1)[-1].lstrip("\n")) for role, text in earlier]
    return encode((*shown, last))


def strict(messages):
    if len(messages) > 1:
        raise TemplateRefusedError("the chat template refuses: one message only")
    return encode(messages)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (forgetful, "it writes earlier messages differently when others follow"),
        (numbered, "it writes earlier messages differently when others follow"),
        (thoughtless, "it leaves out the thoughts of earlier messages"),
        (strict, "the chat template refuses: one message only"),
    ],
)
def test_a_template_that_does_not_suit(template, reason):
    with pytest.raises(EngineError) as raised:
        FLOW.check(template)
    assert str(raised.value) == (
        f"the policy's chat template does not suit context: append: {reason}; set context: memory"
    )


def test_a_template_on_the_server_does_not_suit():
    with pytest.raises(EngineError) as raised:
        FLOW.check(None)
    assert str(raised.value) == (
        "context: append needs the policy's tokenizer, which only the server has; choose another "
        "api than chat, or set context: memory"
    )
    React().check(None)
