"""What version 0.4 called what it wrote."""

import pyarrow as pa


def as_it_was(table: pa.Table) -> pa.Table:
    """The table as 0.4.0 named its columns, without the dataset's `answer`, which it lost.

    It wrote the extracted answer over the dataset's column `answer`.
    """
    if "extracted_answer" not in table.column_names:
        return table
    kept = [name for name in table.column_names if name != "answer"]
    renamed = {"extracted_answer": "answer"}
    return table.select(kept).rename_columns([renamed.get(name, name) for name in kept])
