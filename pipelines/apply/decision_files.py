"""The decisions of a run on file: Parquet, in the folder of each step.

curated.run/03_pass_rate_filter/decisions.parquet          of an export in one file
curated.run/03_pass_rate_filter/decisions-00000.parquet    of one in parts, one for each of them
curated.run/03_pass_rate_filter/decisions.arrow            of version 0.4
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ..dataset.arrow_files import read_arrow
from ..dataset.write import writer
from .audit_log import DECISIONS

STEM = "decisions"
SUFFIX = ".parquet"


def write_decisions(folder: Path, decisions: pa.Table) -> None:
    """Write the decisions of a step to its folder."""
    with writer(folder / f"{STEM}{SUFFIX}", DECISIONS) as write:
        write(decisions)


def read_decisions(folder: Path) -> pa.Table:
    """All decisions in a run folder, or in the folder of one of its steps, step by step.

    Raises:
        DataError: a file is damaged.
    """
    batches = [batch for file in _files(folder) for batch in _batches(file, list(DECISIONS.names))]
    return pa.Table.from_batches(batches, DECISIONS)


def decided_rows(folder: Path) -> Iterator[str | None]:
    """The `row_id` of each decision in a run folder; no more is read than is asked for."""
    for file in _files(folder):
        for batch in _batches(file, ["row_id"]):
            yield from batch["row_id"].to_pylist()


def _files(folder: Path) -> list[Path]:
    found = [file for name in (f"{STEM}*{SUFFIX}", f"{STEM}.arrow") for file in folder.glob(name)]
    found += [file for sub in folder.glob("*/") for file in _files(sub)]
    return sorted(found)


def _batches(file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".arrow":
        yield from read_arrow(file, mapped=False).select(columns).to_batches()
        return
    import pyarrow.parquet as pq  # It loads clients of object stores.

    with pq.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(columns=columns)
