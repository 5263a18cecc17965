"""Read JSON lines as Arrow tables; an error names the line.

Arrow's parser is right about nearly all texts, and several times as fast as Python's. Where it may
be wrong, a block is read by Python, rewritten so that it is right, and parsed again: lists that
begin with nulls, integers beyond 2**53 beside fractions, lone surrogates.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from ...operators import DataError
from ...operators.json_text import is_very_deep
from .files import COMPRESSIONS, JSON_SUFFIXES, DataFile, misnamed
from .remote import is_of_store
from .schemas import (
    MOST_KEYS,
    Path,
    are_too_many,
    converted,
    has_large_fractions,
    is_too_deep,
    lossy_paths,
    marked,
    mixed_contents,
    too_deep,
    too_many_keys,
    with_parts,
    with_texts,
)

_LONGEST_LINE = 1 << 27
"""Bytes; reading a line takes up to ten times its memory, and a small file may unpack to it."""
_ABSENT = msgspec.Raw(b"null")
_OBJECTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_KEY = re.compile(rb'"([^"\\]{0,200}(?:\\.[^"\\]{0,200}){0,9})"\s*:')
_PIECES, _PIECE = 128, 1 << 12
"""How many pieces of a block are looked at for keys, and their bytes."""
_MANY_KEYS = 300
"""Different ones in these pieces: Python counts how many an object has."""
_FEW = 48
"""Lists and objects of a line that may all be within each other."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_NULL_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?\s*null")
_NULL_BETWEEN = re.compile(rb"[}\n]\s*null")


