"""One schema for rows of many files: what goes together, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ...operators import DataError
from ...operators.columns import is_text, with_items

# --- Questions about Arrow types that several packages ask ----------------------------


def is_any_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type as rejuice computes with it: no dictionaries, views, fixed sizes or extensions.

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
    return within(kind, plain_type)


def without_empty(kind: pa.DataType) -> pa.DataType:
    """A type with nulls in place of objects without fields, which Parquet does not have."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        return pa.null()
    return within(kind, without_empty)


def within(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type of lists or objects, with the types of what is in them changed; others as they are."""
    if is_any_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    return kind


# --- Values that no file can hold -----------------------------------------------------

_MOST_LEVELS, _MOST_PARQUET_LEVELS = 63, 98
"""Lists and objects around a value within a column; in Parquet, where a list counts as two."""
MOST_KEYS = 1_000
"""Different keys that the objects of a column have at most: each is a column in every row."""

Path: TypeAlias = tuple[str, ...]
"""The keys of the objects around a value within a row. Items of lists have the path of the list."""


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
    """Whether a value within so many lists and objects of a column cannot be written and read."""
    return lists + objects > _MOST_LEVELS or 2 * lists + objects > _MOST_PARQUET_LEVELS


def too_deep(name: str, where: str) -> DataError:
    most = f"{_MOST_LEVELS} levels, or {_MOST_PARQUET_LEVELS // 2} of lists"
    found = f"the values of column '{name}' are nested too deeply: at most {most}, can be written"
    return DataError(found, "write them as text, or remove the column", where=where)


def too_many_keys(path: Path, where: str) -> DataError:
    """The error for objects that are used as dictionaries, such as by token."""
    what = f"the objects in column '{'.'.join(path)}'" if path else "the rows"
    right = "write lists of objects, or text, or leave the column out by `columns`"
    return DataError(f"{what} have more than {MOST_KEYS:,} different keys", right, where=where)


def _check_keys(field: pa.Field, path: Path, file: object) -> None:
    kind = field.type
    if pa.types.is_list(kind):
        _check_keys(kind.value_field, path, file)
    elif pa.types.is_struct(kind):
        if kind.num_fields > MOST_KEYS:
            raise too_many_keys(path, str(file))
        for each in kind:
            _check_keys(each, (*path, each.name), file)


# --- One schema for all rows ----------------------------------------------------------
# Numbers: JSON has one kind of them; Arrow has int64 and float64, which share the integers below
# 2**53. A column that has both larger integers and fractions, or integers beyond 64 bits, becomes
# one of strings with the exact digits, wherever a file is cut into blocks: fields of blocks carry
# in their metadata what their types do not say, until the schema of all rows is known.
#
#     block 1: 2**60          int64, large
#     block 2: 0.5            double              both: string, "1152921504606846976", "0.5"
#
# Messages: their `content` is a text in some rows, and a list of parts in others. Where both are
# there, texts become lists of one part.

CONTENT = "content"
"""The field of a message that is a text or a list of parts."""
_PART = pa.struct([("type", pa.string()), ("text", pa.string())])
LARGEST = 2**53
"""Below it float64 holds every integer, and no two are one."""
_LARGE, _DIGITS = {b"integers": b"large"}, {b"numbers": b"text"}


def marked(table: pa.Table, as_text: Collection[Path] = ()) -> pa.Table:
    """The table, where fields say that integers are beyond `LARGEST`, or that texts are digits."""
    if not table.num_columns:  # Of rows of `{}`: a table made of no columns would have no rows.
        return table
    columns = zip(table.schema, table.columns, strict=True)
    fields = [
        _marked(each, values.combine_chunks(), (each.name,), as_text) for each, values in columns
    ]
    return pa.table(table.columns, schema=pa.schema(fields))


def _marked(field: pa.Field, values: pa.Array, path: Path, as_text: Collection[Path]) -> pa.Field:
    kind = field.type
    if path in as_text and is_text(kind):
        return field.with_metadata(_DIGITS)
    if pa.types.is_list(kind):
        items = _marked(kind.value_field, values.flatten(), path, as_text)
        return field.with_type(pa.list_(items))
    if pa.types.is_struct(kind):
        parts = zip(kind, values.flatten(), strict=True)
        inner = [_marked(each, part, (*path, each.name), as_text) for each, part in parts]
        return field.with_type(pa.struct(inner))
    return field.with_metadata(_LARGE) if pa.types.is_int64(kind) and is_beyond(values) else field


def is_beyond(numbers: pa.Array) -> bool:
    """Whether a number is beyond `LARGEST`."""
    # Not by Arrow's functions, whose import is a sixth of what `rejuice check` takes.
    found = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    return bool((np.abs(found) >= LARGEST).any())


def without_marks(schema: pa.Schema) -> pa.Schema:
    """The schema of all rows, whose fields need no marks any more."""
    return pa.schema(map(_without_marks, schema))


def _without_marks(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        field = field.with_type(pa.list_(_without_marks(kind.value_field)))
    elif pa.types.is_struct(kind):
        field = field.with_type(pa.struct([_without_marks(each) for each in kind]))
    return field.remove_metadata() if field.metadata in (_LARGE, _DIGITS) else field


def unify(schemas: Iterable[Iterable[pa.Field]]) -> pa.Schema:
    """The columns of all, in order; whole numbers and fractions become fractions.

    Where the types of a column do not go together, it raises Arrow's ArrowTypeError.
    """
    fields = dict[str, pa.Field]()
    for schema in schemas:
        for field in schema:
            before = fields.get(field.name)
            fields[field.name] = field if before is None else _joined(before, field)
    return pa.schema(fields.values())


def _joined(one: pa.Field, other: pa.Field) -> pa.Field:
    kinds, marks = (one.type, other.type), (one.metadata, other.metadata)
    if kinds[0] == kinds[1] and marks[0] == marks[1]:
        return one
    if all(map(pa.types.is_list, kinds)):
        return one.with_type(pa.list_(_joined(kinds[0].value_field, kinds[1].value_field)))
    if all(map(pa.types.is_struct, kinds)):
        return one.with_type(pa.struct(list(unify(kinds))))
    if one.name == CONTENT:
        for first, second in (kinds, kinds[::-1]):
            if is_text(first) and _is_parts(second):
                items = second.value_type
                both = _PART if pa.types.is_null(items) else pa.struct(list(unify((_PART, items))))
                return one.with_type(pa.list_(both))
    # Digits go together with numbers, not with texts.
    alone = [
        field.with_type(pa.int64()) if field.metadata == _DIGITS else field
        for field in (one, other)
    ]
    plain = [pa.schema([field.with_name(one.name).remove_metadata()]) for field in alone]
    found = pa.unify_schemas(plain, promote_options="permissive").field(0)
    if _DIGITS in marks or (_LARGE in marks and pa.types.is_floating(found.type)):
        return pa.field(one.name, pa.string(), metadata=_DIGITS)
    return found.with_metadata(_LARGE) if _LARGE in marks else found


def _is_parts(kind: pa.DataType) -> bool:
    types = pa.types
    is_list = types.is_list(kind)
    return bool(is_list and (types.is_struct(kind.value_type) or types.is_null(kind.value_type)))


def added(schema: pa.Schema, other: pa.Schema, file: object) -> pa.Schema:
    """The schema of rows so far, with the columns of further rows."""
    if schema.equals(other, check_metadata=True):
        return schema
    try:
        both = unify([schema, other])
    except pa.ArrowTypeError:
        raise _mixed(file, schema, other) from None
    for field in both:
        _check_keys(field, (field.name,), file)
    return both


def of_two_types(path: str, now: object, before: object, where: str) -> DataError:
    right = "give the column one type, or name only others in `columns`"
    kinds = {str(kind).partition("<")[0] for kind in (now, before)}
    if kinds == {"boolean", "number"} and path.endswith("[]"):
        right = "log-likelihoods of choices are no responses: name only others in `columns`"
    elif kinds in ({"list", "string"}, {"array", "string"}):
        right += "; lists that are all JSON texts are read by lists_as_text: true"
    return DataError(f"column '{path}' is {now}, but {before} in earlier rows", right, where)


def _mixed(file: object, schema: pa.Schema, other: pa.Schema) -> DataError:
    """The error for the first column, or field of its objects, with two types."""
    for field in other:
        if field.name in schema.names:
            found = _differing(schema.field(field.name), field, field.name)
            if found is not None:
                return of_two_types(*found, where=str(file))
    raise AssertionError("schemas that do not unify differ in a column")


def _differing(before: pa.Field, field: pa.Field, path: str) -> tuple[str, object, object] | None:
    """The path at which two fields do not go together, and the types there."""
    with suppress(pa.ArrowTypeError):
        unify([pa.schema([before]), pa.schema([field.with_name(before.name)])])
        return None
    kinds = before.type, field.type
    if all(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) for kind in kinds):
        return _differing(kinds[0].value_field, kinds[1].value_field, path)
    if all(map(pa.types.is_struct, kinds)):
        for inner in kinds[1]:
            if kinds[0].get_field_index(inner.name) >= 0:
                found = _differing(kinds[0].field(inner.name), inner, f"{path}.{inner.name}")
                if found is not None:
                    return found
    now, earlier = ("number" if each.metadata == _DIGITS else each.type for each in (field, before))
    return path, now, earlier


# --- Rows in that schema --------------------------------------------------------------


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; columns that it lacks are null."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table[field.name]
        try:
            columns.append(converted(column, field.type))
        except pa.ArrowInvalid as error:
            kinds = f"is {column.type}, but {field.type} in other rows"
            found = f"column '{field.name}' {kinds}: {error}"
            raise DataError(found, "give the column one type") from None
    return pa.table(columns, schema=schema)


def one_table(tables: Sequence[pa.Table]) -> pa.Table:
    schema = unify(table.schema for table in tables)
    return pa.concat_tables([conform(table, schema) for table in tables])


def converted(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values as another type; where a number would be rounded, Arrow raises ArrowInvalid."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([converted(chunk, kind) for chunk in values.chunks], kind)
    own = values.type
    if own == kind:
        return values
    types = pa.types
    if isinstance(own, pa.BaseExtensionType):
        return converted(values.storage, kind)
    if types.is_dictionary(own):
        return converted(values.dictionary, kind).take(values.indices)
    is_empty = types.is_struct(own) and not own.num_fields
    if types.is_null(kind) and (is_empty or values.null_count == len(values)):
        return pa.nulls(len(values))
    if types.is_struct(own) and types.is_struct(kind) and kind.num_fields:
        parts = dict(zip((field.name for field in own), values.flatten(), strict=True))
        arrays = [
            converted(parts.get(field.name, pa.nulls(len(values))), field.type) for field in kind
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=values.is_null())
    if is_any_list(own) and types.is_list(kind):
        return with_items(values, converted(values.flatten(), kind.value_type), kind)
    if is_text(own) and _is_parts(kind):
        contents = [None if text is None else [text_part(text)] for text in values.to_pylist()]
        return pa.array(contents, kind)
    if is_text(kind) and (types.is_integer(own) or types.is_floating(own)):
        texts = [None if value is None else number_text(value) for value in values.to_pylist()]
        return pa.array(texts, kind)
    return values.cast(kind)


def number_text(value: float) -> str:
    """The digits of a number: `2`, also of 2.0, as both are one number in JSON.

    Example:
        >>> [number_text(value) for value in (2**64, 2.0, 0.1, 1e300)]
        ['18446744073709551616', '2', '0.1', '1e+300']
    """
    whole = isinstance(value, int) or (value.is_integer() and abs(value) <= LARGEST)
    return str(int(value)) if whole else repr(value)


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def decoded(file: object, table: pa.Table) -> pa.Table:
    """The table with columns of plain types, so that batches have one type."""
    schema = decoded_schema(file, table.schema)
    columns = [
        converted(column, field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema) if columns else table


def decoded_schema(file: object, schema: pa.Schema) -> pa.Schema:
    fields = dict[str, pa.Field]()
    for field in schema:
        if field.name in fields:
            raise DataError(f"{file} has two columns '{field.name}'", "rename one")
        # Such are helper columns, whose values differ in their keys.
        is_json = isinstance(field.type, pa.JsonType)
        fields[field.name] = field if is_json else field.with_type(plain_type(field.type))
    return pa.schema([field.remove_metadata() for field in fields.values()])
