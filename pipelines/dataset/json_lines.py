"""Read JSON lines as Arrow tables; an error names the line."""

from __future__ import annotations

import io
import json
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from ...operators import DataError
from ..filesystem.store_answers import is_of_store
from .datafile import COMPRESSIONS, DataFile


def batches(file: DataFile, size: int, *, workers: int = 1) -> Iterator[pa.Table]:
    """Tables of about `size` bytes of a file each; each has its own schema.

    Args:
        file: of JSON lines, perhaps compressed.
        size: bytes of text per table, about: a table ends where a line ends.
        workers: threads that parse; at most so many tables, and one more, are in memory.

    Raises:
        DataError: a line is not an object, or its types differ from those before, or the file is
            compressed and cut off; names the line. The first such error of the file, however many
            threads there are.
    """
    blocks = _blocks(file, size)
    if workers == 1:
        for line, block in blocks:
            yield _parse_json(file, block, line)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting = deque[Future[pa.Table]]()
        unreadable: DataError | None = None
        while True:
            try:
                line, block = next(blocks)
            except StopIteration:
                break
            except DataError as error:
                unreadable = error  # A line before it may be bad, which is the first error then.
                break
            waiting.append(pool.submit(_parse_json, file, block, line))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if unreadable is not None:
            raise unreadable


def _blocks(file: DataFile, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file, about `size` bytes at once, with the number of the first line."""
    line = 1
    with _text(file) as raw:
        stream = io.BufferedReader(raw)
        try:
            while block := stream.read(size):
                block += stream.readline()
                if block.strip():
                    yield line, block
                line += block.count(b"\n")
        except OSError as error:
            if error.errno is not None or is_of_store(error):
                raise
            raise _torn(file, error) from None


@contextmanager
def _text(file: DataFile) -> Iterator[Any]:
    """The bytes of a file, without its compression."""
    with file.open() as source:
        codec = COMPRESSIONS.get(file.path.suffix)
        yield source if codec is None else pa.CompressedInputStream(source, codec)


def _torn(file: DataFile, error: OSError) -> DataError:
    """The error for a compressed file that is cut off or damaged, with the lines that it has."""
    lines = done = 0
    # A read that fails gives nothing of what is before the tear, so it is approached step by step.
    for step in (1 << 20, 1 << 10, 1):
        with _text(file) as text, suppress(OSError):
            _skip(text, done)
            while piece := text.read(step):
                done += len(piece)
                lines += piece.count(b"\n")
    found = "is cut off" if "Truncated" in str(error) else "is damaged"
    many = f"only {lines:,} line{'s' * (lines > 1)} of it" if lines else "no line of it"
    return DataError(f"{file} {found}: {many} can be read", "copy it again, or compress it again")


def _skip(stream: Any, size: int) -> None:
    while size and (piece := stream.read(min(size, 1 << 20))):
        size -= len(piece)


def _parse_json(file: DataFile, block: bytes, first_line: int) -> pa.Table:
    options = pj.ReadOptions(block_size=len(block))
    try:
        _check_text(block)
        table = pj.read_json(pa.BufferReader(block), read_options=options)
        # Arrow reads a string such as "2020-01-01" as a timestamp, a type that JSON does not have.
        schema = pa.schema(
            [field.with_type(_without_timestamps(field.type)) for field in table.schema]
        )
        if schema.equals(table.schema):
            return table
        texts = pj.ParseOptions(explicit_schema=schema)
        return pj.read_json(
            pa.BufferReader(block), read_options=options, parse_options=texts
        ).select(table.column_names)
    except pa.ArrowInvalid as error:
        bad_line = _first_bad_line(file, block, first_line)
        raise bad_line or _arrow_error(file, block, first_line, error) from None


def _check_text(block: bytes) -> None:
    """Check that bytes are UTF-8, which Arrow's parser does not; without holding the GIL.

    Raises:
        pyarrow.ArrowInvalid: they are not.
    """
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(block)])
    text.validate(full=True)


def _arrow_error(file: DataFile, block: bytes, first_line: int, error: Exception) -> DataError:
    """The error for a block that Arrow rejects although each of its lines is JSON."""
    found = re.fullmatch(r"JSON parse error: (.*?)\.? in row (\d+)", str(error), re.DOTALL)
    if found is None:
        return DataError(f"{file} is not JSON lines: {error}", "give one object per line")
    lines = [n for n, raw in enumerate(block.split(b"\n"), first_line) if raw.strip()]
    where = f"{file}, line {lines[min(int(found[2]), len(lines) - 1)]}"
    return DataError(found[1][0].lower() + found[1][1:], "fix or remove the line", where=where)


def _without_timestamps(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_timestamps(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_timestamps(field.type)) for field in kind])
    return kind


def _first_bad_line(file: DataFile, block: bytes, first_line: int) -> DataError | None:
    """Find the line that the fast parser rejected, and what is wrong with it."""
    types: dict[str, tuple[str, int]] = {}
    for number, raw in enumerate(block.split(b"\n"), first_line):
        if not raw.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = json.loads(raw)
        except ValueError as error:
            return DataError(f"not JSON ({error})", "fix or remove the line", where=where)
        if not isinstance(row, dict):
            return DataError(
                f"{type(row).__name__} instead of an object",
                "give one object per line",
                where=where,
            )
        for name, value in row.items():
            kind = _json_kind(value)
            before, seen = types.setdefault(name, (kind, number)) if kind else (kind, number)
            if kind != before:
                return DataError(
                    f"column '{name}' is {kind}, but {before} in line {seen}",
                    "give the column one type",
                    where=where,
                )
    return None


def _json_kind(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return {"str": "a string", "list": "a list", "dict": "an object"}[type(value).__name__]
