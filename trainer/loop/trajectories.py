"""Groups of responses on their way into TransferQueue, as verl's agent loops would put them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from ...operators.sampling.protocol import Group
from .types import PromptBatch, Slot, TrajectoryKey

_READ = {"train": ("extra_info",), "val": ("extra_info", "data_source", "reward_model")}
"""Fields of a prompt that are read again with its responses. verl passes every field that it finds
to the update, where each costs more than the arithmetic of a small policy."""

RESPONSES = "__rollout_n__"
"""Field of a prompt by which verl's agent loops know that it has an n of its own."""


def prompt_batch(prompts: Any) -> PromptBatch:
    """The prompts of verl's TensorDict."""
    partition = "val" if plain(prompts.get("validate", None)) else "train"
    read = {name: _column(prompts, name) for name in _READ[partition]}
    slots = [
        Slot(uid, {name: values[row] for name, values in read.items()})
        for row, uid in enumerate(_column(prompts, "uid"))
    ]
    chats = [
        tuple((message["role"], message["content"]) for message in chat)
        for chat in _column(prompts, "raw_prompt")
    ]
    # Prompts that are submitted together are of one kind.
    n = _column(prompts, RESPONSES)[0] if RESPONSES in prompts.keys() else None  # noqa: SIM118
    max_tokens = slots[0].fields["extra_info"].get("max_tokens")
    return PromptBatch(slots, chats, partition, int(plain(prompts["global_steps"])), n, max_tokens)


def put(
    groups: Iterable[tuple[Slot, Group]],
    partition: str,
    step: int,
    rewards: Sequence[Sequence[float]] | None = None,
) -> None:
    """Put finished groups.

    Args:
        groups: with token ids and log-probabilities.
        partition: `train` or `val`.
        step: that requested them.
        rewards: of each group's responses, if they are known.
    """
    keys, fields, tags, uids = [], [], [], []
    for at, (slot, group) in enumerate(groups):
        prompt = torch.tensor(group.prompt_token_ids)
        for k, sample in enumerate(group.samples):
            response = torch.tensor(sample.token_ids)
            field = _fields(slot, prompt, response, torch.tensor(sample.logprobs))
            if rewards is not None:
                field["rm_scores"] = torch.zeros(len(response))
                field["rm_scores"][-1] = rewards[at][k]
            keys.append(str(TrajectoryKey(slot.uid, k)))
            fields.append(field)
            tags.append(_tag(step, group.version, len(prompt), len(response)))
        uids.append(slot.uid)
    tq.kv_batch_put(
        keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags
    )
    # Last, so that a group that is marked as finished is complete.
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=[{"status": "finished"}] * len(uids))


def fail(slots: Sequence[Slot], partition: str) -> None:
    """Mark prompts as failed: they have no responses."""
    tags = [{"status": "failure"}] * len(slots)
    tq.kv_batch_put(keys=[slot.uid for slot in slots], partition_id=partition, tags=tags)


def _fields(
    slot: Slot, prompt: torch.Tensor, response: torch.Tensor, logprobs: torch.Tensor
) -> dict[str, Any]:
    both = torch.cat((prompt, response))
    mask = torch.ones_like(response)
    return {
        **slot.fields,
        "uid": slot.uid,
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": logprobs,
        "input_ids": both,
        "position_ids": torch.arange(len(both)),
        "num_turns": 2,
        "extra_fields": {"reward_extra_info": {}},
    }


def _tag(step: int, version: int, prompt: int, response: int) -> dict[str, Any]:
    return {
        "status": "success",
        "prompt_len": prompt,
        "response_len": response,
        "seq_len": prompt + response,
        "global_steps": step,
        "min_global_steps": version,
        "max_global_steps": version,
    }


def _column(batch: Any, name: str) -> list[Any]:
    # All rows at once: reading one row of a stack costs as much as reading all.
    return [plain(value) for value in batch[name]]


def plain(value: Any) -> Any:
    """A value without TensorDict's wrapper, if it has one."""
    return getattr(value, "data", value)
