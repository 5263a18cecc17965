"""Signs of reward hacking in a stored run, each against a null of permutations within strata.

    stored run ──sign_rows──> numbers of rows ──signs_of──> p-values ──holm──> alarms

A sign is a correlation of what the reward pays, or of what it is meant to pay for, with something
that it is not meant to pay for. It is compared with the correlations that chance makes of the same
numbers. Holm's correction over all signs of a stored run keeps the share of clean runs in which any
of them alarms at `ALPHA` at most. What adds next to nothing to the advantages is no alarm either.

A sign states what the reward goes with. It does not state that the policy means it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ...operators.arrow_compute import pc
from ...operators.columns import is_text, numbers, right_and_wrong
from ...operators.groups import Array, Groups, average_ranks, mix
from ...operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from ...operators.text.tokens import Tokens, blocks, shingles, texts_of, tokens_of
from ..engine.frame import Frame
from .figures import component_advantages
from .rows import RowTable, rows_of, written_values
from .stored import Stored, StoredSet

# --- Permutations ---------------------------------------------------------------------
# p-values of permutations within strata, and Holm's correction of many of them.
#
#     T = sum_i fixed_i moved_i            moved values are permuted within each stratum
#     E T = 0,  Var T = sum_s sum fixed^2 sum moved^2 / (n_s - 1)
#     p = P(Z >= T / sd T)                 Z is normal
#
# Mean and variance are exact; that sums over many strata are nearly normal is the combinatorial
# central limit theorem.
#
# Source: Hoeffding, A combinatorial central limit theorem, Ann. Math. Statist. 22 (1951) 558-566.


class StratifiedPairs(NamedTuple):
    """Pairs of values, one fixed and one to be moved, in strata with spread.

    Strata whose fixed or moved values are all equal are left out: permutations change nothing
    there. Rows are in the order of their strata; axis _N.
    """

    fixed_N: Array  # float64, less the mean of the stratum
    moved_N: Array  # float64, less the mean of the stratum
    codes_N: Array  # int64, the stratum of each row, from 0
    rows_N: Array  # int64, the place of each row in what was given

    @classmethod
    def of(cls, codes_N: Array, fixed_N: Array, moved_N: Array) -> StratifiedPairs:
        """Pairs of rows that are all finite."""
        rows_N = np.flatnonzero(np.isfinite(fixed_N) & np.isfinite(moved_N))
        rows_N = rows_N[np.argsort(codes_N[rows_N], kind="stable")]
        pairs = fixed_N[rows_N].astype(float), moved_N[rows_N].astype(float)
        _, dense_N = np.unique(codes_N[rows_N], return_inverse=True)
        varied_N = np.ones(len(rows_N), bool)
        for values_N in pairs if len(rows_N) else ():
            starts_S = np.flatnonzero(np.diff(dense_N, prepend=-1))
            low_S, high_S = (each.reduceat(values_N, starts_S) for each in (np.minimum, np.maximum))
            varied_N &= (low_S < high_S)[dense_N]
        _, codes = np.unique(dense_N[varied_N], return_inverse=True)
        fixed, moved = (_centred(codes, each[varied_N]) for each in pairs)
        return cls(fixed, moved, codes, rows_N[varied_N])

    @property
    def correlation(self) -> float:
        """Pearson's r of both after the means of strata are taken off; NaN without strata."""
        scale = float(np.sqrt((self.fixed_N**2).sum() * (self.moved_N**2).sum()))
        return float(self.products_N.sum()) / scale if scale else float("nan")

    @property
    def explained(self) -> float:
        """The sum of squares of the fixed values that a line through the moved ones explains."""
        squares = float((self.moved_N**2).sum())
        return float(self.products_N.sum()) ** 2 / squares if squares else 0.0

    @property
    def products_N(self) -> Array:
        return self.fixed_N * self.moved_N

    def p_value(self) -> float:
        """The one-sided p-value of a great sum of products; 1 without strata."""
        fixed_S, moved_S = (
            np.bincount(self.codes_N, each**2) for each in (self.fixed_N, self.moved_N)
        )
        variance = (fixed_S * moved_S / (np.bincount(self.codes_N) - 1)).sum()
        return _beyond(float(self.products_N.sum()), float(variance))


