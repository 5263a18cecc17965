"""Rows of TransferQueue: put there as verl's agent loops would, read as tables, given rewards.

Prompts come from verl as a `PromptBatch`. What was sampled to them is put into TransferQueue, read
as `Rollouts` once a group is complete, and gets its rewards back there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
import torch
import transfer_queue as tq
from tensordict import NonTensorStack, TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from ...operators.agents.trajectory import (
    POLICY,
    TOOL_SECONDS,
    Trajectory,
    TrajectoryGroup,
    Turn,
    columns_of,
)
from ...operators.columns import CREDIT, ROW_CONTRACT, content_ids
from ...operators.groups import Array
from ...operators.importance import LAST_VERSION, POLICY_AGE, POLICY_LOGPROBS, REPLAYED_FROM
from ...operators.sampling.protocol import Group, prompt_seed
from ...operators.sampling.tokenizer import Messages
from ..run import Policy, Sampling
from ..split import RESPONSES
from .advantage import WEIGHT, TrajectoryKey, turn_weights


class Slot(NamedTuple):
    uid: str  # the prompt's key in TransferQueue
    fields: dict[str, Any]  # of the prompt's row that verl reads again with each response

    @property
    def prompt_id(self) -> str:
        return str(self.fields["extra_info"]["prompt_id"])

    @property
    def split(self) -> str:
        """The files of the run that have the prompt; empty for verification prompts."""
        return str(self.fields["extra_info"].get("split", ""))


AnyGroup = Group | TrajectoryGroup
OwnSettings = dict[str, Any]
"""Sampling parameters by name, as far as they differ from the trainer's."""


class PromptBatch(NamedTuple):
    """Prompts as verl hands them to an agent loop manager."""

    slots: list[Slot]  # one for each prompt
    chats: list[Messages]  # their messages
    own: list[OwnSettings]  # the sampling parameters that each has of its own
    partition: str  # `train` or `val`
    step: int  # of training


class Rollouts(NamedTuple):
    keys: list[TrajectoryKey]  # of their first rows in TransferQueue
    index_N: Array  # int64, the row of each trajectory's prompt
    table: pa.Table  # the row contract up to sampling

    def take(self, rows: Array) -> Rollouts:
        keys = [self.keys[row] for row in rows.tolist()]
        return Rollouts(keys, self.index_N[rows], self.table.take(pa.array(rows)))


class Polled(NamedTuple):
    status: dict[str, str]  # of each prompt, by its key
    rows: dict[str, dict[str, Any]]  # the tags of all else, which are mostly rows

    @classmethod
    def of(cls, partition: str) -> Polled:
        # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_verl_marks_prompts_as_we_read_them
        listed = (tq.kv_list(partition) or {}).get(partition, {})
        prompts = {key: tag["status"] for key, tag in listed.items() if tag.get("is_prompt")}
        return cls(prompts, {k: dict(tag) for k, tag in listed.items() if k not in prompts})

    def prompts(self, *status: str) -> set[str]:
        return {key for key, own in self.status.items() if own in status}


# --- Prompts from verl, and what is sampled to them -----------------------------------

_READ = {"train": ("extra_info",), "val": ("extra_info", "data_source", "reward_model")}
"""Fields of a prompt that are read again with its responses. verl passes every field that it finds
to the update, where each costs more than the arithmetic of a small policy."""

TRAJECTORY = "trajectory"
"""Key of the JSON of a trajectory, in the field `extra_fields` of its first row."""


