"""Data-Juicer's probes, which run operators on a sample of the dataset before the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

from loguru import logger


@cache
def probe_without_ours() -> None:
    """Let Data-Juicer probe only recipes that have no operator of ours.

    `fusion_strategy: probe` and `adaptive_batch_size: true` run each operator on rows of the
    dataset, which lack what the steps before it write; and a step of ours may sample for hours. A
    recipe with one keeps the order of its filters and the sizes of batches.
    """
    from data_juicer.core.adapter import Adapter

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_upstream_tools.py::test_fusion_and_adaptive_batches_give_the_same_rows
    Adapter.probe_small_batch = _unless_ours(
        Adapter.probe_small_batch,
        lambda operators: (None, 0),
        "filters are fused in the order of the recipe, as with `fusion_strategy: greedy`",
    )
    Adapter.adapt_workloads = _unless_ours(
        Adapter.adapt_workloads,
        lambda operators: [operator.batch_size for operator in operators],
        "`adaptive_batch_size` has no effect",
    )


def _unless_ours(
    probe: Callable[..., Any], instead: Callable[[Sequence[Any]], Any], effect: str
) -> Callable[..., Any]:
    @wraps(probe)
    def probed(self: Any, dataset: Any, operators: Sequence[Any]) -> Any:
        ours = [operator for operator in operators if hasattr(operator, "operator_class")]
        if not ours:
            return probe(self, dataset, operators)
        name = ours[0].operator_class.name()
        logger.warning(f"{effect}: '{name}' cannot be probed on rows of the dataset")
        return instead(operators)

    return probed
