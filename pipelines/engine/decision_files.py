"""The decisions of a run on file: Parquet, in the folder of each step.

curated.run/03_pass_rate_filter/decisions.parquet          of an export in one file
curated.run/03_pass_rate_filter/decisions-00000.parquet    of one in parts, one for each of them
curated.run/03_pass_rate_filter/decisions.arrow            of version 0.4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from ...operators import DataError
from ..dataset.arrow_files import read_arrow
from ..dataset.files import open_input
from ..dataset.remote import AnyPath
from ..dataset.write import writer
from .audit_log import DECISIONS

STEM = "decisions"
SUFFIX = ".parquet"
_SUFFIXES = (SUFFIX, ".arrow")
_STEP = re.compile(r"\d{2,}_\w+")
"""The folder of a step, see `Step.label`."""


def write_decisions(folder: AnyPath, decisions: pa.Table) -> None:
    """Write the decisions of a step to its folder."""
    with writer(folder / f"{STEM}{SUFFIX}", DECISIONS) as write:
        write(decisions)


def read_decisions(folder: AnyPath) -> pa.Table:
    """All decisions in a run folder, or in the folder of one of its steps, step by step.

    Raises:
        DataError: a file is damaged.
    """
    batches = [batch for file in files(folder) for batch in _batches(file, list(DECISIONS.names))]
    return pa.Table.from_batches(batches, DECISIONS)


def decided_rows(folder: AnyPath) -> Iterator[str | None]:
    """The `row_id` of each decision in a run folder; no more is read than is asked for."""
    for file in files(folder):
        for batch in _batches(file, ["row_id"]):
            yield from batch["row_id"].to_pylist()


def files(folder: AnyPath) -> list[AnyPath]:
    """The files of a step or, of a run folder, those of all its steps."""
    inside: Iterable[AnyPath] = folder.iterdir() if folder.is_dir() else ()
    found = sorted(inside, key=str)
    steps = [path for path in found if _STEP.match(path.name)]
    own = [path for path in found if path.suffix in _SUFFIXES and path.stem.startswith(STEM)]
    return [*own, *(file for step in steps for file in files(step))]


def _batches(file: AnyPath, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        if file.suffix == ".arrow":
            batches = iter(read_arrow(file, mapped=False).select(columns).to_batches())
        else:
            batches = _parquet_batches(file, columns)
        for batch in batches:
            batch.validate(full=True)
            yield batch.select(columns).cast(pa.schema([DECISIONS.field(n) for n in columns]))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError):
        raise DataError(f"{file} is damaged", "run the recipe again") from None


def _parquet_batches(file: AnyPath, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq  # It loads clients of object stores.

    with open_input(file) as source, pq.ParquetFile(source) as parquet:
        yield from parquet.iter_batches(columns=columns)
