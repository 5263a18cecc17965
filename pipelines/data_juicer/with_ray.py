"""Operators of Data-Juicer's that are written for Ray, such as its `ray_…_deduplicator`."""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from ...operators import OperatorError
from ..ray_session import LOCAL, connected_to_ray
from . import source
from .result import ROW
from .source import Defined

PACKAGE = "ray"
_MODES = "_supported_exec_modes"


def needs_ray(defined: Defined) -> bool:
    """Whether an operator runs under Ray only. Nothing is imported.

    Args:
        defined: its class.
    """
    for base in source.lineage(defined):
        for item in base.node.body if isinstance(base.node, ast.ClassDef) else ():
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == _MODES:
                return "default" not in ast.literal_eval(item.value)
    return False


def run_with_ray(operator: Any, table: pa.Table) -> pa.Table:
    """The rows that an operator for Ray leaves of a table, as they are.

    The table is one block, so that the rows come to the operator in their order: of duplicates,
    the first stays. What the operator adds, such as `__dj__is_unique`, is not kept.

    Args:
        operator: of Data-Juicer's, made for this table: it remembers what it has seen.
        table: all rows, numbered in the column `ROW`.

    Raises:
        OperatorError: it failed in a task of Ray's.
    """
    import ray
    from data_juicer.core.data.ray_dataset import RayDataset

    kept = np.zeros(table.num_rows, bool)
    with warnings.catch_warnings(), _quiet_ray(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # Ray's own, about how Data-Juicer calls it.
        operator.work_dir = folder  # Where one of them keeps its hashes meanwhile.
        dataset = RayDataset(ray.data.from_arrow(table), auto_op_parallelism=False)
        try:
            blocks = ray.get(dataset.process([operator]).data.to_arrow_refs())
        except ray.exceptions.RayTaskError as error:
            raise OperatorError(f"failed under Ray with {_cause(error)}") from None
        for block in blocks:
            if block.num_rows:
                kept[np.asarray(block[ROW])] = True
    return table.filter(pa.array(kept))


@contextmanager
def _quiet_ray() -> Iterator[None]:
    """Ray as this process has it, or else on this machine for a while; Ray Data is silent."""
    with connected_to_ray(LOCAL):
        import ray

        context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
        before = context.enable_progress_bars, log.level
        context.enable_progress_bars = False
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            context.enable_progress_bars = before[0]
            log.setLevel(before[1])


def _cause(error: Exception) -> str:
    """The exception that an operator raised in a task: Ray's error has only its traceback."""
    traceback = str(error).partition("\n\nThe above exception was the direct cause")[0]
    return traceback.rstrip().splitlines()[-1].strip()
