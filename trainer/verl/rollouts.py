"""Trajectories of verl as a table of the row contract, and rewards on the way back to verl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transfer_queue as tq
from tensordict import NonTensorStack, TensorDict

from ...operators.agents.trajectory import Trajectory, columns_of
from ...operators.columns import ROW_CONTRACT, content_ids
from ...operators.groups import Array
from ...operators.sampling.protocol import prompt_seed
from ..policies import Policy, Sampling
from .trajectories import TRAJECTORY, plain
from .types import WEIGHT, Rollouts, TrajectoryKey, turn_weights

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
) -> Rollouts:
    """Fetch the responses of whole groups.

    Returns:
        Rows in the order of their prompts and sessions.
    """
    data, order_N, rollouts = _fetch(list(tags), partition, [*_TOKENS.values()], prompts)
    tokens = {name: _lists(data[field]).take(pa.array(order_N)) for name, field in _TOKENS.items()}
    ended, texts = _texts(policy, tokens["response_token_ids"].to_pylist())
    columns = {
        "response": texts,
        "finish_reason": ["stop" if end else "length" for end in ended],
        **tokens,
    }
    return _with_columns(rollouts, columns, tags, policy, sampling)


def read_trajectories(
    tags: Mapping[TrajectoryKey, dict[str, Any]],
    partition: str,
    prompts: pa.Table,
    policy: Policy,
    sampling: Sampling,
) -> Rollouts:
    """Fetch the trajectories of agents, one row each, as `read` fetches responses."""
    firsts = [key for key in tags if key == key.first]
    data, order_N, rollouts = _fetch(firsts, partition, ["extra_fields"], prompts)
    stored = [plain(each)[TRAJECTORY] for each in data["extra_fields"]]
    columns = columns_of([Trajectory.from_json(stored[row]) for row in order_N])
    return _with_columns(rollouts, columns, tags, policy, sampling)


def _fetch(
    keys: Sequence[TrajectoryKey], partition: str, fields: Sequence[str], prompts: pa.Table
) -> tuple[TensorDict, Array, Rollouts]:
    """Fields of rows; their order by prompt and session; and their prompts, in that order."""
    names = list(map(str, keys))
    wanted = [*fields, "extra_info"]
    data = tq.kv_batch_get(keys=names, partition_id=partition, select_fields=wanted)
    index_N = np.array([plain(each)["index"] for each in data["extra_info"]], np.int64)
    session_N = np.array([key.session for key in keys])
    uid_N = np.array([key.uid for key in keys])
    order_N = np.lexsort((session_N, uid_N, index_N))
    rows = prompts.take(pa.array(index_N[order_N]))
    return data, order_N, Rollouts([keys[row] for row in order_N], index_N[order_N], rows)


def _with_columns(
    rollouts: Rollouts,
    sampled: Mapping[str, Any],
    tags: Mapping[TrajectoryKey, Mapping[str, Any]],
    policy: Policy,
    sampling: Sampling,
) -> Rollouts:
    """Prompts with what was sampled to them, and the other columns that sampling writes."""
    keys, rows = rollouts.keys, rollouts.table
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
    # As policy_rollout_mapper does: columns of the dataset by these names belong to other samples.
    rows = rows.drop_columns([name for name in columns if name in rows.column_names])
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column, ROW_CONTRACT[name]))
    return rollouts._replace(table=rows)


def write(keys: Sequence[TrajectoryKey], partition: str, reward_N: Array, lengths_N: Array) -> None:
    """Give rows their rewards, each on the last token of its response."""
    scores_M = np.zeros(int(lengths_N.sum()))
    scores_M[np.cumsum(lengths_N) - 1] = reward_N
    _put(keys, partition, {"rm_scores": _nested(scores_M, lengths_N)})


def write_turns(
    keys: Sequence[TrajectoryKey], partition: str, lengths_N: Array, updates: int
) -> None:
    """Give turns what their loss and their advantage need: their weights, and whose turns they are.

    The trajectories themselves are removed: verl passes every field to the update.
    """
    weights_M = np.repeat(turn_weights(keys, lengths_N, updates), lengths_N)
    owners = NonTensorStack(*(str(key.first) for key in keys))
    bare = NonTensorStack(*({"reward_extra_info": {}} for _ in keys))
    fields = {WEIGHT: _nested(weights_M, lengths_N), "uid": owners, "extra_fields": bare}
    _put(keys, partition, fields)


def _put(keys: Sequence[TrajectoryKey], partition: str, fields: Mapping[str, Any]) -> None:
    columns = TensorDict(dict(fields), batch_size=len(keys))
    tq.kv_batch_put(keys=list(map(str, keys)), partition_id=partition, fields=columns)


def _nested(values_M: Array, lengths_N: Array) -> torch.Tensor:
    """Values of all tokens, as rows of these lengths, float32."""
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths_N))))
    values = torch.from_numpy(values_M.astype(np.float32))
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _texts(policy: Policy, ids: list[list[int]]) -> tuple[list[bool], list[str]]:
    """For each response whether it ended by itself, and its text."""
    ended = [each[-1] in policy.end_token_ids if each else False for each in ids]
    bare = [each[:-1] if end else each for each, end in zip(ids, ended, strict=True)]
    texts: list[str] = policy.tokenizer.batch_decode(bare, clean_up_tokenization_spaces=False)
    return ended, texts


def _lists(nested: Any) -> pa.Array:
    """Rows of a nested tensor, list<T>[N]."""
    if isinstance(nested, torch.Tensor) and nested.is_nested:
        offsets = nested.offsets().to(torch.int32).numpy()
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(nested.values().numpy()))
    rows = [np.asarray(row) for row in nested]
    return pa.array(rows)
