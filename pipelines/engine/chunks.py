"""How many rows are worked on at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...operators import Operator, RecipeError, ResumableOperator

CHUNK_ROWS = 65_536
RESUMABLE_CHUNK_ROWS = 2_048
"""Where a step is resumable: as a rule it samples, and a row becomes many with all their tokens."""

REQUEST_CHUNK_ROWS = 256
"""Where a step asks a server for each row: a chunk is what progress counts, and
what is lost when the run is stopped."""


_COLUMN_BYTES = 2**31 - 1
"""What a column of texts holds of one chunk: Arrow counts its bytes in 32 bits."""


def default_chunk_rows(operators: Iterable[Operator]) -> int:
    """Rows per chunk for some steps, unless the user says otherwise."""
    every = list(operators)
    if any(operator.asks_server for operator in every):
        return REQUEST_CHUNK_ROWS
    resumable = any(isinstance(operator, ResumableOperator) for operator in every)
    return min(RESUMABLE_CHUNK_ROWS if resumable else CHUNK_ROWS, _most_rows(every))


def check_chunk_rows(operators: Sequence[Operator], chunk_rows: int) -> None:
    """Refuse a chunk of so many rows if its results might not fit, before anything is paid for.

    Raises:
        RecipeError: they might not.
    """
    most = _most_rows(operators)
    if chunk_rows > most:
        largest = _COLUMN_BYTES / most * chunk_rows / 1e9
        found = f"{chunk_rows:,} rows may become {largest:.1f} GB of text in a step that samples"
        raise RecipeError(found, f"a chunk holds 2.1 GB: --chunk_rows {most}", where="--chunk_rows")


def _most_rows(operators: Sequence[Operator]) -> int:
    """Most rows of a chunk whose results certainly fit, as far as the steps say how large they
    become; one at least."""
    rows, most = 1, _COLUMN_BYTES
    for operator in operators:
        if isinstance(operator, ResumableOperator):
            rows_out, text_bytes = operator.largest_result()
            most = min(most, _COLUMN_BYTES // max(1, rows * text_bytes))
            rows *= rows_out
    return max(1, most)
