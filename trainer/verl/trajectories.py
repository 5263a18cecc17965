"""Groups of responses on their way into TransferQueue, as verl's agent loops would put them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
import torch
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from ...operators.agents.trajectory import POLICY, TrajectoryGroup, Turn
from ...operators.sampling.protocol import Group
from ..split import RESPONSES
from .types import OwnSettings, PromptBatch, Slot, TrajectoryKey

_READ = {"train": ("extra_info",), "val": ("extra_info", "data_source", "reward_model")}
"""Fields of a prompt that are read again with its responses. verl passes every field that it finds
to the update, where each costs more than the arithmetic of a small policy."""

TRAJECTORY = "trajectory"
"""Key of the JSON of a trajectory, in the field `extra_fields` of its first row."""


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
    has_n = RESPONSES in prompts.keys()  # noqa: SIM118
    own_n = _column(prompts, RESPONSES) if has_n else [None] * len(slots)
    own = [
        {**own_settings(slot.fields["extra_info"]), **({} if n is None else {"n": n})}
        for slot, n in zip(slots, own_n, strict=True)
    ]
    return PromptBatch(slots, chats, own, partition, int(plain(prompts["global_steps"])))


def own_settings(extra_info: Mapping[str, Any]) -> OwnSettings:
    """The sampling parameters that a prompt has of its own, by their names in `Settings`.

    Prompts of the dataset have none; those of validation sets and verification prompts do.
    """
    found = {name: extra_info.get(name) for name in ("temperature", "top_p", "max_tokens")}
    return {name: value for name, value in found.items() if value is not None}


def put(
    groups: Iterable[tuple[Slot, Group]],
    partition: str,
    step: int,
    rewards: Sequence[Sequence[float]] | None = None,
) -> None:
    """Put finished groups."""
    rows, uids = _QueueRows(partition, step), list[str]()
    for at, (slot, group) in enumerate(groups):
        for k, sample in enumerate(group.samples):
            turn = Turn(
                POLICY,
                prompt_token_ids=group.prompt_token_ids,
                token_ids=sample.token_ids,
                logprobs=sample.logprobs,
            )
            fields: dict[str, Any] = {"num_turns": 2, "extra_fields": {"reward_extra_info": {}}}
            if rewards is not None:
                fields["rm_scores"] = _on_last_token(turn, rewards[at][k])
            rows.add(TrajectoryKey(slot.uid, k), slot, turn, group.version, fields)
        uids.append(slot.uid)
    rows.put(uids)


def put_trajectories(
    groups: Iterable[tuple[Slot, TrajectoryGroup]],
    partition: str,
    step: int,
    rewards: Sequence[Sequence[float]] | None = None,
) -> None:
    """Put finished groups of agents: a row for each turn of the policy.

    The first row has the trajectory itself, as JSON. A trajectory in which the policy did nothing
    has one row, of a token that never trains.
    """
    rows, uids = _QueueRows(partition, step), list[str]()
    for nth, (slot, group) in enumerate(groups):
        for k, trajectory in enumerate(group.trajectories):
            for at, turn in enumerate(trajectory.actions or (NO_ACTION,)):
                stored = "" if at else trajectory.to_json().decode()
                fields: dict[str, Any] = {
                    "num_turns": 1 + len(trajectory.turns),
                    "extra_fields": {"reward_extra_info": {}, TRAJECTORY: stored},
                }
                if rewards is not None:
                    fields["rm_scores"] = _on_last_token(turn, rewards[nth][k])
                rows.add(TrajectoryKey(slot.uid, k, at), slot, turn, group.version, fields)
        uids.append(slot.uid)
    rows.put(uids)


NO_ACTION = Turn(POLICY, "", (0,), (0,), (0.0,))


class _QueueRows:
    """Rows for TransferQueue."""

    def __init__(self, partition: str, step: int) -> None:
        self._partition, self._step = partition, step
        self._keys, self._fields, self._tags = list[str](), list[dict[str, Any]](), list[Any]()

    def add(
        self, key: TrajectoryKey, slot: Slot, turn: Turn, version: int, fields: Mapping[str, Any]
    ) -> None:
        """Add what was sampled in a turn."""
        prompt = torch.tensor(turn.prompt_token_ids)
        response = torch.tensor(turn.token_ids)
        mask = torch.zeros_like(response) if turn is NO_ACTION else torch.ones_like(response)
        sampled = _fields(slot, prompt, response, mask, torch.tensor(turn.logprobs))
        self._keys.append(str(key))
        self._fields.append({**sampled, **fields})
        self._tags.append(_tag(self._step, version, len(prompt), len(response)))

    def put(self, uids: Sequence[str]) -> None:
        """Put them, and mark their prompts as finished."""
        fields, partition = list_of_dict_to_tensordict(self._fields), self._partition
        tq.kv_batch_put(keys=self._keys, partition_id=partition, fields=fields, tags=self._tags)
        # Last, so that a group that is marked as finished is complete.
        done = [{"status": "finished"}] * len(uids)
        tq.kv_batch_put(keys=list(uids), partition_id=partition, tags=done)


def _on_last_token(turn: Turn, reward: float) -> torch.Tensor:
    scores = torch.zeros(len(turn.token_ids or ()))
    scores[-1] = reward
    return scores


def fail(slots: Sequence[Slot], partition: str) -> None:
    """Mark prompts as failed: they have no responses."""
    tags = [{"status": "failure"}] * len(slots)
    tq.kv_batch_put(keys=[slot.uid for slot in slots], partition_id=partition, tags=tags)


def reason_of(error: Exception) -> str:
    """What `ray.get` raised for a call of an actor, as one line."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "its process was killed; the machine is out of memory"
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "its process could not be reached"
    if isinstance(error, ray.exceptions.RayActorError):
        if "node has died" in str(error):
            return "its node has died"
        return "its process was killed; the machine is probably out of memory"
    cause = getattr(error, "cause", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__


def _fields(
    slot: Slot,
    prompt: torch.Tensor,
    response: torch.Tensor,
    mask: torch.Tensor,
    logprobs: torch.Tensor,
) -> dict[str, Any]:
    both = torch.cat((prompt, response))
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
