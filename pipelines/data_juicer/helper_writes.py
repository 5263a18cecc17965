"""Which statistics and tags an operator of Data-Juicer's may write, found in its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from . import source
from .catalogue import ForeignKind
from .helper_columns import META, STATS, texts

_CLASSES = ("Fields", "StatsKeys", "TAGGING_OPS", "NON_STATS_FILTERS")


def may_write(found: ForeignKind, fields: Mapping[str, Any], column: str, name: str) -> bool:
    """Whether an operator may write a statistic or a tag.

    Args:
        found: the operator.
        fields: its fields in the recipe.
        column: `STATS` or `META`.
        name: of the statistic or tag; empty: any.
    """
    if column == STATS:
        own = statistics(found)
        # Filters of a field call their statistic as the field that they are given.
        return own is not None and (not name or name in {*own, *texts(fields)})
    # Tags are named by constants, by fields and by models: any tag may be there.
    used = _used(found)
    return column == META and not used.isdisjoint({"Fields.meta", "TAGGING_OPS.register_module"})


def statistics(found: ForeignKind) -> frozenset[str] | None:
    """The statistics that a filter computes, as far as its source names them; None: it has none.

    Data-Juicer gives a statistic the name of the constant that holds its name.
    """
    used = _used(found)
    if found.kind != "filter" or "NON_STATS_FILTERS.register_module" in used:
        return None
    return frozenset(name.partition(".")[2] for name in used if name.startswith("StatsKeys."))


def _used(found: ForeignKind) -> frozenset[str]:
    """What the files of its class and of its bases use, but for those of all operators."""
    files = {base.file for base in source.lineage(found.defined)}
    return frozenset[str]().union(*(_names(file) for file in files if file.name != "base_op.py"))


@cache
def _names(file: Path) -> frozenset[str]:
    """What a file uses of the classes of names, and of the registries of operators."""
    return frozenset(
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(source.module(file))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in _CLASSES
    )
