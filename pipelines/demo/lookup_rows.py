"""Write look-up tasks to a dataset file."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pyarrow as pa

from .lookup import DOCUMENT_COUNT, LookupTask, lookup_tasks
from .numbers import Split
from .recorded import write_rows

_TEXTS = ("question", "answer", "kind")
_SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("answer", pa.string()),
        ("documents", pa.list_(pa.string())),
        ("kind", pa.string()),
    ]
)


def write_lookups(path: Path, *, seed: int = 0, prompts: int = 200, split: Split = "train") -> None:
    """Write one row per task: `question`, `answer`, `documents` (a list of texts) and `kind`.

    Raises:
        RejuiceError: there is no such format or split, or there are fewer tasks.
    """
    write_rows(path, _SCHEMA, map(_row, lookup_tasks(seed, split, prompts)))


def first_lookups(*, seed: int, prompts: int, split: Split, most: int = 100) -> pa.Table:
    """The first rows that `write_lookups` would write, at most `most` of them.

    It makes no array from Python's values, for which Arrow loads pandas, and casts none, for which
    it loads `pyarrow.compute`.
    """
    texts = {name: pa.lib.StringBuilder() for name in (*_TEXTS, "documents")}
    for row in map(_row, lookup_tasks(seed, split, min(prompts, most))):
        for name in _TEXTS:
            texts[name].append(row[name])
        for document in row["documents"]:
            texts["documents"].append(document)
    columns = {name: builder.finish() for name, builder in texts.items()}
    ends = array("i", range(0, len(columns["documents"]) + 1, DOCUMENT_COUNT))
    offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    columns["documents"] = pa.ListArray.from_arrays(offsets, columns["documents"])
    return pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def _row(task: LookupTask) -> dict[str, Any]:
    return {
        "question": task.question,
        "answer": str(task.answer),
        "documents": list(task.documents),
        "kind": task.kind,
    }
