"""A tiny random GTE-Qwen2: a Qwen2 in a sentence-transformers folder, with its files as published."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_policy import save_policy

LONGEST = 96
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Norm", "type": "sentence_transformers.models.Normalize"},
]
POOLING = {
    "word_embedding_dimension": 32,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_lasttoken": True,
    "include_prompt": True,
}


def save_embedder(folder: Path, **config: object) -> str:
    """Save it; `config` is added to its config.json. Its tokenizer.json appends no EOS token.

    Returns:
        The folder, as the name of a model.
    """
    save_policy(
        folder,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    edit_json(folder / "config.json", architectures=["Qwen2ForCausalLM"], **config)
    edit_json(folder / "tokenizer_config.json", add_eos_token=True)
    edit_json(folder / "sentence_bert_config.json", max_seq_length=LONGEST, do_lower_case=False)
    (folder / "modules.json").write_text(json.dumps(MODULES))
    edit_json(folder / "1_Pooling" / "config.json", **POOLING)
    (folder / "2_Norm").mkdir()
    return str(folder)


def edit_json(file: Path, **values: object) -> None:
    """Set values in a JSON file, which is made if it is not there."""
    file.parent.mkdir(exist_ok=True)
    old = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.write_text(json.dumps(old | values), "utf-8")
