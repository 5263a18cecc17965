"""One schema for rows of many files: what goes together, and what does not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ...operators import DataError
from ...operators.columns import with_items

# --- Questions about Arrow types that several packages ask ----------------------------


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts, however they are stored."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as rejuice computes with it: no dictionaries, views, fixed sizes or extensions.

    Columns of type `arrow.json` as a whole stay; within others they are texts.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if is_any_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return kind


def is_any_list(kind: pa.DataType) -> bool:
    """Return whether values of a type are lists, however they are stored."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def without_empty(kind: pa.DataType) -> pa.DataType:
    """Return a type with nulls in place of objects without fields, which Parquet does not have."""
    if is_any_list(kind):
        return pa.list_(kind.value_field.with_type(without_empty(kind.value_type)))
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.null()
        return pa.struct([field.with_type(without_empty(field.type)) for field in kind])
    return kind


# --- Values of JSON, and the Arrow types that hold them without loss ------------------
# Numbers: JSON has one kind of them; Arrow has int64 and float64, which share the integers below
# 2**53. So a column that has both larger integers and fractions, or integers beyond 64 bits,
# becomes a column of strings with the exact digits. This must not depend on where a file is cut
# into blocks: the fields of tables carry in their metadata what their types do not say, until the
# schema of all rows is known (`without_marks`).
#
#     block 1: 1, 2           int64
#     block 2: 2**60          int64, large        both: int64
#     block 3: 0.5            double              all:  string, "1", "2", "1152921504606846976" ...
#
# Messages: their `content` is a text in some rows, and a list of parts in others. Where both are
# there, texts become lists of one part.

LARGEST = 2**53
"""Below it float64 holds every integer, and no two are one."""
LARGE, AS_TEXT = {b"integers": b"large"}, {b"numbers": b"text"}
"""Metadata of fields: some integers are beyond `LARGEST`; the strings are the digits of numbers."""

MOST_LEVELS = 63
"""Lists and objects around a value within a column, in an Arrow file."""
_MOST_PARQUET_LEVELS = 98

CONTENT = "content"
"""The field of a message that is a text or a list of parts."""
_PART = pa.struct([("type", pa.string()), ("text", pa.string())])

Path: TypeAlias = tuple[str, ...]
"""The keys of the objects around a value within a row. Items of lists have the path of the list."""


def marked(table: pa.Table, as_text: Collection[Path] = ()) -> pa.Table:
    """Return the table with the metadata of this module."""
    if not table.num_columns:  # Of rows of `{}`: a table made of no columns would have no rows.
        return table
    fields = [
        _marked(field, table[at], (field.name,), as_text) for at, field in enumerate(table.schema)
    ]
    return pa.table(table.columns, schema=pa.schema(fields))


def _marked(
    field: pa.Field, values: pa.Array | pa.ChunkedArray, path: Path, as_text: Collection[Path]
) -> pa.Field:
    kind = field.type
    if path in as_text and is_text(kind):
        return field.with_metadata(AS_TEXT)
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_marked(kind.value_field, _inner(values), path, as_text)))
    if pa.types.is_struct(kind):
        parts = zip(kind, values.flatten(), strict=True)
        fields = [_marked(each, part, (*path, each.name), as_text) for each, part in parts]
        return field.with_type(pa.struct(fields))
    if pa.types.is_int64(kind) and _beyond(values):
        return field.with_metadata(LARGE)
    return field


def is_too_deep(kind: pa.DataType) -> bool:
    """Whether lists and objects are within each other more often than Arrow or Parquet takes."""
    waiting = [(kind, 0, 0)]  # No recursion: a type may be deeper than Python's calls.
    while waiting:
        kind, lists, objects = waiting.pop()
        if are_too_many(lists, objects):
            return True
        if is_any_list(kind):
            waiting.append((kind.value_type, lists + 1, objects))
        elif pa.types.is_map(kind):
            pairs = kind.key_type, kind.item_type
            waiting += ((each, lists + 1, objects + 1) for each in pairs)
        elif pa.types.is_struct(kind):
            waiting += ((each.type, lists, objects + 1) for each in kind)
    return False


def are_too_many(lists: int, objects: int) -> bool:
    """Return whether a value within so many lists and objects of a column cannot be written.

    Arrow files have up to 63 of both; of a Parquet file with more, where a list counts as two,
    the schema is not read again.
    """
    return lists + objects > MOST_LEVELS or 2 * lists + objects > _MOST_PARQUET_LEVELS


