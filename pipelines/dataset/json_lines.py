"""Read JSON lines as Arrow tables; an error names the line.

Arrow's parser is right about nearly all texts, and several times as fast as Python's. Where it may
be wrong, a block is read by Python, rewritten so that it is right, and parsed again: lists that
begin with nulls, integers beyond 2**53 beside fractions, lone surrogates.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from ...operators import DataError
from ...operators.json_text import is_very_deep
from .files import COMPRESSIONS, JSON_SUFFIXES, DataFile, misnamed
from .remote import is_of_store
from .schemas import (
    CONTENT,
    LARGEST,
    MOST_KEYS,
    Path,
    are_too_many,
    converted,
    is_beyond,
    is_too_deep,
    marked,
    number_text,
    of_two_types,
    text_part,
    too_deep,
    too_many_keys,
    within,
)

_LONGEST_LINE = 1 << 27
"""Bytes; reading a line takes up to ten times its memory, and a small file may unpack to it."""
_PIECE = 1 << 14
"""Bytes that are read at once; so far the lines of a file that is cut off are counted."""
_OBJECTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SURROGATE = re.compile("[\ud800-\udfff]")
_KEY = re.compile(rb'"([^"\\]{0,200}(?:\\.[^"\\]{0,200}){0,9})"\s*:')
_NULL_LINE = re.compile(rb"\n\s*null")
_KEY_PIECES, _KEY_PIECE = 128, 1 << 12
"""How many pieces of a block are looked at for keys, and their bytes."""
_MANY_KEYS = 300
"""Different ones in these pieces: Python counts how many an object has."""


def batches(
    file: DataFile, size: int, *, workers: int = 1, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Tables of about `size` bytes of a file each; each has its own schema."""
    blocks = _blocks(file, size)
    if workers == 1:
        for line, block in blocks:
            yield _parsed(file, block, line, columns)
        return
    with ThreadPoolExecutor(workers) as pool:

        def submitted() -> Iterator[Future[pa.Table]]:
            try:
                for line, block in blocks:
                    yield pool.submit(_parsed, file, block, line, columns)
            except DataError as error:  # A line before it may be bad: the first error then.
                unreadable = Future[pa.Table]()
                unreadable.set_exception(error)
                yield unreadable

        waiting = deque[Future[pa.Table]]()
        for future in submitted():
            waiting.append(future)
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def first_keys(file: DataFile, size: int) -> list[str]:
    for _, block in _blocks(file, size):
        with suppress(msgspec.MsgspecError, RecursionError):
            return list(dict.fromkeys(key for row in _OBJECTS.decode_lines(block) for key in row))
    return []


# --- Whole lines ----------------------------------------------------------------------


