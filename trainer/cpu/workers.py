"""Engine and rollouts on a CPU, registered with verl when this file is imported.

verl imports this as `actor_rollout_ref.model.external_lib`, in each process that has a model.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import torch
from tensordict import NonTensorStack
from torch import Tensor
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

# private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_the_engine_and_the_rollouts_are_found
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from . import attention, frozen_head, lora
from .attention import Shared

ROLLOUT = "rejuice"
"""Name of the rollouts, for `actor_rollout_ref.rollout.name`."""


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's FSDP2 engine, adapted to processor cores.

    The reference policy is not offloaded, and each prompt of a batch is computed once for all its
    responses.
    """

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        config, policy = self.engine_config, module.config
        tied = policy.tie_word_embeddings
        # A forward-only engine would offload to pinned memory, which needs CUDA.
        self.engine_config = dataclasses.replace(config, forward_only=False)
        # An output layer of its own would be sharded by itself, and verl's function, which takes
        # its weights and does not call it, would get a shard. Tied ones are the whole module's.
        policy.tie_word_embeddings = True
        try:
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_forward_only_engine_is_built_like_any
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config, policy.tie_word_embeddings = config, tied

    def _build_lora_module(self, module: Any) -> Any:
        # The adapter begins at random, like the samples by the seed of the run.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            # private: verl==0.9.1, tests/trainer/cpu/test_lora.py::test_the_adapter_begins_by_the_seed
            return super()._build_lora_module(module)

    def get_per_tensor_param(self, **more: Any) -> tuple[Iterator[tuple[str, Tensor]], Any]:
        """The weights for the sampler; verl would round merged ones to bfloat16."""
        if not hasattr(self.module, "peft_config"):
            found: tuple[Iterator[tuple[str, Tensor]], Any] = super().get_per_tensor_param(**more)
            return found
        return lora.merged_weights(self.module), None

    def forward_backward_batch(self, data: Any, *rest: Any, **more: Any) -> Any:
        """verl's, without fields that are no tensors, which it would copy with each micro-batch."""
        untensored = [name for name in data.keys() if isinstance(data.get(name), NonTensorStack)]  # noqa: SIM118
        try:
            return super().forward_backward_batch(data.exclude(*untensored), *rest, **more)
        finally:
            attention.use_layout(None)

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's inputs, with each prompt once."""
        inputs, outputs = super().prepare_model_inputs(micro_batch)
        rows = (micro_batch["prompts"].unbind(), micro_batch["responses"].unbind())
        shared = outputs["shared"] = Shared.of(*rows)
        inputs["input_ids"], inputs["position_ids"] = shared.token_ids, shared.position_ids
        inputs["shift_labels"] = shared.labels
        attention.use_layout(shared.layout)
        return inputs, outputs

    def prepare_model_outputs(self, output: Any, output_args: Any, *rest: Any, **more: Any) -> Any:
        """verl's outputs, for the tokens of all rows."""
        shared = output_args["shared"]
        output.log_probs = shared.to_rows(output.log_probs)
        output.entropy = shared.to_rows(output.entropy)
        return super().prepare_model_outputs(output, output_args, *rest, **more)


def _replica() -> Any:
    from .rollout import Replica

    return Replica


def _open_group() -> None:
    """Open the process group over gloo, before verl would request two backends for one device."""
    worker = os.environ.get("WG_BACKEND") == "ray" and "RANK" in os.environ
    if not worker or torch.distributed.is_initialized():
        return
    if os.environ.get("WORLD_SIZE") == "1":
        # Alone it needs no port: verl chose a free one seconds ago, which may be in use by now.
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    else:
        torch.distributed.init_process_group("gloo")


RolloutReplicaRegistry.register(ROLLOUT, _replica)
_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "rejuice.trainer.cpu.rollout.Adapter"
_open_group()
frozen_head.use()