def batches(
    file: DataFile, size: int, *, workers: int = 1, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Tables of about `size` bytes of a file each; each has its own schema.

    Raises:
        DataError: a line is too long or not an object, or its types differ from those before, or an
            object has too many keys, or the file is compressed and cut off; names the line. The
            first such error of the file, however many threads there are.
    """
    blocks = _blocks(file, size)
    if workers == 1:
        for line, block in blocks:
            yield _parse_json(file, block, line, columns)
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
            waiting.append(pool.submit(_parse_json, file, block, line, columns))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if unreadable is not None:
            raise unreadable


def first_keys(file: DataFile, size: int) -> list[str]:
    """Return the keys of the objects in about `size` bytes of a file."""
    for _, block in _blocks(file, size):
        with suppress(msgspec.MsgspecError, RecursionError):
            return list(dict.fromkeys(key for row in _OBJECTS.decode_lines(block) for key in row))
    return []


def _blocks(file: DataFile, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file, about `size` bytes at once, with the number of the first line."""
    line = 1
    with _text(file) as raw:
        stream = io.BufferedReader(raw)
        try:
            while block := stream.read(size):
                start = block.rfind(b"\n") + 1
                block += stream.readline(_LONGEST_LINE)
                too_long, last = len(block) - start > _LONGEST_LINE, block.count(b"\n", 0, start)
                if line == 1:
                    block = _checked_beginning(file, block, is_all=not stream.peek(1))
                if too_long:
                    raise _too_long(f"{file}, line {line + last}")
                if block.strip():
                    yield line, block
                line += block.count(b"\n")
        except OSError as error:
            if error.errno is not None or is_of_store(error):
                raise
            raise _torn(file, error) from None


def _too_long(where: str) -> DataError:
    found = f"it has more than {_LONGEST_LINE >> 20} MiB"
    return DataError(found, "make several rows of it, or convert the file to Parquet", where=where)


def _checked_beginning(file: DataFile, block: bytes, *, is_all: bool) -> bytes:
    """Return the first lines of a file, without a byte order mark.

    Raises:
        DataError: they are not JSON lines, but something that is taken for them.
    """
    other = misnamed(file, block, unpacked=file.suffix not in JSON_SUFFIXES)
    if other is not None:
        raise other
    if block.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in block[:4]:
        new = f"{file.path.stem}-utf8{file.path.suffix}"
        command = f"`iconv -f UTF-16 -t UTF-8 {file.path.name} > {new}`"
        raise DataError(f"{file} is UTF-16", f"convert it to UTF-8: {command}")
    block = block.removeprefix(b"\xef\xbb\xbf")
    first, _, rest = block.lstrip().partition(b"\n")
    one_line = first.rstrip().endswith(b"]") and not (is_all and not rest.strip())
    if first.startswith(b"[") and not one_line:
        code = "import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]"
        command = f"`python -c '{code}' < {file.path.name} > {file.path.stem}-lines.jsonl`"
        raise DataError(f"{file} is a JSON array", f"write one object per line: {command}")
    return block


@contextmanager
def _text(file: DataFile) -> Iterator[Any]:
    """The bytes of a file, without its compression."""
    with file.open() as source:
        codec = COMPRESSIONS.get(file.path.suffix.lower())
        yield source if codec is None else pa.CompressedInputStream(source, codec)


def _torn(file: DataFile, error: OSError) -> DataError:
    """The error for a compressed file that is cut off or damaged, with the lines that it has.

    Or for one that is not compressed in the way that its name says.
    """
    other = misnamed(file, file.first_bytes())
    if other is not None:
        return other
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


def _parse_json(
    file: DataFile, block: bytes, first_line: int, names: Sequence[str] | None
) -> pa.Table:
    """A table of whole lines, by Arrow's parser where it is right, which is nearly always."""
    try:
        text = block if names is None else _projected(block, names)
        table = _parsed(text)
        # An integer beside fractions, or beyond 64 bits, may have been rounded.
        if table is not None and not has_large_fractions(table):
            return marked(table)
    except (pa.ArrowInvalid, msgspec.MsgspecError, RecursionError):
        pass
    rows = _rows(file, block, first_line, names)
    as_text = lossy_paths(row for _, row in rows)
    mixed = mixed_contents(row for _, row in rows)
    rewritten = (with_parts(with_texts(row, as_text), mixed) for _, row in rows)
    lines = [json.dumps(row, ensure_ascii=False) for row in rewritten]
    try:
        table = _parsed(_SURROGATE.sub("\ufffd", "\n".join(lines)).encode(), checked=False)
        assert table is not None
        return marked(table, as_text)
    except pa.ArrowInvalid as error:
        raise _mixed_types(file, rows) or _arrow_error(file, rows, error) from None


def _projected(block: bytes, names: Sequence[str]) -> bytes:
    """Return the lines with these keys of their objects alone; the others are not looked at."""
    if any(map(_ESCAPED.search, names)):  # Not names of fields of msgspec's.
        rows = _OBJECTS.decode_lines(block)
        rows = [{key: row[key] for key in names if key in row} for row in rows]
    else:
        rows = _decoder(tuple(names)).decode_lines(block)
    return _ENCODER.encode_lines(rows)


@lru_cache(maxsize=16)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of objects with these keys alone."""
    fields = [(f"key_{at}", msgspec.Raw, _ABSENT) for at in range(len(names))]
    renamed = {f"key_{at}": name for at, name in enumerate(names)}
    kind = msgspec.defstruct("Selected", fields, rename=renamed, omit_defaults=True)
    return msgspec.json.Decoder(kind)


def _parsed(text: bytes, *, checked: bool = True) -> pa.Table | None:
    """Return lines as Arrow parses them; None where it may be wrong about them, or would crash.

    Raises:
        pyarrow.ArrowInvalid: it cannot.
    """
    _check_text(text)
    # A text that begins with null would end the process.
    if checked and (_NULL_FIRST.match(text) or is_very_deep(text)):
        return None
    if checked and _distinct_keys(text) > _MANY_KEYS:
        return None
    table = _read(text, None)
    if checked and _has_null_line(text, table):
        return None
    if any(map(is_too_deep, table.schema.types)):
        raise pa.ArrowInvalid("values are nested too deeply")
    # Arrow reads a string such as "2020-01-01" as a timestamp, a type that JSON does not have.
    kinds = [_with_types(field.type, {}) for field in table.schema]
    if kinds == table.schema.types and _is_valid(table):
        return table
    # Where lists begin with nulls, it moves values; not where it knows the types beforehand.
    known = [_with_types(kind, {pa.null(): pa.string()}) for kind in kinds]
    again = _read(text, pa.schema(zip(table.column_names, known, strict=True)))
    again = again.select(table.column_names)
    again.validate(full=True)
    columns = [converted(each, kind) for each, kind in zip(again.columns, kinds, strict=True)]
    return pa.table(columns, names=table.column_names)


def _read(text: bytes, schema: pa.Schema | None) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text)),
        parse_options=pj.ParseOptions(explicit_schema=schema),
    )


def _has_null_line(text: bytes, table: pa.Table) -> bool:
    """Return whether a line may be null, which Arrow reads as a row of nulls.

    The text is seldom looked at: most tables have a column without nulls.
    """
    has_rows_of_nulls = all(column.null_count for column in table.columns)
    return has_rows_of_nulls and _NULL_BETWEEN.search(text) is not None


def _is_valid(table: pa.Table) -> bool:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _distinct_keys(text: bytes) -> int:
    """How many different keys objects have, in pieces of a text that are spread over it."""
    step = max(_PIECE, len(text) // _PIECES)
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), step))
    return len({key for piece in pieces for key in _KEY.findall(piece)})


def _rows(
    file: DataFile, block: bytes, first_line: int, names: Sequence[str] | None
) -> list[tuple[int, dict[str, Any]]]:
    """The rows as Python reads them, whole numbers exactly, each with the number of its line.

    Raises:
        DataError: a line is not an object, or its objects have more keys than are read.
    """
    rows, keys = [], defaultdict[Path, set[str]](set)
    last = first_line + block.count(b"\n")
    for number, raw in enumerate(block.split(b"\n"), first_line):
        if not raw.strip():
            continue
        where = f"{file}, line {number}"
        deep = _deep_column(raw)
        if deep is not None and (names is None or deep in names):
            raise too_deep(deep, where)
        row = _object(raw, where, is_last=number == last)
        if names is not None:
            row = {key: row[key] for key in names if key in row}
        _check_keys(row, (), keys, where)
        rows.append((number, row))
    return rows


def _deep_column(raw: bytes) -> str | None:
    """Return the column of a line whose values are nested too deeply; None: none, or not JSON."""
    if raw.count(b"[") + raw.count(b"{") <= _FEW:
        return None
    around, name = [], b""
    for token in map(re.Match[bytes].group, _TOKEN.finditer(raw)):
        if token in b"[{":
            around.append(token)
            lists = around.count(b"[")
            if name and are_too_many(lists, len(around) - lists - 1):  # The row itself is one.
                with suppress(ValueError):
                    return str(json.loads(name))
                return None
        elif token in b"]}":
            if around:
                around.pop()
        elif len(around) == 1:
            name = token
    return None


def _object(raw: bytes, where: str, *, is_last: bool) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        DataError: the line is something else.
    """
    try:
        row = json.loads(raw.decode(), object_pairs_hook=_unique, parse_float=_finite)
    except UnicodeDecodeError as error:
        found = f"not UTF-8: byte {raw[error.start]:#04x} at {error.start}"
        raise DataError(found, "write the file as UTF-8", where=where) from None
    except RecursionError:
        found, right = "its values are nested too deeply", "remove the line"
        raise DataError(found, right, where=where) from None
    except ValueError as error:
        if is_last and raw.startswith(b"{") and not raw.rstrip().endswith(b"}"):
            raise DataError("the file is cut off here", "copy it again", where=where) from None
        found = f"not JSON ({error})"
        raise DataError(found, "fix or remove the line", where=where) from None
    if not isinstance(row, dict):
        what = "null" if row is None else type(row).__name__
        found = f"{what} instead of an object"
        raise DataError(found, "give one object per line", where=where)
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


def _check_keys(value: Any, path: Path, keys: defaultdict[Path, set[str]], where: str) -> None:
    """Count the different keys of objects, such as of a dictionary by token: each is a column.

    Raises:
        DataError: there are more than are read.
    """
    if isinstance(value, list):
        for inner in value:
            _check_keys(inner, path, keys, where)
    elif isinstance(value, dict):
        known = keys[path]
        known.update(value)
        if len(known) > MOST_KEYS:
            raise too_many_keys(path, where)
        for key, inner in value.items():
            if isinstance(inner, dict | list):
                _check_keys(inner, (*path, key), keys, where)


def _check_text(block: bytes) -> None:
    """Check that bytes are UTF-8, which Arrow's parser does not; without holding the GIL.

    Raises:
        pyarrow.ArrowInvalid: they are not.
    """
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(block)])
    text.validate(full=True)


def _arrow_error(
    file: DataFile, rows: Sequence[tuple[int, dict[str, Any]]], error: Exception
) -> DataError:
    """Return the error for a block that Arrow rejects although each of its lines is JSON."""
    found = re.fullmatch(r"JSON parse error: (.*?)\.? in row (\d+)", str(error), re.DOTALL)
    if found is None:
        return DataError(f"{file} is not JSON lines: {error}", "give one object per line")
    where = f"{file}, line {rows[min(int(found[2]), len(rows) - 1)][0]}"
    return DataError(found[1][0].lower() + found[1][1:], "fix or remove the line", where=where)


def _with_types(kind: pa.DataType, others: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return a type with timestamps within it as strings, and others in place of some types."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_with_types(kind.value_type, others))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_types(field.type, others)) for field in kind])
    return others.get(kind, kind)


def _mixed_types(file: DataFile, rows: Sequence[tuple[int, dict[str, Any]]]) -> DataError | None:
    """Return the error for the first row whose column has another type than in those before it."""
    types: dict[str, tuple[str, int]] = {}
    for number, row in rows:
        where = f"{file}, line {number}"
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
