import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.chats import (
    TAGS,
    after_thoughts,
    answer_part,
    continued,
    final_channel,
    without_thoughts,
)
from rejuice.operators.sampling.rollout import opened_thought

HARMONY = "<|channel|>analysis<|message|>It may be \\boxed{7}.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>\\boxed{12}<|return|>"


@pytest.mark.parametrize(("opens", "closes"), TAGS)
def test_what_follows_a_thought(opens, closes):
    # No template opens a thought in words.
    alone = [] if closes.startswith("Here") else [f"7?{closes}12"]
    for text in (f"{opens}7?{closes}12", *alone, f"{opens}a{closes}b{opens}c{closes}12"):
        assert after_thoughts(text) == "12"
    for text in (f"{opens}7?", f"{opens}a{closes}12{opens}7?"):
        assert after_thoughts(text) is None
        assert without_thoughts(text) == ""
    assert after_thoughts(f"{opens}7?{closes}") == ""


def test_what_opens_an_answer_is_none_of_it():
    assert answer_part("<|START_THINKING|>7<|END_THINKING|><|START_RESPONSE|>12") == "12"
    assert answer_part("analysisWe need 7.assistantfinal12") == "12"
    assert answer_part("analysisWe need 7.") is None
    assert answer_part("analysis of 7") == "analysis of 7"


def test_a_tag_that_is_mentioned_is_no_thought():
    text = "Use the <thinking> tag. Answer: 12"
    assert after_thoughts(text) == text
    assert (
        after_thoughts("<think>a</think>The answer to [THINK] is 3") == "The answer to [THINK] is 3"
    )


def test_a_thought_that_the_prompt_opened():
    cut, closed, repeated = continued("<think>", ["7?", "7?</think>12", "\n<think>7?</think>12"])
    assert after_thoughts(cut) is None
    assert after_thoughts(closed) == after_thoughts(repeated) == "12"
    assert continued(None, ["7?", None]) == ["7?", None]
    assert after_thoughts("I think it is 7.") == "I think it is 7."


TEMPLATE = (
    "{%- for m in messages -%}{{ m.role + ': ' + m.content }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'assistant: ' }}"
    "{%- if enable_thinking is defined and not enable_thinking -%}{{ '<think></think>' }}"
    "{%- else -%}{{ '<think>\\n' }}{%- endif -%}{%- endif -%}"
)


def test_whether_a_template_opens_a_thought(tmp_path):
    assert opened_thought(str(tmp_path), {}) is None
    assert opened_thought("no/folder", {}) is None
    config = tmp_path / "tokenizer_config.json"
    for template in (TEMPLATE, [{"name": "default", "template": TEMPLATE}]):
        config.write_text(json.dumps({"chat_template": template}))
        assert opened_thought(str(tmp_path), {}) == "<think>"
        assert opened_thought(str(tmp_path), {"enable_thinking": False}) is None
    marked = "{% generation %}a{% endgeneration %}{% if tools is not none %}{{ 1/0 }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(f"{marked}<think>\n")
    assert opened_thought(str(tmp_path), {}) == "<think>"
    (tmp_path / "chat_template.jinja").write_text("{{ 1/0 }}<think>")
    assert opened_thought(str(tmp_path), {}) is None
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('<think>') }}")
    assert opened_thought(str(tmp_path), {}) is None
    config.write_text("{")
    (tmp_path / "chat_template.jinja").unlink()
    assert opened_thought(str(tmp_path), {}) is None


def test_the_channels_of_harmony():
    assert final_channel(HARMONY + FINAL) == "\\boxed{12}<|return|>"
    assert (
        final_channel(HARMONY + FINAL + HARMONY + FINAL.replace("12", "13"))
        == "\\boxed{13}<|return|>"
    )
    assert final_channel(HARMONY) is None
    assert without_thoughts(HARMONY) == ""
    assert final_channel("<|channel|>final <|constrain|>json<|message|>{}") == "{}"
    assert final_channel("analysisIt may be 7.assistantfinalIt is 12.") == "It is 12."
    assert final_channel("The final answer is 12.") == "The final answer is 12."
    assert final_channel("analysis shows 12") == "analysis shows 12"


MARKS = ["<|channel|>", "assistantfinal", *(mark for pair in TAGS for mark in pair)]


@given(st.text().filter(lambda text: not any(mark in text for mark in MARKS)))
def test_texts_without_thoughts_are_as_they_were(text):
    assert without_thoughts(text) == text
