"""Figures of a set: groups, reward components, lengths and advantages, from a `RowTable`.

With the contribution a_ic of component c to the reward of row i, its mean over the group, and f_g
the factor by which the group's advantages A_i differ from r_i - mean_g r:

    A_ic = (a_ic - mean_g a_c) f_g            sum_c A_ic = A_i, up to rounding
    variance share of c = sum_i A_ic A_i / sum_i A_i^2
    mass share of c = sum_i u_i A_ic sign(A_i) / sum_i u_i |A_i|,  u_i = tokens of i / all tokens

Variance shares add up to 1, and are negative for a component that works against the others. The
mass is the weight in front of grad log p under token-mean, and no norm of a gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, numbers, right_and_wrong
from ...operators.confidence import AccuracyInterval, pass_at_k, pass_at_powers
from ...operators.filter.policy_age_filter import TOO_OLD
from ...operators.groups import Array, Groups
from ...operators.importance import POLICY_AGE
from ..console import number_text
from ..engine.report import StepReport
from .rows import RowTable

BINS = 40
_MOST_SOURCES = 20
"""With more values, `data_source` is no name of a task."""
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class HistogramFigures(NamedTuple):
    """Counts of a histogram; `edges` has one more."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class GroupFigures(NamedTuple):
    groups: int
    all_right: int
    all_wrong: int
    mixed: int
    ungraded: int
    # whose advantages are all 0 or null; None: rows that were dropped are not on file
    without_signal: int | None
    pass_rates: HistogramFigures


class ComponentFigures(NamedTuple):
    n: int
    missing: Mapping[str, int]
    mean: float
    std: float
    quantiles: tuple[float, ...]
    histogram: HistogramFigures
    variance_share: float
    mass_share: float


class SourceFigures(NamedTuple):
    prompts: int  # with responses
    responses: int
    pass_rate: float  # the mean over prompts; NaN: nothing was graded
    reward: float  # NaN: there is none
    policy_age: float = np.nan  # in training steps; NaN: there is none
    too_old: int = 0  # rows that were dropped for it


class Headline(NamedTuple):
    """A set as it was sampled; not known where the rows that were dropped are not on file."""

    prompts: int  # with responses
    responses: tuple[int, int]  # the fewest and the most to one of them
    graded: int  # prompts with a graded response, over which accuracy is the mean
    # the mean over prompts; its interval takes the prompts as independent, not their responses.
    # None: nothing was graded, or it is not known
    accuracy: AccuracyInterval | None
    # by k, 1 and powers of 2 up to n: the mean over the prompts with k graded responses
    pass_at: Mapping[int, float]


class SetFigures(NamedTuple):
    funnel: tuple[StepReport, ...]
    headline: Headline
    groups: GroupFigures
    components: Mapping[str, ComponentFigures]
    lengths: HistogramFigures
    advantages: HistogramFigures
    correlation: Array
    """[C, C], Pearson over rows that have both."""
    correlation_within: Array
    """[C, C], the same after each group's mean is taken off."""
    masked: float
    """The share of a response's tokens that is masked, mean over rows that are left; else NaN."""
    sources: Mapping[str, SourceFigures] = {}
    """By `data_source`, where there are several."""


def set_figures(rows: RowTable, funnel: Sequence[StepReport]) -> SetFigures:
    table, groups, lengths_N = rows.table, rows.groups, rows.lengths_N
    shares = component_shares(rows, lengths_N)
    values = [numbers(table, f"reward_{name}") for name in rows.components]
    within = [v - groups.mean(v, np.isfinite(v))[groups.codes_N] for v in values]
    return SetFigures(
        tuple(funnel),
        headline(rows),
        group_figures(rows),
        {name: _component(rows, name, shares[name]) for name in rows.components},
        histogram(lengths_N[lengths_N >= 0]),
        histogram(_finite(numbers(table, "advantage"))),
        correlation(values),
        correlation(within),
        finite_mean(masked_tokens(table)[rows.kept_N]),
        source_figures(rows),
    )


