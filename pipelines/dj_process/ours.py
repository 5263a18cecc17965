"""What of Data-Juicer's is ours: among its operators, and in the `process` of its recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from data_juicer.ops.base_op import OPERATORS

from ...operators import Operator

ProcessEntry = dict[str, Any]
"""An entry of `process`: an operator's name and its fields."""


def operator_of(name: str) -> type[Operator] | None:
    """The operator of ours that Data-Juicer knows by a name; None where it is another's."""
    operator: type[Operator] | None = getattr(OPERATORS.modules.get(name), "operator_class", None)
    return operator


def is_ours(op: Any) -> bool:
    """Whether an operator that Data-Juicer has built stands for one of ours."""
    return hasattr(op, "operator_class")


def has_ours(process: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a recipe has an operator of ours."""
    return any(operator_of(name) is not None for entry in process for name in entry)
