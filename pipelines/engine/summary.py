"""Figures of the columns that a step wrote, for the report; they add up over chunks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ...operators.columns import is_text
from ...operators.compute import pc

Summary = dict[str, dict[str, Any]]

_COUNTED = ("verdict", "task", "label", "finish_reason", "policy")
_MOST_VALUES = 50


def summarise(columns: Mapping[str, pa.Array]) -> Summary:
    """Sums of the numeric columns and counts of the slug columns among `columns`.

    A reward may also be true or false: 1 or 0.
    """
    figures: Summary = {}
    for name, column in columns.items():
        is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        if is_number or (name.startswith("reward_") and pa.types.is_boolean(column.type)):
            figures[name] = _moments(column)
        elif is_text(column.type) and (name in _COUNTED or name.endswith("_missing")):
            counts = column.value_counts().to_pylist()
            pairs = {c["values"]: c["counts"] for c in counts if c["values"] is not None}
            figures[name] = {"counts": dict(Counter(pairs).most_common(_MOST_VALUES))}
    return figures


def merge(summaries: Iterable[Summary]) -> Summary:
    """One summary of all chunks, with mean and standard deviation (population) of the numbers."""
    total: Summary = {}
    for summary in summaries:
        for name, part in summary.items():
            total[name] = _added(total.get(name), part)
    return {name: _shown(part) for name, part in total.items()}


def _moments(column: pa.Array) -> dict[str, Any]:
    values = column.drop_null().cast(pa.float64(), safe=False)
    values = values.filter(pc.is_finite(values))  # JSON has no nan; it counts as null here.
    null = len(column) - len(values)
    if not len(values):
        return {"n": 0, "null": null}
    mean, variance = pc.mean(values).as_py(), pc.variance(values).as_py()
    low, high = pc.min_max(values).as_py().values()
    spread = variance * len(values)
    return {"n": len(values), "null": null, "mean": mean, "m2": spread, "min": low, "max": high}


def _added(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    if one is None:
        return other
    if "counts" in one:
        return {"counts": dict(Counter(one["counts"]) + Counter(other["counts"]))}
    null = one["null"] + other["null"]
    if not one["n"] or not other["n"]:
        return {**(one if one["n"] else other), "null": null}
    # Chan, Golub, LeVeque: sums of squares would cancel where the mean is far from 0.
    n, apart = one["n"] + other["n"], other["mean"] - one["mean"]
    return {
        "n": n,
        "null": null,
        "mean": one["mean"] + apart * other["n"] / n,
        "m2": one["m2"] + other["m2"] + apart**2 * one["n"] * other["n"] / n,
        "min": min(one["min"], other["min"]),
        "max": max(one["max"], other["max"]),
    }


def _shown(part: dict[str, Any]) -> dict[str, Any]:
    if not part.get("n"):
        return part
    std = math.sqrt(part["m2"] / part["n"])
    figures = {"mean": part["mean"], "std": std, "min": part["min"], "max": part["max"]}
    rounded = {key: round(value, 6) for key, value in figures.items()}
    return {"n": part["n"], "null": part["null"], **rounded}
