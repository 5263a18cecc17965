"""A tokenizer of words and single digits, which gives every text back as it was.

It is a Qwen2 tokenizer with merges of its own, because transformers cuts text for every model of
that architecture in Qwen2's way, whatever its file contains. All words of the problems and of
the demonstrator are one token each, with the space before them; other words are spelled in smaller
pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...pipelines.demo.problems import HELD_OUT, NAMES, TEMPLATES, WORDS, Template
from .demonstrator import PHRASES

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
MAX_LENGTH = 2048
"""Longest prompt with its response, in tokens; what the policy knows is far shorter."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML, as Qwen2 has it, without a system message where none is given."""

_SLOT = re.compile(r"\{[A-Za-z]+\}")


def build_tokenizer() -> Qwen2Tokenizer:
    """The tokenizer of `embedded`: it knows the words of the problems and of the demonstrator."""
    return tokenizer_of(_texts(), TAGS)


def tokenizer_of(texts: Iterable[str], tags: Sequence[str]) -> Qwen2Tokenizer:
    """A tokenizer that makes one token of every word of some texts; the same in every process."""
    from tokenizers import AddedToken, models
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer
    from transformers import Qwen2Tokenizer

    pieces = Qwen2Tokenizer().backend_tokenizer
    pieces.model = models.BPE()
    # No limit that matters: it merges until every word it has seen is one token.
    trainer = BpeTrainer(
        vocab_size=100_000,
        min_frequency=0,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    learned = json.loads(pieces.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],
        unk_token=None,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(START, special=True)])
    # Not special: who decodes without special tokens must still see the tags.
    if tags:
        tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return tokenizer


def _texts() -> Iterator[str]:
    """All words of the problems and the demonstrator, where they occur in a text."""
    for names in NAMES.values():
        yield from (f"{name} {name}" for name in names)
    for words in WORDS.values():
        yield from (f" {word}" for word in words)
    for template in (*TEMPLATES, *HELD_OUT):
        yield from (_SLOT.sub("0", text) for text in (template.question, *_sentences(template)))
    yield from PHRASES


def _sentences(template: Template) -> Iterator[str]:
    # Twice: a sentence may stand at the beginning or after another one.
    return (f"{line.sentence} {line.sentence}" for line in template.lines)
