"""How many rows are worked on at once."""

from __future__ import annotations

from collections.abc import Iterable

from ...operators import Operator, ResumableOperator

CHUNK_ROWS = 65_536
RESUMABLE_CHUNK_ROWS = 2_048
"""Where a step is resumable: as a rule it samples, and a row becomes many with all their tokens."""


def default_chunk_rows(operators: Iterable[Operator]) -> int:
    """Rows per chunk for some steps, unless the user says otherwise."""
    resumable = any(isinstance(operator, ResumableOperator) for operator in operators)
    return RESUMABLE_CHUNK_ROWS if resumable else CHUNK_ROWS
