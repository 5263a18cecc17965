"""Arrow tables of Hugging Face datasets, which Data-Juicer's are."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators.columns import column_of, field_at, flat


def plain(table: pa.Table) -> pa.Table:
    """The table with `string` and `list` for their large and view variants, as operators expect."""
    fields = [field.with_type(_standard_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _standard_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_standard_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_standard_type(field.type)) for field in kind])
    return kind


def nested(table: pa.Table) -> Any:
    """The table as a dataset of Data-Juicer's."""
    from data_juicer.core.data import NestedDataset
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # Without a fingerprint, Hugging Face would hash all rows to make one.
    return NestedDataset(Dataset(InMemoryTable(table), fingerprint=uuid4().hex))


def rows_of(dataset: Any) -> tuple[pa.Table, NDArray[np.int64]]:
    """The table that a Hugging Face dataset is stored in, and its rows of that table, ascending."""
    # private: datasets==5.2.0, tests/pipelines/dj_process/test_plugin.py::test_rows_that_were_filtered_before_stay_away
    if dataset._indices is not None:
        # Rows that were filtered out are still in the table, and `dataset[:]` copies one by one.
        rows = dataset._indices.table.column(0).to_numpy().astype(np.int64)
        if (np.diff(rows) > 0).all():
            return dataset.data.table.replace_schema_metadata(None), rows
        dataset = dataset.flatten_indices()
    table = dataset.data.table.replace_schema_metadata(None)
    return table, np.arange(table.num_rows)


def lowered(table: pa.Table, path: str) -> pa.Table:
    """The table with a column that was lifted out of another one put back as the field it was.

    Args:
        table: with a column that is called by the path of the field.
        path: of the field, such as `meta.text`.
    """
    if path not in table.column_names:
        return table
    column = column_of(path, [name for name in table.column_names if name != path])
    values = flat(table[path])
    table = table.drop_columns([path])
    if column is None:
        return table
    before = flat(table[column])
    field = path[len(column) + 1 :]
    if field_at(before, field) == values:
        return table
    return table.set_column(
        table.column_names.index(column), column, _with_field(before, field, values)
    )


def _with_field(objects: pa.StructArray, path: str, values: pa.Array) -> pa.StructArray:
    names = [field.name for field in objects.type]
    parts = dict(zip(names, objects.flatten(), strict=True))
    name = column_of(path, names)
    assert name is not None
    rest = path[len(name) + 1 :]
    parts[name] = _with_field(parts[name], rest, values) if rest else values
    return pa.StructArray.from_arrays(list(parts.values()), names, mask=objects.is_null())