def too_deep(name: str, where: str) -> DataError:
    """Return the error for a column that no file can hold."""
    most = f"{MOST_LEVELS} levels, or {_MOST_PARQUET_LEVELS // 2} of lists"
    found = f"the values of column '{name}' are nested too deeply: at most {most}, can be written"
    return DataError(found, "write them as text, or remove the column", where=where)


def has_large_fractions(table: pa.Table) -> bool:
    """Return whether a float64 is beyond `LARGEST`: perhaps an integer that was rounded."""
    return any(
        pa.types.is_floating(leaf.type) and _beyond(leaf)
        for column in table.columns
        for leaf in _leaves(column)
    )


def _leaves(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array | pa.ChunkedArray]:
    if pa.types.is_list(values.type):
        yield from _leaves(_inner(values))
    elif pa.types.is_struct(values.type):
        for part in values.flatten():
            yield from _leaves(part)
    else:
        yield values


def _inner(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return pa.chunked_array([chunk.flatten() for chunk in chunks], values.type.value_type)


def _beyond(numbers: pa.Array | pa.ChunkedArray) -> bool:
    # Not by Arrow's functions, whose import is a sixth of what `rejuice check` takes.
    found = np.asarray(numbers.to_numpy() if isinstance(numbers, pa.ChunkedArray) else numbers)
    return bool((np.abs(found.astype(np.float64)) >= LARGEST).any())


def lossy_paths(rows: Iterable[Any]) -> set[Path]:
    """Return the paths of numbers that no Arrow type of numbers holds together."""
    fractions, large, larger, others = set[Path](), set[Path](), set[Path](), set[Path]()
    for row in rows:
        for path, value in _values(row, ()):
            if isinstance(value, float):
                fractions.add(path)
            elif isinstance(value, bool) or not isinstance(value, int):
                others.add(path)
            elif not -(2**63) <= value < 2**63:
                larger.add(path)
            elif abs(value) >= LARGEST:
                large.add(path)
    return (larger | (large & fractions)) - others


def _values(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, path)
    elif value is not None:
        yield path, value


def mixed_contents(rows: Iterable[Any]) -> set[Path]:
    """The paths of contents of messages of which some are texts and some are lists of parts."""
    texts, parts = set[Path](), set[Path]()
    for row in rows:
        for path, value in _contents(row, ()):
            (texts if isinstance(value, str) else parts).add(path)
    return texts & parts


def _contents(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            here = (*path, key)
            is_parts = isinstance(inner, list) and all(isinstance(part, dict) for part in inner)
            if key == CONTENT and (is_parts or isinstance(inner, str)):
                yield here, inner
            yield from _contents(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from _contents(inner, path)


def with_parts(value: Any, paths: Collection[Path], path: Path = ()) -> Any:
    """Return the value with the texts at these paths as lists of one part."""
    if isinstance(value, dict):
        return {key: with_parts(inner, paths, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_parts(inner, paths, path) for inner in value]
    return [text_part(value)] if isinstance(value, str) and path in paths else value


def text_part(text: str) -> dict[str, str]:
    """Return a text as a part of the content of a message."""
    return {"type": "text", "text": text}


def with_texts(value: Any, paths: Collection[Path], path: Path = ()) -> Any:
    """Return the value with the numbers at these paths as text."""
    if isinstance(value, dict):
        return {key: with_texts(inner, paths, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_texts(inner, paths, path) for inner in value]
    return number_text(value) if value is not None and path in paths else value


def number_text(value: float) -> str:
    """Return the digits of a number: `2`, also of 2.0, as both are one number in JSON.

    Example:
        >>> [number_text(value) for value in (2**64, 2.0, 0.1, 1e300)]
        ['18446744073709551616', '2', '0.1', '1e+300']
    """
    whole = isinstance(value, int) or (value.is_integer() and abs(value) <= LARGEST)
    return str(int(value)) if whole else repr(value)


def has_marks(schema: pa.Schema) -> bool:
    """Return whether a field, or one within it, has the metadata of this module."""
    return any(_has_marks(field) for field in schema)


def _has_marks(field: pa.Field) -> bool:
    if field.metadata in (LARGE, AS_TEXT):
        return True
    return any(_has_marks(inner) for inner in _fields_of(field.type))


def _fields_of(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_list(kind):
        return [kind.value_field]
    return list(kind) if pa.types.is_struct(kind) else []


def without_marks(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the metadata of this module, once it is that of all rows."""
    return pa.schema(map(_without_marks, schema)) if has_marks(schema) else schema


def _without_marks(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        field = field.with_type(pa.list_(_without_marks(kind.value_field)))
    elif pa.types.is_struct(kind):
        field = field.with_type(pa.struct([_without_marks(each) for each in kind]))
    return field.remove_metadata() if field.metadata in (LARGE, AS_TEXT) else field


def unify_marked(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The schema with the columns of all, in order, where some have the metadata of this module.

    Raises:
        pyarrow.ArrowTypeError: a column has types that do not go together.
    """
    return pa.schema(_unify(schemas))


def _unify(groups: Iterable[Iterable[pa.Field]]) -> list[pa.Field]:
    fields = dict[str, pa.Field]()
    for group in groups:
        for field in group:
            before = fields.get(field.name)
            fields[field.name] = field if before is None else _joined(before, field)
    return list(fields.values())


def _joined(one: pa.Field, other: pa.Field) -> pa.Field:
    kinds = (one.type, other.type)
    for first, second in ((one, other), (other, one)):
        if pa.types.is_null(first.type):
            return second
    if all(map(pa.types.is_list, kinds)):
        return one.with_type(pa.list_(_joined(kinds[0].value_field, kinds[1].value_field)))
    if all(map(pa.types.is_struct, kinds)):
        return one.with_type(pa.struct(_unify(kinds)))
    if all(map(_is_number, (one, other))):
        marks = [field.metadata for field in (one, other)]
        if AS_TEXT in marks or (LARGE in marks and any(map(pa.types.is_floating, kinds))):
            return pa.field(one.name, pa.string(), metadata=AS_TEXT)
        kept = LARGE if LARGE in marks else None
        return _plain(one, other).with_metadata(kept)
    if one.name == CONTENT:
        for first, second in ((one, other), (other, one)):
            if is_text(first.type) and _is_parts(second.type):
                kind = second.type.value_type
                both = _PART if pa.types.is_null(kind) else pa.struct(_unify((_PART, kind)))
                return second.with_type(pa.list_(both))
    if AS_TEXT in (one.metadata, other.metadata):
        # Digits that were numbers do not go together with texts.
        one, other = (
            field.with_type(pa.int64()) if field.metadata == AS_TEXT else field
            for field in (one, other)
        )
    return _plain(one, other)


def _is_parts(kind: pa.DataType) -> bool:
    types = pa.types
    if not types.is_list(kind):
        return False
    return bool(types.is_struct(kind.value_type) or types.is_null(kind.value_type))


def _plain(one: pa.Field, other: pa.Field) -> pa.Field:
    schemas = [pa.schema([field.remove_metadata()]) for field in (one, other)]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0)


def _is_number(field: pa.Field) -> bool:
    kind = field.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or field.metadata == AS_TEXT)


def converted(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values as another type that can hold them, such as that of `unify_marked` or `plain_type`.

    Raises:
        pyarrow.ArrowInvalid: a number would be rounded.
    """
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([converted(chunk, kind) for chunk in values.chunks], kind)
    own = values.type
    if own == kind:
        return values
    types = pa.types
    if isinstance(own, pa.BaseExtensionType):
        return converted(values.storage, kind)
    if types.is_dictionary(own):
        return converted(values.dictionary_decode(), kind)
    is_empty = types.is_struct(own) and not own.num_fields
    if types.is_null(kind) and (is_empty or values.null_count == len(values)):
        return pa.nulls(len(values))
    if types.is_struct(own) and types.is_struct(kind) and kind.num_fields:
        return _converted_objects(values, kind)
    if is_any_list(own) and types.is_list(kind):
        return with_items(values, converted(values.flatten(), kind.value_type), kind)
    if is_text(own) and _is_parts(kind):
        parts = [None if text is None else [text_part(text)] for text in values.to_pylist()]
        return pa.array(parts, kind)
    if is_text(kind) and (types.is_integer(own) or types.is_floating(own)):
        texts = [None if value is None else number_text(value) for value in values.to_pylist()]
        return pa.array(texts, kind)
    return values.cast(kind)


def _converted_objects(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    parts = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    arrays = [
        converted(parts[field.name], field.type)
        if field.name in parts
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=values.is_null())


# --- One schema for rows of many files: what goes together, and what does not ---------

MOST_KEYS = 1_000
"""Different keys that the objects of a column have at most: each is a column in every row."""


def unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema with the columns of all, in order; whole numbers and fractions become fractions.

    Raises:
        pyarrow.ArrowTypeError: a column has types that do not go together.
    """
    if any(map(has_marks, schemas)):
        return unify_marked(schemas)
    bare = [schema.remove_metadata() for schema in schemas]
    with suppress(pa.ArrowTypeError):
        return pa.unify_schemas(bare, promote_options="permissive")
    return unify_marked(schemas)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns and types of `schema`; columns that it lacks are null.

    Raises:
        DataError: whole numbers beyond 2**53 would be rounded, beside the fractions of other rows.
    """
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(_converted(table[field.name], field))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.table(columns, schema=schema)


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return converted(column, field.type)
    except pa.ArrowInvalid as error:
        found = f"column '{field.name}' is {column.type}, but {field.type} in other rows: {error}"
        raise DataError(found, "give the column one type") from None


def decoded(file: object, table: pa.Table) -> pa.Table:
    """Return the table with columns of plain types, so that batches have one type.

    Raises:
        DataError: two columns have one name; `file` names the file in the message.
    """
    schema = decoded_schema(file, table.schema)
    columns = [
        column if column.type == field.type else converted(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema) if columns else table


def decoded_schema(file: object, schema: pa.Schema) -> pa.Schema:
    """Return the schema of `decoded`.

    Raises:
        DataError: as `decoded`.
    """
    fields = dict[str, pa.Field]()
    for field in schema:
        if field.name in fields:
            raise DataError(f"{file} has two columns '{field.name}'", "rename one")
        # Such are helper columns, whose values differ in their keys.
        is_json = isinstance(field.type, pa.JsonType)
        fields[field.name] = field if is_json else field.with_type(plain_type(field.type))
    return pa.schema([field.remove_metadata() for field in fields.values()])


def added(schema: pa.Schema, other: pa.Schema, file: object) -> pa.Schema:
    """Return the schema of rows so far, with the columns of further rows.

    Raises:
        DataError: a column has types that do not go together, or objects with too many keys;
            `file` is that of the further rows.
    """
    try:
        together = unify([schema, other])
    except pa.ArrowTypeError:
        raise _mixed(file, schema, other) from None
    for field in together:
        _check_keys(field, (field.name,), file)
    return together


def _check_keys(field: pa.Field, path: Path, file: object) -> None:
    kind = field.type
    if pa.types.is_list(kind):
        _check_keys(kind.value_field, path, file)
    elif pa.types.is_struct(kind):
        if kind.num_fields > MOST_KEYS:
            raise too_many_keys(path, str(file))
        for each in kind:
            _check_keys(each, (*path, each.name), file)


def too_many_keys(path: Path, where: str) -> DataError:
    """Return the error for objects that are used as dictionaries, such as by token."""
    what = f"the objects in column '{'.'.join(path)}'" if path else "the rows"
    right = "write lists of objects, or text, or leave the column out by `columns`"
    return DataError(f"{what} have more than {MOST_KEYS:,} different keys", right, where=where)


def _mixed(file: object, schema: pa.Schema, other: pa.Schema) -> DataError:
    """Return the error for the first column, or field of its objects, with two types."""
    for field in other:
        if field.name in schema.names:
            found = _differing(schema.field(field.name), field, field.name)
            if found is not None:
                path, *kinds = found
                what = "column '{}' is {}, but {} in earlier rows".format(path, *kinds)
                return DataError(what, "give the column one type", where=str(file))
    raise AssertionError("schemas that do not unify differ in a column")


def _differing(before: pa.Field, field: pa.Field, path: str) -> tuple[str, str, str] | None:
    """Return the path at which two fields do not go together, and the types there."""
    try:
        unify([pa.schema([before]), pa.schema([field.with_name(before.name)])])
    except pa.ArrowTypeError:
        pass
    else:
        return None
    kinds = before.type, field.type
    if all(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) for kind in kinds):
        return _differing(kinds[0].value_field, kinds[1].value_field, path)
    if all(map(pa.types.is_struct, kinds)):
        for inner in kinds[1]:
            if kinds[0].get_field_index(inner.name) >= 0:
                name = f"{path}.{inner.name}"
                found = _differing(kinds[0].field(inner.name), inner, name)
                if found is not None:
                    return found
    now, earlier = (
        "number" if each.metadata == AS_TEXT else str(each.type) for each in (field, before)
    )
    return path, now, earlier
