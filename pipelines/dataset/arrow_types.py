"""Questions about Arrow types that several packages ask."""

from __future__ import annotations

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, however they are stored."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


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
    if is_any_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return kind


def is_any_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists, however they are stored."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def without_empty(kind: pa.DataType) -> pa.DataType:
    """A type with nulls in place of objects without fields, which Parquet does not have."""
    if is_any_list(kind):
        return pa.list_(kind.value_field.with_type(without_empty(kind.value_type)))
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.null()
        return pa.struct([field.with_type(without_empty(field.type)) for field in kind])
    return kind
