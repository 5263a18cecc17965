"""Read JSON lines as Arrow tables; an error names the line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from ...operators import DataError


def batches(file: Path, size: int) -> Iterator[pa.Table]:
    """Tables of about `size` bytes of a file each; each has its own schema.

    Raises:
        DataError: a line is not an object, or its types differ from those before; names the line.
    """
    line = 1
    with file.open("rb") as stream:
        while block := stream.read(size):
            block += stream.readline()
            if block.strip():
                yield _parse_json(file, block, line)
            line += block.count(b"\n")


def _parse_json(file: Path, block: bytes, first_line: int) -> pa.Table:
    options = pj.ReadOptions(block_size=len(block))
    try:
        block.decode()  # Arrow does not check that strings are UTF-8.
        table = pj.read_json(io.BytesIO(block), read_options=options)
        # Arrow reads a string such as "2020-01-01" as a timestamp, a type that JSON does not have.
        schema = pa.schema(
            [field.with_type(_without_timestamps(field.type)) for field in table.schema]
        )
        if schema.equals(table.schema):
            return table
        texts = pj.ParseOptions(explicit_schema=schema)
        return pj.read_json(io.BytesIO(block), read_options=options, parse_options=texts).select(
            table.column_names
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        bad_line = _first_bad_line(file, block, first_line)
        raise bad_line or _arrow_error(file, block, first_line, error) from None


def _arrow_error(file: Path, block: bytes, first_line: int, error: Exception) -> DataError:
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


def _first_bad_line(file: Path, block: bytes, first_line: int) -> DataError | None:
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
