"""Data-Juicer's deduplicators on Ray, in a recipe with an operator of ours.

Data-Juicer runs them with its default executor only, and refuses the recipe. Here the rows come to
the driver, which runs them there as that executor does: its memory is bounded by the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from data_juicer.ops.base_op import Deduplicator

from ..data_juicer.datasets import nested, plain, rows_of

_RAY = "ray"


def allow_on_ray(ops: Iterable[Any], *, keep_hashes: bool) -> None:
    """Let the deduplicators among the operators of a run work on Ray's datasets.

    Args:
        ops: of the run.
        keep_hashes: whether their hashes are exported.
    """
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
