"""What differs between two recipes, and between what they made of rows.

    Recipe, Recipe ──recipe_differences──> fields in words
    RowTable, RowTable of the same rows ──compare──> Comparison, row by row
    RowTable, RowTable of any rows ──set_change──> SetChange, of all rows of each

`rejuice whatif` and `ablate` compare a run with what other steps do to its rows; `rejuice diff`
compares two runs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE
from ...operators.groups import Array, Groups, average_ranks
from ..console import listed, path_text
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .figures import column_values, group_figures, masked_tokens, pass_rates, variance_shares
from .rows import KEPT, RowTable

# --- Recipes in words: the fields that differ, and what they mean ---------------------

_WIDEST_FIELD = 100
_GENERATED = "generated_datasets"
_PLACES = ("project_name", "export_path", "process", "train")


def recipe_differences(a: Recipe, b: Recipe) -> list[str]:
    """Return fields of the head, of the steps and of `train:` that differ, as `field old -> new`.

    Defaults are resolved: a field that one of them leaves out has its default. Where the recipes
    write to, and what their project is called, is no difference.

    Example:
        >>> recipe_differences(load("a.yaml"), load("b.yaml"))
        ['pass_rate_filter.max 0.9 -> 1.0   (Highest pass rate to keep)']
    """
    return [f"{line}{_meaning(line, a, b)}" for line in _lines(a, b)]


def _lines(a: Recipe, b: Recipe) -> Iterator[str]:
    heads = [_head(each) for each in (a, b)]
    generated = [each.pop(_GENERATED) for each in heads]
    for name in sorted(heads[0].keys() | heads[1].keys()):
        if name not in _PLACES:
            yield from differences(name, heads[0].get(name), heads[1].get(name))
    if a.head.dataset_spec == b.head.dataset_spec:  # Else how each is generated says nothing.
        yield from _generated(*generated)
    yield from changed_fields(a.steps, b.steps)
    trains = [_plain(each.head.train) for each in (a, b)]
    if None in trains and trains[0] != trains[1]:
        yield "train added" if trains[0] is None else "train left out"
    else:
        yield from differences("train", *trains)


def _head(recipe: Recipe) -> dict[str, Any]:
    """Return the head; paths as commands print them, as that of a run has absolute ones."""
    head: dict[str, Any] = _plain(recipe.head)
    path = head.get("dataset_path")
    if isinstance(path, str) and "://" not in path:
        head["dataset_path"] = path_text(Path(path).absolute())
    generated = head[_GENERATED].items()
    head[_GENERATED] = {path_text(Path(name).absolute()): each for name, each in generated}
    return head


def _generated(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield how generated datasets differ: the fields of one in both, or its type and size."""
    for name in sorted(old.keys() | new.keys()):
        path = f"{_GENERATED}.{name}"
        if name in old and name in new:
            yield from differences(path, old[name], new[name])
        else:
            found, what = (new[name], "added") if name in new else (old[name], "left out")
            yield f"{path} {what}: {found['type']}, prompts {found['prompts']:,}"


def _plain(model: BaseModel | None) -> Any:
    return None if model is None else model.model_dump(mode="json")


def _meaning(line: str, a: Recipe, b: Recipe) -> str:
    """Return the first sentence about a field, in brackets; empty where there is none."""
    name, _, field = line.split(" ")[0].partition(".")
    models: dict[str, Any] = {step.name: step.operator for step in (*a.steps, *b.steps)}
    model = models.get(name, b.head.train if name == "train" else b.head)
    wanted = field.partition(".")[0] or name
    if not isinstance(model, BaseModel):
        return ""
    described = type(model).model_json_schema()["properties"].get(wanted, {})
    text = " ".join(str(described.get("description", "")).split())
    sentence = text.partition(". ")[0].removesuffix(".")
    return f"   ({sentence})" if 0 < len(sentence) <= _WIDEST_FIELD else ""


