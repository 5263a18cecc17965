"""A stored run as one table: a line for each row as sampled, of numbers and short words only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators import RejuiceError
from ...operators.arrow_compute import pc
from ...operators.columns import (
    component_columns,
    flat,
    is_list,
    is_text,
    mean_of_lists,
    share_of_zeros,
)
from ...operators.groups import Groups
from ...operators.importance import POLICY_AGE
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..engine.frame import Frame
from ..engine.steps import AppliedStep
from .stored import StoredSet
from .written import Join, WrittenValues

KEPT = -1
"""Fate of a row that is left."""
BY_TRAINING = 0
"""Fate of a row that training itself drops: its decisions are of no step of the recipe."""
_SLUGS = pa.dictionary(pa.int32(), pa.string())
_FIXED = {
    "response_id": pa.string(),
    "prompt_id": pa.string(),
    "fate": pa.int16(),
    "reason": _SLUGS,
    "data_source": _SLUGS,
    "verdict": _SLUGS,
    "finish_reason": _SLUGS,
    "tokens": pa.int64(),
    "characters": pa.int64(),
    "reward": pa.float64(),
    "advantage": pa.float64(),
    "loss_weight": pa.float64(),
    POLICY_AGE: pa.float64(),
    "masked_tokens": pa.float64(),
}
_TOKEN_IDS = "response_token_ids"
_MEASURED: Mapping[str, tuple[str, Callable[[pa.DataType], bool], Callable[[Any], Any]]] = {
    "tokens": (_TOKEN_IDS, is_list, pc.list_value_length),
    "characters": ("response", is_text, pc.utf8_length),
    "masked_tokens": ("token_weight", is_list, share_of_zeros),
}
"""What the table has of each row instead of a column, and how it is computed."""
_ROUNDING = 1e-9
"""By so much the sum of contributions may differ from a reward on file."""
_REWARD, _MISSING, _CONTRIBUTION = "reward_", "_missing", "contribution_"


class RowTable(NamedTuple):
    """One line for each row as sampled, in that order; axis _N.

    A row that a step adds later, such as a verification prompt, has a line behind those of its
    part. A dropped row keeps what it had when it was dropped.
    """

    # `response_id`, `prompt_id`; `fate`, int16: the number of the step that dropped the row, `KEPT`
    # or `BY_TRAINING`; `reason`, why; `data_source`, that of the dataset; `verdict`, of a
    # judgement whether it is the label (`no_answer` without one); `finish_reason`; `tokens` of the
    # response, null without token ids; its `characters`, null in all rows where each response has
    # token ids; `reward`, `advantage`; `policy_age`, in training steps; and for each component c
    # `reward_c`, `reward_c_missing` and `contribution_c`, float64: what it adds to the reward, null
    # where it is missing or nothing was summed. Where no reward is missing, contributions in the
    # order of `weights` sum to it, from 0, to the bit.
    table: pa.Table
    groups: Groups  # by `prompt_id`
    # names, those of the reward's weights first and in their order, then others that the steps
    # wrote; where no step is on file, those of all columns
    components: tuple[str, ...]
    # whether dropped rows are among them: where what steps did is not on file, they are not
    with_dropped: bool = True

    @property
    def kept_N(self) -> NDArray[np.bool_]:
        kept_N: NDArray[np.bool_] = np.asarray(self.table["fate"]) == KEPT
        return kept_N

    @property
    def unit(self) -> str:
        """The unit of lengths: `tokens`, or `characters` where some response has no token ids.

        Responses of a chat server have none.
        """
        tokens_N, characters_N = (
            np.asarray(self.table[name].is_valid()) for name in ("tokens", "characters")
        )
        known = tokens_N.any() and not (characters_N & ~tokens_N).any()
        return "tokens" if known else "characters"

    @property
    def lengths_N(self) -> NDArray[np.int32]:
        """-1 where there is no response."""
        return np.array(pc.fill_null(self.table[self.unit], -1), np.int32)

    @property
    def has_response_N(self) -> NDArray[np.bool_]:
        """Verification prompts, which a step adds, have none."""
        found_N: NDArray[np.bool_] = self.lengths_N >= 0
        return found_N

    def first(self, n: int) -> RowTable:
        """The first rows: of one part, those that were sampled, without what was added later."""
        table = self.table.slice(0, n)
        return self._replace(table=table, groups=_groups(table))


def row_table(base: Frame, applied: Iterable[AppliedStep]) -> RowTable:
    """What steps made of the rows of `base`."""
    return rows_of([WrittenValues.of(base, applied)])


def written_values(stored: StoredSet) -> list[WrittenValues]:
    """What steps wrote in each part of a set; where that is not on file, the rows that are left."""
    if stored.incomplete:
        return [_rows_left(stored)]
    parts = [WrittenValues.of(stored.base(at), stored.applied(at)) for at in range(stored.parts)]
    if stored.training_step is not None:
        for part in parts:
            _drop_by_training(part, stored)
    return parts


def stored_rows(stored: StoredSet, values: Sequence[WrittenValues] | None = None) -> RowTable:
    """What became of every row of a set; `values` are its `written_values`.

    Where what steps did is not on file, the rows are those that are left; contributions are there
    where they can be computed from these, and add up to the rewards.
    """
    rows = rows_of(written_values(stored) if values is None else values)
    return rows._replace(with_dropped=not stored.incomplete)


def joined_rows(tables: Sequence[RowTable]) -> RowTable:
    """The rows of several sets in one table, with the groups that each has."""
    sizes_G = np.concatenate([each.groups.sizes_G for each in tables])
    codes_N = np.repeat(np.arange(len(sizes_G)), sizes_G)
    names = dict.fromkeys(name for each in tables for name in each.components)
    table = pa.concat_tables([each.table for each in tables], promote_options="default")
    groups = Groups(np.cumsum(sizes_G) - sizes_G, codes_N, sizes_G)
    with_dropped = all(each.with_dropped for each in tables)
    return RowTable(table.unify_dictionaries(), groups, tuple(names), with_dropped)


def _drop_by_training(part: WrittenValues, stored: StoredSet) -> None:
    """Take from the decisions what training itself dropped."""
    names = pa.array([step.name for step in stored.steps], pa.string())
    decisions = stored.decisions()
    own = decisions.filter(pc.invert(pc.is_in(decisions["step"], value_set=names)))
    known = flat(part.joined("response_id", _cast("response_id", pa.string())))
    lines = pc.index_in(own["row_id"].cast(pa.string()), value_set=known, skip_nulls=True)
    lines_K = np.asarray(lines.drop_null()).astype(np.int64)
    part.drop(lines_K, BY_TRAINING, own["reason"].filter(lines.is_valid()))


def _rows_left(stored: StoredSet) -> WrittenValues:
    """The rows that are left; what components add is there if it adds up to their rewards."""
    final = stored.final()
    part = WrittenValues(Frame.of(final))
    reward_N = np.asarray(pc.fill_null(_column(part, "reward", pa.float64()), np.nan))
    lines_N = np.flatnonzero(np.isfinite(reward_N))
    rewarded = Frame.of(final.take(pa.array(lines_N)))
    with suppress(RejuiceError, KeyError):  # A column is not exported, or a component is missing.
        for step in stored.steps:
            if isinstance(step.operator, RewardSumMapper):
                part.sum_up(step.operator, rewarded, lines_N)
        added = [
            pc.fill_null(part.column(f"{part.CONTRIBUTION}{name}", pa.float64()), 0.0)
            for name in part.weights
        ]
        gaps_N = (np.sum(added, 0) - reward_N)[lines_N] if added else reward_N
        if np.all(np.abs(gaps_N) < _ROUNDING):
            return part
    return WrittenValues(Frame.of(final))


def rows_of(parts: Sequence[WrittenValues]) -> RowTable:
    names = tuple(dict.fromkeys(name for part in parts for name in _components(part)))
    # Texts are most of a dataset: they are read only where a response has no token ids.
    with_texts = not all(_has_token_ids(part.base) for part in parts)
    tables = [_table(part, names, with_texts) for part in parts]
    table = pa.concat_tables(tables).unify_dictionaries()
    return RowTable(table, _groups(table), names)


def _table(part: WrittenValues, components: Sequence[str], with_texts: bool) -> pa.Table:
    found = {name: _column(part, name, kind) for name, kind in _FIXED.items()}
    fate = part.column(part.FATE, pa.int16())
    found["fate"] = pc.fill_null(fate, pa.scalar(KEPT, pa.int16()))
    found["reason"] = part.column(part.REASON, pa.string())
    found["verdict"] = pc.coalesce(part.column(part.VERDICT, pa.string()), found["verdict"])
    for name, (column, fits, measure) in _MEASURED.items():
        found[name] = pa.nulls(part.rows, pa.int64())
        if with_texts or column != "response":
            found[name] = flat(part.joined(column, _measured(fits, measure, _FIXED[name])))
    if "turn_advantage" in part.written or "advantage" not in part.written:
        of_turns = part.joined("turn_advantage", _measured(is_list, mean_of_lists, pa.float64()))
        found["advantage"] = pc.coalesce(flat(of_turns), found["advantage"])
    kinds = dict(_FIXED)
    for name in components:
        value, missing = component_columns(name)
        kinds |= {value: pa.float64(), missing: _SLUGS, f"{_CONTRIBUTION}{name}": pa.float64()}
        found[value] = _column(part, value, pa.float64())
        found[missing] = _column(part, missing, _SLUGS)
        added = part.column(f"{part.CONTRIBUTION}{name}", pa.float64())
        found[f"{_CONTRIBUTION}{name}"] = added
    columns = [
        found[name].dictionary_encode() if kind == _SLUGS else found[name]
        for name, kind in kinds.items()
    ]
    return pa.table(columns, schema=pa.schema(list(kinds.items())))


def _column(part: WrittenValues, name: str, kind: pa.DataType) -> pa.Array:
    plain = pa.string() if kind == _SLUGS else kind
    return flat(part.joined(name, _cast(name, plain)))


def _cast(name: str, kind: pa.DataType) -> Join:
    return _measured(lambda given: _fits(name, given), lambda piece: piece, kind)


def _measured(
    fits: Callable[[pa.DataType], bool], measure: Callable[[Any], Any], kind: pa.DataType
) -> Join:
    """Join pieces after computing something of each; users may use the same names for others."""

    def join(pieces: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        found = [
            flat(measure(each).cast(kind, safe=False)) if fits(each.type) else pa.nulls(n, kind)
            for each, n in ((each, len(each)) for each in pieces)
        ]
        return pa.chunked_array(found, kind)

    return join


def _fits(name: str, kind: pa.DataType) -> bool:
    wanted = _FIXED.get(name) or (pa.string() if name.endswith(_MISSING) else pa.float64())
    if pa.types.is_null(kind):
        return True
    if not pa.types.is_floating(wanted):
        return is_text(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type))
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in numeric)


def _has_token_ids(base: Frame) -> bool:
    """Whether each response has token ids; a row without a response needs none."""
    names = base.column_names
    if _TOKEN_IDS not in names or not is_list(base.schema.field(_TOKEN_IDS).type):
        return False
    ids = base.select([_TOKEN_IDS])[_TOKEN_IDS]
    if not ids.null_count or "response" not in names:
        return True
    alone = pc.and_(ids.is_null(), base.select(["response"])["response"].is_valid())
    return not pc.any(alone).as_py()


def _groups(table: pa.Table) -> Groups:
    """By `prompt_id`; rows without any are groups of one."""
    n = table.num_rows
    if n and table["prompt_id"].null_count == n:
        return Groups(np.arange(n), np.arange(n), np.ones(n, np.int64))
    return Groups.of(table)


def _components(part: WrittenValues) -> Iterator[str]:
    """Weights first, then what has both columns of a component.

    Of a judgement, the base has components of the answer that it is about: without a weight, only
    what steps wrote counts.
    """
    yield from part.weights
    names = part.written if part.inputs else part.columns
    for name in names:
        short = name.removeprefix(_REWARD)
        if name.startswith(_REWARD) and component_columns(short)[1] in names:
            yield short
