"""One schema for rows of many files: what goes together, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from ...operators import DataError
from ...operators.columns import is_text

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

CONTENT = "content"
"""The field of a message that is a text in some rows and a list of parts in others. Where both are
there, texts become lists of one part."""
_PART = pa.struct([("type", pa.string()), ("text", pa.string())])


def unify(schemas: Iterable[pa.Schema], file: object = "dataset") -> pa.Schema:
    """The columns of all, in order; whole numbers and fractions become fractions."""
    every = list(schemas)
    with suppress(pa.ArrowTypeError):
        return pa.unify_schemas(every, promote_options="permissive")
    return pa.schema(_joined_fields(every, file, ()))


def _joined_fields(
    schemas: Iterable[Iterable[pa.Field]], file: object, path: Path
) -> Collection[pa.Field]:
    fields = dict[str, pa.Field]()
    for schema in schemas:
        for field in schema:
            before = fields.get(field.name, field)
            fields[field.name] = _joined(before, field, file, (*path, field.name))
    return fields.values()


def _joined(one: pa.Field, other: pa.Field, file: object, path: Path) -> pa.Field:
    plain = [pa.schema([field.with_name(one.name)]) for field in (one, other)]
    with suppress(pa.ArrowTypeError):
        return pa.unify_schemas(plain, promote_options="permissive").field(0)
    kinds, types = (one.type, other.type), pa.types
    if all(types.is_list(kind) and types.is_nested(kind.value_type) for kind in kinds):
        items = _joined(kinds[0].value_field, kinds[1].value_field, file, path)
        return one.with_type(pa.list_(items))
    if all(map(types.is_struct, kinds)):
        return one.with_type(pa.struct(list(_joined_fields(kinds, file, path))))
    for text, parts in (kinds, kinds[::-1]) if one.name == CONTENT else ():
        items = parts.value_type if is_text(text) and types.is_list(parts) else text
        if types.is_null(items) or types.is_struct(items):
            own = [_PART] if types.is_null(items) else [_PART, items]
            return one.with_type(pa.list_(pa.struct(list(_joined_fields(own, file, path)))))
    what = f"column '{'.'.join(path)}' is {other.type}, but {one.type} in earlier rows"
    raise DataError(what, "give the column one type", where=str(file))


def added(schema: pa.Schema, other: pa.Schema, file: object) -> pa.Schema:
    """The schema of rows so far, with the columns of further rows."""
    if schema.equals(other):
        return schema
    both = unify([schema, other], file)
    for field in both:
        _check_keys(field, (field.name,), file)
    return both


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


def converted(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Values as another type; where a number would be rounded, Arrow raises ArrowInvalid."""
    if values.type == kind:
        return values
    with suppress(pa.ArrowException):
        found = values.cast(kind)
        found.validate()  # Of list views, Arrow may make lists that are none.
        return found
    return pa.array([_fitted(value, kind) for value in values.to_pylist()], kind)


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """What Arrow does not cast: texts to lists of parts, and objects without fields to null."""
    if value is None or pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        items = [text_part(value)] if isinstance(value, str) else value
        return [_fitted(item, kind.value_type) for item in items]
    if pa.types.is_struct(kind):
        return {field.name: _fitted(value.get(field.name), field.type) for field in kind}
    return value


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
