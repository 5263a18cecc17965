"""The advantage of each turn of a trajectory, where one for all of them is too coarse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..agents.trajectory import POLICY
from ..arrow_compute import pc
from ..columns import flat, is_list, is_text, lists_of, numbers
from ..errors import DataError
from ..groups import Array, Groups, hash_each, mix
from ..operator import Change, Columns, Operator, Scope, ScopeByField, drop

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class TurnAdvantageMapper(Operator):
    """Write `turn_advantage`, list<float64>[N]: one number for each turn of the policy.

    A trajectory has T turns of the policy, t from 0. G_t is what follows of its rewards: r_t +
    gamma r_(t+1) + ..., where r_t is that of the turn in the column `turn_rewards`, if it is given,
    and the last turn also has the number in `outcome`.

    `outcome`: gamma^(T - 1 - t) times `advantage`, which a step before has written: the last turns
    get most of it.

    `returns`: G_t minus the mean G_t of the group's other trajectories that have a turn t; of a
    turn that no other has, G_t. This baseline is unbiased where numbers of turns differ: it depends
    on t and on other trajectories, and on nothing that the policy does from turn t on. Centring the
    r_t of each turn and adding them up is not: how many means are subtracted depends on when the
    policy stops, so that it is paid or fined for going on (verl's RFC 7244).

    `states`: GiGPO (https://arxiv.org/abs/2505.10978), `advantage` + step_weight times (G_t minus
    the mean G of all turns of the group in the same state), its form without deviations. The state
    of a turn is the column `states`, or what was observed since the turn of the policy before: all
    first turns of a group have the same. A turn that is alone in its state adds 0.

    A trajectory without turns, without what its style needs, or with a turn whose reward is null
    has no turn_advantage (null), and is in no mean.

    Raises:
        DataError: a list has another length than the trajectory has turns of the policy.
    """

    style: Literal["outcome", "returns", "states"] = "outcome"
    """How turns get credit."""
    gamma: float = Field(1.0, gt=0, le=1)
    """What a turn later counts less by; GiGPO has 0.95."""
    turn_rewards: str | None = None
    """For `returns` and `states`: a column with a list of numbers, one for each turn of the policy,
    as a tool or a verifier gives them. Null: turns have no rewards of their own."""
    outcome: str | None = "reward"
    """For `returns` and `states`: the column of numbers that the last turn gets. Null: none."""
    states: str | None = None
    """For `states`: a column with a list of strings, one for each turn of the policy: equal ones
    are the same state. Null: what was observed."""
    step_weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """For `states`: the weight of the comparison within states, GiGPO's omega."""

    scope = ScopeByField("style", Scope.GROUP, {"outcome": Scope.ROW})
    reasons: ClassVar[Mapping[str, str]] = {
        "no_turn_rewards": "no trajectory of the group has turns and all of their rewards",
        "group_of_one": "only one trajectory of the group has turns and all of their rewards",
    }

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.style == "outcome" and self.turn_rewards is not None:
            raise ValueError("style outcome has no turn_rewards: choose returns or states")
        if self.style != "outcome" and self.turn_rewards is None and self.outcome is None:
            raise ValueError(f"style {self.style} needs turn_rewards, outcome or both")
        if self.style != "states" and (self.states is not None or self.step_weight != 1):
            raise ValueError(f"style {self.style} has no states and no step_weight")
        return self

    @property
    def estimates(self) -> str:  # type: ignore[override]
        """What it computes of a group: nothing, where an outcome is only discounted."""
        return "" if self.style == "outcome" else "the mean returns of turns"

    def reads(self) -> Columns:
        if self.style == "outcome":
            return ("turns", "advantage")
        named = (self.turn_rewards, self.outcome, self.states)
        of_row = ("advantage",) if self.style == "states" else ()
        columns = ("prompt_id", "turns", *(name for name in named if name is not None), *of_row)
        return tuple(dict.fromkeys(columns))

    def writes(self) -> Columns:
        return ("turn_advantage",)

    def apply(self, table: pa.Table) -> Change:
        turns = _Turns.of(table)
        if self.style == "outcome":
            advantage_N = numbers(table, "advantage")
            left_P = turns.counts_N[turns.row_P] - 1 - turns.place_P
            known_N = np.isfinite(advantage_N) & (turns.counts_N > 0)
            found_P = self.gamma**left_P * np.where(known_N, advantage_N, 0.0)[turns.row_P]
            return Change({"turn_advantage": turns.lists(found_P, known_N)})
        return_P, known_N = self._returns(table, turns)
        groups = Groups.of(table)
        if self.style == "states":
            advantage_N = numbers(table, "advantage")
            known_N &= np.isfinite(advantage_N)
            known_P = known_N[turns.row_P]
            state_P = turns.observed() if self.states is None else turns.named(table, self.states)
            distance_P = _within(groups.codes_N[turns.row_P], state_P, return_P, known_P)
            own_P = np.where(known_N, advantage_N, 0.0)[turns.row_P]
            found_P = own_P + self.step_weight * distance_P
            return Change({"turn_advantage": turns.lists(found_P, known_N)})
        # Of a turn t of all trajectories of a group, as states are: the place is the state.
        place_P = turns.place_P.astype(np.uint64)
        codes_P, known_P = groups.codes_N[turns.row_P], known_N[turns.row_P]
        found_P = _within(codes_P, place_P, return_P, known_P, leave_one_out=True)
        count_N = groups.sum(known_N)[groups.codes_N]
        known_N &= count_N > 1
        return Change(
            {"turn_advantage": turns.lists(found_P, known_N)},
            drop({"no_turn_rewards": count_N == 0, "group_of_one": count_N == 1}),
        )

    def _returns(self, table: pa.Table, turns: _Turns) -> tuple[Array, Array]:
        """G of each turn, float64[P], and which rows have all that it needs, bool[N]."""
        known_N = turns.counts_N > 0
        reward_P = np.zeros(len(turns.row_P))
        if self.turn_rewards is not None:
            reward_P, given_N = turns.values(table, self.turn_rewards)
            known_N &= given_N
        if self.outcome is not None:
            outcome_N = numbers(table, self.outcome)
            known_N &= np.isfinite(outcome_N)
            last_P = turns.place_P == turns.counts_N[turns.row_P] - 1
            reward_P = reward_P + np.where(last_P, outcome_N[turns.row_P], 0.0)
        return_P = np.where(known_N[turns.row_P], reward_P, 0.0)
        # All rows at once, from the turn before their last to the first.
        for place in range(int(turns.counts_N.max(initial=0)) - 2, -1, -1):
            at = np.flatnonzero(
                (turns.place_P == place) & (turns.counts_N[turns.row_P] > place + 1)
            )
            return_P[at] += self.gamma * return_P[at + 1]
        return return_P, known_N


class _Turns(NamedTuple):
    """The turns of the policy in a table, one row after the other; P of them. R are all turns, also
    those of tools and frozen models."""

    counts_N: Array  # int64, how many a row has
    row_P: Array  # int64, the row of each
    place_P: Array  # int64, its place in the row, from 0
    policy_R: Array  # bool, which are the policy's
    seen: pa.Array  # string[R], the observation or the text of each
    all_row_R: Array  # int64, the row of each

    @classmethod
    def of(cls, table: pa.Table) -> _Turns:
        lists = flat(table["turns"])
        kind = lists.type
        if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
            raise DataError(
                f"column 'turns' is {kind}, and no list of turns",
                "sample by agent_rollout_mapper, or read trajectories by recorded_rollout_mapper",
            )
        every = lists.flatten()
        policy_R = np.asarray(pc.fill_null(pc.equal(pc.struct_field(every, "role"), POLICY), False))
        lengths_N = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        all_row_R = np.repeat(np.arange(len(lists)), lengths_N)
        seen = pc.coalesce(pc.struct_field(every, "observation"), pc.struct_field(every, "text"))
        row_P = all_row_R[policy_R]
        counts_N = np.bincount(row_P, minlength=len(lists))
        starts_N = np.cumsum(counts_N) - counts_N
        place_P = np.arange(len(row_P)) - starts_N[row_P]
        return cls(counts_N, row_P, place_P, policy_R, seen, all_row_R)

    def lists(self, values_P: Array, known_N: Array) -> pa.Array:
        """list<float64>[N]; null where a row is not known."""
        counts_N = np.where(known_N, self.counts_N, 0)
        return lists_of(pa.array(values_P[known_N[self.row_P]]), counts_N, known_N)

    def values(self, table: pa.Table, name: str) -> tuple[Array, Array]:
        """The numbers of turns in a column, float64[P], and which rows have one for each turn."""
        values = self.items(table, name)
        try:
            value_P = np.asarray(pc.fill_null(values.cast(pa.float64(), safe=False), np.nan))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            what = f"column '{name}' has lists of {values.type}"
            raise DataError(what, "name a column with lists of numbers") from None
        bad_N = np.bincount(self.row_P, ~np.isfinite(value_P), len(self.counts_N)) > 0
        return np.nan_to_num(value_P), ~bad_N

    def items(self, table: pa.Table, name: str) -> pa.Array:
        """The items of a column of lists, one for each turn; null where a row has no list."""
        lists = flat(table[name])
        if pa.types.is_null(lists.type):
            return pa.nulls(len(self.row_P))
        if not is_list(lists.type):
            raise DataError(
                f"column '{name}' is {lists.type}, not a list",
                "name a column with a list for each trajectory, an item for each of its turns",
            )
        given_N = np.asarray(lists.is_valid())
        length_N = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
        wrong_N = given_N & (length_N != self.counts_N)
        if wrong_N.any():
            row = int(np.argmax(wrong_N))
            raise DataError(
                f"row {row} has {length_N[row]} values in '{name}' and {self.counts_N[row]} turns "
                "of the policy",
                "give one for each of them",
            )
        place_P = (np.cumsum(length_N) - length_N)[self.row_P] + self.place_P
        return lists.flatten().take(pa.array(place_P, mask=~given_N[self.row_P]))

    def named(self, table: pa.Table, name: str) -> Array:
        """Hashes of the strings of turns in a column, uint64[P]."""
        items = self.items(table, name)
        if is_text(items.type) or pa.types.is_null(items.type):
            return hash_each(items.cast(pa.string()))
        found = f"column '{name}' has lists of {items.type}"
        raise DataError(found, "name a column with lists of strings")

    def observed(self) -> Array:
        """Hashes of what was seen since the turn of the policy before, in order, uint64[P]."""
        at_R = np.arange(len(self.policy_R))
        row_starts_R = np.searchsorted(self.all_row_R, self.all_row_R)
        last_R = np.maximum.accumulate(np.where(self.policy_R, at_R, -1))
        # How many since then, or since the row begins; the policy's own turns have 0.
        since_R = at_R - np.maximum(last_R, row_starts_R - 1)
        next_R = np.cumsum(self.policy_R)  # The number of the next turn of the policy.
        seen_R = ~self.policy_R & (next_R < len(self.row_P))
        # What follows the last turn of the policy is seen by none.
        seen_R[seen_R] = self.row_P[next_R[seen_R]] == self.all_row_R[seen_R]
        hash_R = mix(hash_each(self.seen) + since_R.astype(np.uint64) * _GOLDEN)
        state_P = np.zeros(len(self.row_P), np.uint64)
        np.add.at(state_P, next_R[seen_R], hash_R[seen_R])
        return state_P


def _within(
    codes_P: Array, state_P: Array, value_P: Array, known_P: Array, *, leave_one_out: bool = False
) -> Array:
    """The distance of each value from the mean of its state in its group, or of the others in it:
    where there is none, from 0."""
    order_P = np.lexsort((state_P, codes_P))
    keys: Any = np.stack([codes_P.astype(np.uint64), state_P])[:, order_P]
    first_P = np.ones(len(order_P), bool)
    first_P[1:] = (np.diff(keys) != 0).any(axis=0)
    # Numbered anew, so that `Groups`, whose means are exact where values are equal, applies.
    states = Groups.of_column(pa.array(np.cumsum(first_P)))
    value, known = value_P[order_P], known_P[order_P]
    with np.errstate(invalid="ignore"):
        distance = value - states.mean(value, known)[states.codes_N]
    if leave_one_out:
        count = states.sum(known)[states.codes_N]
        distance = np.where(count > 1, distance * (count / np.maximum(count - 1, 1)), value)
    found_P = np.zeros(len(order_P))
    found_P[order_P] = np.where(known, distance, 0.0)
    return found_P
