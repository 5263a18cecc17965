"""Two tables of the same rows, and two recipes: what `whatif` and `diff` print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators.arrow_compute import pc
from ...operators.columns import numbers
from ...operators.groups import Array, Groups, average_ranks
from ..console import as_json, listed, path_text
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .figures import RowFigures, masked_tokens, row_figures, value_counts
from .rows import KEPT, RowTable

UNKNOWN = "not_stored"
"""Why a row is unknown: a judge or model would have to be asked."""
KINDS = ("gained", "lost", "flipped", "silenced", "woken", "unknown")
"""What may have happened to a row; one that is kept may also have changed sign."""


class Comparison(NamedTuple):
    # response_id, prompt_id; step, reason, reward, advantage and masked (the share of its tokens
    # that does not train), each with `_before` and `_after`: the step is the number of the one that
    # dropped the row, null where it is kept; and a bool for each of `KINDS`: gained and lost in the
    # rows kept; flipped: the sign of the advantage; silenced, woken: to or from an advantage of 0;
    # unknown: a model would have to be asked
    rows: pa.Table
    kept_in_both: int  # rows
    groups: tuple[int, int]  # how many were gained and lost
    # Spearman's correlation of rewards before and after within groups, mean over groups that have
    # spread in both; NaN without any
    rank: float
    figures: tuple[RowFigures, RowFigures]  # before and after
    counts: Mapping[str, int]  # rows, by `KINDS`
    # why gained rows were dropped, and lost ones are, the most frequent reason first
    reasons: Mapping[str, Mapping[str, int]]


def compare(before: RowTable, after: RowTable) -> Comparison:
    sides, groups = (before, after), before.groups
    was_N, is_N = (rows.kept_N for rows in sides)
    signs = [np.sign(np.nan_to_num(numbers(rows.table, "advantage"))) for rows in sides]
    unknown = pc.equal(after.table["reason"].cast(pa.string()), UNKNOWN)
    unknown_N = np.array(pc.fill_null(unknown, False))
    both_N = was_N & is_N
    kinds = {
        "gained": ~was_N & is_N,
        "lost": was_N & ~is_N & ~unknown_N,
        "flipped": both_N & (signs[0] * signs[1] < 0),
        "silenced": both_N & (signs[0] != 0) & (signs[1] == 0),
        "woken": both_N & (signs[0] == 0) & (signs[1] != 0),
        "unknown": unknown_N,
    }
    was_G, is_G, unknown_G = (groups.sum(each) > 0 for each in (was_N, is_N, unknown_N))
    x_N, y_N = (numbers(rows.table, "reward") for rows in sides)
    columns = {name: before.table[name] for name in ("response_id", "prompt_id")}
    for when, rows in zip(("before", "after"), sides, strict=True):
        fate_N = np.asarray(rows.table["fate"])
        columns[f"step_{when}"] = pa.array(fate_N, mask=fate_N == KEPT)
        for name in ("reason", "reward", "advantage"):
            columns[f"{name}_{when}"] = rows.table[name]
        columns[f"masked_{when}"] = pa.array(masked_tokens(rows.table))
    return Comparison(
        pa.table({**columns, **{name: pa.array(each) for name, each in kinds.items()}}),
        int(both_N.sum()),
        (int((is_G & ~was_G).sum()), int((was_G & ~is_G & ~unknown_G).sum())),
        rank_correlation(groups, x_N, y_N, both_N),
        (row_figures(before), row_figures(after)),
        {kind: int(each.sum()) for kind, each in kinds.items()},
        {
            kind: value_counts(rows.table["reason"].filter(pa.array(kinds[kind])))
            for kind, rows in zip(("gained", "lost"), sides, strict=True)
        },
    )


def rank_correlation(groups: Groups, x_N: Array, y_N: Array, used_N: Array) -> float:
    """Spearman's correlation within groups, mean over those with spread in both, else NaN."""
    known_N = used_N & np.isfinite(x_N) & np.isfinite(y_N)
    known = Groups.of_column(pa.array(groups.codes_N[known_N]))
    ranks = [average_ranks(known.codes_N, values[known_N]) for values in (x_N, y_N)]
    x, y = (rank - known.mean(rank)[known.codes_N] for rank in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        found_G = known.sum(x * y) / np.sqrt(known.sum(x * x) * known.sum(y * y))
    found_G = found_G[np.isfinite(found_G)]
    return float(found_G.mean()) if len(found_G) else math.nan


# --- In words -------------------------------------------------------------------------


def advantages_text(found: Comparison) -> str:
    flipped, silenced, woken = (found.counts[kind] for kind in ("flipped", "silenced", "woken"))
    return (
        f"of {found.kept_in_both:,} rows {flipped:,} change sign, "
        f"{silenced:,} become 0, {woken:,} are 0 no longer"
    )


def reasons_text(found: Comparison, kind: str) -> str:
    """Why rows were gained or lost, in brackets; empty where none was."""
    reasons = listed(found.reasons[kind])
    return f" ({reasons})" if reasons else ""


def details_lines(command: str, kinds: Iterable[str]) -> Iterator[str]:
    """Yield for each kind of rows the whole command that prints them."""
    for at, kind in enumerate(kinds):
        yield f"{'' if at else 'details':<13}{command} --rows {kind}"


def json_lines(found: Comparison, kind: str, name: str = "") -> Iterator[str]:
    """Yield the rows of one of `KINDS`, as JSON lines, with the name of their set if it has one."""
    table = found.rows.filter(found.rows[kind]).drop_columns(list(KINDS))
    for row in table.to_pylist():
        yield as_json({"set": name, **row} if name else row)


# --- Two recipes in words: the fields that differ --------------------------------------


def recipe_differences(a: Recipe, b: Recipe) -> list[str]:
    """Fields that differ, as `field old -> new`, defaults included.

    Where the recipes write to, and what their project is called, is no difference.
    """
    return [*_differences("", _head(a), _head(b)), *changed_fields(a.steps, b.steps)]


def changed_fields(old: Sequence[Step], new: Sequence[Step]) -> list[str]:
    """The steps and fields that differ, as `step.field old -> new`, sorted."""
    fields = [{step.name: step.operator.model_dump(mode="json") for step in x} for x in (old, new)]
    lines = list(_differences("", *fields))
    common = [[name for name in each if name in fields[0] and name in fields[1]] for each in fields]
    return [*lines, "the order of steps"] if common[0] != common[1] else lines


def _differences(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys(), key=str):
        name = f"{path}.{key}" if path else str(key)
        was, now = old.get(key), new.get(key)
        if key not in old:
            yield f"{name} added" if isinstance(now, dict) else f"{name} added: {now}"
        elif key not in new:
            yield f"{name} left out"
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from _differences(name, was, now)
        elif was != now:
            yield f"{name} {was} -> {now}"


def _head(recipe: Recipe) -> dict[str, Any]:
    """Paths are as commands print them, as that of a run has absolute ones."""
    head: dict[str, Any] = recipe.head.model_dump(
        mode="json", exclude={"project_name", "export_path", "process"}
    )
    if head["train"] is None:
        del head["train"]
    path = head.get("dataset_path")
    if isinstance(path, str) and "://" not in path:
        head["dataset_path"] = path_text(Path(path).absolute())
    generated = head["generated_datasets"].items()
    head["generated_datasets"] = {path_text(Path(x).absolute()): each for x, each in generated}
    return head
