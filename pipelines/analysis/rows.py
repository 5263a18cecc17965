"""What became of each row: one line per row as sampled, from numbers and short words only.

base ──step──> change ──> lines: values as last written, fate, reason, contributions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...operators import Change, RejuiceError
from ...operators.columns import (
    common_type,
    component_columns,
    flat,
    is_list,
    is_text,
    mean_of_lists,
    share_of_zeros,
)
from ...operators.groups import Groups
from ...operators.importance import POLICY_AGE
from ...operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import surviving_rows
from ..engine.conditional_step import matching_rows
from ..engine.frame import Frame
from ..engine.steps import AppliedStep, StepResult
from .stored import StoredSet

# --- Lines that follow rows through changes, and keep what was last written to each ---

Numbers = NDArray[np.int64]


Join = Callable[[Sequence[pa.ChunkedArray]], pa.ChunkedArray]


class Lines:
    """A line for each row there ever was, by number.

    Attributes:
        current_N: int64[N], the line of each row that is there now.
        rows: how many lines there are.

    Args:
        rows: how many rows there are at first; their lines are 0 to rows - 1.
    """

    def __init__(self, rows: int) -> None:
        self.current_N: Numbers = np.arange(rows)
        self.rows = rows
        # By column what was written, piece by piece, and where in that the value of each line is.
        self._pieces: dict[str, list[pa.ChunkedArray]] = {}
        self._places: dict[str, Numbers] = {}

    @property
    def names(self) -> list[str]:
        """What was written, in the order in which it was first written."""
        return list(self._pieces)

    def follow(self, change: Change) -> None:
        """Go on with the rows that a change leaves, and with those that it adds.

        The first child of a row stays on its line; each other one begins as a copy of it.
        """
        rows_N = surviving_rows(change, len(self.current_N))
        if rows_N is None:
            return
        parent_N = np.append(self.current_N, -1)[rows_N]  # Row -1 has line -1.
        if change.parents is None:
            self.current_N = parent_N
            return
        first_N = np.zeros(len(rows_N), bool)
        first_N[np.unique(rows_N, return_index=True)[1]] = True
        own_N = first_N & (rows_N >= 0)
        for name, place_L in self._places.items():
            copied_K = np.append(place_L, -1)[parent_N[~own_N]]
            self._places[name] = np.concatenate([place_L, copied_K])
        added = int((~own_N).sum())
        self.current_N = np.where(own_N, parent_N, 0)
        self.current_N[~own_N] = np.arange(self.rows, self.rows + added)
        self.rows += added

    def write(self, lines_K: Numbers, name: str, column: Any) -> None:
        """Write values to some lines, over what they had."""
        pieces = self._pieces.setdefault(name, [])
        place_L = self._places.setdefault(name, np.full(self.rows, -1))
        place_L[lines_K] = sum(map(len, pieces)) + np.arange(len(lines_K))
        chunked = isinstance(column, pa.ChunkedArray)
        pieces.append(column if chunked else pa.chunked_array([column]))

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.Array:
        """Return what each line has, as an array; null where nothing was written."""

        def cast(pieces: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
            wanted = kind or common_type(piece.type for piece in pieces)
            found = [flat(piece.cast(wanted, safe=False)) for piece in pieces]
            return pa.chunked_array(found, wanted)

        if name not in self._pieces:
            return pa.nulls(self.rows, kind or pa.null())
        return flat(self.joined(name, cast))

    def joined(self, name: str, join: Join) -> pa.ChunkedArray:
        """Return what each line has of a column, the pieces of which are put together by `join`."""
        place_L = self._places[name]
        return join(self._pieces[name]).take(pa.array(place_L, mask=place_L < 0))


# --- Rows -----------------------------------------------------------------------------

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
_MADE_HERE = frozenset({"fate", "reason", "tokens", "characters", "masked_tokens"})
_COPIED = _FIXED.keys() - _MADE_HERE
_TOKEN_IDS = "response_token_ids"
_OF_TURNS = "turn_advantage"
_MEASURED: Mapping[str, tuple[str, Callable[[pa.DataType], bool], Callable[[Any], Any]]] = {
    _TOKEN_IDS: ("tokens", is_list, pc.list_value_length),
    "response": ("characters", is_text, pc.utf8_length),
    _OF_TURNS: ("advantage", is_list, mean_of_lists),
    "token_weight": ("masked_tokens", is_list, share_of_zeros),
}
"""Columns of which the table has a figure of each row: as what, and how it is computed."""
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
        """Which rows are left."""
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
        """The length of each response, -1 where there is none."""
        return np.array(pc.fill_null(self.table[self.unit], -1), np.int32)

    @property
    def has_response_N(self) -> NDArray[np.bool_]:
        """Which rows have a response; verification prompts, which a step adds, have none."""
        found_N: NDArray[np.bool_] = self.lengths_N >= 0
        return found_N

    @property
    def has_contributions(self) -> bool:
        """Whether it is known what components add to the rewards."""
        columns = (self.table[f"{_CONTRIBUTION}{name}"] for name in self.components)
        return any(column.null_count < len(column) for column in columns)

    def first(self, n: int) -> RowTable:
        """The first rows: of one part, those that were sampled, without what was added later."""
        table = self.table.slice(0, n)
        return self._replace(table=table, groups=_groups(table))


def row_table(base: Frame, applied: Iterable[AppliedStep]) -> RowTable:
    """Return what steps made of the rows of `base`."""
    return _finished([_replayed(base, applied, _need_texts([base]))])


def stored_rows(stored: StoredSet) -> RowTable:
    """Return what became of every row of a set.

    Where what steps did is not on file, the rows are those that are, with the values of those that
    are left; contributions are there where they can be computed from these, and add up to the
    rewards.
    """
    if stored.incomplete:
        return _finished([_rows_left(stored)])._replace(with_dropped=False)
    texts = _need_texts(stored.base(at) for at in range(stored.parts))
    parts = [_replayed(stored.base(at), stored.applied(at), texts) for at in range(stored.parts)]
    if stored.training_step is not None:
        for part in parts:
            part.drop_by_training(stored)
    return _finished(parts)


def joined_rows(tables: Sequence[RowTable]) -> RowTable:
    """Return the rows of several sets in one table, with the groups that each has."""
    sizes_G = np.concatenate([each.groups.sizes_G for each in tables])
    codes_N = np.repeat(np.arange(len(sizes_G)), sizes_G)
    names = dict.fromkeys(name for each in tables for name in each.components)
    table = pa.concat_tables([each.table for each in tables], promote_options="default")
    groups = Groups(np.cumsum(sizes_G) - sizes_G, codes_N, sizes_G)
    with_dropped = all(each.with_dropped for each in tables)
    return RowTable(table.unify_dictionaries(), groups, tuple(names), with_dropped)


class _PartRows:
    """The lines of a part, while steps are applied to it."""

    def __init__(self, base: Frame, with_texts: bool) -> None:
        self.lines = Lines(base.num_rows)
        self.weights: dict[str, None] = {}
        self.made: dict[str, None] | None = None
        """Columns that steps wrote; None before the first step."""
        rows_N = np.arange(base.num_rows)
        self._with_texts = with_texts
        for name in base.column_names:
            if self._is_wanted(name):
                self._write(rows_N, name, base.select([name])[name])

    def apply(self, each: AppliedStep) -> None:
        """Record what a step did."""
        change, operator = each.result.change, each.step.operator
        self.made = {**(self.made or {}), **dict.fromkeys(change.columns)}
        if change.reasons is not None:
            rows_N = np.flatnonzero(np.asarray(change.reasons.is_valid()))
            self._drop(self.lines.current_N[rows_N], each.step.number, change.reasons.drop_null())
        if isinstance(operator, RewardSumMapper) and each.before.num_rows:
            own_N = matching_rows(operator, each.before)
            table = each.before.select(operator.reads_of(each.before.column_names))
            table = table if operator.where is None else table.take(pa.array(own_N))
            self._contributions(operator, table, self.lines.current_N[own_N])
        before_N = self.lines.current_N
        self.lines.follow(change)
        lines_N = before_N if change.parents is None else self.lines.current_N
        for name, column in change.columns.items():
            if self._is_wanted(name):
                self._write(lines_N, name, column)
        if isinstance(operator, JudgementRewardMapper) and each.before.num_rows:
            rows_N, verdicts = _verdicts_of_judgements(each)
            self.lines.write(lines_N[rows_N], "verdict", verdicts)

    def drop_by_training(self, stored: StoredSet) -> None:
        """Take from the decisions what training itself dropped."""
        names = pa.array([step.name for step in stored.steps], pa.string())
        decisions = stored.decisions()
        own = decisions.filter(pc.invert(pc.is_in(decisions["step"], value_set=names)))
        known = self.lines.column("response_id", pa.string())
        lines = pc.index_in(own["row_id"].cast(pa.string()), value_set=known, skip_nulls=True)
        lines_K = np.asarray(lines.drop_null()).astype(np.int64)
        self._drop(lines_K, BY_TRAINING, own["reason"].filter(lines.is_valid()))

    def _drop(self, lines_K: NDArray[np.int64], fate: Any, reasons: Any) -> None:
        fate_K = np.broadcast_to(np.asarray(fate, np.int16), lines_K.shape)
        self.lines.write(lines_K, "fate", pa.array(fate_K))
        self.lines.write(lines_K, "reason", reasons)

    def _contributions(
        self, operator: RewardSumMapper, table: pa.Table, lines_N: NDArray[np.int64]
    ) -> None:
        rows_N = np.flatnonzero(operator.summed(table))
        self.weights.update(dict.fromkeys(operator.weights))
        found = operator.contributions(table)
        for name in self.weights:  # A sum that replaces an earlier one replaces its parts.
            nothing_N = np.full(table.num_rows, np.nan)
            value_N = found.get(name, nothing_N)[rows_N]
            values = pa.array(value_N, mask=np.isnan(value_N))
            self.lines.write(lines_N[rows_N], f"{_CONTRIBUTION}{name}", values)

    def _is_wanted(self, name: str) -> bool:
        if name in _MEASURED:
            return self._with_texts or name != "response"
        return name in _COPIED or name.startswith(_REWARD)

    def _write(self, lines_N: NDArray[np.int64], name: str, column: Any) -> None:
        if name in _MEASURED:
            target, fits, measure = _MEASURED[name]
            if not fits(column.type):
                return
            column = measure(column)
            if name == _OF_TURNS:  # Elsewhere, that of the row counts.
                lines_N, column = lines_N[np.asarray(column.is_valid())], column.drop_null()
            self.lines.write(lines_N, target, column)
        elif _fits(name, column.type):
            self.lines.write(lines_N, name, column)


def _verdicts_of_judgements(each: AppliedStep) -> tuple[NDArray[np.int64], pa.Array]:
    """Return which rows have a rewarded judgement, and whether it is the label."""
    columns = each.result.change.columns
    rewarded = pc.is_null(flat(columns[component_columns("verification")[1]]))
    judgement = flat(columns["judgement"])
    right = pc.equal(judgement, flat(each.before.select(["label"])["label"]).cast(pa.string()))
    graded = pc.if_else(right, "correct", "wrong_answer")
    verdicts = pc.if_else(pc.is_null(judgement), "no_answer", graded)
    return np.flatnonzero(np.asarray(rewarded)), verdicts.filter(rewarded)


def _rows_left(stored: StoredSet) -> _PartRows:
    """The rows that are left; what components add is there if it adds up to their rewards."""
    left = Frame.of(stored.final())
    part, again = (_PartRows(left, _need_texts([left])) for _ in range(2))
    reward_N = np.asarray(pc.fill_null(part.lines.column("reward", pa.float64()), np.nan))
    again.lines.current_N = np.flatnonzero(np.isfinite(reward_N))
    rewarded = Frame.of(stored.final().take(pa.array(again.lines.current_N)))
    unchanged = StepResult(Change(), rewarded.num_rows)
    with suppress(RejuiceError, KeyError):  # A column is not exported, or a component is missing.
        for step in stored.steps:
            if isinstance(step.operator, RewardSumMapper):
                again.apply(AppliedStep(step, rewarded, unchanged, rewarded))
        again.made = None
        names = [f"{_CONTRIBUTION}{name}" for name in again.weights]
        added = [pc.fill_null(again.lines.column(name, pa.float64()), 0.0) for name in names]
        gaps_N = (np.sum(added, 0) - reward_N)[again.lines.current_N] if added else reward_N
        return again if np.all(np.abs(gaps_N) < _ROUNDING) else part
    return part


def _need_texts(bases: Iterable[Frame]) -> bool:
    """Whether responses are measured in characters: texts, which are most of a dataset, are read
    only where a response has no token ids."""
    return not all(map(_has_token_ids, bases))


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


def _fits(name: str, kind: pa.DataType) -> bool:
    """Whether a column of that type can be a column of the table: users may use the same names."""
    wanted = _FIXED.get(name) or (pa.string() if name.endswith(_MISSING) else pa.float64())
    if pa.types.is_null(kind):
        return True
    if not pa.types.is_floating(wanted):
        return is_text(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type))
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in numeric)


def _replayed(base: Frame, applied: Iterable[AppliedStep], with_texts: bool) -> _PartRows:
    part = _PartRows(base, with_texts)
    for each in applied:
        part.apply(each)
    return part


def _finished(parts: list[_PartRows]) -> RowTable:
    names = list(dict.fromkeys(name for part in parts for name in _components(part)))
    columns = dict(_FIXED)
    for name in names:
        value, missing = component_columns(name)
        columns |= {value: pa.float64(), missing: _SLUGS, f"{_CONTRIBUTION}{name}": pa.float64()}
    tables = [_table(part.lines, columns) for part in parts]
    table = pa.concat_tables(tables).unify_dictionaries()
    return RowTable(table, _groups(table), tuple(names))


def _groups(table: pa.Table) -> Groups:
    """By `prompt_id`; rows without any are groups of one."""
    n = table.num_rows
    if n and table["prompt_id"].null_count == n:
        return Groups(np.arange(n), np.arange(n), np.ones(n, np.int64))
    return Groups.of(table)


def _components(part: _PartRows) -> Iterator[str]:
    """Weights first, then what has both columns of a component.

    Of a judgement, the base has components of the answer that it is about: without a weight, only
    what steps wrote counts.
    """
    yield from part.weights
    names = part.lines.names if part.made is None else part.made
    for name in names:
        short = name.removeprefix(_REWARD)
        if name.startswith(_REWARD) and component_columns(short)[1] in names:
            yield short


def _table(lines: Lines, columns: dict[str, pa.DataType]) -> pa.Table:
    found = {}
    for name, kind in columns.items():
        plain = pa.string() if kind == _SLUGS else kind
        column = lines.column(name, plain)
        if name == "fate":
            column = pc.fill_null(column, pa.scalar(KEPT, pa.int16()))
        found[name] = flat(column).dictionary_encode() if kind == _SLUGS else column
    return pa.table(found, schema=pa.schema(list(columns.items())))
