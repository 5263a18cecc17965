"""Which column an operator of Data-Juicer's reads its texts from, and whether it changes others.

Both are found in its source, and both err on one side: a text counts as read only where every row
comes to it, and columns count as kept only where nothing else can be done to them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from . import source
from .catalogue import ForeignKind, find

_OF_ROWS = (
    "compute_stats_single", "compute_stats_batched", "compute_hash", "process_single",
    "process_batched",
)  # fmt: skip
"""Methods that get a row, or a batch of rows as lists."""
_DONE_BEFORE = {"Fields", "HashKeys", "MetaKeys", "StatsKeys"}
"""What a method asks for that returns early where statistics, hashes or tags are there."""


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
    if found is None or found.kind not in ("mapper", "filter", "deduplicator", "selector"):
        return False
    return found.kind != "mapper" or all(map(_only_text, _methods(found)))


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
