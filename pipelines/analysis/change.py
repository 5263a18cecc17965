"""What changed from one set of rows to another: the mean reward, split by component, exactly.

Over the rows that are kept, with the contribution a_c of component c and its weight w_c:

    mean_b r - mean_a r = sum_c (mean_b a_c - mean_a a_c)
    mean_b a_c - mean_a a_c = w_b (m_b - m_a) + (w_b - w_a) m_a,      m = mean a_c / w

m is the mean of the component's values, after gates and substitutes. Where a weight is 0 its m is
not known, and the other set's is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ...operators.compute import pc
from ...operators.groups import Array
from .figures import column_values, group_figures, pass_rates
from .rows import KEPT, RowTable

_Value = TypeVar("_Value")
_Z95 = 1.959964
LEAST_COUNT = 3
"""A response is frequent from so many rows on."""


class ComponentChange(NamedTuple):
    """What a component adds to the mean reward in two sets, and why it adds more or less.

    Attributes:
        added: its mean contribution in the one and the other.
        weights: of the sum; NaN where the set has no sum with it.
        by_values: of the difference of `added`, what the change of its values makes.
        by_weight: what the change of its weight makes.
        missing: the share of rows in which it is missing.
    """

    added: tuple[float, float]
    weights: tuple[float, float]
    by_values: float
    by_weight: float
    missing: tuple[float, float]


class PromptChange(NamedTuple):
    """The mean reward of the responses to a prompt that are kept in both sets."""

    prompt_id: str
    before: float
    after: float


class SetChange(NamedTuple):
    """Two sets of rows.

    Attributes:
        rows: of each, and `kept` of these.
        kept: rows.
        prompts: in both, only in the first, only in the second.
        reward: the mean over the rows kept.
        by_chance: 95% interval of the difference of `reward` by the spread between groups, as if
            the two sets had different prompts.
        components: by name; the differences of `added` sum to that of `reward`, where no reward
            came with the responses.
        pass_rate: right among the graded rows.
        length: mean, in tokens or characters.
        silent: the share of groups without signal among those with responses.
        moved: prompts with rewards in both, the greatest difference first.
    """

    rows: tuple[int, int]
    kept: tuple[int, int]
    prompts: tuple[int, int, int]
    reward: tuple[float, float]
    by_chance: tuple[float, float]
    components: Mapping[str, ComponentChange]
    pass_rate: tuple[float, float]
    length: tuple[float, float]
    silent: tuple[float, float]
    moved: tuple[PromptChange, ...]


def set_change(
    a: RowTable, b: RowTable, weights: tuple[Mapping[str, float], Mapping[str, float]]
) -> SetChange:
    """What changed from one set to another.

    Args:
        a: rows of the first.
        b: rows of the second.
        weights: of the sum in each, by component.
    """
    both = (a, b)
    names = dict.fromkeys([*a.components, *b.components])
    reward = _pair(_mean(column_values(rows.table, "reward")[_kept(rows)]) for rows in both)
    half = _Z95 * float(np.hypot(_standard_error(a), _standard_error(b)))
    return SetChange(
        _pair(rows.table.num_rows for rows in both),
        _pair(int(_kept(rows).sum()) for rows in both),
        _prompts(a, b),
        reward,
        (reward[1] - reward[0] - half, reward[1] - reward[0] + half),
        {name: _component(name, both, weights) for name in names},
        _pair(map(_pass_rate, both)),
        _pair(map(_length, both)),
        _pair(map(_silent, both)),
        _moved(a, b),
    )


def new_responses(before: Iterable[str | None], after: Sequence[str | None]) -> dict[str, int]:
    """Responses that are frequent in a set and absent from another, the most frequent first.

    White space does not count; a response is a text, not a meaning.

    Args:
        before: of the other set; None is no response.
        after: of the set.
    """
    old = {" ".join(text.split()) for text in before if text is not None}
    counts = Counter(" ".join(text.split()) for text in after if text is not None)
    return {text: n for text, n in counts.most_common() if n >= LEAST_COUNT and text not in old}


def _standard_error(rows: RowTable) -> float:
    """The standard error of the mean reward, by groups: sqrt(sum_g (sum_i r_i - m)^2) / N."""
    reward_N = column_values(rows.table, "reward")
    used_N = _kept(rows) & np.isfinite(reward_N)
    if not used_N.any():
        return float("nan")
    distance_N = np.where(used_N, reward_N - reward_N[used_N].mean(), 0.0)
    return float(np.sqrt((rows.groups.sum(distance_N) ** 2).sum()) / used_N.sum())


def _component(
    name: str,
    both: tuple[RowTable, RowTable],
    weights: tuple[Mapping[str, float], Mapping[str, float]],
) -> ComponentChange:
    added = _pair(_added(rows, name) for rows in both)
    w = _pair(own.get(name, float("nan")) for own in weights)
    known_w = np.nan_to_num(np.array(w))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.array(added) / known_w
    mean = np.where(known_w == 0, mean[::-1], mean)  # The other set's, where it is not known.
    mean = np.where(np.isfinite(mean), mean, 0.0)
    by_values = float(known_w[1] * (mean[1] - mean[0]))
    by_weight = float((known_w[1] - known_w[0]) * mean[0])
    return ComponentChange(added, w, by_values, by_weight, _pair(_missing(x, name) for x in both))


def _added(rows: RowTable, name: str) -> float:
    """The mean contribution over kept rows with a reward; 0 where the component is not summed."""
    if f"contribution_{name}" not in rows.table.column_names:
        return 0.0
    rewarded_N = _kept(rows) & np.isfinite(column_values(rows.table, "reward"))
    values = np.nan_to_num(column_values(rows.table, f"contribution_{name}")[rewarded_N])
    return _mean(values) if len(values) else 0.0


def _missing(rows: RowTable, name: str) -> float:
    column = f"reward_{name}_missing"
    if column not in rows.table.column_names or not rows.table.num_rows:
        return float("nan")
    return float(np.mean(np.asarray(rows.table[column].is_valid())))


def _kept(rows: RowTable) -> Array:
    kept_N: Array = np.asarray(rows.table["fate"]) == KEPT
    return kept_N


def _pass_rate(rows: RowTable) -> float:
    _, right_G, wrong_G = pass_rates(rows)
    right, graded = float(right_G.sum()), float(right_G.sum() + wrong_G.sum())
    return right / graded if graded else float("nan")


def _length(rows: RowTable) -> float:
    unit = "tokens" if rows.table["tokens"].null_count < rows.table.num_rows else "characters"
    found = pc.mean(rows.table[unit]).as_py()
    return float("nan") if found is None else float(found)


def _silent(rows: RowTable) -> float:
    groups = group_figures(rows, np.ones(rows.table.num_rows, bool))
    return groups.without_signal / groups.groups if groups.groups else float("nan")


def _prompts(a: RowTable, b: RowTable) -> tuple[int, int, int]:
    of_a, of_b = (set(rows.table["prompt_id"].to_pylist()) for rows in (a, b))
    return len(of_a & of_b), len(of_a - of_b), len(of_b - of_a)


def _moved(a: RowTable, b: RowTable) -> tuple[PromptChange, ...]:
    before, after = _mean_rewards(a), _mean_rewards(b)
    found = [PromptChange(name, before[name], after[name]) for name in before if name in after]
    found = [each for each in found if each.before != each.after]
    return tuple(sorted(found, key=lambda x: (-abs(x.after - x.before), x.prompt_id)))


def _mean_rewards(rows: RowTable) -> dict[str, float]:
    reward_N = column_values(rows.table, "reward")
    used_N = _kept(rows) & np.isfinite(reward_N)
    means_G = rows.groups.mean(np.nan_to_num(reward_N), used_N)
    names = rows.table["prompt_id"].take(pa.array(rows.groups.starts_G)).to_pylist()
    return {
        name: float(mean)
        for name, mean in zip(names, means_G, strict=True)
        if name is not None and np.isfinite(mean)
    }


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _pair(values: Iterable[_Value]) -> tuple[_Value, _Value]:
    one, two = values
    return one, two
