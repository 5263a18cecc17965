"""Read what training has learned about each prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from ..arrow_compute import pc
from ..columns import flat
from ..errors import DataError
from ..groups import Array, Groups
from ..operator import Columns, Mapper
from ..training_step import NEVER, PROMPT_ROW, PerStepOperator, last_visits


class HistoryMapper(PerStepOperator, Mapper):
    """Write what training has learned about each prompt, found by `prompt_id`.

    A visit is a training step that sampled the prompt; steps/000012/history.parquet has those of a
    step. One in which every response failed counts for `history_age` alone. In training, this
    operator and those between it and the sampling run before each training step, and the visits are
    those of the earlier `run`, if one is given, and of this run so far. Offline they are those of
    `run`. A prompt that was never visited has `history_visits` 0 and nothing else; the report
    counts them. The ids are those of a prompt's messages and its reference, so the template must be
    that of the earlier run.

    - `history_pass_rate`: pass rate of the last visit; null also where nothing was graded.
    - `history_mean_pass_rate`: its mean over the last `last` visits.
    - `history_discounted_right`, `history_discounted_graded`: right and graded responses of all
      visits, by `discount`.
    - `history_reward`, `history_reward_std`, `history_response_tokens`, `history_truncated`: of
      the last visit.
    - `history_visits`, and `history_trained`: how many of them had rows that were left to train on.
    - `history_solved`: how many visits in a row, up to the last one, had only right responses.
    - `history_age`: training steps since the last visit; 0: it was in the step just before.
    - `history_reason`: why nothing of the last visit trained.

    Follow it by `retire_filter` or `difficulty_selector`, or by filters of these columns. A filter
    such as `column_range_filter: {column: history_mean_pass_rate, max: 0.9, on_missing: keep}`
    drops a prompt for good, since it is then not visited any more.

    Pass rates are of the policy as it was at each visit, and of the prompts that were sampled then:
    their mean over prompts is not the pass rate of the policy.

    Raises:
        DataError: the folder is not that of a training run, or has no history.
    """

    run: str | None = None
    """The folder of an earlier training run. Null: there is none, so that offline no prompt was
    ever visited."""
    last: PositiveInt = 3
    """Visits that count for `history_mean_pass_rate`."""
    discount: float = Field(0.5, ge=0, le=1)
    """Weight of a visit relative to the next one, as in discounted Thompson sampling. 1: all visits
    count the same; 0: only the last one counts. With 0.5 and 8 responses a visit, a prompt never
    counts as more than 16 responses. Only visits discount earlier ones, and not time."""

    def reads(self) -> Columns:
        return ("prompt_id",)

    def writes(self) -> Columns:
        return tuple(f"history_{name}" for name in _WRITTEN)

    def cache_key_fields(self) -> Mapping[str, Any]:
        files = {} if self.run is None else {"files": _state(self.run)[0]}
        return {**super().cache_key_fields(), **files}

    def preflight(self) -> None:
        self.earlier()

    def optional_reads(self) -> Mapping[str, str]:
        return {PROMPT_ROW: "prompt_id"}  # Which the trainer adds: to look ids up takes longer.

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        if self.step is None:
            visits, names = self.earlier()
            found_N = pc.index_in(flat(table["prompt_id"].cast(pa.string())), value_set=names)
            row_N = np.asarray(found_N.fill_null(len(names)))
            now = 0
        else:
            visits, row_N = self.step.visits, np.asarray(table[PROMPT_ROW])
            now = self.step.number - 1
        found = summary(visits, self.last, self.discount)
        place_N = pc.index_in(pa.array(row_N), value_set=pa.array(found.prompts))
        columns = {f"history_{name}": each.take(place_N) for name, each in found.columns.items()}
        for name in _COUNTS:
            columns[f"history_{name}"] = columns[f"history_{name}"].fill_null(0)
        last_N = last_visits(visits, row_N)
        age = pa.array(now - last_N, mask=last_N == NEVER)
        return {**columns, "history_age": age}

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        unknown = pc.sum(pc.equal(columns["history_visits"], 0)).as_py() or 0
        return {"never_visited": float(unknown)} if unknown else {}

    def earlier(self) -> tuple[pa.Table, pa.Array]:
        """The visits of the earlier run, whose last steps are 0, and the ids of its prompts, which
        `prompt_row` numbers."""
        return _visits(self.run, "" if self.run is None else _state(self.run)[0])


_OF_LAST = ("pass_rate", "reward", "reward_std", "response_tokens", "truncated", "reason")
_COUNTS = ("visits", "trained", "solved", "discounted_right", "discounted_graded")
_WRITTEN = (*_OF_LAST, "mean_pass_rate", *_COUNTS, "age")
VISITS = pa.schema(
    [
        ("step", pa.int64()),
        ("prompt_id", pa.string()),
        ("n", pa.int64()),
        ("graded", pa.int64()),
        ("trained", pa.int64()),
        *((name, pa.float64()) for name in _OF_LAST[:-1]),
        ("reason", pa.string()),
    ]
)
"""What is read of history.parquet."""


class _History(NamedTuple):
    """What is known of P prompts that were visited."""

    prompts: Array  # int64[P], which they are, ascending
    columns: dict[str, pa.Array]  # `_WRITTEN`, each of P values


def _state(run: str) -> tuple[str, list[Path]]:
    """A digest of the history files of a run by their times and sizes, and the files."""
    files = sorted(Path(run).glob("steps/*/history.parquet"))
    if not files:
        what = "has no history" if (Path(run) / "steps").is_dir() else "is no training run"
        right = "give the folder of a run of this version"
        raise DataError(f"{run} {what}: there is no steps/000001/history.parquet", right)
    stats = [(str(each.parent.name), each.stat()) for each in files]
    text = "\n".join(f"{name} {stat.st_mtime_ns} {stat.st_size}" for name, stat in stats)
    return sha256(text.encode()).hexdigest()[:16], files


@lru_cache(maxsize=4)
def _visits(run: str | None, state: str) -> tuple[pa.Table, pa.Array]:
    import pyarrow.parquet as pq

    files = [] if run is None else _state(run)[1]
    tables = [pq.read_table(each, columns=VISITS.names) for each in files]
    table = pa.concat_tables(tables or [VISITS.empty_table()])
    from_last = pc.subtract(table["step"], pc.max(table["step"]))
    table = table.set_column(table.column_names.index("step"), "step", from_last)
    ids = flat(table["prompt_id"]).dictionary_encode()
    return table.append_column(PROMPT_ROW, ids.indices.cast(pa.int64())), ids.dictionary


def summary(visits: pa.Table, last: int, discount: float) -> _History:
    """What visits, in the order of their steps, say of each prompt. `last` of them count for the
    mean pass rate; in the discounted sums each counts `discount` times as much as the next."""
    answered_V = np.asarray(visits["n"]) > 0
    table = visits if answered_V.all() else visits.filter(pa.array(answered_V))
    code_V = np.asarray(table[PROMPT_ROW])
    # The visits of a prompt together, in their order.
    order_V = np.argsort(code_V, kind="stable")
    groups = Groups.of_column(pa.array(code_V[order_V]))
    left_V = groups.sizes_G[groups.codes_N] - groups.position()  # 1: the last visit of a prompt
    is_last_V = left_V == 1
    columns = {name: flat(table[name]).take(pa.array(order_V[is_last_V])) for name in _OF_LAST}
    rate_V = np.asarray(flat(table["pass_rate"]).to_numpy(zero_copy_only=False), float)[order_V]
    mean_P = groups.mean(rate_V, np.isfinite(rate_V) & (left_V <= last))
    columns["mean_pass_rate"] = pa.array(mean_P, mask=np.isnan(mean_P))
    graded_V = np.asarray(table["graded"])[order_V] * np.power(float(discount), left_V - 1)
    columns["discounted_graded"] = pa.array(groups.sum(graded_V))
    columns["discounted_right"] = pa.array(groups.sum(graded_V * np.nan_to_num(rate_V)))
    columns["visits"] = pa.array(groups.sizes_G)
    columns["trained"] = pa.array(groups.sum(np.asarray(table["trained"])[order_V] > 0))
    # Those after the last one that is not solved: of so many from the end, all are solved.
    unsolved_V = np.cumsum(rate_V != 1)
    later_V = unsolved_V[is_last_V][groups.codes_N] - unsolved_V + (rate_V != 1)
    columns["solved"] = pa.array(groups.sum(later_V == 0))
    return _History(code_V[order_V][is_last_V], columns)
