"""What changed between two ways to process the same responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.compute import pc
from ...operators.groups import Array, Groups
from .figures import column_values, variance_shares
from .rows import KEPT, RowTable

KINDS = ("gained", "lost", "flipped", "silenced", "woken", "unknown")
"""What may have happened to a row; one that is kept may also have changed sign."""


class Comparison(NamedTuple):
    """The rows of a base before and after, row by row.

    Attributes:
        rows: response_id, prompt_id, step_before and step_after (the number of the step that
            dropped it, null where it is kept), reason_before, reason_after, reward_before,
            reward_after, advantage_before, advantage_after, and a bool for each of `KINDS`:
            gained and lost in the rows kept; flipped: the sign of the advantage; silenced, woken:
            to or from an advantage of 0; unknown: a model would have to be asked.
        kept_in_both: rows.
        groups: with a row kept before, after, and how many were gained and lost.
        rank: Spearman's correlation of rewards before and after within groups, mean over groups
            that have spread in both; NaN without any.
        ranked: these groups.
        mean_reward: of rows kept, before and after.
        variance: by component, its share of the variance of advantages before and after, over
            rows kept in both.
    """

    rows: pa.Table
    kept_in_both: int
    groups: tuple[int, int, int, int]
    rank: float
    ranked: int
    mean_reward: tuple[float, float]
    variance: Mapping[str, tuple[float, float]]

    def count(self, kind: str) -> int:
        """How many rows are of one of `KINDS`."""
        return int(np.asarray(self.rows[kind]).sum())

    def reasons(self, kind: str) -> dict[str, int]:
        """Why gained rows were dropped, or lost ones are, the most frequent reason first."""
        column = self.rows[f"reason_{'before' if kind == 'gained' else 'after'}"]
        counted = column.filter(self.rows[kind]).value_counts().to_pylist()
        ordered = sorted(counted, key=lambda each: (-each["counts"], str(each["values"])))
        return {str(each["values"]): each["counts"] for each in ordered}


def compare(before: RowTable, after: RowTable, n: int, unknown: str) -> Comparison:
    """Compare the first `n` rows, those of the base, of two tables over it.

    Args:
        before: rows under the steps of the run.
        after: rows under other steps.
        n: rows of the base.
        unknown: the reason of rows of which nothing is known.
    """
    one, two = before.table.slice(0, n), after.table.slice(0, n)
    fates = [np.asarray(table["fate"]) for table in (one, two)]
    unknown_N = np.array(pc.fill_null(pc.equal(two["reason"].cast(pa.string()), unknown), False))
    kept = [fates[0] == KEPT, fates[1] == KEPT]
    both_N = kept[0] & kept[1]
    rewards = [column_values(table, "reward") for table in (one, two)]
    advantages = [column_values(table, "advantage") for table in (one, two)]
    signs = [np.sign(np.nan_to_num(each)) for each in advantages]
    kinds = {
        "gained": ~kept[0] & kept[1],
        "lost": kept[0] & ~kept[1] & ~unknown_N,
        "flipped": both_N & (signs[0] * signs[1] < 0),
        "silenced": both_N & (signs[0] != 0) & (signs[1] == 0),
        "woken": both_N & (signs[0] == 0) & (signs[1] != 0),
        "unknown": unknown_N,
    }
    groups = Groups.of(one)
    left = [groups.sum(each.astype(np.int64)) > 0 for each in kept]
    unknown_G = groups.sum(unknown_N.astype(np.int64)) > 0
    return Comparison(
        _rows(one, two, fates, kinds),
        int(both_N.sum()),
        (
            int(left[0].sum()),
            int(left[1].sum()),
            int((left[1] & ~left[0]).sum()),
            int((left[0] & ~left[1] & ~unknown_G).sum()),
        ),
        *rank_correlation(groups, rewards[0], rewards[1], both_N),
        (_mean(rewards[0][kept[0]]), _mean(rewards[1][kept[1]])),
        _variance(before, after, both_N),
    )


def combined(found: Sequence[Comparison]) -> Comparison:
    """One comparison of the rows of several, such as the steps of a training run.

    Args:
        found: at least one.
    """
    rows = pa.concat_tables([each.rows for each in found], promote_options="permissive")
    before, after, gained, lost = (
        sum(of_all) for of_all in zip(*(x.groups for x in found), strict=True)
    )
    ranked = sum(each.ranked for each in found)
    ranks = sum(each.rank * each.ranked for each in found if each.ranked)
    kept = [pc.is_null(rows[f"step_{when}"]) for when in ("before", "after")]
    rewards = [column_values(rows, f"reward_{when}") for when in ("before", "after")]
    return Comparison(
        rows,
        sum(each.kept_in_both for each in found),
        (before, after, gained, lost),
        ranks / ranked if ranked else float("nan"),
        ranked,
        (_mean(rewards[0][np.asarray(kept[0])]), _mean(rewards[1][np.asarray(kept[1])])),
        _combined_variance(found),
    )


def _combined_variance(found: Sequence[Comparison]) -> dict[str, tuple[float, float]]:
    """Shares of the sum of squares over all rows: those of each part, weighted by its own sum."""
    names = dict.fromkeys(name for each in found for name in each.variance)
    sizes = [_squares(each) for each in found]
    shares = {}
    for name in names:
        sides = list[float]()
        for side in (0, 1):
            parts = [
                (each.variance[name][side] * size[side], size[side])
                for each, size in zip(found, sizes, strict=True)
                if name in each.variance and np.isfinite(each.variance[name][side])
            ]
            whole = sum(size for _, size in parts)
            sides.append(sum(part for part, _ in parts) / whole if whole else float("nan"))
        shares[name] = (sides[0], sides[1])
    return shares


def _squares(found: Comparison) -> tuple[float, float]:
    """Sums of squares of the advantages before and after, over rows kept in both."""
    both = pc.and_(pc.is_null(found.rows["step_before"]), pc.is_null(found.rows["step_after"]))
    rows = found.rows.filter(both)
    before, after = (column_values(rows, f"advantage_{when}") for when in ("before", "after"))
    return float(np.nansum(before**2)), float(np.nansum(after**2))


def rank_correlation(groups: Groups, x_N: Array, y_N: Array, used_N: Array) -> tuple[float, int]:
    """Spearman's correlation within groups, mean over groups with spread in both, and how many.

    NaN without any.
    """
    known_N = used_N & np.isfinite(x_N) & np.isfinite(y_N)
    codes_N = groups.codes_N[known_N]
    ranks = [_ranks(codes_N, values[known_N]) for values in (x_N, y_N)]
    sizes_G = np.bincount(codes_N, minlength=len(groups.starts_G))
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = [r - (np.bincount(codes_N, r, len(sizes_G)) / sizes_G)[codes_N] for r in ranks]
        sums = [
            np.bincount(codes_N, a * b, len(sizes_G))
            for a, b in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
        ]
        found_G = sums[0] / np.sqrt(sums[1] * sums[2])
    found_G = found_G[np.isfinite(found_G)]
    return float(found_G.mean()) if len(found_G) else float("nan"), len(found_G)


def _ranks(codes_N: Array, values_N: Array) -> Array:
    """Average ranks of values within groups; groups are consecutive."""
    order_N = np.lexsort((values_N, codes_N))
    codes, values = codes_N[order_N], values_N[order_N]
    new = np.ones(len(order_N), bool)
    new[1:] = (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order_N))
    middle = (starts + ends - 1) / 2
    ranks_N = np.empty(len(order_N))
    ranks_N[order_N] = np.repeat(middle, ends - starts)
    return ranks_N


def _rows(one: pa.Table, two: pa.Table, fates: list[Array], kinds: Mapping[str, Array]) -> pa.Table:
    columns = {name: one[name] for name in ("response_id", "prompt_id")}
    for when, table, fate_N in (("before", one, fates[0]), ("after", two, fates[1])):
        columns[f"step_{when}"] = pa.array(fate_N, mask=fate_N == KEPT)
        for name in ("reason", "reward", "advantage"):
            columns[f"{name}_{when}"] = table[name]
    return pa.table({**columns, **{name: pa.array(each) for name, each in kinds.items()}})


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _variance(before: RowTable, after: RowTable, both_N: Array) -> dict[str, tuple[float, float]]:
    shares = [variance_shares(rows, both_N) for rows in (before, after)]
    names = dict.fromkeys([*shares[0], *shares[1]])
    nothing = float("nan")
    return {name: (shares[0].get(name, nothing), shares[1].get(name, nothing)) for name in names}
