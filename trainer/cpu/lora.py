"""A policy with a LoRA adapter, as the weights of a whole model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

_PREFIX = "base_model.model."  # of PEFT
_BASE = ".base_layer."


def merged_weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and weights of the policy, the adapter added, as those of a model without one.

    Args:
        module: PEFT's model, whose weights stay as they are.
    """
    from peft.tuners.lora import LoraLayer

    layers = {name: each for name, each in module.named_modules() if isinstance(each, LoraLayer)}
    for name, value in module.state_dict().items():
        if ".lora_" in name:
            continue
        weight = _whole(value)
        adapted, _, kind = name.rpartition(_BASE)
        if kind == "weight":
            with torch.no_grad():
                for adapter in layers[adapted].active_adapters:
                    weight = weight + _whole(layers[adapted].get_delta_weight(adapter))
        yield name.removeprefix(_PREFIX).replace(_BASE, "."), weight


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
