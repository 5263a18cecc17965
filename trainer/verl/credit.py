"""The credit of rows on the way to verl: what the recipe's steps left in the table is what trains.

    table                                    TransferQueue            verl
    advantage or turn_advantage  ──┐
    token_weight, loss_weight    ──┴──> credit of each token ──────>  advantages
                                        weight 0 ──> response_mask, loss_mask

verl's estimators see the rewards of tokens, a mask and the `uid` of rows. Here a row's `uid` is its
key, by which the estimator looks its credit up and hands it on; rewards stay rewards, in verl's
figures too.

A weight multiplies the advantage: the policy losses that are homogeneous in the advantage of each
token are multiplied alike. Those that choose tokens by covariance are not, nor is `geo_mean`, whose
tokens share the mean of their response. A divergence from the
reference and an entropy bonus are not weighted; of a masked token, there is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators.columns import ROW_CONTRACT, ItemsOfLists, flat, is_list, mean_of_lists, numbers
from ...operators.errors import DataError
from ...operators.groups import Array
from ..run import ESTIMATOR

_TOKENS = "response_token_ids"


class TokenCredit(NamedTuple):
    """The credit of the tokens of some rows, one row after the other."""

    advantage_M: NDArray[np.float64]  # times its weights; 0 where it is masked
    mask_M: NDArray[np.bool_]  # whether the token trains

    @classmethod
    def of(cls, table: pa.Table, lengths: Sequence[Sequence[int]]) -> TokenCredit:
        """The credit of the tokens of each turn of N rows that train: each has an advantage.

        `lengths` are the tokens of each turn of the policy, of each row; a response is one turn.
        """
        tokens_N = np.array([sum(each) for each in lengths], np.int64)
        advantage_R = _of_turns(table, [len(each) for each in lengths])
        loss_weight_N, weight_M = loss_weights(table), _token_weights(table, tokens_N)
        weight_M = weight_M * np.repeat(loss_weight_N, tokens_N)
        advantage_M = weight_M * np.repeat(advantage_R, np.concatenate(lengths).astype(np.int64))
        with np.errstate(over="ignore"):
            infinite_M = ~np.isfinite(advantage_M.astype(np.float32))
        if infinite_M.any():
            row = int(np.repeat(np.arange(len(tokens_N)), tokens_N)[infinite_M][0])
            found = "has an advantage that its weight makes infinite in float32"
            raise _wrong(table, row, found, "write smaller weights")
        return cls(advantage_M, weight_M > 0)


def row_advantages(table: pa.Table) -> NDArray[np.float64]:
    """The advantage of each row, float64[N]; of `turn_advantage`, the mean over turns.

    nan where there is none, or where one of a turn is missing.
    """
    found_N = np.full(table.num_rows, np.nan)
    if "advantage" in table.column_names:
        found_N = numbers(table, "advantage")
    if "turn_advantage" in table.column_names:
        means = mean_of_lists(_lists(table, "turn_advantage"))
        of_turns_N = np.asarray(means.is_valid())
        found_N = np.where(of_turns_N, np.asarray(means.fill_null(np.nan)), found_N)
    return found_N


def has_signal(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows have a gradient, bool[N]: an advantage other than 0 in some turn."""
    found_N: NDArray[np.bool_] = np.nan_to_num(row_advantages(table)) != 0
    if "turn_advantage" in table.column_names:
        lists = ItemsOfLists.of(_lists(table, "turn_advantage"))
        found_N |= lists.any(np.nan_to_num(lists.values_M) != 0)
    return found_N


