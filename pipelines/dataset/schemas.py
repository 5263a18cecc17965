"""One schema for rows of many files: what goes together, and what does not."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...operators import DataError


def unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema with the columns of all, in order; whole numbers and fractions become fractions.

    Raises:
        pyarrow.ArrowTypeError: a column has types that do not go together.
    """
    bare = [schema.remove_metadata() for schema in schemas]
    return pa.unify_schemas(bare, promote_options="permissive")


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; columns that it lacks are null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name in table.column_names:
            # Where one file has integers and another has floats, large integers are rounded, as
            # Arrow does within a file.
            rounds = pa.types.is_floating(field.type)
            columns.append(table[field.name].cast(field.type, safe=not rounds))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.table(columns, schema=schema)


def decoded(file: object, table: pa.Table) -> pa.Table:
    """The table with its dictionaries and views as plain columns, so that batches have one type.

    Raises:
        DataError: two columns have one name; `file` names the file in the message.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            raise DataError(f"{file} has two columns '{name}'", "rename one")
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_string_view(kind):
            column = column.cast(pa.string())
        columns[name] = column
    return pa.table(columns) if columns else table


def added(schema: pa.Schema, other: pa.Schema, file: object) -> pa.Schema:
    """The schema of rows so far, with the columns of further rows.

    Raises:
        DataError: a column has types that do not go together; `file` is that of the further rows.
    """
    try:
        return unify([schema, other])
    except pa.ArrowTypeError:
        raise _mixed(file, schema, other) from None


def _mixed(file: object, schema: pa.Schema, other: pa.Schema) -> DataError:
    for field in other:
        if field.name in schema.names:
            before = schema.field(field.name).type
            try:
                unify([pa.schema([(field.name, before)]), pa.schema([field])])
            except pa.ArrowTypeError:
                return DataError(
                    f"column '{field.name}' is {field.type}, but {before} in earlier rows",
                    "give the column one type",
                    where=str(file),
                )
    raise AssertionError("schemas that do not unify differ in a column")