def _blocks(file: DataFile, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file, about `size` bytes at once, with the number of the first line."""
    line, kept, length, begun = 1, list[bytes](), 0, 0
    for piece in _pieces(file, min(size, _PIECE)):
        end = piece.rfind(b"\n") + 1
        length, begun = length + len(piece), len(piece) - end if end else begun + len(piece)
        if end and length >= size:
            block = b"".join((*kept, piece[:end]))
            if block.strip():
                yield line, block
            line += block.count(b"\n")
            kept, length = [piece[end:]], begun
        else:
            kept.append(piece)
        if begun > _LONGEST_LINE:
            where = f"{file}, line {line + sum(each.count(10) for each in kept)}"
            right = "make several rows of it, or convert the file to Parquet"
            raise DataError(f"it has more than {_LONGEST_LINE >> 20} MiB", right, where=where)
    if (block := b"".join(kept)).strip():
        yield line, block


def _pieces(file: DataFile, size: int) -> Iterator[bytes]:
    """The bytes of a file, without its compression."""
    codec, lines = COMPRESSIONS.get(file.path.suffix.lower()), 0
    with file.open() as source:
        text = source if codec is None else pa.CompressedInputStream(source, codec)
        try:
            while piece := text.read(size):
                lines += piece.count(b"\n")
                yield piece
        except OSError as error:
            if error.errno is not None or is_of_store(error):
                raise
            if other := misnamed(file, file.first_bytes()):
                raise other from None
            found = "cut off" if "Truncated" in str(error) else "damaged"
            raise DataError(
                f"{file} is {found} after line {lines:,} or soon after it",
                "copy it again, or compress it again",
            ) from None


def _beginning(file: DataFile, block: bytes) -> bytes:
    """The first lines of a file, without a byte order mark."""
    if other := misnamed(file, block, unpacked=file.suffix not in JSON_SUFFIXES):
        raise other
    if block.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in block[:4]:
        new = f"{file.path.stem}-utf8{file.path.suffix}"
        command = f"`iconv -f UTF-16 -t UTF-8 {file.path.name} > {new}`"
        raise DataError(f"{file} is UTF-16", f"convert it to UTF-8: {command}")
    block = block.removeprefix(b"\xef\xbb\xbf")
    first, _, rest = block.lstrip().partition(b"\n")
    if first.startswith(b"[") and not (first.rstrip().endswith(b"]") and rest.strip()):
        code = "import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]"
        command = f"`python -c '{code}' < {file.path.name} > {file.path.stem}-lines.jsonl`"
        raise DataError(f"{file} is a JSON array", f"write one object per line: {command}")
    return block


# --- Lines that Arrow is right about --------------------------------------------------


def _parsed(file: DataFile, block: bytes, first_line: int, names: Sequence[str] | None) -> pa.Table:
    """A table of whole lines, by Arrow's parser where it is right, which is nearly always."""
    if first_line == 1:
        block = _beginning(file, block)
    # What else is a ValueError: bytes that are not UTF-8, which Arrow's parser does not look for.
    with suppress(pa.ArrowInvalid, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        text = block if names is None else _projected(block, names)
        if _is_safe(text):
            table = _read(text)
            if not any(_may_be_rounded(column) for column in table.columns):
                return marked(table)
    return _of_python(file, _rows(file, block, first_line, names))


def _projected(block: bytes, names: Sequence[str]) -> bytes:
    rows = _OBJECTS.decode_lines(block)
    return msgspec.json.Encoder().encode_lines(
        {key: row[key] for key in names if key in row} for row in rows
    )


def _is_safe(text: bytes) -> bool:
    """Whether Arrow reads no null line as a row, does not crash, and needs no gigabytes."""
    text.decode()
    has_null = text.lstrip().startswith(b"null") or _NULL_LINE.search(text)
    return not (has_null or is_very_deep(text) or _distinct_keys(text) > _MANY_KEYS)


def _distinct_keys(text: bytes) -> int:
    """How many different keys objects have, in pieces of a text that are spread over it."""
    step = max(_KEY_PIECE, len(text) // _KEY_PIECES)
    pieces = (text[at : at + _KEY_PIECE] for at in range(0, len(text), step))
    return len({key for piece in pieces for key in _KEY.findall(piece)})


def _read(text: bytes) -> pa.Table:
    table = _read_as(text, None)
    if any(map(is_too_deep, table.schema.types)):
        raise pa.ArrowInvalid("values are nested too deeply")
    # Arrow reads a string such as "2020-01-01" as a timestamp, a type that JSON does not have.
    kinds = [_with_types(field.type, {}) for field in table.schema]
    if kinds == table.schema.types:
        with suppress(pa.ArrowInvalid):
            table.validate(full=True)
            return table
    # Where lists begin with nulls, it moves values; not where it knows the types beforehand.
    known = [_with_types(kind, {pa.null(): pa.string()}) for kind in kinds]
    again = _read_as(text, pa.schema(zip(table.column_names, known, strict=True)))
    again = again.select(table.column_names)
    again.validate(full=True)
    columns = [converted(each, kind) for each, kind in zip(again.columns, kinds, strict=True)]
    return pa.table(columns, names=table.column_names)


def _read_as(text: bytes, schema: pa.Schema | None) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text)),
        parse_options=pj.ParseOptions(explicit_schema=schema),
    )


def _with_types(kind: pa.DataType, others: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """A type with timestamps within it as strings, and others in place of some types."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    return others.get(kind, within(kind, lambda inner: _with_types(inner, others)))


def _may_be_rounded(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a float64 is beyond `LARGEST`: perhaps an integer among fractions."""
    if isinstance(values, pa.ChunkedArray):
        return any(map(_may_be_rounded, values.chunks))
    if pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        inner = values.flatten()
        return any(map(_may_be_rounded, inner if isinstance(inner, list) else [inner]))
    return pa.types.is_floating(values.type) and is_beyond(values)


# --- Lines that Python reads ----------------------------------------------------------

_NumberedRows: TypeAlias = list[tuple[int, dict[str, Any]]]
"""The number of a line, and its object."""


def _rows(
    file: DataFile, block: bytes, first_line: int, names: Sequence[str] | None
) -> _NumberedRows:
    """The rows as Python reads them, whole numbers exactly."""
    rows, keys = _NumberedRows(), defaultdict[Path, set[str]](set)
    last = first_line + block.count(b"\n")
    for number, raw in enumerate(block.split(b"\n"), first_line):
        if not raw.strip():
            continue
        where = f"{file}, line {number}"
        row = _object(raw, where, is_last=number == last)
        if names is not None:
            row = {key: row[key] for key in names if key in row}
        _check(row, (), 0, keys, where)
        rows.append((number, row))
    return rows


def _object(raw: bytes, where: str, *, is_last: bool) -> dict[str, Any]:
    try:
        row = json.loads(raw.decode(), object_pairs_hook=_unique, parse_float=_finite)
    except UnicodeDecodeError as error:
        found = f"not UTF-8: byte {raw[error.start]:#04x} at {error.start}"
        raise DataError(found, "write the file as UTF-8", where=where) from None
    except RecursionError:
        found, right = "its values are nested too deeply", "write them as text, or remove the line"
        raise DataError(found, right, where=where) from None
    except ValueError as error:
        if is_last and raw.startswith(b"{") and not raw.rstrip().endswith(b"}"):
            raise DataError("the file is cut off here", "copy it again", where=where) from None
        found = f"not JSON ({error})"
        raise DataError(found, "fix or remove the line", where=where) from None
    if not isinstance(row, dict):
        what = "null" if row is None else type(row).__name__
        raise DataError(f"{what} instead of an object", "give one object per line", where=where)
    return row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"an object has the key '{twice}' twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond the largest number, 1.8e308")
    return number


