"""Data-Juicer's selectors, in a recipe with an operator of ours: rows stay in their order.

Some of them sort, and so tear the groups apart that the steps after them work on. `rejuice run`
keeps the order, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from data_juicer.ops.base_op import Selector

from ..data_juicer.result import ROW


def keep_order(ops: Iterable[Any]) -> None:
    """Let the selectors among the operators of a run give the rows in the order they came in."""
    for op in ops:
        if isinstance(op, Selector):
            op.run = partial(_run, op.run)


def _run(run: Callable[..., Any], dataset: Any, **kwargs: Any) -> Any:
    from data_juicer.core.data import NestedDataset

    numbered = NestedDataset(dataset.add_column(ROW, np.arange(len(dataset))))
    kept = run(numbered, **kwargs)
    order = np.argsort(np.asarray(kept.with_format("arrow")[ROW]))
    return NestedDataset(kept.select(order).remove_columns(ROW))
