"""Pickling of the operators that Data-Juicer builds.

Their classes are made when Data-Juicer starts, and are in no module: what is pickled is the
operator's own class and the arguments. Any pickler can read it, in any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...operators import Operator
from ...operators.operator import on_definition


def reduce(self: Any) -> tuple[Any, ...]:
    """`__reduce__` of an operator: how it was built, and what Data-Juicer has set since."""
    # The base class wraps methods in local functions, which the constructor makes again.
    state = {name: value for name, value in vars(self).items() if not callable(value)}
    return _rebuild, (self.operator_class, self._init_args, self._init_kwargs), state


def _rebuild(kind: type[Operator], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    # Not at the top of the file: this import registers our operators, whoever is first.
    from data_juicer.ops import OPERATORS

    if kind.name() not in OPERATORS.modules:  # One on disk, read before its class was registered.
        for call in on_definition:
            call(kind)
    return OPERATORS.modules[kind.name()](*args, **kwargs)
