"""Engine and rollouts on a CPU, registered with verl when this file is imported.

verl imports this as `actor_rollout_ref.model.external_lib`, in each process that has a model.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
from tensordict import NonTensorStack
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

# private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_the_engine_and_the_rollouts_are_found
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from . import attention
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
        config: Any = self.engine_config
        # A forward-only engine would offload to pinned memory, which needs CUDA.
        self.engine_config = dataclasses.replace(config, forward_only=False)
        try:
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_forward_only_engine_is_built_like_any
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config

    def forward_backward_batch(self, data: Any, *rest: Any, **more: Any) -> Any:
        """verl's, without fields that are no tensors, which it would copy with each micro-batch."""
        untensored = [name for name in data.keys() if isinstance(data.get(name), NonTensorStack)]  # noqa: SIM118
        return super().forward_backward_batch(data.exclude(*untensored), *rest, **more)

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
        attention.use_layout(None)
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
    if worker and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")


RolloutReplicaRegistry.register(ROLLOUT, _replica)
_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "rejuice.trainer.cpu.rollout.Adapter"
_open_group()
