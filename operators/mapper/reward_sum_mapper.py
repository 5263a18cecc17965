"""Sum reward components into the single reward that the trainer uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import (
    NOT_APPLICABLE,
    BoolArray,
    as_numbers,
    component_columns,
    flat,
    is_text,
    numbers,
    of_task,
    right_and_wrong,
)
from ..config import Weight, weight_at
from ..errors import DataError
from ..groups import Array, Groups
from ..operator import Change, Columns, Operator, Scope, drop

RewardGate = Literal["only_correct", "mixed_groups_only"]
OnMissing = Literal["fail", "drop_row", "drop_group", "group_mean"]
NO_COMPONENT = "no reward component is for the row: the `where` of none matches it"
"""What the reason `no_component` means."""


class SummedComponent(NamedTuple):
    """One component of the sum. It counts in a row where its weight is not 0 and its gate open."""

    value_N: Array  # float64, its values, or their substitute; 0 where it does not count
    missing_N: Array  # bool, whether it counts, is missing and has no substitute
    filled: int  # in how many rows the group mean is substituted


class RewardSumMapper(Operator):
    """Write `reward`, float64[N]: the weighted sum of the components named in `weights`.

    A component counts in a row if its weight is not 0, its gate is open, and the `where` of the
    step that wrote it matches the row; otherwise it adds 0, and cannot be missing. A component that
    counts is missing if its value is null or not finite, or its `_missing` column has a reason;
    `on_missing` decides what happens to the row. The reward of a row with a missing component is
    null, and so is that of a row that no component is for, as the `where` of none matches it.

    With `task`, only rows of that task are summed and only they can be dropped; the others keep
    their reward, do not count in a group's mean and do not make a group mixed. So generation and
    verification, each summed in its own step, never mix in one reward.

    The sum is `((0 + w1 c1) + w2 c2) + ...` in float64, in the order of `weights`, so the same
    components give bit-identical rewards offline and in training.

    Raises:
        DataError: a component is missing, or none is for a row, and `on_missing` is `fail`.
    """

    weights: dict[str, Weight] = Field(min_length=1)
    """Weight of each component: a number, or `{from: 0.5, to: 0.3, kind: linear}` (or `cosine`)
    for one that changes over training. Component `quality` is the column `reward_quality`, of a
    step or of the dataset: `columns: {score: reward_quality}` names a number of its rows so, also
    one that is text (`"4"`, `"N/A"`), or a boolean, such as the `label` of KTO."""
    gates: dict[str, RewardGate] = Field({})
    """Where a component counts, if not everywhere: `only_correct` in responses whose verdict is
    `correct`; `mixed_groups_only` in groups with both right and wrong responses."""
    on_missing: OnMissing = "fail"
    """What to do if a component is missing: end the run, drop the row, drop the whole group, or
    substitute its mean over the group's other responses in which it counts (drop the group if there
    is none). For a row that no component is for there is no substitute."""
    task: Literal["generate", "verify"] | None = None
    """Sum only in rows of this task. Null: in all rows; the column `task` is then not read."""
    progress: float = Field(0.0, ge=0, le=1)
    """Progress of training, from 0 to 1, for weights with a schedule. Offline it is taken from the
    recipe; the trainer sets it at each step by `model_copy`."""

    scope: ClassVar[Scope] = Scope.GROUP
    reasons: ClassVar[Mapping[str, str]] = {
        "missing_component": "a reward component is missing and has no substitute",
        "no_component": NO_COMPONENT,
    }

    @model_validator(mode="after")
    def _gates_have_weights(self) -> Self:
        for name in self.gates:
            if name not in self.weights:
                raise ValueError(f"gates contain '{name}', which has no weight")
        return self

    def reads(self) -> Columns:
        values = [component_columns(name)[0] for name in self.weights]
        gated = ("verdict",) if self.gates else ()
        own = () if self.task is None else ("task", "reward")
        return ("prompt_id", *values, *gated, *own)

    def optional_reads(self) -> Mapping[str, str]:
        # A number of the dataset has no column of reasons: it is missing where it is null.
        return {missing: value for value, missing in map(component_columns, self.weights)}

    def writes(self) -> Columns:
        return ("reward",)

    def apply(self, table: pa.Table) -> Change:
        parts, without_N = self.components(table), self.without_component(table)
        reward_N = np.zeros(table.num_rows)
        for name, part in parts.items():
            reward_N += self.weight(name) * part.value_N
        missing_N = np.any([part.missing_N for part in parts.values()], axis=0)
        reward = pa.array(reward_N, pa.float64(), mask=missing_N | without_N)
        if self.task is not None:
            kept = as_numbers(flat(table["reward"]), "column 'reward'")
            reward = pc.if_else(pa.array(self.summed(table)), reward, kept)
        masks = {"missing_component": missing_N, "no_component": without_N}
        reasons = drop({reason: self.dropped(table, mask) for reason, mask in masks.items()})
        notes = dict[str, float]()
        for name, part in parts.items():
            notes[f"missing_{name}"] = int(part.missing_N.sum()) + part.filled
            notes[f"group_mean_{name}"] = part.filled
        return Change({"reward": reward}, reasons, notes={k: n for k, n in notes.items() if n})

    def contributions(self, table: pa.Table) -> dict[str, Array]:
        """What each component adds to the reward, float64[N] by its name, in the order of the sum.

        Added up in that order, from 0, they are the reward to the bit, where it is not missing. A
        component that does not count in a row adds 0. nan: the component is missing there and has
        no substitute, no component is for the row, or it is of another task and not summed. The
        table has whole groups, and is refused where `apply` refuses it.
        """
        not_N = self.without_component(table) | ~self.summed(table)
        # A weight below 0 makes -0.0 of a component that does not count: + 0.0 makes it 0.0.
        return {
            name: np.where(part.missing_N | not_N, np.nan, self.weight(name) * part.value_N + 0.0)
            for name, part in self.components(table).items()
        }

    def components(self, table: pa.Table) -> dict[str, SummedComponent]:
        """What the sum is made of, by the names of the components, in its order. The table
        has whole groups; a DataError if a component is missing and `on_missing` is `fail`."""
        groups, summed_N = Groups.of(table), self.summed(table)
        return {name: self._component(table, groups, summed_N, name) for name in self.weights}

    def dropped(self, table: pa.Table, missing_N: BoolArray) -> BoolArray:
        """The rows that are dropped where these have no reward, as `on_missing` says."""
        if self.on_missing == "drop_row" or not missing_N.any():
            return missing_N
        groups = Groups.of(table)
        return np.asarray((groups.sum(missing_N) > 0)[groups.codes_N] & self.summed(table))

    def without_component(self, table: pa.Table) -> BoolArray:
        """The rows to sum that no component is for, bool[N]. Weights do not matter: one that
        becomes 0 leaves the reward of its rows at 0. A DataError if there is one and
        `on_missing` is `fail`."""
        without_N = self.summed(table)
        for name in self.weights:
            _, reason_column = component_columns(name)
            if reason_column not in table.column_names:
                return np.zeros(table.num_rows, bool)
            without_N &= _not_applicable(table[reason_column])
        if self.on_missing == "fail" and without_N.any():
            raise _none_applies(table, tuple(self.weights), int(np.flatnonzero(without_N)[0]))
        return without_N

    def weight(self, name: str) -> float:
        """The weight of component `name` at the current `progress`."""
        return weight_at(self.weights[name], self.progress)

    def summed(self, table: pa.Table) -> BoolArray:
        """Which rows are summed, bool[N]: all, or those of `task`."""
        if self.task is None:
            return np.ones(table.num_rows, bool)
        return of_task(table, self.task)

    def _component(
        self, table: pa.Table, groups: Groups, summed_N: Array, name: str
    ) -> SummedComponent:
        column, reason_column = component_columns(name)
        value_N = numbers(table, column)
        present_N = np.isfinite(value_N)
        counts_N = self._counts(table, groups, summed_N, name)
        if reason_column in table.column_names:
            reasons = table[reason_column]
            present_N &= np.asarray(pc.is_null(reasons))
            counts_N = counts_N & ~_not_applicable(reasons)
        lacking_N = counts_N & ~present_N
        value_N = np.where(present_N & counts_N, value_N, 0.0)
        if lacking_N.any() and self.on_missing == "fail":
            raise _missing(table, groups, name, lacking_N, summed_N)
        if not lacking_N.any() or self.on_missing != "group_mean":
            return SummedComponent(value_N, lacking_N, 0)
        mean_N = groups.mean(value_N, counts_N & present_N)[groups.codes_N]
        filled_N = lacking_N & ~np.isnan(mean_N)
        value_N = np.where(filled_N, mean_N, value_N)
        return SummedComponent(value_N, lacking_N & ~filled_N, int(filled_N.sum()))

    def _counts(self, table: pa.Table, groups: Groups, summed_N: Array, name: str) -> Array:
        if self.weight(name) == 0:
            return np.zeros(table.num_rows, bool)
        gate = self.gates.get(name)
        if gate is None:
            return summed_N
        correct_N, wrong_N = (mask_N & summed_N for mask_N in right_and_wrong(table["verdict"]))
        if gate == "only_correct":
            return correct_N
        mixed_G = (groups.sum(correct_N) > 0) & (groups.sum(wrong_N) > 0)
        return mixed_G[groups.codes_N] & summed_N


def _not_applicable(reasons: pa.ChunkedArray) -> BoolArray:
    """In which rows a component is not meant to be."""
    if not is_text(reasons.type):
        return np.zeros(len(reasons), bool)
    return np.asarray(pc.fill_null(pc.equal(reasons, NOT_APPLICABLE), False))


def _missing(
    table: pa.Table, groups: Groups, name: str, lacking_N: Array, summed_N: Array
) -> DataError:
    column, reason_column = component_columns(name)
    row = int(np.flatnonzero(lacking_N)[0])
    there = reason_column in table.column_names
    reason = table[reason_column][row].as_py() if there else None
    prompt = table["prompt_id"][row].as_py()
    detail = reason or ("no reason given" if table[column][row].as_py() is None else "not finite")
    index = int(groups.position()[row])
    found = f"{column} is missing ({detail}) for response {index} of prompt '{prompt}'"
    right = "set on_missing to drop_row, drop_group or group_mean to go on without it"
    prompts = len(np.unique(groups.codes_N[summed_N]))
    if prompts > 1 and lacking_N[summed_N].all():  # No row is at fault.
        found += f", and for all others of {prompts:,} prompts"
        right = f"look first at the step that writes {column}, or {right}"
    return DataError(found, right)


def _none_applies(table: pa.Table, names: Sequence[str], row: int) -> DataError:
    index = int(Groups.of(table).position()[row])
    prompt = table["prompt_id"][row].as_py()
    columns = " and ".join(component_columns(name)[0] for name in names)
    other = "is for other rows" if len(names) == 1 else "are for other rows"
    return DataError(
        f"no reward component is for response {index} of prompt '{prompt}': {columns} {other}",
        "correct the `where` of the steps that write them, add a component for such rows, or set "
        "on_missing to drop_row or drop_group to go on without them",
    )
