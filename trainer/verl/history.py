"""Statistics of each prompt of a training step: steps/000012/history.parquet.

Statistics are of what was sampled, whatever the recipe's steps have dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...operators.columns import flat, is_text, numbers, right_and_wrong
from ...operators.errors import DataError
from ...operators.groups import Array, Groups
from ...operators.logs import redact
from ...pipelines.dataset.files import written
from ..run import TrainingRun

if TYPE_CHECKING:
    from .groups import StepPart

HISTORY = pa.schema(
    {
        "step": pa.int64(),  # the training step
        "prompt_id": pa.string(),
        "n": pa.int64(),  # responses that were sampled
        "graded": pa.int64(),  # those that are right or wrong
        "pass_rate": pa.float64(),  # the share of these that are right; null where none was graded
        "reward": pa.float64(),  # mean of the rewards; null without any
        "reward_std": pa.float64(),  # their standard deviation
        "response_tokens": pa.float64(),  # mean
        "truncated": pa.float64(),  # share that the token limit ended
        "trained": pa.int64(),  # rows that were left to train on, masked ones included
        "reason": pa.string(),  # why none of them was: that of most of its rows
        "policy_version": pa.int64(),  # the updates that the policy had seen
        "data_source": pa.string(),  # that of the prompt
    }
)
FILE = "history.parquet"


def write_history(folder: Path, table: pa.Table) -> None:
    with written(folder / FILE) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def read_history(run: TrainingRun, step: int) -> pa.Table:
    file = run.step_folder(step) / FILE
    right = "prompts are chosen by the history of all steps: put the file back, or begin anew"
    try:
        table = pq.read_table(file, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} cannot be read: {redact(str(error))}", right) from error
    if not table.schema.equals(HISTORY):  # The checksums are of the rows.
        raise DataError(f"{file} does not have the columns of a history", right)
    return table


def history_of(step: int, part: StepPart, taken: pa.ChunkedArray | None = None) -> pa.Table:
    """A row for each prompt in the order of the rollouts.

    `taken` are the ids of all prompts that were sampled: those that have no response are visits,
    too. None: they are not known.
    """
    rollouts, values, trained = part.rollouts, part.values, part.trained
    found = _of_rollouts(step, rollouts, values, trained, part.curated.decisions)
    if taken is None:
        return found
    failed = taken.filter(pc.invert(pc.is_in(taken, value_set=flat(found["prompt_id"]))))
    values = {"step": step, "n": 0, "graded": 0, "trained": 0, "reason": "failed_prompt"}
    rows = [{**values, "prompt_id": name} for name in failed.to_pylist()]
    return pa.concat_tables([found, pa.Table.from_pylist(rows, HISTORY)])


def _of_rollouts(
    step: int, rollouts: pa.Table, values: pa.Table, trained: pa.Table, decisions: pa.Table
) -> pa.Table:
    if not rollouts.num_rows:
        return HISTORY.empty_table()
    groups, rows = Groups.of(rollouts), rollouts.num_rows
    right_N = wrong_N = np.zeros(rows, bool)
    if "verdict" in values.column_names:
        right_N, wrong_N = right_and_wrong(values["verdict"])
    reward_N = np.full(rows, np.nan)
    if "reward" in values.column_names:
        reward_N = numbers(values, "reward")
    has_N = np.isfinite(reward_N)
    graded_G = groups.sum(right_N | wrong_N)
    names = flat(rollouts["prompt_id"].cast(pa.string())).take(pa.array(groups.starts_G))
    trained_of = Counter(trained["prompt_id"].to_pylist() if trained.num_rows else ())
    trained_G = [trained_of[name] for name in names.to_pylist()]
    tokens_N = np.asarray(pc.fill_null(pc.list_value_length(rollouts["response_token_ids"]), 0))
    cut_N = np.zeros(rows, bool)
    if "finish_reason" in rollouts.column_names:
        cut_N = np.asarray(pc.equal(rollouts["finish_reason"], "length").fill_null(False))
    columns = {
        "step": np.full(len(names), step),
        "prompt_id": names,
        "n": groups.sizes_G,
        "graded": graded_G,
        "pass_rate": _known(groups.mean(right_N.astype(float), right_N | wrong_N)),
        "reward": _known(groups.mean(reward_N, has_N)),
        "reward_std": _known(groups.std(reward_N, has_N)),
        "response_tokens": groups.mean(tokens_N),
        "truncated": groups.mean(cut_N.astype(float)),
        "trained": trained_G,
        "reason": _reasons(rollouts, groups, trained_G, decisions),
        "policy_version": _first(rollouts, "policy_version", groups),
        "data_source": _first(rollouts, "data_source", groups),
    }
    return pa.table({name: pa.array(columns[name], HISTORY.field(name).type) for name in columns})


def _known(values_G: Array) -> pa.Array:
    return pa.array(values_G, mask=~np.isfinite(values_G))


def _first(table: pa.Table, name: str, groups: Groups) -> pa.Array:
    """What the first row of each group has in a column; null without such a column."""
    kind = HISTORY.field(name).type
    has = name in table.column_names and is_text(table[name].type) == is_text(kind)
    if not has:
        return pa.nulls(len(groups.starts_G), kind)
    return flat(table[name]).take(pa.array(groups.starts_G)).cast(kind)


def _reasons(
    rollouts: pa.Table, groups: Groups, trained_G: list[int], decisions: pa.Table
) -> list[str | None]:
    """The reason of most rows of each prompt of which none trained."""
    ids = flat(rollouts["response_id"])
    row_N = pc.index_in(flat(decisions["row_id"]), value_set=ids)
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for row, reason in zip(row_N.to_pylist(), decisions["reason"].to_pylist(), strict=True):
        if row is not None:
            found[int(groups.codes_N[row])][reason] += 1
    return [
        None if trained or not found[group] else found[group].most_common(1)[0][0]
        for group, trained in enumerate(trained_G)
    ]