def prompt_batch(prompts: Any) -> PromptBatch:
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
    groups: Iterable[tuple[Slot, AnyGroup]],
    partition: str,
    step: int,
    rewards: Sequence[Sequence[float]] | None = None,
) -> dict[TrajectoryKey, dict[str, Any]]:
    """Put finished groups; the tags of their rows.

    A response is a row, and so is each turn of the policy in a trajectory, of which the first has
    the trajectory itself, as JSON. A trajectory in which the policy did nothing has one row, of a
    token that never trains.
    """
    rows, tags = list[dict[str, Any]](), dict[TrajectoryKey, dict[str, Any]]()
    uids = list[str]()
    for nth, (slot, group) in enumerate(groups):
        uids.append(slot.uid)
        for k, (actions, turns, trajectory) in enumerate(_sessions(group)):
            for at, action in enumerate(actions):
                row = _row(slot, action)
                row["num_turns"] = turns
                row["extra_fields"] = {"reward_extra_info": {}}
                if trajectory is not None:
                    row["extra_fields"] |= stored_fields(trajectory, at)
                if rewards is not None:
                    row["rm_scores"] = torch.zeros(len(row["responses"]))
                    row["rm_scores"][-1] = rewards[nth][k]
                rows.append(row)
                tags[TrajectoryKey(slot.uid, k, at)] = _tag(step, group.version, row)
    tq.kv_batch_put(
        keys=list(map(str, tags)),
        partition_id=partition,
        fields=list_of_dict_to_tensordict(rows),
        tags=list(tags.values()),
    )
    # Last, so that a group that is marked as finished is complete.
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=[{"status": "finished"}] * len(uids))
    return tags


NO_ACTION = Turn(POLICY, "", (0,), (0,), (0.0,))


def _sessions(group: AnyGroup) -> Iterator[tuple[Sequence[Turn], int, Trajectory | None]]:
    """The turns of the policy in each response or trajectory, and how many turns there are."""
    if isinstance(group, TrajectoryGroup):
        for each in group.trajectories:
            yield each.actions or (NO_ACTION,), 1 + len(each.turns), each
        return
    for sample in group.samples:
        ids, logprobs = sample.token_ids, sample.logprobs
        yield (Turn(POLICY, None, group.prompt_token_ids, ids, logprobs),), 2, None


def stored_fields(trajectory: Trajectory, at: int) -> dict[str, Any]:
    stored = "" if at else trajectory.to_json().decode()
    return {TRAJECTORY: stored, TOOL_SECONDS: trajectory.tool_seconds}


def fail(slots: Sequence[Slot], partition: str) -> None:
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


def _row(slot: Slot, turn: Turn) -> dict[str, Any]:
    prompt, response = torch.tensor(turn.prompt_token_ids), torch.tensor(turn.token_ids)
    mask = torch.zeros_like(response) if turn is NO_ACTION else torch.ones_like(response)
    both = torch.cat((prompt, response))
    return {
        **slot.fields,
        "uid": slot.uid,
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.tensor(turn.logprobs),
        "input_ids": both,
        "position_ids": torch.arange(len(both)),
    }


