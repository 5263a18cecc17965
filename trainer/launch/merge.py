"""A checkpoint's policy as a Hugging Face model folder, or its adapter as a folder of PEFT.

Run as `python -m rejuice.trainer.launch.merge`, in a process of its own, for the memory that it
needs. Shards are joined and adapters added in the precision in which they were trained; the result
is rounded once, where it is to be bfloat16. verl's own merger rounds first, and writes a policy
that was trained by LoRA without its adapter.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

from .checkpoints import NEEDS_TRUST

LORA_FILE = "lora_train_meta.json"
"""File of verl's in a checkpoint of LoRA: rank and alpha."""
_LORA = ".lora_"  # in the names of an adapter's weights


def merge(
    source: Path,
    target: Path,
    policy: str,
    dtype: torch.dtype,
    *,
    adapter: bool,
    trusted: bool = False,
) -> None:
    """Write the policy of a checkpoint; of one that is not trusted, tensors are unpickled only."""
    target.mkdir(parents=True, exist_ok=True)
    merger = FSDPModelMerger(
        ModelMergerConfig(
            operation="merge",
            backend="fsdp",
            local_dir=str(source),
            target_dir=str(target),
            hf_model_config_path=str(source / "huggingface"),
        )
    )
    weights = dict(_weights(source, trusted))
    if (source / LORA_FILE).exists():
        model = _with_adapter(merger, source, policy, weights, whole=not adapter)
        if adapter:
            model.to(dtype).save_pretrained(target)
            tokenizer = AutoTokenizer.from_pretrained(
                merger.hf_model_config_path, trust_remote_code=False
            )
            tokenizer.save_pretrained(target)
            return
        weights = model.merge_and_unload().state_dict()
    merger.save_hf_model_and_tokenizer({name: each.to(dtype) for name, each in weights.items()})
    _set_dtype(target / "config.json", dtype)


def _weights(folder: Path, trusted: bool) -> Iterator[tuple[str, Tensor]]:
    (first, *_) = files = sorted(
        folder.glob("model_world_size_*_rank_*.pt"),
        key=lambda file: int(file.stem.rsplit("_", 1)[1]),
    )
    shards = [_loaded(first, trusted)]
    mesh = next((v.device_mesh for v in shards[0].values() if isinstance(v, DTensor)), None)
    # Of a mesh with copies, the last dimension is that of shards.
    number = 1 if mesh is None else mesh.mesh.shape[-1]
    for file in files[1:number]:
        shards.append(_loaded(file, trusted))
    with torch.no_grad():
        for name in list(shards[0]):
            yield name, _joined([shard.pop(name) for shard in shards])


def _loaded(file: Path, trusted: bool) -> Any:
    try:  # PyTorch itself names the classes of `DTensor` as safe.
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not trusted:
            raise
        return torch.load(file, map_location="cpu", weights_only=False)


def _joined(parts: list[Tensor]) -> Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    placement = first.placements[-1]
    locals_ = [part.to_local() for part in parts]
    return torch.cat(locals_, placement.dim) if placement.is_shard() else locals_[0]


def _with_adapter(
    merger: Any, source: Path, policy: str, weights: dict[str, Tensor], *, whole: bool
) -> Any:
    """PEFT's model in float32; without `whole`, all but its adapter is empty."""
    from peft import LoraConfig, TaskType, get_peft_model

    loader = merger.get_transformers_auto_model_class()
    with nullcontext() if whole else torch.device("meta"):
        if whole:
            model = loader.from_pretrained(policy, dtype=torch.float32, trust_remote_code=False)
        else:
            model = loader.from_config(merger.model_config)
        trained = {name: each for name, each in weights.items() if _LORA in name}
        settings = json.loads((source / LORA_FILE).read_text("utf-8"))
        config = LoraConfig(
            r=settings["r"],
            lora_alpha=settings["lora_alpha"],
            target_modules=_targets(model, trained),
            task_type=TaskType.CAUSAL_LM,
        )
        made = get_peft_model(model, config)
    config.base_model_name_or_path = policy  # PEFT has taken the folder of the checkpoint.
    unknown = made.load_state_dict(trained, strict=False, assign=True).unexpected_keys
    if unknown:
        raise ValueError(f"{policy} has no module for the adapter's {unknown[0]}")
    return made


def _targets(model: Any, trained: dict[str, Tensor]) -> list[str]:
    """The modules that have an adapter; by the last part of their names, where this is all."""
    adapted = {name.removeprefix("base_model.model.").split(_LORA)[0] for name in trained}
    short = {name.rsplit(".", 1)[-1] for name in adapted}
    meant = {name for name, _ in model.named_modules() if name.rsplit(".", 1)[-1] in short}
    return sorted(short if meant == adapted else adapted)


def _set_dtype(path: Path, dtype: torch.dtype) -> None:
    """Say in a config.json what the weights are: verl says bfloat16."""
    config = json.loads(path.read_text("utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local_dir", type=Path, required=True)
    parser.add_argument("--target_dir", type=Path, required=True)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--export", choices=["merged", "adapter"], required=True)
    parser.add_argument("--trusted", action="store_true")
    given = parser.parse_args()
    dtype, adapter = getattr(torch, given.dtype), given.export == "adapter"
    try:
        merge(
            given.local_dir,
            given.target_dir,
            given.policy,
            dtype,
            adapter=adapter,
            trusted=given.trusted,
        )
    except pickle.UnpicklingError as error:
        print(error, file=sys.stderr)
        sys.exit(NEEDS_TRUST)


if __name__ == "__main__":
    main()