def changed_fields(old: Sequence[Step], new: Sequence[Step]) -> list[str]:
    """Return the steps and fields that differ, as `step.field old -> new`, sorted."""
    lines = list[str]()
    before = {step.name: step.operator for step in old}
    after = {step.name: step.operator for step in new}
    lines += [f"{name} left out" for name in before if name not in after]
    for name, operator in after.items():
        if name not in before:
            lines.append(f"{name} added")
            continue
        own, other = (each.model_dump(mode="json") for each in (before[name], operator))
        for field in own.keys() | other.keys():
            lines += differences(f"{name}.{field}", own.get(field), other.get(field))
    common = [[n for n in names if n in before and n in after] for names in (before, after)]
    if common[0] != common[1]:
        lines.append("the order of steps")
    return sorted(lines)


def differences(path: str, old: object, new: object) -> list[str]:
    """Two values of a field, as `field old -> new`, or those of the fields in it that differ."""
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys(), key=str)
        found = [differences(f"{path}.{key}", old.get(key), new.get(key)) for key in keys]
        return [line for lines in found for line in lines]
    return [f"{path} {old} -> {new}"]


# --- The same rows, row by row --------------------------------------------------------

UNKNOWN = "not_stored"
"""Why a row is unknown: a judge or model would have to be asked."""
KINDS = ("gained", "lost", "flipped", "silenced", "woken", "unknown")
"""What may have happened to a row; one that is kept may also have changed sign."""


class Comparison(NamedTuple):
    """The rows of a base before and after, row by row."""

    # response_id, prompt_id, step_before and step_after (the number of the step that dropped it,
    # null where it is kept), reason_before, reason_after, reward_before, reward_after,
    # advantage_before, advantage_after, masked_before and masked_after (the share of its tokens
    # that does not train), and a bool for each of `KINDS`: gained and lost in the rows kept;
    # flipped: the sign of the advantage; silenced, woken: to or from an advantage of 0; unknown: a
    # model would have to be asked
    rows: pa.Table
    kept_in_both: int  # rows
    # with a row kept before, after, and how many were gained and lost
    groups: tuple[int, int, int, int]
    # Spearman's correlation of rewards before and after within groups, mean over groups that have
    # spread in both; NaN without any
    rank: float
    mean_reward: tuple[float, float]  # of rows kept, before and after
    # by component, its share of the variance of advantages before and after, over rows kept in both
    variance: Mapping[str, tuple[float, float]]

    def count(self, kind: str) -> int:
        """Return how many rows are of one of `KINDS`."""
        return int(np.asarray(self.rows[kind]).sum())

    def reasons(self, kind: str) -> dict[str, int]:
        """Return why gained rows were dropped, or lost ones are, the most frequent reason first."""
        column = self.rows[f"reason_{'before' if kind == 'gained' else 'after'}"]
        counted = column.filter(self.rows[kind]).value_counts().to_pylist()
        ordered = sorted(counted, key=lambda each: (-each["counts"], str(each["values"])))
        return {str(each["values"]): each["counts"] for each in ordered}


def compare(before: RowTable, after: RowTable) -> Comparison:
    """Compare two tables of the same rows."""
    one, two = before.table, after.table
    fates = [np.asarray(table["fate"]) for table in (one, two)]
    unknown_N = np.array(pc.fill_null(pc.equal(two["reason"].cast(pa.string()), UNKNOWN), False))
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
    groups = before.groups
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
        rank_correlation(groups, rewards[0], rewards[1], both_N),
        (_mean(rewards[0][kept[0]]), _mean(rewards[1][kept[1]])),
        _variance(before, after, both_N),
    )


