"""What a table holds, as a short text that is the same if and only if the table is."""

import hashlib
import json
from collections import Counter

import pyarrow.ipc
import pyarrow.parquet

SMALL = {"compression": "zstd", "compression_level": 19, "write_statistics": False}
"""How Parquet files of the data are written."""


def digest_of(table):
    """Number of rows; of each column a digest of its values and its type, in the order of rows."""
    columns = {
        field.name: f"{values_digest(table[field.name].to_pylist())} {field.type}"
        for field in table.schema
    }
    return {"rows": table.num_rows, "columns": columns}


def values_digest(values):
    """A digest of values: floats to the last bit, as `repr` writes them."""
    text = json.dumps(values, sort_keys=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dropped(folder):
    """How many rows each step of a run dropped for each reason."""
    found = {}
    for file in sorted(folder.glob("*/decisions.*")):
        if file.suffix == ".parquet":
            table = pyarrow.parquet.read_table(file)
        else:  # Of version 0.4.
            table = pyarrow.ipc.open_file(file).read_all()
        found[file.parent.name] = dict(Counter(table["reason"].to_pylist()))
    return found
