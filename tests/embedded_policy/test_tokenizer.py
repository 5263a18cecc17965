"""The tokenizer: every text comes back, every word and every digit is one token."""

import json
import re

import pytest
from transformers import AutoTokenizer

from rejuice.operators.mapper.format_reward_mapper import is_tagged
from rejuice.pipelines.demo.problems import LEVELS, SPLITS, problem, seeded
from tools.embedded_policy.model import build_model
from tools.embedded_policy.problems import build_tokenizer, demonstrate, drill, judge

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def texts(n=150):
    """Questions and solutions of all splits and levels."""
    rng = seeded("test")
    for i in range(n):
        posed = problem(0, SPLITS[i % 3], i, LEVELS)
        care = i % 2 == 0
        for shown in (demonstrate(posed, rng, 2, care=care), judge(posed, rng, 2, care=care), drill([posed])):  # fmt: skip
            yield from (shown.prompt, *shown.responses)


def test_every_text_comes_back(tokenizer):
    others = ["Tokyo's naïve 日本\n\n  1,234.5 <think>", " 12  34 ", "a\tb", "", "<|im_end|>"]
    for text in [*texts(), *others]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_every_word_is_one_token(tokenizer):
    cut = tokenizer.backend_tokenizer.pre_tokenizer
    for text in texts():
        for part in re.split("</?(?:think|answer)>", text):
            words = [word for word, _ in cut.pre_tokenize_str(part)]
            assert tokenizer.tokenize(part) == words


def test_every_digit_is_one_token(tokenizer):
    assert tokenizer.tokenize("<answer>180</answer>") == ["<answer>", "1", "8", "0", "</answer>"]


def test_tags_are_decoded_without_special_tokens(tokenizer):
    ids = tokenizer("<think>3 + 4 = 7.</think><answer>7</answer><|im_end|>")["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == "<think>3 + 4 = 7.</think><answer>7</answer>"
    assert is_tagged(text, [("<think>", "</think>"), ("<answer>", "</answer>")])
    assert ids[-1] == tokenizer.eos_token_id


def test_a_chat_is_qwens(tokenizer):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}]
    assert tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHow many?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_saved_it_loads_as_the_same_tokenizer(tokenizer, tmp_path):
    build_model(tokenizer, 0).config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert json.loads(loaded.backend_tokenizer.to_str()) == json.loads(
        tokenizer.backend_tokenizer.to_str()
    )
    for text in texts(20):
        chat = [{"role": "user", "content": text}]
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.apply_chat_template(
            chat, add_generation_prompt=True, return_dict=False
        ) == tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