def rank_correlation(groups: Groups, x_N: Array, y_N: Array, used_N: Array) -> float:
    """Spearman's correlation within groups, mean over those with spread in both, else NaN."""
    known_N = used_N & np.isfinite(x_N) & np.isfinite(y_N)
    codes_N = groups.codes_N[known_N]
    ranks = [average_ranks(codes_N, values[known_N]) for values in (x_N, y_N)]
    sizes_G = np.bincount(codes_N, minlength=len(groups.starts_G))
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = [r - (np.bincount(codes_N, r, len(sizes_G)) / sizes_G)[codes_N] for r in ranks]
        sums = [
            np.bincount(codes_N, a * b, len(sizes_G))
            for a, b in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
        ]
        found_G = sums[0] / np.sqrt(sums[1] * sums[2])
    found_G = found_G[np.isfinite(found_G)]
    return float(found_G.mean()) if len(found_G) else float("nan")


def _rows(one: pa.Table, two: pa.Table, fates: list[Array], kinds: Mapping[str, Array]) -> pa.Table:
    columns = {name: one[name] for name in ("response_id", "prompt_id")}
    for when, table, fate_N in (("before", one, fates[0]), ("after", two, fates[1])):
        columns[f"step_{when}"] = pa.array(fate_N, mask=fate_N == KEPT)
        for name in ("reason", "reward", "advantage"):
            columns[f"{name}_{when}"] = table[name]
        columns[f"masked_{when}"] = pa.array(masked_tokens(table))
    return pa.table({**columns, **{name: pa.array(each) for name, each in kinds.items()}})


def _variance(before: RowTable, after: RowTable, both_N: Array) -> dict[str, tuple[float, float]]:
    shares = [variance_shares(rows, both_N) for rows in (before, after)]
    names = dict.fromkeys([*shares[0], *shares[1]])
    nothing = float("nan")
    return {name: (shares[0].get(name, nothing), shares[1].get(name, nothing)) for name in names}


def details_lines(command: str, kinds: Iterable[str]) -> Iterator[str]:
    """Yield for each kind of rows the whole command that prints them."""
    for at, kind in enumerate(kinds):
        yield f"{'' if at else 'details':<13}{command} --rows {kind}"


def json_lines(found: Comparison, kind: str, name: str = "") -> Iterator[str]:
    """Yield the rows of one of `KINDS`, as JSON lines, with the name of their set if it has one."""
    table = found.rows.filter(found.rows[kind]).drop_columns(list(KINDS))
    for row in table.to_pylist():
        known = {key: None if _is_nan(value) else value for key, value in row.items()}
        yield json.dumps({"set": name, **known} if name else known, ensure_ascii=True)


def advantages_text(found: Comparison) -> str:
    """Return how many advantages change their sign, become 0 or are 0 no longer."""
    counts = {kind: f"{found.count(kind):,}" for kind in ("flipped", "silenced", "woken")}
    return (
        f"of {found.kept_in_both:,} rows {counts['flipped']} change sign, "
        f"{counts['silenced']} become 0, {counts['woken']} are 0 no longer"
    )


def masked_shares(found: Comparison) -> tuple[float, float]:
    """Return the share of a kept row's tokens that is masked, mean over rows, before and after."""
    before, after = (_mean(values) for values in _of_kept(found, "masked"))
    return before, after


def advantage_sizes(found: Comparison) -> tuple[float, float]:
    """Return the absolute advantage of a kept row, mean over rows, before and after."""
    before, after = (_mean(np.abs(values)) for values in _of_kept(found, "advantage"))
    return before, after


def _of_kept(found: Comparison, name: str) -> Iterator[Array]:
    """Yield a figure of the rows that are kept, before and after."""
    for when in ("before", "after"):
        kept_N = np.asarray(pc.is_null(found.rows[f"step_{when}"]))
        yield column_values(found.rows, f"{name}_{when}")[kept_N]


def reasons_text(found: Comparison, kind: str) -> str:
    """Return why rows were gained or lost, in brackets; empty where none was."""
    reasons = listed(found.reasons(kind))
    return f" ({reasons})" if reasons else ""


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


