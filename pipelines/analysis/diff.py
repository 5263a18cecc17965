"""Two stored runs on data: the rows that both sampled, and what changed over all their rows.

Stored a, Stored b ──pairs──> (StoredSet, StoredSet)... ──set_diff──> SetDiff
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import DataError
from ...operators.compute import pc
from ...operators.groups import Array, Groups
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ..recipe.trust import read_to_show
from .change import SetChange, new_responses, set_change
from .comparison import Comparison, compare
from .open import RECIPES, open_stored
from .open_compared import has_run
from .recipes import recipe_differences
from .replay import UNKNOWN
from .rows import RowTable, stored_rows
from .stored import Stored, StoredSet


class Diff(NamedTuple):
    """Two recipes, and what their runs made of rows.

    Attributes:
        paths: as they were given.
        fields: of the recipes that differ, see `recipe_differences`.
        sets: of the runs; none where one of them has not been run.
        not_run: the recipes that have not been run.
        points: of two training runs, their metrics by the steps that both have.
        other_samples: of two training runs, the first step with other responses; None: there is
            none.
    """

    paths: tuple[Path, Path]
    fields: Sequence[str]
    sets: Sequence[SetDiff]
    not_run: Sequence[Path]
    points: Mapping[int, tuple[Mapping[str, float], Mapping[str, float]]]
    other_samples: int | None


class SetDiff(NamedTuple):
    """Two sets of rows.

    Attributes:
        names: of the two.
        common: the rows that both sampled, by their `response_id`; None: there are none.
        change: over all rows of each.
        new: responses that are frequent in the second and absent from the first, with counts.
    """

    names: tuple[str, str]
    common: Comparison | None
    change: SetChange
    new: Mapping[str, int]


def diff_of(a: Path, b: Path, steps: range | None = None) -> Diff:
    """The differences of two recipes or runs.

    Args:
        a: a recipe, or a stored run.
        b: another one.
        steps: of training runs, those that are looked at; None: all.

    Raises:
        RejuiceError: one of them cannot be read, or two training runs share no step.
    """
    not_run = [path for path in (a, b) if not has_run(path)]
    if not_run:
        recipes = [
            read_to_show(path) if path.suffix in RECIPES else open_stored(path).read_recipe()
            for path in (a, b)
        ]
        return Diff((a, b), recipe_differences(*recipes), (), not_run, {}, None)
    one, two = (open_stored(path, steps=steps) for path in (a, b))
    # A recipe may have changed since it was run: in words it is as it is now.
    recipes = [
        read_to_show(path) if path.suffix in RECIPES else stored.read_recipe()
        for path, stored in ((a, one), (b, two))
    ]
    fields = recipe_differences(*recipes)
    sets = [set_diff(x, y, _names((a, x), (b, y))) for x, y in pairs(one, two)]
    points, other = dict[int, Any](), None
    if one.kind == two.kind == "training run":
        of_both = [{int(point["step"]): point for point in each.points} for each in (one, two)]
        points = {n: (of_both[0][n], of_both[1][n]) for n in of_both[0] if n in of_both[1]}
        other = first_other_samples(one, two)
    return Diff((a, b), fields, sets, (), points, other)


def _names(*both: tuple[Path, StoredSet]) -> tuple[str, str]:
    """The paths, with the name of the set where a path is not that of a step."""
    a, b = (
        f"{path}, {one.name}" if one.name and path.name != f"{one.training_step:06d}" else str(path)
        for path, one in both
    )
    return a, b


def pairs(a: Stored, b: Stored) -> list[tuple[StoredSet, StoredSet]]:
    """The sets to compare: of training runs, those of the last step that both have.

    Of a training run beside a step or an export, its own last step.

    Raises:
        DataError: there are none.
    """
    steps = [{one.training_step for one in each.sets} for each in (a, b)]
    if a.kind == b.kind == "training run":
        steps = [steps[0] & steps[1]] * 2
    last = [max((step or 0 for step in of_one), default=0) for of_one in steps]
    chosen = [
        [one for one in each.sets if (one.training_step or 0) == step]
        for each, step in zip((a, b), last, strict=True)
    ]
    by_kind = [{one.kind: one for one in sets} for sets in chosen]
    found = [(by_kind[0][kind], by_kind[1][kind]) for kind in by_kind[0] if kind in by_kind[1]]
    if not found:
        raise DataError(
            f"{a.path} and {b.path} have no training step in common",
            "give steps of them, such as RUN/steps/000012",
        )
    return found


def set_diff(a: StoredSet, b: StoredSet, names: tuple[str, str]) -> SetDiff:
    """The differences of two sets.

    Args:
        a: the first.
        b: the second.
        names: of the two, where they are printed.

    Raises:
        RejuiceError: their files are damaged.
    """
    rows = stored_rows(a), stored_rows(b)
    weights = _weights(a), _weights(b)
    new = new_responses(_responses(a), _responses(b))
    return SetDiff(names, _common(*rows), set_change(*rows, weights), new)


def first_other_samples(a: Stored, b: Stored) -> int | None:
    """The first training step at which two runs sampled other responses; None: there is none."""
    sets = [{x.training_step: x for x in each.sets if x.kind == "answers"} for each in (a, b)]
    for step in sorted(step for step in sets[0].keys() & sets[1].keys() if step is not None):
        one, two = (each[step] for each in sets)
        if _responses(one) != _responses(two):
            return step
    return None


def _common(a: RowTable, b: RowTable) -> Comparison | None:
    """The comparison of the rows that are in both, in the order of the first."""
    ids = [rows.table["response_id"].combine_chunks() for rows in (a, b)]
    places = pc.index_in(ids[0], value_set=ids[1], skip_nulls=True)
    rows_a: Array = np.flatnonzero(np.asarray(places.is_valid()))
    if not len(rows_a):
        return None
    rows_b: Array = np.asarray(places.drop_null()).astype(np.int64)
    tables = a.table.take(pa.array(rows_a)), b.table.take(pa.array(rows_b))
    groups = Groups.of(tables[0])
    before, after = (
        RowTable(table, groups, rows.components) for table, rows in zip(tables, (a, b), strict=True)
    )
    return compare(before, after, len(rows_a), UNKNOWN)


def _weights(one: StoredSet) -> dict[str, float]:
    """The weights with which the rows of a set were summed, the last sum's where there are two."""
    found = dict[str, float]()
    for step in one.recipe.steps:
        if isinstance(step.operator, RewardSumMapper):
            found.update({name: step.operator.weight(name) for name in step.operator.weights})
    return found


def _responses(one: StoredSet) -> Sequence[str | None]:
    return [text for part in range(one.parts) for text in _responses_of(one, part)]


def _responses_of(one: StoredSet, part: int) -> list[str | None]:
    base = one.base(part)
    if "response" not in base.column_names:
        return []
    texts: list[str | None] = base.select(["response"])["response"].cast(pa.string()).to_pylist()
    return texts