def _tag(step: int, version: int, row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, response = len(row["prompts"]), len(row["responses"])
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
    """Without TensorDict's wrapper, if it has one."""
    return getattr(value, "data", value)


# --- Finished groups as a table of the row contract, and rewards on the way back ------

_TOKENS = {
    "prompt_token_ids": "prompts",
    "response_token_ids": "responses",
    "response_logprobs": "rollout_log_probs",
}
"""Columns of tokens, and what verl calls them."""


def read(
    tags: Mapping[TrajectoryKey, dict[str, Any]],
    partition: str,
    prompts: pa.Table,
    policy: Policy,
    sampling: Sampling,
    step: int | None = None,
    *,
    of_agents: bool = False,
) -> Rollouts:
    """Fetch the responses, or trajectories, of whole groups, by their prompts and sessions.

    `tags` are those of their rows in TransferQueue, `prompts` all of the run. `step` is the one
    that trains on responses of several ages; None: all are by the current policy.
    """
    keys = [key for key in tags if key == key.first]
    wanted = ["extra_fields"] if of_agents else [*_TOKENS.values()]
    data = tq.kv_batch_get(
        keys=list(map(str, keys)), partition_id=partition, select_fields=[*wanted, "extra_info"]
    )
    index_N = np.array([plain(each)["index"] for each in data["extra_info"]], np.int64)
    session_N, uid_N = np.array([key.session for key in keys]), np.array([key.uid for key in keys])
    order_N = np.lexsort((session_N, uid_N, index_N))
    columns = _trajectories(data, order_N) if of_agents else _responses(data, order_N, policy)
    keys, index_N = [keys[row] for row in order_N], index_N[order_N]
    rows = prompts.take(pa.array(index_N))
    return Rollouts(keys, index_N, _with_columns(keys, rows, columns, tags, policy, sampling, step))


def _responses(data: TensorDict, order_N: Array, policy: Policy) -> dict[str, Any]:
    tokens = {name: _lists(data[field]).take(pa.array(order_N)) for name, field in _TOKENS.items()}
    ids = tokens["response_token_ids"].to_pylist()
    ended = [each[-1] in policy.end_token_ids if each else False for each in ids]
    bare = [each[:-1] if end else each for each, end in zip(ids, ended, strict=True)]
    texts = policy.tokenizer.batch_decode(bare, clean_up_tokenization_spaces=False)
    reasons = ["stop" if end else "length" for end in ended]
    return {"response": texts, "finish_reason": reasons, **tokens}


def _trajectories(data: TensorDict, order_N: Array) -> dict[str, Any]:
    fields = [plain(each) for each in data["extra_fields"]]
    found = [fields[row] for row in order_N]
    columns = columns_of([Trajectory.from_json(each[TRAJECTORY]) for each in found])
    seconds = pa.array([each[TOOL_SECONDS] for each in found], pa.float64())
    return {**columns, TOOL_SECONDS: seconds}


def _with_columns(
    keys: Sequence[TrajectoryKey],
    rows: pa.Table,
    sampled: Mapping[str, Any],
    tags: Mapping[TrajectoryKey, Mapping[str, Any]],
    policy: Policy,
    sampling: Sampling,
    step: int | None,
) -> pa.Table:
    names, responses = rows["prompt_id"].to_pylist(), sampled["response"]
    texts = responses if isinstance(responses, list) else responses.to_pylist()
    parts = zip(names, (str(key.session) for key in keys), texts, strict=True)
    seeds = [
        None if sampling.seed is None else prompt_seed(name, sampling.seed, int(step))
        for name, step in zip(names, (tags[key]["global_steps"] for key in keys), strict=True)
    ]
    columns = {
        "response_id": content_ids(parts),
        **sampled,
        "policy": [policy.name] * len(keys),
        "policy_version": [tags[key].get("min_global_steps") for key in keys],
        "sampling": [{**sampling._asdict(), "seed": seed} for seed in seeds],
    }
    if step is not None:
        # After the first update, there is version 1.
        ages = (None if v is None else step - 1 - v for v in columns["policy_version"])
        columns |= {POLICY_AGE: [*ages], LAST_VERSION: _last_versions(keys, tags)}
    # As policy_rollout_mapper does: columns of the dataset by these names belong to other samples,
    # and so does credit that came with them.
    others = {*columns, *(CREDIT if "response" in rows.column_names else ())}
    others |= {POLICY_LOGPROBS, REPLAYED_FROM, POLICY_AGE, LAST_VERSION}
    rows = rows.drop_columns([name for name in rows.column_names if name in others])
    for name, column in columns.items():
        if isinstance(column, pa.Array):
            column = column.cast(ROW_CONTRACT.get(name, column.type))
        else:
            column = pa.array(column, ROW_CONTRACT.get(name, pa.int64()))
        rows = rows.append_column(name, column)
    return rows


def _last_versions(
    keys: Sequence[TrajectoryKey], tags: Mapping[TrajectoryKey, Mapping[str, Any]]
) -> list[int | None]:
    """The version of the policy that sampled last in each trajectory."""
    found: dict[TrajectoryKey, int] = {}
    for key, tag in tags.items():
        version = tag.get("max_global_steps")
        if version is not None:
            found[key.first] = max(version, found.get(key.first, version))
    return [found.get(key) for key in keys]


def write(keys: Sequence[TrajectoryKey], partition: str, reward_N: Array, lengths_N: Array) -> None:
    """Give rows their rewards, each on the last token of its response."""
    _put(keys, partition, {"rm_scores": _scores(reward_N, lengths_N)})


def write_logprobs(
    keys: Sequence[TrajectoryKey], partition: str, logprobs: Sequence[Array]
) -> None:
    """Give rows the log-probabilities from which an update starts, float32[tokens] each."""
    lengths_N = np.array([len(each) for each in logprobs], np.int64)
    _put(keys, partition, {"rollout_log_probs": _nested(np.concatenate(logprobs), lengths_N)})


def _scores(reward_N: Array, lengths_N: Array) -> torch.Tensor:
    scores_M = np.zeros(int(lengths_N.sum()))
    scores_M[np.cumsum(lengths_N) - 1] = reward_N
    return _nested(scores_M, lengths_N)


class TrainedRows(NamedTuple):
    keys: list[TrajectoryKey]
    reward_R: Array  # float64, of their responses or trajectories
    advantages: list[Array]  # float64, of the tokens of each; 0 where they are masked
    masks: list[Array]  # bool, which tokens of each train; in each row some do

    @classmethod
    def joined(cls, parts: Sequence[TrainedRows]) -> TrainedRows:
        return cls(
            [key for part in parts for key in part.keys],
            np.concatenate([part.reward_R for part in parts]),
            [each for part in parts for each in part.advantages],
            [each for part in parts for each in part.masks],
        )

    @property
    def names(self) -> list[str]:
        return list(map(str, self.keys))


def write_trained(
    rows: TrainedRows, partition: str, updates: int | None, *, rewards: bool = True
) -> None:
    """Give rows what the update needs: their own key as `uid`, their rewards and their masks.

    `updates`, of the step, are for the loss over turns of trajectories. The trajectories themselves
    are removed: verl passes every field to the update.
    """
    lengths_R = np.array([len(mask) for mask in rows.masks], np.int64)
    # By it the estimator finds the credit of a row.
    fields: dict[str, Any] = {"uid": NonTensorStack(*rows.names)}
    if rewards:
        fields["rm_scores"] = _scores(rows.reward_R, lengths_R)
    mask_M = np.concatenate(rows.masks)
    if not mask_M.all():
        mask = _nested(mask_M, lengths_R, np.int64)
        fields |= {"response_mask": mask, "loss_mask": mask}
    if updates is not None:
        trained_R = np.array([mask.sum() for mask in rows.masks])
        weights_M = np.repeat(turn_weights(rows.keys, trained_R, updates), lengths_R)
        bare = NonTensorStack(*({"reward_extra_info": {}} for _ in rows.keys))
        fields |= {WEIGHT: _nested(weights_M, lengths_R), "extra_fields": bare}
    _put(rows.keys, partition, fields)


def _put(keys: Sequence[TrajectoryKey], partition: str, fields: Mapping[str, Any]) -> None:
    columns = TensorDict(dict(fields), batch_size=len(keys))
    tq.kv_batch_put(keys=list(map(str, keys)), partition_id=partition, fields=columns)


def _nested(values_M: Array, lengths_N: Array, kind: type[np.generic] = np.float32) -> torch.Tensor:
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths_N))))
    values = torch.from_numpy(values_M.astype(kind))
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _lists(nested: Any) -> pa.Array:
    """Rows of a nested tensor, list<T>[N]."""
    if isinstance(nested, torch.Tensor) and nested.is_nested:
        offsets = nested.offsets().to(torch.int32).numpy()
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(nested.values().numpy()))
    rows = [np.asarray(row) for row in nested]
    return pa.array(rows)
