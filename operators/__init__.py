"""Operators on tables of rollouts.

    from rejuice.operators import Filter, drop          # write an operator
    from rejuice.operators import verify, verify_batch  # grade answers

An operator is a frozen config with one pure function; see `operator.py` for the contract,
`docs/operators.md` for every built-in one.
"""

from ._version import __version__
from .change import Change, Columns
from .columns import component, component_columns
from .errors import DataError, EngineError, OperatorError, RecipeError, RejuiceError
from .fields import build
from .groups import Groups, uniform_N
from .operator import (
    ALL,
    Filter,
    Kind,
    Mapper,
    Operator,
    ResumableOperator,
    Scope,
    drop,
)
from .registry import get, installed
from .verifier import Verdict, extract_answer, verify, verify_batch

__all__ = [
    "ALL",
    "Change",
    "Columns",
    "DataError",
    "EngineError",
    "Filter",
    "Groups",
    "Kind",
    "Mapper",
    "Operator",
    "OperatorError",
    "RecipeError",
    "RejuiceError",
    "ResumableOperator",
    "Scope",
    "Verdict",
    "__version__",
    "build",
    "component",
    "component_columns",
    "drop",
    "extract_answer",
    "get",
    "installed",
    "uniform_N",
    "verify",
    "verify_batch",
]