# --- All rows of each -----------------------------------------------------------------
# What changed from one set of rows to another: the mean reward, split by component, exactly.
#
# Over the rows that are kept, with the contribution a_c of component c and its weight w_c:
#
#     mean_b r - mean_a r = sum_c (mean_b a_c - mean_a a_c)
#     mean_b a_c - mean_a a_c = w_b (m_b - m_a) + (w_b - w_a) m_a,      m = mean a_c / w
#
# m is the mean of the component's values, after gates and substitutes. Where a weight is 0 its m is
# not known, and the other set's is taken. Where it is not known what components add to the rewards,
# as of rewards that came with the responses, all of them are NaN, and `rest` is the whole mean.

_Z95 = 1.959964
LEAST_COUNT = 3
"""A response is frequent from so many rows on."""
_SAME = 1e-9
"""Rewards that differ by less are the same: sums in another order round differently."""
_Value = TypeVar("_Value")


class ComponentChange(NamedTuple):
    """What a component adds to the mean reward in two sets, and why it adds more or less.

    NaN where that is not known.
    """

    added: tuple[float, float]  # its mean contribution in the one and the other
    weights: tuple[float, float]  # of the sum; NaN where the set has no sum with it
    by_values: float  # of the difference of `added`, what the change of its values makes
    by_weight: float  # what the change of its weight makes
    missing: tuple[float, float]  # the share of rows in which it is missing


class PromptChange(NamedTuple):
    """The mean reward of the responses to a prompt that are kept in both sets."""

    prompt_id: str
    before: float
    after: float


class SetChange(NamedTuple):
    """Two sets of rows.

    Where the dropped rows of a set are not on file, its `pass_rate`, `length`, `silent` and what is
    `missing` are NaN, and its `prompts` those of the rows that are left.
    """

    rows: tuple[int, int]  # on file of each, and `kept` of these
    kept: tuple[int, int]  # rows
    # with responses: in both, only in the first, only in the second
    prompts: tuple[int, int, int]
    reward: tuple[float, float]  # the mean over the rows kept
    # 95% interval of the difference of `reward` by the spread between groups, as if the two sets
    # had different prompts
    by_chance: tuple[float, float]
    components: Mapping[str, ComponentChange]  # by name; `added` and `rest` sum to `reward`
    rest: tuple[float, float]  # of the mean reward: what no component adds, as far as is known
    pass_rate: tuple[float, float]  # right among the graded rows
    length: tuple[float, float]  # mean
    length_units: tuple[str, str]  # `tokens` or `characters`
    silent: tuple[float, float]  # the share of groups without signal among those with responses
    moved: tuple[PromptChange, ...]  # prompts with rewards in both, the greatest difference first


def set_change(
    a: RowTable, b: RowTable, weights: tuple[Mapping[str, float], Mapping[str, float]]
) -> SetChange:
    """Return what changed from one set to another."""
    both = (a, b)
    names = dict.fromkeys([*a.components, *b.components])
    reward = _pair(_mean(column_values(rows.table, "reward")[rows.kept_N]) for rows in both)
    components = {name: _component(name, both, weights) for name in names}
    half = _Z95 * float(np.hypot(_standard_error(a), _standard_error(b)))
    return SetChange(
        _pair(rows.table.num_rows for rows in both),
        _pair(int(rows.kept_N.sum()) for rows in both),
        _prompts(a, b),
        reward,
        (reward[1] - reward[0] - half, reward[1] - reward[0] + half),
        components,
        _pair(_rest(reward[side], [x.added[side] for x in components.values()]) for side in (0, 1)),
        _pair(map(_pass_rate, both)),
        _pair(map(_length, both)),
        (a.unit, b.unit),
        _pair(map(_silent, both)),
        _moved(a, b),
    )