def source_figures(rows: RowTable) -> dict[str, SourceFigures]:
    """By `data_source`; empty where there are not some few."""
    return {name: _source(rows, is_own) for name, is_own in few_sources(rows.table).items()}


def few_sources(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Which rows are of each `data_source`; empty unless there are some few."""
    if "data_source" not in table.column_names or pa.types.is_nested(table["data_source"].type):
        return {}
    sources = table["data_source"].cast(pa.string())
    names = sorted(pc.unique(sources).drop_null().to_pylist())
    if not _MOST_SOURCES >= len(names) > 1:
        return {}
    return {name: pc.equal(sources, name) for name in names}


def _source(rows: RowTable, is_own: pa.ChunkedArray) -> SourceFigures:
    table = rows.table.filter(is_own)
    codes = rows.groups.codes_N[np.asarray(pc.fill_null(is_own, False))]
    groups = Groups.of_column(pa.array(codes))
    own = RowTable(table, groups, rows.components, rows.with_dropped)
    found = headline(own)
    old = pc.sum(pc.equal(table["reason"].cast(pa.string()), TOO_OLD)).as_py()
    return SourceFigures(
        found.prompts,
        int(own.has_response_N.sum()),
        found.accuracy.mean if found.accuracy else np.nan,
        finite_mean(numbers(table, "reward")),
        finite_mean(numbers(table, POLICY_AGE)),
        old or 0,
    )


def source_lines(sources: Mapping[str, SourceFigures]) -> list[str]:
    found = []
    for name, each in sources.items():
        line = f"source {name}: {each.prompts:,} prompts, {each.responses:,} responses; pass rate "
        line += f"{number_text(each.pass_rate)}, reward {number_text(each.reward)}"
        if np.isfinite(each.policy_age):
            line += f"; policy age {number_text(each.policy_age)}, {each.too_old:,} {TOO_OLD}"
        found.append(line)
    return found


def group_figures(rows: RowTable) -> GroupFigures:
    """Only groups with responses count: verification prompts, which a step adds, have none yet."""
    groups = rows.groups
    rates_G, right_G, wrong_G = pass_rates(rows)
    known_G, sampled_G = right_G + wrong_G > 0, groups.sum(rows.has_response_N) > 0
    advantage_N = np.nan_to_num(numbers(rows.table, "advantage"))
    signal_G = groups.sum((advantage_N != 0) & rows.kept_N) > 0
    most = int((right_G + wrong_G).max()) if len(rates_G) else 1
    bins = most if 1 <= most <= BINS else 20
    edges = (np.arange(bins + 2) - 0.5) / bins  # One bin for each k of n.
    counts, _ = np.histogram(rates_G[known_G], edges)
    return GroupFigures(
        int(sampled_G.sum()),
        int((known_G & (wrong_G == 0)).sum()),
        int((known_G & (right_G == 0)).sum()),
        int(((right_G > 0) & (wrong_G > 0)).sum()),
        int((~known_G & sampled_G).sum()),
        int((~signal_G & sampled_G).sum()) if rows.with_dropped else None,
        HistogramFigures(tuple(edges.tolist()), tuple(counts.tolist())),
    )


def pass_rates(rows: RowTable) -> tuple[Array, Array, Array]:
    """Per group: the share of right responses among the graded, how many are right, and wrong."""
    right_N, wrong_N = right_and_wrong(rows.table["verdict"].cast(pa.string()))
    right_G, wrong_G = rows.groups.sum(right_N), rows.groups.sum(wrong_N)
    with np.errstate(invalid="ignore", divide="ignore"):
        return right_G / (right_G + wrong_G), right_G, wrong_G


def headline(rows: RowTable) -> Headline:
    sampled_G = rows.groups.sum(rows.lengths_N >= 0)
    sampled_G = sampled_G[sampled_G > 0]
    rates_G, right_G, wrong_G = pass_rates(rows)
    graded_G = right_G + wrong_G
    rates_P = rates_G[graded_G > 0] if rows.with_dropped else np.zeros(0)
    accuracy = AccuracyInterval.of(rates_P, int(graded_G.sum())) if len(rates_P) else None
    pass_at = {}
    for k in [1, *pass_at_powers(int(graded_G.max(initial=0)))] if len(rates_P) else []:
        enough_G = graded_G >= k
        pairs = zip(graded_G[enough_G].tolist(), right_G[enough_G].tolist(), strict=True)
        pass_at[k] = float(np.mean([pass_at_k(int(n), int(right), k) for n, right in pairs]))
    fewest = int(sampled_G.min()) if len(sampled_G) else 0
    most = int(sampled_G.max(initial=0))
    return Headline(len(sampled_G), (fewest, most), len(rates_P), accuracy, pass_at)


class ComponentShare(NamedTuple):
    variance: float
    mass: float


_ROUNDING = 1e-6


def component_advantages(rows: RowTable) -> dict[str, Array]:
    """A_ic of each component, float64[N].

    NaN where a row has no advantage, or where those of its group are not in proportion to the
    distances of its rewards from their mean: then no component has a part of them.
    """
    table, groups = rows.table, rows.groups
    advantage_N, reward_N = numbers(table, "advantage"), numbers(table, "reward")
    valid_N = np.isfinite(advantage_N) & np.isfinite(reward_N)
    distance_N = _centred(groups, reward_N, valid_N)
    spread_G = groups.sum(np.where(valid_N, np.abs(distance_N), 0.0))
    scale_G = groups.sum(np.where(valid_N, np.abs(advantage_N), 0.0))
    factor_G = np.divide(scale_G, spread_G, out=np.zeros(len(spread_G)), where=spread_G > 0)
    far_N = np.abs(np.nan_to_num(advantage_N) - distance_N * factor_G[groups.codes_N])
    other_N = valid_N & (far_N > _ROUNDING * np.maximum(1.0, np.abs(np.nan_to_num(advantage_N))))
    valid_N = valid_N & ~(groups.sum(other_N) > 0)[groups.codes_N]
    found = {}
    for name in rows.components:
        added_N = numbers(table, f"contribution_{name}")
        if np.isfinite(added_N).any():
            added_N = np.nan_to_num(added_N)
            part_N = _centred(groups, added_N, valid_N) * factor_G[groups.codes_N]
            found[name] = np.where(valid_N, part_N, np.nan)
    return found


def component_shares(rows: RowTable, lengths_N: Array) -> dict[str, ComponentShare]:
    advantage_N = numbers(rows.table, "advantage")
    used_N = np.isfinite(advantage_N) & rows.kept_N
    full_N = np.where(used_N, advantage_N, 0.0)
    weight_N = np.sign(full_N) * np.maximum(lengths_N, 0)
    variance, mass = float(full_N @ full_N), float(weight_N @ full_N)
    found = {name: ComponentShare(np.nan, np.nan) for name in rows.components}
    for name, part_N in component_advantages(rows).items():
        own_N = np.where(used_N, part_N, 0.0)
        found[name] = ComponentShare(
            float(own_N @ full_N) / variance if variance else np.nan,
            float(own_N @ weight_N) / mass if mass else np.nan,
        )
    return found


class RowFigures(NamedTuple):
    """What is left of some rows to train on; NaN where a number is not known."""

    rows: int  # on file
    kept: int  # rows
    groups: int  # with a row kept
    reward: float  # mean over the rows kept
    # the standard error of `reward` by groups: sqrt(sum_g (sum_i r_i - mean)^2) / N
    error: float
    advantage: float  # mean |A| over the rows kept
    masked: float  # share of a response's tokens that does not train, mean over the rows kept
    pass_rate: float  # right among the graded rows
    silent: float  # share of groups without signal; NaN without any group
    length: float  # mean, in `unit`
    unit: str  # `tokens` or `characters`
    shares: Mapping[str, ComponentShare]  # of the advantages, by component


def row_figures(rows: RowTable) -> RowFigures:
    table, groups, kept_N, lengths_N = rows.table, rows.groups, rows.kept_N, rows.lengths_N
    reward_N, advantage_N = (
        np.where(kept_N, numbers(table, name), np.nan) for name in ("reward", "advantage")
    )
    reward, n = finite_mean(reward_N), np.isfinite(reward_N).sum()
    sums_G = groups.sum(np.nan_to_num(reward_N - reward))
    _, right_G, wrong_G = pass_rates(rows)
    of_groups = group_figures(rows)
    silent = of_groups.without_signal if of_groups.groups else None
    graded = float(right_G.sum() + wrong_G.sum()) if rows.with_dropped else 0.0
    return RowFigures(
        table.num_rows,
        int(kept_N.sum()),
        int((groups.sum(kept_N) > 0).sum()),
        reward,
        float(np.sqrt((sums_G**2).sum()) / n) if n else np.nan,
        finite_mean(np.abs(advantage_N)),
        finite_mean(masked_tokens(table)[kept_N]),
        float(right_G.sum()) / graded if graded else np.nan,
        np.nan if silent is None else silent / of_groups.groups,
        finite_mean(lengths_N[lengths_N >= 0]) if rows.with_dropped else np.nan,
        rows.unit,
        component_shares(rows, lengths_N),
    )


def _component(rows: RowTable, name: str, share: ComponentShare) -> ComponentFigures:
    values = _finite(numbers(rows.table, f"reward_{name}"))
    missing = rows.table[f"reward_{name}_missing"].cast(pa.string())
    missing = missing.filter(pc.not_equal(missing, NOT_APPLICABLE))
    counted = missing.value_counts().to_pylist()
    known = len(values) > 0
    return ComponentFigures(
        len(values),
        {each["values"]: each["counts"] for each in counted},
        float(values.mean()) if known else np.nan,
        float(values.std()) if known else np.nan,
        tuple(np.quantile(values, _QUANTILES).tolist()) if known else (),
        histogram(values),
        share.variance,
        share.mass,
    )


def histogram(values: Array) -> HistogramFigures:
    """Counts in `BINS` equal bins from the least to the greatest value; one if all are equal."""
    if len(values) == 0:
        return HistogramFigures((), ())
    low, high = float(values.min()), float(values.max())
    if low == high:
        return HistogramFigures((low, high), (len(values),))
    counts, edges = np.histogram(values, BINS, (low, high))
    return HistogramFigures(tuple(edges.tolist()), tuple(counts.tolist()))


def correlation(columns: Sequence[Array]) -> Array:
    """Pearson's r of each pair over the rows that have both, [C, C]; NaN without spread."""
    found = np.full((len(columns), len(columns)), np.nan)
    for at, first in enumerate(columns):
        for other, second in enumerate(columns):
            both = np.isfinite(first) & np.isfinite(second)
            x, y = first[both], second[both]
            if len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0:
                found[at, other] = np.corrcoef(x, y)[0, 1]
    return found


def _centred(groups: Groups, values_N: Array, valid_N: Array) -> Array:
    distance: Array = values_N - groups.mean(values_N, valid_N)[groups.codes_N]
    return distance


def value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    """How often each text occurs, the most frequent first."""
    counts = Counter[str](column.cast(pa.string()).drop_null().to_pylist())
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def masked_tokens(table: pa.Table) -> Array:
    """The share of each row's tokens that is masked, by weights of tokens or of the row."""
    of_tokens_N = np.nan_to_num(numbers(table, "masked_tokens"))
    return np.where(numbers(table, "loss_weight") == 0, 1.0, of_tokens_N)


def finite_mean(values: Array) -> float:
    """NaN where no number is known."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]
