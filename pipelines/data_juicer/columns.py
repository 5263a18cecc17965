"""What an operator of Data-Juicer's reads and writes, as far as its source says.

    reads_text              whether it fails without its text column
    keeps_columns           whether it leaves the columns of the rows as they are
    statistics, may_write   what it writes to the helper columns

Each errs on one side: a text counts as read only where every row comes to it, columns count as kept
only where nothing else can be done to them, and any tag may be written by one that writes tags.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import source
from .catalogue import KINDS, ForeignKind, find
from .fields import texts
from .run_columns import META, STATS

_OF_ROWS = (
    "compute_stats_single", "compute_stats_batched", "compute_hash", "process_single",
    "process_batched",
)  # fmt: skip
"""Methods that get a row, or a batch of rows as lists."""
_DONE_BEFORE = {"Fields", "HashKeys", "MetaKeys", "StatsKeys"}
"""What a method asks for that returns early where statistics, hashes or tags are there."""
_CLASSES = ("Fields", "StatsKeys", "TAGGING_OPS", "NON_STATS_FILTERS")
"""What Data-Juicer names statistics and tags by, and registers operators with."""


@cache
def reads_text(name: str) -> bool:
    """Whether the operator fails on a row that lacks its text column, whatever its fields say."""
    found = find(name)
    return found is not None and any(
        _is_text(node, function.args.args[1].arg)
        for function in _methods(found)
        for part in _run_for_each_row(function.body)
        for node in _evaluated(part)
    )


@cache
def keeps_columns(name: str) -> bool:
    """Whether it leaves the names of the columns as they are, helper columns aside."""
    found = find(name)
    if found is None or found.kind not in KINDS:
        return False
    return found.kind != "mapper" or all(map(_only_text, _methods(found)))


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


def _methods(found: ForeignKind) -> list[ast.FunctionDef]:
    """The nearest definition of each method that gets rows."""
    methods = dict[str, ast.FunctionDef]()
    for file, node in source.lineage(found.defined):
        if file.name == "base_op.py":
            break
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name in _OF_ROWS:
                methods.setdefault(item.name, item)
    return [each for each in methods.values() if len(each.args.args) > 1]


def _is_text(node: ast.AST, rows: str) -> bool:
    """Whether it is `rows[self.text_key]`, and read."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=name),
            slice=ast.Attribute(value=ast.Name(id="self"), attr="text_key"),
            ctx=ast.Load(),
        ):
            return name == rows
    return False


def _run_for_each_row(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The expressions and statements of a method that are run for each row or batch."""
    for node in body:
        match node:
            case ast.If():
                yield node.test
                ends = any(isinstance(each, ast.Return | ast.Raise) for each in ast.walk(node))
                names = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
                if names & _DONE_BEFORE:  # Nothing of it is there yet.
                    yield from _run_for_each_row(node.orelse)
                elif ends:
                    return
            case ast.For():
                yield node.iter
                yield from _run_for_each_row(node.body)
            case ast.With():
                yield from (item.context_expr for item in node.items)
                yield from _run_for_each_row(node.body)
            case ast.Try() | ast.While():
                if any(isinstance(each, ast.Return) for each in ast.walk(node)):
                    return
            case ast.FunctionDef() | ast.ClassDef():
                continue
            case ast.Return() | ast.Raise():
                yield node
                return
            case ast.Continue() | ast.Break():
                return
            case _:
                yield node


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression that are evaluated whatever the values are."""
    yield node
    match node:
        case ast.Lambda():
            return
        case ast.IfExp():
            yield from _evaluated(node.test)
        case ast.BoolOp():
            yield from _evaluated(node.values[0])
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from _evaluated(node.generators[0].iter)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _evaluated(child)


def _only_text(function: ast.FunctionDef) -> bool:
    """Whether a method of a mapper uses its rows for the text alone, and returns them."""
    rows = function.args.args[1].arg
    used = sum(isinstance(node, ast.Name) and node.id == rows for node in ast.walk(function))
    for node in ast.walk(function):
        match node:
            case ast.Subscript(
                value=ast.Name(id=name),
                slice=ast.Attribute(value=ast.Name(id="self"), attr="text_key"),
            ) if name == rows:
                used -= 1
            case ast.Return(value=ast.Name(id=name)) if name == rows:
                used -= 1
    return used == 0


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
