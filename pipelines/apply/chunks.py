"""How many rows are worked on at once."""

from __future__ import annotations

from collections.abc import Iterable

from ...operators import Operator, ResumableOperator
from ..data_juicer.steps import asks_server

CHUNK_ROWS = 65_536
RESUMABLE_CHUNK_ROWS = 2_048
"""Where a step is resumable: as a rule it samples, and a row becomes many with all their tokens."""

REQUEST_CHUNK_ROWS = 256
"""Where a step of Data-Juicer's asks a server for each row: a chunk is what progress counts, and
what is lost when the run is stopped."""


def default_chunk_rows(operators: Iterable[Operator]) -> int:
    """Rows per chunk for some steps, unless the user says otherwise."""
    every = list(operators)
    if any(map(asks_server, every)):
        return REQUEST_CHUNK_ROWS
    resumable = any(isinstance(operator, ResumableOperator) for operator in every)
    return RESUMABLE_CHUNK_ROWS if resumable else CHUNK_ROWS
