"""Data-Juicer's operators as a run loads them, where ours are in the recipe or one is repeated."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from data_juicer.ops.base_op import OP, OPERATORS, Deduplicator, Filter, Selector
from data_juicer.utils.constant import Fields, HashKeys, StatsKeysConstant

from ..data_juicer.static_checks import definition
from ..data_juicer.tables import ROW, nested, plain, rows_of
from ..recipe.steps import number_steps
from .step_in_run import ProcessEntry, current_run, has_ours, is_ours

# --- Deduplicators on Ray, in a recipe with an operator of ours -----------------------
# Data-Juicer runs them with its default executor only, and refuses the recipe. Here the rows come
# to the driver, which runs them there as that executor does: its memory is bounded by the data.

_RAY = "ray"


def allow_on_ray(ops: Iterable[Any], *, keep_hashes: bool) -> None:
    """Let the deduplicators among the operators of a run work on Ray's datasets."""
    for op in ops:
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_deduplicators_of_theirs_are_allowed_on_ray
        modes = op._supported_exec_modes
        if isinstance(op, Deduplicator) and _RAY not in modes:
            op._supported_exec_modes = (*modes, _RAY)
            op.num_proc, op.auto_op_parallelism = None, False  # A driver of Ray must not fork.
            op.run = partial(_run, op.run, keep_hashes)


def _run(run: Callable[[Any], Any], keep_hashes: bool, dataset: Any) -> Any:
    import ray

    for context in (dataset.context, ray.data.DataContext.get_current()):
        context.execution_options.preserve_order = True  # The first of equal rows is kept.
    blocks = ray.get(dataset.to_arrow_refs())
    full = [plain(block) for block in blocks if block.num_rows]
    if not full:
        return dataset
    table = pa.concat_tables(full, promote_options="permissive")
    out, rows = rows_of(run(nested(table)))
    kept = (out if keep_hashes else out.select(table.column_names)).take(pa.array(rows))
    cuts = np.linspace(0, kept.num_rows, len(full) + 1).astype(int)
    return ray.data.from_arrow([kept.slice(at, stop - at) for at, stop in pairwise(cuts)])


# --- Selectors, in a recipe with an operator of ours: rows stay in their order --------
# Some of them sort, and so tear the groups apart that the steps after them work on. `rejuice run`
# keeps the order, too.


def keep_order(ops: Iterable[Any]) -> None:
    """Let the selectors among the operators of a run give the rows in the order they came in."""
    for op in ops:
        if isinstance(op, Selector):
            op.run = partial(_run_selector, op.run)


def _run_selector(run: Callable[..., Any], dataset: Any, **kwargs: Any) -> Any:
    from data_juicer.core.data import NestedDataset

    numbered = NestedDataset(dataset.add_column(ROW, np.arange(len(dataset))))
    kept = run(numbered, **kwargs)
    order = np.argsort(np.asarray(kept.with_format("arrow")[ROW]))
    return NestedDataset(kept.select(order).remove_columns(ROW))


# --- A repeated filter or deduplicator computes again what it decides by --------------
# A filter of theirs takes a statistic that a row has for its own, and a deduplicator a hash, though
# a mapper may have changed the text since, and the earlier use may have been of another column.

Callee = Callable[..., Any]


def load_ops(
    load: Callee, process_list: Sequence[ProcessEntry], *args: Any, **kwargs: Any
) -> list[Any]:
    """`load_ops`, which loads operators that compute again what an earlier step did.

    The first step that computes a statistic uses, as ever, what an earlier run or `dj-analyze` has
    left in the dataset. On Ray, deduplicators in a recipe with an operator of ours are allowed.
    """
    run = current_run()
    computed, classes = set[str](), dict[str, type[OP]]()
    for entry in run.skipped if run else ():  # A checkpoint has done these steps.
        _again(entry, computed, {})
    entries = [_again(entry, computed, classes) for entry in process_list]
    OPERATORS.modules.update(classes)
    try:
        operators: list[Any] = load(entries, *args, **kwargs)
    finally:
        for name in classes:
            del OPERATORS.modules[name]
    for entry, op in zip(process_list, operators, strict=True):
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
        op._op_cfg = entry
    ours = [op for op in operators if is_ours(op)]
    for op, step in zip(ours, number_steps([op.operator for op in ours]), strict=True):
        op.operator = step.operator  # Steps before and after it decide some of its fields.
    if has_ours(process_list):
        keep_order(operators)
        if run and run.settings.get("executor_type") == "ray":
            allow_on_ray(operators, keep_hashes=bool(run.settings.get("keep_hashes_in_res_ds")))
    return operators