def _beyond(total: float, variance: float) -> float:
    """P(a normal variable with mean 0 and this variance is at least so great); 1 without any."""
    return NormalDist().cdf(-total / variance**0.5) if variance else 1.0


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which null hypotheses are rejected: one false one at most in a share of `alpha`, however the
    p-values depend on one another.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6
    (1979) 65-70.
    """
    rejected = [False] * len(p_values)
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[at] > alpha / (len(p_values) - rank):
            break
        rejected[at] = True
    return rejected


def ranks_within(codes_N: Array, values_N: Array) -> Array:
    """Average ranks of values within strata, from 0 to 1, without either; float64[N]."""
    sorted_N = np.sort(codes_N)
    first_N = np.searchsorted(sorted_N, codes_N)
    sizes_N = np.searchsorted(sorted_N, codes_N, side="right") - first_N
    found: Array = (average_ranks(codes_N, values_N) + 1 - first_N) / (sizes_N + 1)
    return found


def _centred(codes_N: Array, values_N: Array) -> Array:
    sizes_S = np.maximum(np.bincount(codes_N), 1)
    centred: Array = values_N - (np.bincount(codes_N, values_N) / sizes_S)[codes_N]
    return centred


# --- The signs of some rows -----------------------------------------------------------

ALPHA = 0.01
"""The family-wise false alarm rate: one in 100 clean runs has an alarm, at most."""
LEAST_GROUPS = 20
"""Groups with a stratum that has spread, below which a sign has no p-value."""
LEAST_SHARE = 0.005
"""A share of the variance of advantages within prompts: what explains less is no alarm."""
RISEN_ALPHA = 0.01
"""The p-value below which validation, or the pass rate, counts as risen: no alarm of a drift."""
_LEAST_VALIDATIONS = 7
"""With fewer, even values that rise throughout have no such p-value."""
SHOWN_ROWS = 20
TRUTH = ("accuracy", "verification")
"""Components that are correctness itself."""


class SignResult(NamedTuple):
    name: str  # such as `length pays` or `format without accuracy`
    # name of the set; `answers` or `judgements` where those of many steps are taken as one
    set: str
    p: float | None  # one-sided p-value; None where there is none
    # -1 to 1: the correlation within strata, or, of what carries the advantage, its share of the
    # variance, which may be beyond 1. NaN where there is none.
    effect: float
    alarm: bool = False  # whether Holm's procedure rejects chance at `ALPHA`
    reason: str = ""  # why there is no p-value, or no alarm in spite of one; empty otherwise
    # response_id of up to 20 rows that add most to the effect, the first most
    rows: tuple[str, ...] = ()


class SignRows(NamedTuple):
    """What the signs need of rows, axis _N; NaN where a number is not known."""

    set: str  # see `SignResult`
    response_ids: Sequence[str]  # of the rows
    steps_N: Array  # int64, the training step; all equal for one set
    groups_N: Array  # int64 from 0, the same for the responses to a prompt in a training step
    verdicts_N: Array  # int64, one for each verdict, also for none
    right_N: Array  # float64, 1 right, 0 wrong
    advantages_N: Array  # float64, of rows that are kept
    lengths_N: Array  # float64, tokens or characters
    components: Mapping[str, Array]  # by name, values, float64[N]
    parts: Mapping[str, Array]  # by name, the component's part of the advantage, float64[N]
    boxes_N: Array  # float64, 1 with two or more boxes, 0 with fewer
    echo_N: Array  # float64, the share of the response that is in the prompt


def signs_of(rows: SignRows, validation: Sequence[tuple[int, float]] = ()) -> Iterator[SignResult]:
    """The signs of rows, without correction: none has an alarm."""
    pays_N = rows.groups_N * (1 + int(rows.verdicts_N.max(initial=0))) + rows.verdicts_N
    paid_N, long_N, wrong_N = rows.advantages_N, np.log1p(rows.lengths_N), 1 - rows.right_N
    paid = {"advantages": paid_N, "responses": rows.lengths_N}
    yield _of_rows(rows, "length pays", pays_N, (paid_N, long_N), paid, (paid_N, long_N))
    if len(np.unique(rows.steps_N)) > 1:
        groups = _GroupMeans.of(rows)
        yield _length_drift(rows, groups, validation)
        for name in _others(rows.components):
            yield _outruns(rows, groups, name)
    graded = {"verdicts": rows.right_N}
    for name in _others(rows.components):
        values_N, part_N = rows.components[name], rows.parts.get(name)
        needed = {**graded, f"values of {name}": values_N}
        adds = None if part_N is None else (part_N, wrong_N)
        pair = wrong_N, values_N
        yield _of_rows(rows, f"{name} without accuracy", rows.groups_N, pair, needed, adds)
    if len(rows.parts) > 1:
        for name in _others(rows.parts):
            yield _carries(rows, name)
    boxed = {**graded, "responses": rows.boxes_N}
    yield _of_rows(rows, "many boxes", rows.groups_N, (rows.right_N, rows.boxes_N), boxed)
    echoed, pair = {"advantages": paid_N, "responses": rows.echo_N}, (paid_N, rows.echo_N)
    yield _of_rows(rows, "echo of the prompt", pays_N, pair, echoed, pair)


def with_alarms(results: Sequence[SignResult]) -> tuple[SignResult, ...]:
    """The signs of a stored run with their alarms: Holm over those that have a p-value."""
    rejected = iter(holm([each.p for each in results if each.p is not None], ALPHA))
    alarms = (each.p is not None and next(rejected) and not each.reason for each in results)
    return tuple(x._replace(alarm=alarm) for x, alarm in zip(results, alarms, strict=True))


def _others(components: Mapping[str, Array]) -> list[str]:
    return [name for name in components if name not in TRUTH]


def _of_rows(
    rows: SignRows,
    name: str,
    strata_N: Array,
    pair: tuple[Array, Array],
    needed: Mapping[str, Array],
    adds: tuple[Array, Array] | None = None,
) -> SignResult:
    """A correlation of two numbers of rows within strata.

    `adds` are parts of advantages, and what they go with; None where none of them are known.
    """
    empty = [what for what, values_N in needed.items() if not np.isfinite(values_N).any()]
    if empty:
        return SignResult(name, rows.set, None, float("nan"), reason=f"no {empty[0]}")
    pairs = StratifiedPairs.of(strata_N, *pair)

    def hardly_moves() -> str:
        known_N = np.isfinite(rows.advantages_N)
        advantages_N = _centred(rows.groups_N[known_N], rows.advantages_N[known_N])
        explained = StratifiedPairs.of(strata_N, *adds).explained if adds else float("inf")
        share = explained / max(float((advantages_N**2).sum()), np.finfo(float).tiny)
        return f"it explains {share:.2%} of the advantages" if share < LEAST_SHARE else ""

    groups = len(np.unique(rows.groups_N[pairs.rows_N]))
    return _tested(rows, name, groups, _of_pairs(pairs, pairs.rows_N), hardly_moves)


class _Statistic(NamedTuple):
    effect: float
    p_value: Callable[[], float]
    places_K: Array  # of rows
    scores_K: Array  # what each adds to the effect


def _of_pairs(pairs: StratifiedPairs, places_K: Array) -> _Statistic:
    return _Statistic(pairs.correlation, pairs.p_value, places_K, pairs.products_N)


def _tested(
    rows: SignRows, name: str, groups: int, found: _Statistic, harmless: Callable[[], str] = str
) -> SignResult:
    """A sign, if there are enough groups; `harmless`: why it is no alarm."""
    if groups < LEAST_GROUPS:
        return SignResult(name, rows.set, None, found.effect, reason=f"too few groups ({groups})")
    p = found.p_value()
    why = harmless() if p <= ALPHA else ""
    top = np.argsort(-found.scores_K, kind="stable")[:SHOWN_ROWS]
    shown = found.places_K[top[found.scores_K[top] > 0]]
    ids = tuple(rows.response_ids[at] for at in shown)
    return SignResult(name, rows.set, p, found.effect, reason=why and f"no alarm: {why}", rows=ids)


def p_text(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


class _GroupMeans(NamedTuple):
    steps_G: Array
    lengths_G: Array
    rates_G: Array
    sizes_G: Array
    longest_G: Array
    components: Mapping[str, Array]

    @classmethod
    def of(cls, rows: SignRows) -> _GroupMeans:
        groups = Groups.of_column(pa.array(rows.groups_N))

        def mean(values_N: Array) -> Array:
            return groups.mean(values_N, np.isfinite(values_N))

        return cls(
            rows.steps_N[groups.starts_G],
            mean(rows.lengths_N),
            mean(rows.right_N),
            groups.sum(np.isfinite(rows.right_N)),
            np.flatnonzero(groups.rank(-np.nan_to_num(rows.lengths_N, nan=-1.0)) == 0),
            {name: mean(values_N) for name, values_N in rows.components.items()},
        )


def _length_drift(
    rows: SignRows, groups: _GroupMeans, validation: Sequence[tuple[int, float]]
) -> SignResult:
    """Whether groups with as many right responses get longer from step to step."""
    known_G = np.flatnonzero((groups.sizes_G > 0) & np.isfinite(groups.lengths_G))
    sizes = groups.sizes_G[known_G]
    right = np.rint(groups.rates_G[known_G] * sizes).astype(np.int64)
    codes = right * (int(sizes.max(initial=0)) + 1) + sizes
    ranks = ranks_within(codes, groups.lengths_G[known_G])
    pairs = StratifiedPairs.of(codes, ranks, groups.steps_G[known_G])
    longest = groups.longest_G[known_G[pairs.rows_N]]
    risen = partial(_risen, groups, validation)
    return _tested(rows, "length drift", len(pairs.rows_N), _of_pairs(pairs, longest), risen)


def _risen(groups: _GroupMeans, validation: Sequence[tuple[int, float]]) -> str:
    """What has risen over training, which longer responses may have been for; empty: nothing."""
    what, steps, values = "the pass rate", groups.steps_G, groups.rates_G
    if len(validation) >= _LEAST_VALIDATIONS:
        what = "validation"
        steps, values = (np.array(each, float) for each in zip(*validation, strict=True))
    pairs = StratifiedPairs.of(np.zeros(len(steps), np.int64), steps, values)
    return f"{what} has risen" if pairs.p_value() <= RISEN_ALPHA else ""


def _outruns(rows: SignRows, groups: _GroupMeans, component: str) -> SignResult:
    """Whether a component rises over training more than the pass rate, in ranks of groups."""
    known_G = np.isfinite(groups.components[component]) & np.isfinite(groups.rates_G)
    one = np.zeros(int(known_G.sum()), np.int64)
    steps, mean, rate = (
        ranks_within(one, values[known_G])
        for values in (groups.steps_G, groups.components[component], groups.rates_G)
    )
    pairs = StratifiedPairs.of(one, mean - rate, steps)
    places = groups.longest_G[np.flatnonzero(known_G)[pairs.rows_N]]
    varied = len(one) if len(np.unique(mean)) > 1 else 0
    return _tested(rows, f"{component} outruns accuracy", varied, _of_pairs(pairs, places))


def _carries(rows: SignRows, component: str) -> SignResult:
    """Whether a component has more of the advantage's variance than all others together.

    Under the null, what it has more of in a group is as often less: signs of groups are random.
    """
    own_N, full_N = rows.parts[component], rows.advantages_N
    known_N = np.isfinite(own_N) & np.isfinite(full_N)
    own_N, full_N = np.where(known_N, own_N, 0.0), np.where(known_N, full_N, 0.0)
    more_N = (2 * own_N - full_N) * full_N
    variance_G = np.bincount(rows.groups_N, full_N**2)
    more_G = np.bincount(rows.groups_N, more_N)[variance_G > 0]
    effect = float(own_N @ full_N / variance_G.sum()) if len(more_G) else float("nan")
    chance = partial(_beyond, float(more_G.sum()), float((more_G**2).sum()))
    found = _Statistic(effect, chance, np.arange(len(own_N)), more_N)
    return _tested(rows, f"{component} carries the advantage", len(more_G), found)


MOST_GROUPS = 2_000
"""Groups of all sets of a kind that are looked at: as many of each part, drawn at random."""
NGRAM = 8
"""Words of the response in a row that count as an echo where the prompt has them, too."""
_COMPONENT, _PART = "component of ", "part of "


def sign_rows(sets: Sequence[StoredSet], name: str, seed: int) -> SignRows:
    """What the signs need of the rows of sets, of about `MOST_GROUPS` groups at most."""
    parts = sum(1 if one.incomplete else one.parts for one in sets)
    most = -(-MOST_GROUPS // max(1, parts))
    tables, groups = list[pa.Table](), 0
    for one, part in ((each, part) for each in sets for part in written_values(each)):
        # Those that were sampled: not those that a step added.
        rows = rows_of([part]).first(part.base.num_rows)
        key = xxhash.xxh3_64_intdigest(
            f"{one.name} {len(tables)}".encode(), seed & 0xFFFFFFFFFFFFFFFF
        )
        count = len(rows.groups.starts_G)
        drawn = np.sort(np.random.default_rng(key).permutation(count)[:most])
        tables.append(_table(one, part.base, rows, drawn, groups))
        groups += len(drawn)
    return _sign_rows(name, pa.concat_tables(tables, promote_options="default"))


def _table(one: StoredSet, base: Frame, rows: RowTable, drawn: Array, first: int) -> pa.Table:
    at_N = np.flatnonzero(np.isin(rows.groups.codes_N, drawn))
    codes_N = np.searchsorted(drawn, rows.groups.codes_N[at_N])
    characters_N, boxes_N, echo_N = _of_texts(base, at_N, codes_N)
    rows_of = {
        **{f"{_COMPONENT}{x}": numbers(rows.table, f"reward_{x}") for x in rows.components},
        **{f"{_PART}{x}": part_N for x, part_N in component_advantages(rows).items()},
    }
    table = rows.table.take(pa.array(at_N))
    kept_N, advantages_N = rows.kept_N[at_N], numbers(table, "advantage")
    in_tokens = rows.unit == "tokens"
    verdicts, right_N = _verdicts(one, table)
    return pa.table(
        {
            "id": table["response_id"],
            "verdict": verdicts,
            "step": np.full(len(at_N), one.training_step or 0),
            "group": codes_N + first,
            "right": right_N,
            "advantage": np.where(kept_N, advantages_N, np.nan),
            "length": table["tokens"].cast(pa.float64()) if in_tokens else characters_N,
            "boxes": boxes_N,
            "echo": echo_N,
            **{name: values_N[at_N] for name, values_N in rows_of.items()},
        }
    )


def _sign_rows(name: str, table: pa.Table) -> SignRows:
    words = table["verdict"].combine_chunks().dictionary_encode()

    def starting(start: str) -> dict[str, Array]:
        names = [each for each in table.column_names if each.startswith(start)]
        return {each.removeprefix(start): numbers(table, each) for each in names}

    return SignRows(
        set=name,
        response_ids=table["id"].to_pylist(),
        steps_N=np.asarray(table["step"]),
        groups_N=np.asarray(table["group"]),
        verdicts_N=np.asarray(words.indices).astype(np.int64),
        right_N=numbers(table, "right"),
        advantages_N=numbers(table, "advantage"),
        lengths_N=numbers(table, "length"),
        components=starting(_COMPONENT),
        parts=starting(_PART),
        boxes_N=numbers(table, "boxes"),
        echo_N=numbers(table, "echo"),
    )


def _verdicts(one: StoredSet, table: pa.Table) -> tuple[pa.Array, Array]:
    """A word for each row, and 1 right, 0 wrong, NaN ungraded; judgements by their reward."""
    words = table["verdict"].combine_chunks().cast(pa.string())
    right_N, wrong_N = right_and_wrong(table["verdict"])
    found_N = np.where(right_N, 1.0, np.where(wrong_N, 0.0, np.nan))
    judges = [
        each.operator for each in one.steps if isinstance(each.operator, JudgementRewardMapper)
    ]
    if judges and "reward_verification" in table.column_names:
        reward_N = numbers(table, "reward_verification")
        judged_N = np.isfinite(reward_N)
        right_N = reward_N == judges[-1].right
        found_N = np.where(judged_N, right_N, found_N)
        judged = pa.array(np.where(right_N, "judged right", "judged wrong"))
        words = pc.if_else(pa.array(judged_N), judged, words)
    return pc.fill_null(words, ""), found_N


def _of_texts(base: Frame, at_N: Array, codes_N: Array) -> tuple[Array, Array, Array]:
    """Characters of each response, whether it has two boxes, and its share that is an echo."""
    nothing = np.full(len(at_N), np.nan)
    if "response" not in base.column_names or not is_text(base.schema.field("response").type):
        return nothing, nothing, nothing
    names = [name for name in ("prompt", "response") if name in base.column_names]
    table = base.select(names).take(pa.array(at_N))
    response = texts_of(table["response"])
    known_N = np.asarray(response.is_valid())
    characters = pc.utf8_length(response).cast(pa.float64())
    characters_N = np.array(pc.fill_null(characters, np.nan))
    boxes = pc.fill_null(pc.count_substring(response, "\\boxed"), 0)
    boxes_N = np.where(known_N, np.asarray(boxes) > 1, np.nan)
    if "prompt" not in names:
        return characters_N, boxes_N, nothing
    first_G = np.flatnonzero(np.diff(codes_N, prepend=-1))
    prompts = texts_of(table["prompt"].take(pa.array(first_G)))
    echo_N = np.where(known_N, echoes(prompts, response, codes_N), np.nan)
    return characters_N, boxes_N, echo_N


def echoes(prompts: pa.Array, responses: pa.Array, codes_N: Array) -> Array:
    """The share of each response's runs of 8 words that its prompt has, too, float64[N]; a text of
    fewer words is one run."""
    own = [keys for keys, _ in _keys(prompts, np.arange(len(prompts)))]
    known = np.unique(np.concatenate(own)) if own else np.zeros(0, np.uint64)
    shares = [np.zeros(0)]
    for keys, offsets_N1 in _keys(responses, codes_N):
        hits = np.concatenate([[0], np.cumsum(np.isin(keys, known))])
        shares.append(np.diff(hits[offsets_N1]) / np.diff(offsets_N1))
    return np.concatenate(shares)


def _keys(texts: pa.Array, codes_N: Array) -> Iterator[Tokens]:
    """Runs of words, different for different prompts, block by block."""
    start = 0
    for block in blocks(texts):
        runs = shingles(tokens_of(block), NGRAM)
        sizes_N = np.diff(runs.offsets_N1)
        codes = codes_N[start : start + len(sizes_N)].astype(np.uint64)
        start += len(sizes_N)
        yield Tokens(
            mix(runs.hashes_T + mix(np.repeat(codes + np.uint64(1), sizes_N))), runs.offsets_N1
        )


_VALIDATION = re.compile(r"rejuice/validation/[^/]+/mean@\d+")
_VALIDATION_OF_VERL = re.compile(r"val-core/.*/(?:acc|reward)/mean@\d+")


def audit_signs(stored: Stored, seed: int) -> tuple[SignResult, ...]:
    """The signs of a stored run; alarms are corrected over all of them.

    The answers of all steps of a training run are taken as one set, and so are its judgements.
    """
    found: list[SignResult] = []
    validation = _validation(stored.points)
    for kind in ("answers", "judgements"):
        sets = [each for each in stored.sets if each.kind == kind]
        if any(one.parts for one in sets):
            name = sets[0].name if len(sets) == 1 else kind
            found += signs_of(sign_rows(sets, name, seed), validation)
    return with_alarms(found)


def _validation(points: Sequence[Mapping[str, float]]) -> list[tuple[int, float]]:
    found = []
    for point in points:
        for pattern in (_VALIDATION, _VALIDATION_OF_VERL):
            values = [value for name, value in point.items() if pattern.fullmatch(name)]
            if values:
                found.append((int(point["step"]), float(np.mean(values))))
                break
    return found
