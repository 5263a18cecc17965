"""Data-Juicer's probes, which run operators on a sample of the dataset before the run.

`fusion_strategy: probe` and `adaptive_batch_size: true` run each operator on rows of the dataset,
which lack what the steps before it write; and a step of ours may sample for hours. A recipe with
one keeps the order of its filters and the sizes of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loguru import logger

from .ours import is_ours

Probe = Callable[..., Any]


def probe_small_batch(probe: Probe, adapter: Any, dataset: Any, operators: Sequence[Any]) -> Any:
    """`Adapter.probe_small_batch`: the speed of each operator, None if one is ours."""
    effect = "filters are fused in the order of the recipe, as with `fusion_strategy: greedy`"
    if _warned(operators, effect):
        return None, 0
    return probe(adapter, dataset, operators)


def adapt_workloads(adapt: Probe, adapter: Any, dataset: Any, operators: Sequence[Any]) -> Any:
    """`Adapter.adapt_workloads`: the batch size of each operator, as it is if one is ours."""
    if _warned(operators, "`adaptive_batch_size` has no effect"):
        return [operator.batch_size for operator in operators]
    return adapt(adapter, dataset, operators)


def _warned(operators: Sequence[Any], effect: str) -> bool:
    """Whether one of the operators is ours; if so, a warning is logged."""
    ours = next((operator for operator in operators if is_ours(operator)), None)
    if ours is not None:
        name = ours.operator_class.name()
        logger.warning(f"{effect}: '{name}' cannot be probed on rows of the dataset")
    return ours is not None