def _check(
    value: Any, path: Path, lists: int, keys: defaultdict[Path, set[str]], where: str
) -> None:
    """Check the depth of a value, and count the different keys of objects: each is a column."""
    if not isinstance(value, list | dict):
        return
    if path and are_too_many(lists + isinstance(value, list), len(path) - isinstance(value, list)):
        raise too_deep(path[0], where)
    if isinstance(value, list):
        for inner in value:
            _check(inner, path, lists + 1, keys, where)
        return
    known = keys[path]
    known.update(value)
    if len(known) > MOST_KEYS:
        raise too_many_keys(path, where)
    for key, inner in value.items():
        _check(inner, (*path, key), lists, keys, where)


def _of_python(file: DataFile, rows: _NumberedRows) -> pa.Table:
    """Rows that Python has read as a table."""
    values = [each for _, row in rows for each in _values(row, ())]
    as_text, as_parts = _lossy_paths(values), _mixed_contents(values)
    rewritten = (_rewritten(row, (), as_text, as_parts) for _, row in rows)
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rewritten)
    try:
        return marked(_read(_SURROGATE.sub("\ufffd", text).encode()), as_text)
    except pa.ArrowInvalid as error:
        raise _arrow_error(file, rows, error) from None


def _values(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """A value, and all that are in it."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, path)


def _lossy_paths(values: Iterable[tuple[Path, Any]]) -> set[Path]:
    """The paths of numbers that no Arrow type of numbers holds together."""
    fractions, large, larger, others = set[Path](), set[Path](), set[Path](), set[Path]()
    for path, value in values:
        if isinstance(value, str | bool):
            others.add(path)
        elif isinstance(value, float):
            fractions.add(path)
        elif isinstance(value, int) and abs(value) >= LARGEST:
            (large if -(2**63) <= value < 2**63 else larger).add(path)
    return (larger | (large & fractions)) - others


def _mixed_contents(values: Iterable[tuple[Path, Any]]) -> set[Path]:
    """The paths of contents of messages of which some are texts and some are lists of parts."""
    texts, parts = set[Path](), set[Path]()
    for path, value in values:
        if path[-1:] == (CONTENT,):
            if isinstance(value, str):
                texts.add(path)
            elif isinstance(value, list) and all(isinstance(part, dict) for part in value):
                parts.add(path)
    return texts & parts


def _rewritten(
    value: Any, path: Path, as_text: Collection[Path], as_parts: Collection[Path]
) -> Any:
    """A value with the numbers at some paths as text, and the texts at others as one part."""
    if isinstance(value, dict):
        return {
            key: _rewritten(inner, (*path, key), as_text, as_parts) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_rewritten(inner, path, as_text, as_parts) for inner in value]
    if isinstance(value, str):
        return [text_part(value)] if path in as_parts else value
    return number_text(value) if value is not None and path in as_text else value


_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+) in row (\d+)", re.DOTALL)


def _arrow_error(file: DataFile, rows: _NumberedRows, error: Exception) -> DataError:
    """The error for a block that Arrow rejects although each of its lines is JSON."""
    found = _CHANGED.search(str(error))
    if found is None:
        return DataError(f"{file} is not JSON lines: {error}", "give one object per line")
    path, before, now, row = found.groups()
    where = f"{file}, line {rows[min(int(row), len(rows) - 1)][0]}"
    return of_two_types(path.replace("/", "."), now, before, where)
