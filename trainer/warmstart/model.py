"""The architecture of the embedded policy: Qwen2, small."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .tokenizer import END, MAX_LENGTH, PAD

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

_HEAD, _MULTIPLE = 32, 32


class Size(NamedTuple):
    """How large the model is."""

    hidden: int = 128  # width; a multiple of 32
    layers: int = 3  # how many


SIZE = Size()
"""0.74 million parameters."""


def build_model(tokenizer: Qwen2Tokenizer, seed: int, size: Size = SIZE) -> Qwen2ForCausalLM:
    """A fresh model in float32; its weights depend on the arguments alone."""
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
