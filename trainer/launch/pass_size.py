"""How many tokens a forward and backward pass on a CPU may have, so that memory suffices.

A pass stores activations for its backward pass. Logits count little: verl computes them, and what
follows from them, for 512 tokens at a time, whatever the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...operators.json_text import parse_json
from ...pipelines.recipe.train import Cpu
from ..policies import policy_path

_BYTES = 4 << 30
_HEAP = 2
"""The heap takes about so many bytes for each that is stored: tensors of several sizes come and go.
With its own mapping for each tensor it would be 1, and an update would take a quarter longer."""
_MOST = 1 << 16  # More make no pass faster.
_UNKNOWN = 1 << 10  # of a policy that is not on this machine yet
_FLOAT32 = 4


def tokens_per_pass(policy: str, cpu: Cpu) -> int:
    """Tokens whose activations take about 4 GiB; prompts that rows share count for each row.

    Args:
        policy: a folder or hub name.
        cpu: whether activations are computed again in the backward pass.
    """
    shape = _config(policy_path(policy))
    if shape is None:
        return _UNKNOWN
    layer = _bytes_of_layer(shape)
    layers = int(shape["num_hidden_layers"])
    stored = layer * layers
    if cpu.gradient_checkpointing:
        # The inputs of all layers, and the activations of the one that is computed again.
        stored = _FLOAT32 * int(shape["hidden_size"]) * layers + layer
    return min(_MOST, _BYTES // (_HEAP * stored))


def _bytes_of_layer(shape: Mapping[str, Any]) -> int:
    """What a layer stores for each token.

    Of the MLP the gate before and after its activation, the other projection, and their product;
    around it and around attention the inputs of norms and projections, queries, keys, values.
    """
    hidden = int(shape["hidden_size"])
    inner = int(shape.get("intermediate_size") or 4 * hidden)
    return _FLOAT32 * (4 * inner + 16 * hidden)


def _config(path: str) -> Mapping[str, Any] | None:
    """A model's config.json, from its folder or the cache of the hub; None if there is none."""
    file: Any = Path(path) / "config.json"
    if not Path(path).is_dir():
        from huggingface_hub import try_to_load_from_cache

        try:
            file = try_to_load_from_cache(path, "config.json")
        except ValueError:  # It is no name of the hub either.
            return None
        if not isinstance(file, str):
            return None
    try:
        found: Mapping[str, Any] = parse_json(Path(file).read_text("utf-8"))
    except FileNotFoundError:
        return None
    shape = found.get("text_config") or found
    return shape if {"hidden_size", "num_hidden_layers"} <= shape.keys() else None
