"""Our operators inside Data-Juicer: `dj-process` finds this module by its entry point.

Each installed operator is registered under its own name as an operator of Data-Juicer's kind
`Pipeline`, the only kind that gets all rows at once and that both executors support. It works
on the Arrow table of Data-Juicer's dataset; no row becomes a Python object.
"""

from __future__ import annotations

from data_juicer.ops.base_op import OPERATORS
from loguru import logger

from ...operators import Operator, get, installed
from ...operators.operator import on_definition
from ...operators.registry import conflicts
from .operator_class import register
from .patches import change_data_juicer


def _register_on_definition(kind: type[Operator]) -> None:
    known = kind.name() in OPERATORS.modules or kind.__module__.startswith("rejuice.")
    # Data-Juicer pickles its operators, which a class inside a function does not allow.
    if not known and "<locals>" not in kind.__qualname__:
        register(kind)


def register_installed() -> None:
    """Register every installed operator; one that does not import is left out with a warning."""
    for name in [*installed(), *conflicts()]:
        try:
            register(get(name))
        except Exception as error:
            # A third-party package is broken. Raised, it would make Data-Juicer drop all of ours.
            logger.warning(f"operator '{name}' is not available: {type(error).__name__}: {error}")


register_installed()
# Operators on disk are defined when Data-Juicer imports its `custom_operator_paths`.
on_definition.append(_register_on_definition)
change_data_juicer()
