"""Trajectories of verl as a table of the row contract, and rewards on the way back to verl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transfer_queue as tq
from tensordict import TensorDict

from ...operators.columns import ROW_CONTRACT, content_ids
from ...operators.groups import Array
from ...operators.sampling.seeds import prompt_seed
from ..policies import Policy, Sampling
from .trajectories import plain
from .types import Rollouts, TrajectoryKey

_TOKENS = {
    "prompt_token_ids": "prompts",
    "response_token_ids": "responses",
    "response_logprobs": "rollout_log_probs",
}
"""Columns of tokens, and what verl calls them."""
_FIELDS = [*_TOKENS.values(), "extra_info"]


def read(
    tags: Mapping[TrajectoryKey, dict[str, Any]],
    partition: str,
    prompts: pa.Table,
    policy: Policy,
    sampling: Sampling,
) -> Rollouts:
    """Fetch trajectories of whole groups.

    Args:
        tags: tag of each trajectory.
        partition: `train` or `val`.
        prompts: the prompts of the run; `extra_info.index` of a trajectory is its row.
        policy: the policy that samples.
        sampling: its sampling parameters.

    Returns:
        Rows in the order of their prompts and sessions.
    """
    keys = list(tags)
    names = list(map(str, keys))
    data = tq.kv_batch_get(keys=names, partition_id=partition, select_fields=_FIELDS)
    index_N = np.array([plain(each)["index"] for each in data["extra_info"]], np.int64)
    session_N = np.array([key.session for key in keys])
    uid_N = np.array([key.uid for key in keys])
    order_N = np.lexsort((session_N, uid_N, index_N))
    keys, index_N = [keys[row] for row in order_N], index_N[order_N]
    rows = prompts.take(pa.array(index_N))
    columns = _sampled(
        {name: _lists(data[field]).take(pa.array(order_N)) for name, field in _TOKENS.items()},
        rows["prompt_id"].to_pylist(),
        session_N[order_N].tolist(),
        [tags[key] for key in keys],
        policy,
        sampling,
    )
    # As policy_rollout_mapper does: columns of the dataset by these names belong to other samples.
    rows = rows.drop_columns([name for name in columns if name in rows.column_names])
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column, ROW_CONTRACT[name]))
    return Rollouts(keys, index_N, rows)


def write(keys: Sequence[TrajectoryKey], partition: str, reward_N: Array, lengths_N: Array) -> None:
    """Give trajectories their rewards, each on the last token of its response.

    Args:
        keys: keys of the trajectories.
        partition: `train` or `val`.
        reward_N: float64[N]; verl keeps float32.
        lengths_N: tokens of each response.
    """
    scores = torch.zeros(int(lengths_N.sum()), dtype=torch.float32)
    ends = torch.from_numpy(np.cumsum(lengths_N))
    scores[ends - 1] = torch.from_numpy(reward_N.astype(np.float32))
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), ends))
    nested = torch.nested.nested_tensor_from_jagged(scores, offsets)
    fields = TensorDict({"rm_scores": nested}, batch_size=len(keys))
    tq.kv_batch_put(keys=list(map(str, keys)), partition_id=partition, fields=fields)


def _sampled(
    tokens: Mapping[str, pa.Array],
    names: Sequence[str],
    sessions: Sequence[int],
    tags: Sequence[Mapping[str, Any]],
    policy: Policy,
    sampling: Sampling,
) -> dict[str, Any]:
    """The columns of the row contract that sampling writes, made from the columns of tokens."""
    ended, texts = _texts(policy, tokens["response_token_ids"].to_pylist())
    parts = zip(names, map(str, sessions), texts, strict=True)
    seeds = [
        prompt_seed(name, sampling.seed, int(tag["global_steps"]))
        for name, tag in zip(names, tags, strict=True)
    ]
    return {
        "response_id": content_ids(parts),
        "response": texts,
        "finish_reason": ["stop" if end else "length" for end in ended],
        **tokens,
        "policy": [policy.name] * len(texts),
        "policy_version": [tag.get("min_global_steps") for tag in tags],
        "sampling": [{**sampling._asdict(), "seed": seed} for seed in seeds],
    }


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
