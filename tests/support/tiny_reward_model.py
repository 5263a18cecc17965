"""Tiny random reward models of transformers, with a tokenizer whose tokens are bytes."""

from __future__ import annotations

from pathlib import Path

from tiny_policy import END, PAD, save_tokenizer


def save_reward_model(
    folder: Path, *, seed: int = 0, kind: str = "qwen2", outputs: int = 1, **config: object
) -> Path:
    """Save a model for sequence classification of two layers; `config` changes what is set here.

    Args:
        folder: where to.
        seed: of the weights.
        kind: `qwen2`, which is causal and takes its output at the last token, or `bert`.
        outputs: of the model.
        **config: fields of its configuration.
    """
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Qwen2Config,
        Qwen2ForSequenceClassification,
    )

    vocab = save_tokenizer(folder)
    settings = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 160,
        "initializer_range": 0.3,
        "pad_token_id": vocab[PAD],
        "num_labels": outputs,
        "bos_token_id": None,
        "eos_token_id": vocab[END],
    }
    if kind == "qwen2":
        settings["num_key_value_heads"] = 2
    made, model = {
        "qwen2": (Qwen2Config, Qwen2ForSequenceClassification),
        "bert": (BertConfig, BertForSequenceClassification),
    }[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model(made(**{**settings, **config})).save_pretrained(folder)
    return folder
