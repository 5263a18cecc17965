"""Operators of Data-Juicer that ask a model's server: many requests at once instead of one.

Data-Juicer works through the rows one after the other and waits for each answer; only more
processes, each with all of its imports, would send more requests. Threads wait as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
    rows = _ask(self, self.process_single, samples, args, kwargs)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _compute_stats_batched(self: Any, samples: Any, *args: Any, **kwargs: Any) -> Any:
    from data_juicer.utils.constant import Fields

    rows = _ask(self, self.compute_stats_single, samples, args, kwargs)
    samples[Fields.stats] = [row[Fields.stats] for row in rows]
    return samples


def _ask(
    self: Any,
    work: Callable[..., Any],
    samples: Rows,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> list[Any]:
    """What `work` makes of each row, in their order; the first error ends the waiting."""
    from data_juicer.core.data.dj_dataset import nested_obj_factory

    columns = list(samples)
    rows = [
        nested_obj_factory(dict(zip(columns, row, strict=True)))
        for row in zip(*(samples[name] for name in columns), strict=True)
    ]
    with ThreadPoolExecutor(self._requests) as pool:
        futures = [pool.submit(work, row, *args, **kwargs) for row in rows]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
