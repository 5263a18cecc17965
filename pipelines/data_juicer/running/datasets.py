"""Arrow tables of Hugging Face datasets, which Data-Juicer's are."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


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
