"""`rejuice diff`: two recipes in words, and two stored runs on data.

    Stored, Stored ──pairs──> (StoredSet, StoredSet)... ──set_diff──> SetDiff

Over the rows that are kept, with the contribution a_c of component c and its weight w_c,

    mean_b r - mean_a r = sum_c (mean_b a_c - mean_a a_c)
    mean_b a_c - mean_a a_c = w_b (m_b - m_a) + (w_b - w_a) m_a,      m = mean a_c / w

m is the mean of the component's values, after gates and substitutes. Where a weight is 0 its m is
not known, and the other set's is taken. Where it is not known what components add to the rewards,
as of rewards that came with the responses, all of them are NaN, and `rest` is the whole mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import DataError
from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, numbers
from ...operators.groups import Groups
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..console import path_text
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .comparison import Comparison, compare, recipe_differences
from .figures import RowFigures, finite_mean, row_figures
from .rows import RowTable, stored_rows
from .stored import Stored, StoredSet

_Z95 = 1.959964
LEAST_COUNT = 3
"""A response is frequent from so many rows on."""
_SAME = 1e-9
"""Rewards that differ by less are the same: sums in another order round differently."""


class Side(NamedTuple):
    path: Path  # as it was given
    recipe: Recipe  # as it is now, or as it ran
    stored: Stored | None  # None: the recipe has not been run


class ComponentChange(NamedTuple):
    """What a component adds to the mean reward of two sets, why it adds more or less; or NaN."""

    added: tuple[float, float]  # its mean contribution in the one and the other
    by_values: float  # of the difference of `added`, what the change of its values makes
    by_weight: float  # what the change of its weight makes
    missing: tuple[float, float]  # the share of rows in which it is missing


class PromptChange(NamedTuple):
    """The mean reward of the responses to a prompt that are kept in both sets."""

    prompt_id: str
    before: float
    after: float


class SetDiff(NamedTuple):
    names: tuple[str, str]  # of the two
    # why the dropped rows of each are not on file; empty where they are
    left_only: tuple[str, str]
    # the rows that both sampled, by their `response_id`; None: there are none
    common: Comparison | None
    figures: tuple[RowFigures, RowFigures]  # of all rows of each
    prompts: tuple[int, int, int]  # with responses on file: of each, and of both
    components: Mapping[str, ComponentChange]  # by name; `added` and `rest` sum to `reward`
    rest: tuple[float, float]  # of the mean reward: what no component adds, as far as is known
    moved: Sequence[PromptChange]  # prompts with rewards in both, the greatest difference first
    # responses that are frequent in the second and absent from the first, with counts; none, where
    # dropped rows of the first are not on file
    new: Mapping[str, int]


def pairs(a: Stored, b: Stored) -> list[tuple[StoredSet, StoredSet]]:
    """The sets to compare: of training runs, those of the last step that both have; beside a step
    or an export, its own last step."""
    steps = [{one.training_step or 0 for one in each.sets} for each in (a, b)]
    if a.kind == b.kind == "training run":
        steps = [steps[0] & steps[1]] * 2
    last = [max(of_one, default=0) for of_one in steps]
    of_a, of_b = (
        {one.kind: one for one in each.sets if (one.training_step or 0) == step}
        for each, step in zip((a, b), last, strict=True)
    )
    found = [(of_a[kind], of_b[kind]) for kind in of_a if kind in of_b]
    if not found:
        raise DataError(
            f"{a.path} and {b.path} have no training step in common",
            "give steps of them, such as RUN/steps/000012",
        )
    return found


def changed_recipe(a: Side, b: Side) -> list[str]:
    """The fields that differ; of two training steps, as they were at these steps."""
    one, two = a.stored, b.stored
    if one is None or two is None or {one.kind, two.kind} != {"training step"}:
        return recipe_differences(a.recipe, b.recipe)
    of_a, of_b = (
        {step.name: _as_it_was(step) for each in sets for step in each.recipe.steps}
        for sets in zip(*pairs(one, two), strict=True)
    )
    rest = of_a.keys() | of_b.keys()  # The recipe of the run is that of its last start.
    found = [
        side.recipe.replace(
            steps=(*(step for step in side.recipe.steps if step.name not in rest), *ran.values())
        )
        for side, ran in ((a, of_a), (b, of_b))
    ]
    return recipe_differences(*found)


def diff_facts(a: Side, b: Side) -> dict[str, Any]:
    """For `--json`: fields that differ, and sets, if both have been run."""
    both = () if a.stored is None or b.stored is None else pairs(a.stored, b.stored)
    sets = [set_diff(one, two, (a.path, b.path)) for one, two in both]
    return {"recipe": changed_recipe(a, b), "sets": sets}


def _as_it_was(step: Step) -> Step:
    """A step whose weights, if they follow a schedule, are those of its progress."""
    operator = step.operator
    if not isinstance(operator, RewardSumMapper):
        return step
    weights = {name: operator.weight(name) for name in operator.weights}
    update = {"weights": weights, "progress": 0.0}
    return step._replace(operator=operator.model_copy(update=update))


def set_diff(a: StoredSet, b: StoredSet, paths: tuple[Path, Path]) -> SetDiff:
    x, y = stored_rows(a), stored_rows(b)
    figures = row_figures(x), row_figures(y)
    components = component_changes(x, y, [_weights(a), _weights(b)])
    added = [[each.added[at] for each in components.values()] for at in range(len(figures))]
    rests = [side.reward - float(np.nansum(x)) for side, x in zip(figures, added, strict=True)]
    rest_a, rest_b = (0.0 if abs(rest) < _SAME else rest for rest in rests)
    of_a, of_b = (
        set(rows.table["prompt_id"].filter(pa.array(rows.has_response_N)).to_pylist())
        for rows in (x, y)
    )
    return SetDiff(
        (_name(paths[0], a), _name(paths[1], b)),
        (a.incomplete, b.incomplete),
        _common(x, y),
        figures,
        (len(of_a), len(of_b), len(of_a & of_b)),
        components,
        (rest_a, rest_b),
        _moved(x, y),
        {} if a.incomplete else new_responses(_responses(a), _responses(b)),
    )


def component_changes(
    a: RowTable, b: RowTable, weights: Sequence[Mapping[str, float]]
) -> dict[str, ComponentChange]:
    """By component, what it adds to the mean reward of two sets whose sums had these weights."""
    found = {}
    for name in dict.fromkeys([*a.components, *b.components]):
        added, missing = ((of(a, name), of(b, name)) for of in (_added, _missing))
        by_values = by_weight = math.nan
        if np.isfinite(added).all():
            w = [each.get(name, 0.0) for each in weights]
            means = [x / y if y else math.nan for x, y in zip(added, w, strict=True)]
            known = [mean for mean in means if math.isfinite(mean)] or [0.0]
            before, after = (mean if math.isfinite(mean) else known[0] for mean in means)
            by_values, by_weight = w[1] * (after - before), (w[1] - w[0]) * before
        found[name] = ComponentChange(added, by_values, by_weight, missing)
    return found


def by_chance(figures: tuple[RowFigures, RowFigures]) -> tuple[float, float]:
    """The 95% interval of the difference of mean rewards, as if the two had different prompts."""
    before, after = figures
    half, gap = _Z95 * math.hypot(before.error, after.error), after.reward - before.reward
    return gap - half, gap + half


def new_responses(before: Iterable[str | None], after: Iterable[str | None]) -> dict[str, int]:
    """Responses that are frequent in one and absent from the other, whatever their white space."""
    old, new = (
        Counter(" ".join(text.split()) for text in texts if text is not None)
        for texts in (before, after)
    )
    return {text: n for text, n in new.most_common() if n >= LEAST_COUNT and text not in old}


def _responses(one: StoredSet) -> list[str | None]:
    bases = [one.base(part) for part in range(one.parts)]
    found = [base.select(["response"]) for base in bases if "response" in base.column_names]
    return [text for table in found for text in table["response"].cast(pa.string()).to_pylist()]


def _name(path: Path, one: StoredSet) -> str:
    """The path, with the name of the set where it is not that of a step."""
    is_named = not one.name or path.name == f"{one.training_step:06d}"
    return path_text(path) if is_named else f"{path_text(path)}, {one.name}"


def _common(a: RowTable, b: RowTable) -> Comparison | None:
    """The comparison of the rows that are in both, in the order of the first."""
    ids = [rows.table["response_id"].combine_chunks() for rows in (a, b)]
    places = pc.index_in(ids[0], value_set=ids[1], skip_nulls=True)
    if places.null_count == len(places):
        return None
    tables = a.table.filter(places.is_valid()), b.table.take(places.drop_null())
    groups = Groups.of(tables[0])
    before, after = (
        rows._replace(table=table, groups=groups)
        for rows, table in zip((a, b), tables, strict=True)
    )
    return compare(before, after)


def _weights(one: StoredSet) -> dict[str, float]:
    """The weights with which the rows of a set were summed, the last sum's where there are two."""
    sums = [x.operator for x in one.recipe.steps if isinstance(x.operator, RewardSumMapper)]
    return {name: each.weight(name) for each in sums for name in each.weights}


