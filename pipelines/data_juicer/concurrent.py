"""Operators of Data-Juicer that ask a model's server: many requests at once instead of one.

Data-Juicer works through the rows one after the other and waits for each answer; only more
processes, each with all of its imports, would send more requests. Threads wait as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import deepcopy
from typing import Any

from .result import ROW
from .watch import calls_of_row, note_failed_row

REQUESTS = 16
"""Requests at once, unless the step's `num_proc` says otherwise."""

Rows = Mapping[str, list[Any]]


def concurrent(kind: type[Any], most: int) -> tuple[type[Any], dict[str, Any]]:
    """A class that asks for several rows at once, and what it has to be made with.

    Args:
        kind: a mapper or filter of Data-Juicer's. One that works on batches decides itself how it
            asks, and is given back as it is.
        most: how many requests wait at once.
    """
    from data_juicer.ops.base_op import Filter, Mapper

    base, name, method = Mapper, "process_batched", _process_batched
    if issubclass(kind, Filter):
        base, name, method = Filter, "compute_stats_batched", _compute_stats_batched
    if getattr(kind, name, None) is not getattr(base, name):
        return kind, {}
    members = {name: method, "_requests": most, "__module__": kind.__module__}
    # All rows that Data-Juicer hands over at once are asked for together.
    return type(kind.__name__, (kind,), members), {"batch_mode": True, "batch_size": 1000}


def _process_batched(self: Any, samples: Rows, *args: Any, **kwargs: Any) -> dict[str, list[Any]]:
    def process(row: Any) -> Any:
        before = deepcopy(row)
        with calls_of_row() as calls:
            after = self.process_single(row, *args, **kwargs)
        # What the operator makes of an answer that did not come is no result: an empty text, [].
        return _failed(before) if calls.failed else after

    rows = _each(self, process, samples)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _compute_stats_batched(self: Any, samples: Any, *args: Any, **kwargs: Any) -> Any:
    from data_juicer.utils.constant import Fields

    def compute(row: Any) -> Any:
        known = set(row[Fields.stats])
        with calls_of_row() as calls:
            after = self.compute_stats_single(row, *args, **kwargs)
        found = {k: value for k, value in after[Fields.stats].items() if k not in known}
        return _failed(after) if calls.failed or _without_record(found) else after

    rows = _each(self, compute, samples)
    samples[Fields.stats] = [row[Fields.stats] for row in rows]
    return samples


def _failed(row: Any) -> Any:
    note_failed_row(row[ROW])
    return row


def _without_record(stats: Mapping[str, Any]) -> bool:
    """Whether an answer could not be read: a filter that keeps it as `..._record` keeps nothing."""
    return any(name.endswith("_record") and not value for name, value in stats.items())


def _each(self: Any, work: Callable[[Any], Any], samples: Rows) -> list[Any]:
    """What `work` makes of each row, in their order; the first error ends the waiting."""
    from data_juicer.core.data.dj_dataset import nested_obj_factory

    columns = list(samples)
    rows = [
        nested_obj_factory(dict(zip(columns, row, strict=True)))
        for row in zip(*(samples[name] for name in columns), strict=True)
    ]
    with ThreadPoolExecutor(self._requests) as pool:
        # Each row in a context of its own: what is logged about it is counted with its step.
        futures = [pool.submit(copy_context().run, work, row) for row in rows]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