def is_infinite(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows have an advantage that is infinite in float32, bool[N], which verl has."""
    with np.errstate(over="ignore"):
        found_N: NDArray[np.bool_] = np.isinf(row_advantages(table).astype(np.float32))
        if "turn_advantage" in table.column_names:
            lists = ItemsOfLists.of(_lists(table, "turn_advantage"))
            found_N |= lists.any(np.isinf(lists.values_M.astype(np.float32)))
    return found_N


def masked_rows(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows have no token that trains, bool[N]: a weight of 0, or 0 for each token."""
    masked_N: NDArray[np.bool_] = loss_weights(table) == 0
    if "token_weight" in table.column_names:
        lists = ItemsOfLists.of(_lists(table, "token_weight"))
        tokens_N = lists.lengths_N
        if _TOKENS in table.column_names:
            tokens_N = ItemsOfLists.of(flat(table[_TOKENS])).lengths_N
        weight_M = _token_weights(table, tokens_N)
        rows_M = np.repeat(np.arange(len(tokens_N)), tokens_N)
        trains_N = np.bincount(rows_M, weight_M > 0, len(tokens_N)) > 0
        masked_N |= lists.given_N & ~trains_N
    return masked_N


def loss_weights(table: pa.Table) -> NDArray[np.float64]:
    """The column `loss_weight`, float64[N]; 1 where it is null or not there."""
    if "loss_weight" not in table.column_names:
        return np.ones(table.num_rows)
    null_N = np.asarray(flat(table["loss_weight"]).is_null())
    weight_N = np.where(null_N, 1.0, numbers(table, "loss_weight"))
    wrong_N = ~((weight_N >= 0) & (weight_N <= 1))
    if wrong_N.any():
        row = int(np.flatnonzero(wrong_N)[0])
        raise _wrong(table, row, f"has loss_weight {weight_N[row]:g}", "write a number from 0 to 1")
    return weight_N


def _of_turns(table: pa.Table, turns_N: Sequence[int]) -> NDArray[np.float64]:
    """The advantage of each turn of each row, float64[R]."""
    advantage_R = np.repeat(row_advantages(table), turns_N)
    if "turn_advantage" not in table.column_names:
        return advantage_R
    lists, turn_N = ItemsOfLists.of(_lists(table, "turn_advantage")), np.array(turns_N, np.int64)
    given_N, lengths_N = lists.given_N, lists.lengths_N
    wrong_N = given_N & (lengths_N != turn_N)
    if wrong_N.any():
        row = int(np.flatnonzero(wrong_N)[0])
        found = (
            f"has {lengths_N[row]} values in turn_advantage and {turn_N[row]} turns of the policy"
        )
        raise _wrong(table, row, found, "write one for each of them")
    advantage_R[np.repeat(given_N, turn_N)] = lists.values_M
    return advantage_R


def _token_weights(table: pa.Table, tokens_N: Array) -> NDArray[np.float64]:
    """The weight of each token of each row, float64[M]; 1 where a row has no weights."""
    weight_M = np.ones(int(tokens_N.sum()))
    if "token_weight" not in table.column_names:
        return weight_M
    lists = ItemsOfLists.of(_lists(table, "token_weight"))
    given_N, lengths_N, values_M = lists.given_N, lists.lengths_N, lists.values_M
    wrong_N = given_N & (lengths_N != tokens_N)
    if wrong_N.any():
        row = int(np.flatnonzero(wrong_N)[0])
        found = f"has {lengths_N[row]} values in token_weight and {tokens_N[row]} tokens"
        raise _wrong(table, row, found, "write one for each of response_token_ids")
    invalid_M = ~(np.isfinite(values_M) & (values_M >= 0))
    if invalid_M.any():
        row = int(lists.rows_M[invalid_M][0])
        found = "has a token_weight that is negative or no number"
        raise _wrong(table, row, found, "write 0 for a token that does not train")
    weight_M[np.repeat(given_N, tokens_N)] = values_M
    return weight_M


def _lists(table: pa.Table, name: str) -> pa.Array:
    column = flat(table[name])
    numeric = is_list(column.type) and pa.types.is_primitive(column.type.value_type)
    if not (numeric or pa.types.is_null(column.type)):
        raise DataError(f"the column {name} is {column.type}", "write lists of numbers")
    return column.cast(ROW_CONTRACT[name])


def _wrong(table: pa.Table, row: int, found: str, right: str) -> DataError:
    return DataError(f"response {table['response_id'][row].as_py()} {found}", right)


class CreditEstimator:
    """verl's estimator of advantages `rejuice`, which hands the credit of rows on.

    It belongs to a replay buffer: verl calls it in the process that has sampled the step.
    """

    def __init__(self) -> None:
        self._of_row: Mapping[str, NDArray[np.float32]] = {}

    def register(self) -> None:
        """Make it verl's estimator of that name, instead of one of an earlier buffer."""
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

        ADV_ESTIMATOR_REGISTRY.pop(ESTIMATOR, None)  # verl refuses a second one by the same name.
        register_adv_est(ESTIMATOR)(self._estimate)

    def set(self, keys: Sequence[str], advantages: Sequence[NDArray[np.float64]]) -> None:
        """Take the credit of the rows of a step: of each key, that of its tokens."""
        pairs = zip(keys, advantages, strict=True)
        self._of_row = {key: each.astype(np.float32) for key, each in pairs}

    def _estimate(self, response_mask: Any, index: Any, **_: Any) -> tuple[Any, Any]:
        """Advantages and returns, float32[N, T], from the mask [N, T] and `uid` of rows [N]."""
        import torch

        found = torch.zeros(response_mask.shape, dtype=torch.float32)
        for row in response_mask.any(-1).nonzero().flatten().tolist():  # The rest is padding.
            credit = self._of_row[str(index[row])]
            found[row, : len(credit)] = torch.from_numpy(credit)
        found *= response_mask
        return found, found
