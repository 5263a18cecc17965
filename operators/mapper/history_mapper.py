"""Read what earlier training has learned about each prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from ..arrow_compute import pc
from ..columns import flat
from ..errors import DataError
from ..groups import Array
from ..operator import Columns, Mapper


class HistoryMapper(Mapper):
    """Write what a training run has learned about each prompt, found by `prompt_id`.

    A visit is a training step that sampled responses to the prompt. The run's own files say of each
    visit how many responses were right: `steps/000012/history.parquet`. A prompt that was never
    visited has `history_visits` 0 and nothing else; the report counts them. The ids are those of a
    prompt's messages and its reference, so the template must be that of the run.

    - `history_pass_rate`: pass rate of the last visit; null also where nothing was graded.
    - `history_mean_pass_rate`: its mean over the last `last` visits.
    - `history_reward`, `history_reward_std`, `history_response_tokens`, `history_truncated`: of
      the last visit.
    - `history_visits`, and `history_trained`: how many of them had rows that were left to train on.
    - `history_solved`: how many visits in a row, up to the last one, had only right responses.
    - `history_age`: training steps from the last visit to the last step of the run.
    - `history_reason`: why nothing of the last visit trained.

    To keep prompts that are neither solved nor out of reach, follow it by
    `column_range_filter: {column: history_mean_pass_rate, min: 0.1, max: 0.9, on_missing: keep}`.

    Pass rates are of the policy as it was at each visit, and of the prompts that were chosen then.

    Raises:
        DataError: the folder is not that of a training run, or has no history.
    """

    run: str
    """The folder of a training run."""
    last: PositiveInt = 3
    """Visits that count for `history_mean_pass_rate`."""

    def reads(self) -> Columns:
        return ("prompt_id",)

    def writes(self) -> Columns:
        return tuple(f"history_{name}" for name in _WRITTEN)

    def cache_key_fields(self) -> Mapping[str, Any]:
        return {**super().cache_key_fields(), "files": _state(self.run)[0]}

    def preflight(self) -> None:
        _history(self.run, _state(self.run)[0], self.last)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        found = _history(self.run, _state(self.run)[0], self.last)
        row_N = pc.index_in(flat(table["prompt_id"].cast(pa.string())), value_set=found.names)
        columns = {f"history_{name}": values.take(row_N) for name, values in found.columns.items()}
        for name in ("visits", "trained", "solved"):
            columns[f"history_{name}"] = columns[f"history_{name}"].fill_null(0)
        return columns

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        unknown = pc.sum(pc.equal(columns["history_visits"], 0)).as_py() or 0
        return {"never_visited": float(unknown)} if unknown else {}


_OF_LAST = ("pass_rate", "reward", "reward_std", "response_tokens", "truncated", "reason")
_WRITTEN = (*_OF_LAST, "mean_pass_rate", "visits", "trained", "solved", "age")


class _History(NamedTuple):
    """What is known of P prompts."""

    names: pa.Array  # string[P], their ids
    columns: dict[str, pa.Array]  # `_WRITTEN`, each of P values


def _state(run: str) -> tuple[str, list[Path]]:
    """Return a digest of the history files of a run by their times and sizes, and the files.

    Raises:
        DataError: there are none.
    """
    files = sorted(Path(run).glob("steps/*/history.parquet"))
    if not files:
        what = "has no history" if (Path(run) / "steps").is_dir() else "is no training run"
        right = "give the folder of a run of this version, with train.keep_rollouts"
        raise DataError(f"{run} {what}: there is no steps/000001/history.parquet", right)
    stats = [(str(each.parent.name), each.stat()) for each in files]
    text = "\n".join(f"{name} {stat.st_mtime_ns} {stat.st_size}" for name, stat in stats)
    return sha256(text.encode()).hexdigest()[:16], files


@lru_cache(maxsize=4)
def _history(run: str, state: str, last: int) -> _History:
    import pyarrow.parquet as pq

    table = pa.concat_tables([pq.read_table(each) for each in _state(run)[1]])
    return summary(table, last)


def summary(table: pa.Table, last: int) -> _History:
    """Return what the visits of each prompt say of it.

    Args:
        table: rows of history, in the order of their steps.
        last: visits that count for the mean pass rate.
    """
    encoded = flat(table["prompt_id"]).dictionary_encode()
    code_V = np.asarray(encoded.indices)
    # The visits of a prompt together, in their order.
    order_V = np.argsort(code_V, kind="stable")
    sizes_P = np.bincount(code_V, minlength=len(encoded.dictionary))
    ends_P = np.cumsum(sizes_P)
    last_P = order_V[ends_P - 1] if len(ends_P) else ends_P
    columns = {name: flat(table[name]).take(pa.array(last_P)) for name in _OF_LAST}
    rate_V = np.asarray(flat(table["pass_rate"]).to_numpy(zero_copy_only=False), float)[order_V]
    place_V = np.repeat(ends_P, sizes_P) - np.arange(len(order_V))  # 1: the last visit of a prompt
    columns["mean_pass_rate"] = _mean(np.where(place_V <= last, rate_V, np.nan), ends_P, sizes_P)
    trained_V = np.asarray(table["trained"])[order_V] > 0
    columns["visits"] = pa.array(sizes_P)
    columns["trained"] = pa.array(_sums(trained_V.astype(np.int64), ends_P, sizes_P))
    columns["solved"] = pa.array(_solved(rate_V != 1, place_V, ends_P, sizes_P))
    steps_V = np.asarray(table["step"])
    age_P = int(steps_V.max(initial=0)) - steps_V[last_P]
    columns["age"] = pa.array(age_P)
    return _History(encoded.dictionary, columns)


def _sums(values_V: Array, ends_P: Array, sizes_P: Array) -> Array:
    sums_V1 = np.concatenate([np.zeros(1, values_V.dtype), np.cumsum(values_V)])
    sums_P: Array = sums_V1[ends_P] - sums_V1[ends_P - sizes_P]
    return sums_P


def _mean(values_V: Array, ends_P: Array, sizes_P: Array) -> pa.Array:
    """Return the mean of the values of each prompt that are no nan; null where there is none."""
    known_V = np.isfinite(values_V)
    count_P = _sums(known_V.astype(np.int64), ends_P, sizes_P)
    sum_P = _sums(np.where(known_V, values_V, 0.0), ends_P, sizes_P)
    return pa.array(sum_P / np.maximum(count_P, 1), mask=count_P == 0)


def _solved(unsolved_V: Array, place_V: Array, ends_P: Array, sizes_P: Array) -> Array:
    """Return how many visits each prompt has after the last one that is not solved."""
    if not len(ends_P):
        return np.zeros(0, np.int64)
    # The place of the nearest visit that is not solved, from the end; those of all others are far.
    far = np.where(unsolved_V, place_V, np.iinfo(np.int64).max)
    nearest_P = np.minimum.reduceat(far, ends_P - sizes_P)
    solved_P: Array = np.minimum(nearest_P - 1, sizes_P)
    return solved_P
