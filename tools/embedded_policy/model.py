"""The architecture of an embedded policy: Qwen2, small, with a tokenizer of its own.

The tokenizer is one of words and single digits, which gives every text back as it was. It is
Qwen2's with merges of its own, because transformers cuts text for every model of that architecture
in Qwen2's way, whatever its file contains. The words of a policy's own world are one token each,
with the space before them; other words are spelled in smaller pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

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

_HEAD, _MULTIPLE = 32, 32


class Size(NamedTuple):
    """How large the model is."""

    hidden: int = 128  # width; a multiple of 32
    layers: int = 3  # how many


SIZE = Size()
"""0.74 million parameters."""


def build_model(tokenizer: Qwen2Tokenizer, seed: int, size: Size = SIZE) -> Qwen2ForCausalLM:
    """Return a fresh model in float32; its weights depend on the arguments alone."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        # Some rows more than there are tokens, so that the matrix splits evenly.
        vocab_size=-(-len(tokenizer) // _MULTIPLE) * _MULTIPLE,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.hidden // _HEAD,
        num_key_value_heads=size.hidden // _HEAD,
        max_window_layers=size.layers,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


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
