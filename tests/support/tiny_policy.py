"""A small random policy whose tokens are bytes, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path

CHAT = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
PAD, END = "<|endoftext|>", "<|im_end|>"


def save_tokenizer(folder: Path) -> dict[str, int]:
    """Save a tokenizer of single bytes, with the chat template; its vocabulary."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocab = {word: i for i, word in enumerate([PAD, END, *sorted(ByteLevel.alphabet())])}
    Qwen2Tokenizer(
        vocab=vocab, merges=[], unk_token=None, pad_token=PAD, eos_token=END, chat_template=CHAT
    ).save_pretrained(folder)
    return vocab


def save_policy(folder: Path, *, seed: int = 0, **config: float | bool | None) -> None:
    """Save a Qwen2 of 0.9 million parameters; `config` changes what is set here."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    vocab = save_tokenizer(folder)
    settings = {
        "vocab_size": 300,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.1,  # so that some tokens are more probable than others
        "bos_token_id": None,
        "eos_token_id": vocab[END],
        "pad_token_id": vocab[PAD],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        Qwen2ForCausalLM(Qwen2Config(**{**settings, **config})).save_pretrained(folder)
