"""Groups of responses on their way into TransferQueue, as verl's agent loops would put them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from ...operators.sampling.protocol import Group
from ...operators.sampling.tokenizer import Messages

_READ = {"train": ("extra_info",), "val": ("extra_info", "data_source", "reward_model")}
"""Fields of a prompt that are read again with its responses. verl hands all that there are to the
update, where each costs more than the arithmetic of a small policy."""

RESPONSES = "__rollout_n__"
"""Field of a prompt by which verl's agent loops know that it has another n."""


class Slot(NamedTuple):
    """Where the responses to a prompt go.

    Attributes:
        uid: the prompt's key in TransferQueue.
        fields: of the prompt's row that verl reads again with each response.
    """

    uid: str
    fields: dict[str, Any]

    @property
    def prompt_id(self) -> str:
        """Of the prompt."""
        return str(self.fields["extra_info"]["prompt_id"])


class Batch(NamedTuple):
    """Prompts as verl hands them to an agent loop manager.

    Attributes:
        slots: one for each prompt.
        chats: their messages.
        partition: `train` or `val`.
        step: of training.
        n: responses to each, where these prompts ask for a number of their own.
        max_tokens: of a response, where they have a limit of their own.
    """

    slots: list[Slot]
    chats: list[Messages]
    partition: str
    step: int
    n: int | None
    max_tokens: int | None

    @classmethod
    def of(cls, prompts: Any) -> Batch:
        """From verl's TensorDict."""
        partition = "val" if plain(prompts.get("validate", None)) else "train"
        read = {name: _column(prompts, name) for name in _READ[partition]}
        slots = [
            Slot(uid, {name: values[row] for name, values in read.items()})
            for row, uid in enumerate(_column(prompts, "uid"))
        ]
        chats = [
            tuple((said["role"], said["content"]) for said in chat)
            for chat in _column(prompts, "raw_prompt")
        ]
        # Prompts that are submitted together are of one kind.
        n = _column(prompts, RESPONSES)[0] if RESPONSES in prompts.keys() else None  # noqa: SIM118
        max_tokens = slots[0].fields["extra_info"].get("max_tokens")
        return cls(slots, chats, partition, int(plain(prompts["global_steps"])), n, max_tokens)


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
        step: for which they were asked.
        rewards: of each group's responses, where they are known.
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
            keys.append(f"{slot.uid}_{k}_0")
            fields.append(field)
            tags.append(_tag(step, group.version, len(prompt), len(response)))
        uids.append(slot.uid)
    tq.kv_batch_put(
        keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags
    )
    # Last, so that whoever finds a group finished finds all of it.
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=[{"status": "finished"}] * len(uids))


def fail(slots: Sequence[Slot], partition: str) -> None:
    """Say of prompts that they have no responses."""
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
    # All at once: a row of a stack costs as much as the whole.
    return [plain(value) for value in batch[name]]


def plain(value: Any) -> Any:
    """What TensorDict wraps, where it wraps it."""
    return getattr(value, "data", value)