def _added(rows: RowTable, name: str) -> float:
    """The mean contribution over kept rows with a reward; 0 where the component is not summed, NaN
    where none is known."""
    columns = (rows.table[f"contribution_{name}"] for name in rows.components)
    if all(column.null_count == len(column) for column in columns):
        return math.nan
    if f"contribution_{name}" not in rows.table.column_names:
        return 0.0
    rewarded_N = rows.kept_N & np.isfinite(numbers(rows.table, "reward"))
    added_N = np.nan_to_num(numbers(rows.table, f"contribution_{name}")[rewarded_N])
    return finite_mean(added_N) if len(added_N) else 0.0


def _missing(rows: RowTable, name: str) -> float:
    column = f"reward_{name}_missing"
    if column not in rows.table.column_names or not rows.with_dropped:
        return math.nan
    is_missing = pc.not_equal(rows.table[column].cast(pa.string()), NOT_APPLICABLE)
    return finite_mean(np.asarray(pc.fill_null(is_missing, False))[rows.has_response_N])


def _moved(a: RowTable, b: RowTable) -> list[PromptChange]:
    kept = (rows.table.filter(pa.array(rows.kept_N)) for rows in (a, b))
    before, after = (x.group_by("prompt_id").aggregate([("reward", "mean")]) for x in kept)
    found = before.join(after, "prompt_id", join_type="inner", right_suffix="_b").to_pylist()
    changes = [PromptChange(*row.values()) for row in found if None not in row.values()]
    changes = [each for each in changes if abs(each.after - each.before) >= _SAME]
    return sorted(changes, key=lambda x: (-abs(x.after - x.before), x.prompt_id))