def new_responses(before: Iterable[str | None], after: Sequence[str | None]) -> dict[str, int]:
    """Return responses that are frequent in a set and absent from another, the most frequent first.

    White space does not count; a response is a text, not a meaning.
    """
    old = {" ".join(text.split()) for text in before if text is not None}
    counts = Counter(" ".join(text.split()) for text in after if text is not None)
    return {text: n for text, n in counts.most_common() if n >= LEAST_COUNT and text not in old}


def _standard_error(rows: RowTable) -> float:
    """The standard error of the mean reward, by groups: sqrt(sum_g (sum_i r_i - m)^2) / N."""
    reward_N = column_values(rows.table, "reward")
    used_N = rows.kept_N & np.isfinite(reward_N)
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
    missing = _pair(_missing(rows, name) for rows in both)
    w = _pair(own.get(name, float("nan")) for own in weights)
    if not np.isfinite(added).all():
        return ComponentChange(added, w, float("nan"), float("nan"), missing)
    known_w = np.nan_to_num(np.array(w))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.array(added) / known_w
    mean = np.where(known_w == 0, mean[::-1], mean)  # The other set's, where it is not known.
    mean = np.where(np.isfinite(mean), mean, 0.0)
    by_values = float(known_w[1] * (mean[1] - mean[0]))
    by_weight = float((known_w[1] - known_w[0]) * mean[0])
    return ComponentChange(added, w, by_values, by_weight, missing)


def _rest(reward: float, added: Sequence[float]) -> float:
    rest = reward - float(np.nansum(added))
    return 0.0 if abs(rest) < _SAME else rest


def _added(rows: RowTable, name: str) -> float:
    """The mean contribution over kept rows with a reward; 0 where the component is not summed.

    NaN where no contribution is known.
    """
    if not rows.has_contributions:
        return float("nan")
    if f"contribution_{name}" not in rows.table.column_names:
        return 0.0
    rewarded_N = rows.kept_N & np.isfinite(column_values(rows.table, "reward"))
    values = np.nan_to_num(column_values(rows.table, f"contribution_{name}")[rewarded_N])
    return _mean(values) if len(values) else 0.0


def _missing(rows: RowTable, name: str) -> float:
    column = f"reward_{name}_missing"
    unknown = column not in rows.table.column_names or not rows.with_dropped
    if unknown or not rows.has_response_N.any():
        return float("nan")
    reasons = rows.table[column].cast(pa.string())
    missing_N = np.asarray(pc.fill_null(pc.not_equal(reasons, NOT_APPLICABLE), False))
    return float(np.mean(missing_N[rows.has_response_N]))


def _pass_rate(rows: RowTable) -> float:
    if not rows.with_dropped:
        return float("nan")
    _, right_G, wrong_G = pass_rates(rows)
    right, graded = float(right_G.sum()), float(right_G.sum() + wrong_G.sum())
    return right / graded if graded else float("nan")


def _length(rows: RowTable) -> float:
    found = pc.mean(rows.table[rows.unit]).as_py() if rows.with_dropped else None
    return float("nan") if found is None else float(found)


def _silent(rows: RowTable) -> float:
    return group_figures(rows).share_without_signal


def _prompts(a: RowTable, b: RowTable) -> tuple[int, int, int]:
    of_a, of_b = (
        set(rows.table["prompt_id"].filter(pa.array(rows.has_response_N)).to_pylist())
        for rows in (a, b)
    )
    return len(of_a & of_b), len(of_a - of_b), len(of_b - of_a)


def _moved(a: RowTable, b: RowTable) -> tuple[PromptChange, ...]:
    before, after = _mean_rewards(a), _mean_rewards(b)
    found = [PromptChange(name, before[name], after[name]) for name in before if name in after]
    found = [each for each in found if abs(each.after - each.before) >= _SAME]
    return tuple(sorted(found, key=lambda x: (-abs(x.after - x.before), x.prompt_id)))


def _mean_rewards(rows: RowTable) -> dict[str, float]:
    reward_N = column_values(rows.table, "reward")
    used_N = rows.kept_N & np.isfinite(reward_N)
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
