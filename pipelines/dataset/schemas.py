"""One schema for rows of many files: what goes together, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from ...operators import DataError
from .json_types import AS_TEXT, Path, converted, has_marks, plain_type, unify_marked

MOST_KEYS = 1_000
"""Different keys that the objects of a column have at most: each is a column in every row."""


def unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema with the columns of all, in order; whole numbers and fractions become fractions.

    Raises:
        pyarrow.ArrowTypeError: a column has types that do not go together.
    """
    if any(map(has_marks, schemas)):
        return unify_marked(schemas)
    with suppress(pa.ArrowTypeError):
        return _unify_types(schemas)
    return unify_marked(schemas)


def _unify_types(schemas: Sequence[pa.Schema]) -> pa.Schema:
    bare = [schema.remove_metadata() for schema in schemas]
    return pa.unify_schemas(bare, promote_options="permissive")


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; columns that it lacks are null.

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
    """The table with columns of plain types, so that batches have one type.

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
    """The schema of `decoded`.

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
    """The schema of rows so far, with the columns of further rows.

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
    """The error for objects that are used as dictionaries, such as by token."""
    what = f"the objects in column '{'.'.join(path)}'" if path else "the rows"
    right = "write lists of objects, or text, or leave the column out by `columns`"
    return DataError(f"{what} have more than {MOST_KEYS:,} different keys", right, where=where)


def _mixed(file: object, schema: pa.Schema, other: pa.Schema) -> DataError:
    """The error for the first column, or field of its objects, with two types."""
    for field in other:
        if field.name in schema.names:
            found = _differing(schema.field(field.name), field, field.name)
            if found is not None:
                path, *kinds = found
                what = "column '{}' is {}, but {} in earlier rows".format(path, *kinds)
                return DataError(what, "give the column one type", where=str(file))
    raise AssertionError("schemas that do not unify differ in a column")


def _differing(before: pa.Field, field: pa.Field, path: str) -> tuple[str, str, str] | None:
    """The path at which two fields do not go together, and the types there."""
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