def fuse_operators(
    fuse: Callee,
    ops: Sequence[Any],
    probe_res: Sequence[Any] | None = None,
    *args: Any,
    **kwargs: Any,
) -> list[Any]:
    """`fuse_operators`, whose groups end before an operator that computes again.

    Fused with an earlier use, or moved before it, a filter would decide by the other's statistics.
    """
    again = [at for at, op in enumerate(ops) if hasattr(op, "computes_again")]
    parts = [slice(*ends) for ends in pairwise([0, *again, len(ops)])]
    return [
        op for at in parts for op in fuse(ops[at], probe_res and probe_res[at], *args, **kwargs)
    ]


def _again(entry: ProcessEntry, computed: set[str], classes: dict[str, type[OP]]) -> ProcessEntry:
    """Return the entry of `process` that makes the operator, or one that computes again."""
    name, fields = next(iter(entry.items()))
    kind = OPERATORS.modules[name]
    if name == "general_fused_op":
        inner = [_again(each, computed, classes) for each in fields.get("fused_op_list") or ()]
        return {name: {**fields, "fused_op_list": inner}}
    if not issubclass(kind, Filter | Deduplicator):
        return entry
    found = names(kind, fields or {})
    if issubclass(kind, Deduplicator) and not found:
        return entry  # It keeps no hash in the rows.
    own = found or {name}
    if own & computed:
        entry = {f"{name} {len(classes)}": fields}
        classes[next(iter(entry))] = _class(kind, found)
    computed |= own
    return entry


def names(kind: type[OP], fields: ProcessEntry) -> frozenset[str]:
    """The statistics that a filter of Data-Juicer's writes, or the columns of a deduplicator.

    They are what its methods assign to; none where the source does not tell.
    """
    found = set[str]()
    methods = [method for _, method in inspect.getmembers(kind, inspect.isfunction)]
    own = [definition(method) for method in methods if method.__module__ != OP.__module__]
    for node in (node for each in own if each is not None for node in ast.walk(each)):
        match node:
            case ast.Attribute(ast.Name("HashKeys"), name) if name != "uid":  # It numbers rows.
                found.add(getattr(HashKeys, name, name))
            case ast.Subscript(of, key, ast.Store()) if "stat" in ast.unparse(of):
                found.update(_key(key, fields))
    return frozenset(found)


def _key(node: ast.expr, fields: ProcessEntry) -> Iterator[str]:
    """The name of a statistic in `stats[StatsKeys.text_len]`, `stats["mine"]`, `stats[self.of]`."""
    match node:
        case ast.Attribute(ast.Name("StatsKeys"), name):
            yield getattr(StatsKeysConstant, name, name)
        case ast.Constant(str(name)):
            yield name
        case ast.Attribute(ast.Name("self"), name) if name in fields:
            yield str(fields[name])


def _class(kind: type[OP], found: frozenset[str]) -> type[OP]:
    """Return the class of an operator, which finds no statistic or hash of those names in a row."""
    base, change = Deduplicator, _without_hashes
    if issubclass(kind, Filter):
        base, change = Filter, _without_statistics
    methods = ("compute_stats_single", "compute_stats_batched", "compute_hash")
    own = [name for name in methods if getattr(kind, name, None) is not getattr(base, name, None)]

    def fingerprint(self: Any) -> bytes:
        # Hugging Face has cached what an operator with these fields did without us.
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_loaded_operators.py::test_what_was_cached_without_us_is_not_used
        return bytes(kind._fingerprint_bytes(self)) + b"computes again"

    members = {
        **{name: change(getattr(kind, name), found) for name in own},
        "_fingerprint_bytes": fingerprint,
        "computes_again": True,
        "__module__": kind.__module__,
    }
    return type(kind.__name__, (kind,), members)


# Data-Juicer asks the signature whether there is a context. The module stays ours for pickling.
_wraps = partial(wraps, assigned=("__name__", "__doc__"))


def _without_statistics(compute: Callee, found: frozenset[str]) -> Callee:
    def hidden(stat: Any) -> dict[str, Any]:
        return {name: each for name, each in (stat or {}).items() if found and name not in found}

    @_wraps(compute)
    def again(self: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        if Fields.stats not in sample:
            return compute(self, sample, *args, **kwargs)  # It has no statistics.
        old = sample[Fields.stats]
        batched = isinstance(old, list)
        sample[Fields.stats] = [hidden(stat) for stat in old] if batched else hidden(old)
        out = compute(self, sample, *args, **kwargs)
        new = out[Fields.stats]
        pairs = zip(old, new, strict=True) if batched else [(old, new)]
        merged = [{**(before or {}), **after} for before, after in pairs]
        out[Fields.stats] = merged if batched else merged[0]
        return out

    return again


def _without_hashes(compute: Callee, found: frozenset[str]) -> Callee:
    @_wraps(compute)
    def again(self: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        for name in found:
            sample.pop(name, None)
        return compute(self, sample, *args, **kwargs)

    return again
