"""Groups of earlier steps that train again, where a step has fewer groups than prompts.

    files of the last steps ──> groups that trained ──> log-probabilities by the policy of today
        ──> `replay_selector` and the steps after it ──> rows of TransferQueue

In TransferQueue, their tokens have the log-probabilities of today in place of those of the policy
that sampled them: the update starts from them. What corrects the difference is a weight of tokens,
which `importance_weight_mapper` writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...operators.columns import CREDIT, ROW_CONTRACT, flat
from ...operators.errors import DataError
from ...operators.groups import Array, Groups
from ...operators.importance import POLICY_AGE, POLICY_LOGPROBS, REPLAYED_FROM, SAMPLED_LOGPROBS
from ...operators.logs import redact
from ...operators.selector.replay_selector import ReplaySelector
from ..run import TrainingRun, plan_step
from ..split import REPLAYED
from .advantage import TrajectoryKey
from .credit import has_signal
from .groups import QueuedGroups, StepPart
from .replay import group_of
from .trajectories import Slot, put

_TIMES = 2
"""So many times the groups that are missing are read, if there are so many: some are outside the
selector's range of ratios."""


def replayable(
    run: TrainingRun, step: int, selector: ReplaySelector, missing: int, sampled: Collection[str]
) -> pa.Table:
    """Return groups that trained in earlier steps, the newest steps first, as before their credit.

    Args:
        run: whose files are read.
        step: the present one.
        selector: the recipe's, which says how old they may be, and how often they may train.
        missing: how many groups the step lacks.
        sampled: the prompts that it has sampled itself.

    Returns:
        Rows as sampled and graded, with `replayed_from` and `policy_age`. Of a prompt there is one
        group, the newest.

    Raises:
        DataError: the files of one of these steps are missing or damaged.
    """
    steps = range(max(1, step - selector.max_age), step)
    replays = _replays(run, steps)
    seen, tables, groups = set(sampled), list[pa.Table](), 0
    for earlier in reversed(steps):
        if groups >= _TIMES * missing:
            break
        if not plan_step(run.config, earlier).answers:
            continue
        table = _trained(run.step_folder(earlier))
        if not table.num_rows:
            continue
        names = table["prompt_id"].unique().to_pylist()
        left = [n for n in names if n not in seen and replays[n, earlier] < selector.max_replays]
        seen.update(left)
        table = table.filter(pc.is_in(table["prompt_id"], value_set=pa.array(left, pa.string())))
        for name, value in ((REPLAYED_FROM, earlier), (POLICY_AGE, step - earlier)):
            table = table.append_column(name, pa.repeat(value, table.num_rows).cast(pa.int64()))
        tables.append(table)
        groups += len(left)
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def _trained(folder: Path) -> pa.Table:
    """Return the rows of a step that were left and whose group has a signal, without credit."""
    rollouts, values, decisions = (_read(folder, n) for n in ("rollouts", "values", "decisions"))
    if not rollouts.num_rows:
        return rollouts
    for name in values.column_names:
        if "/" in name or name in ("response_id", "prompt_id"):
            continue  # An earlier step's value of a column that a later one has written.
        if name in rollouts.column_names:
            rollouts = rollouts.drop_columns([name])
        rollouts = rollouts.append_column(name, values[name])
    lost = pc.is_in(rollouts["response_id"], value_set=flat(decisions["row_id"]))
    rollouts = rollouts.filter(pc.invert(lost))
    groups = Groups.of(rollouts)
    signal_N = (groups.sum(has_signal(rollouts)) > 0)[groups.codes_N]
    credit = [name for name in rollouts.column_names if name in CREDIT]
    return rollouts.filter(pa.array(signal_N)).drop_columns(credit)


def _replays(run: TrainingRun, steps: range) -> Counter[tuple[str, int]]:
    """Count how often each prompt's group of each step has trained again in these steps."""
    found = Counter[tuple[str, int]]()
    for step in steps:
        folder = run.step_folder(step) / REPLAYED
        if not folder.is_dir():
            continue
        rows = _read(folder, "rollouts").select(["response_id", "prompt_id", REPLAYED_FROM])
        lost = pc.is_in(rows["response_id"], value_set=flat(_read(folder, "decisions")["row_id"]))
        rows = rows.filter(pc.invert(lost))
        pairs = zip(rows["prompt_id"].to_pylist(), rows[REPLAYED_FROM].to_pylist(), strict=True)
        found.update(set(pairs))
    return found


def _read(folder: Path, name: str) -> pa.Table:
    file = folder / f"{name}.parquet"
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        right = "groups of the last steps are replayed: put the file back, or begin anew"
        raise DataError(f"{file} cannot be read: {redact(str(error))}", right) from error


def with_logprobs(table: pa.Table, logprobs: Sequence[NDArray[np.float32]]) -> pa.Table:
    """Return rows with the log-probabilities of their tokens by the policy of today."""
    column = pa.array(logprobs, ROW_CONTRACT[SAMPLED_LOGPROBS])
    return table.append_column(POLICY_LOGPROBS, column)


class QueuedRows(NamedTuple):
    """Rows that were put into TransferQueue."""

    groups: QueuedGroups
    keys: list[TrajectoryKey]  # of each row


def put_rows(table: pa.Table, step: int, logprobs: str) -> QueuedRows:
    """Put the responses of whole or partial groups into TransferQueue.

    Args:
        table: N rows; those of a prompt are adjacent.
        step: the present one.
        logprobs: the column of the log-probabilities that they get there.
    """
    groups, keys = QueuedGroups(), list[TrajectoryKey]()
    if not table.num_rows:
        return QueuedRows(groups, keys)
    rows: list[dict[str, Any]] = [
        {**row, SAMPLED_LOGPROBS: row[logprobs]} for row in table.to_pylist()
    ]
    starts_G = Groups.of(table).starts_G.tolist()
    pairs = []
    for start, end in zip(starts_G, [*starts_G[1:], len(rows)], strict=True):
        own = rows[start:end]
        slot = Slot(str(uuid4()), {"extra_info": {"prompt_id": own[0]["prompt_id"]}})
        pairs.append((slot, group_of(own)))
        keys += [TrajectoryKey(slot.uid, k) for k in range(len(own))]
    ids = table["response_id"].to_pylist()
    groups.add_rows(dict(zip(ids, keys, strict=True)), put(pairs, "train", step))
    return QueuedRows(groups, keys)


def replayed_figures(part: StepPart, trained: int) -> Mapping[str, float]:
    """Return the figures of the groups that train again, for `rejuice/replayed/...`.

    Args:
        part: these groups.
        trained: the rows of all parts that train.
    """
    table, curated = part.trained, part.curated
    found = {"rows_trained": float(table.num_rows), "groups": 0.0, "share": 0.0}
    for count in curated.decisions["reason"].value_counts().to_pylist():
        found[f"dropped/{count['values']}"] = float(count["counts"])
    found |= {f"note/{name}": float(n) for name, n in curated.notes.items()}
    if not table.num_rows:
        return found
    for name in (POLICY_AGE, "importance_ratio", "mean_token_ratio"):
        found[name] = _mean(np.asarray(table[name], float))
    groups = float(len(Groups.of(table).starts_G))
    return found | {"groups": groups, "share": table.num_rows / trained}


def _mean(values_N: Array) -> float:
    return float(values_N.mean())
