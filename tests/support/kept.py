"""What resumable operators have kept of their rows, read while a run goes on."""

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa


def kept_rows(cache: Path, operator: str) -> list[dict[str, Any]]:
    """What an operator on a local disk has made of the rows that are finished."""
    found = []
    for path in cache.glob(f"kept-{operator}-*/rows.sqlite"):
        file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            rows = file.execute("SELECT payload FROM rows").fetchall()
        except sqlite3.OperationalError:  # It has just been made.
            rows = []
        file.close()
        for (payload,) in rows:
            found += pa.ipc.open_stream(payload).read_all().to_pylist()
    return found
