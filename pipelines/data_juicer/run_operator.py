"""An operator of Data-Juicer's on a table, in this process. The first one imports Data-Juicer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ...operators import OperatorError, RejuiceError
from .catalogue import find
from .concurrent import REQUESTS, concurrent
from .datasets import rows_of
from .fields import arguments
from .installs import NotInstalledError, forbid_installs
from .needs import needs
from .result import ROW


class NotReadyError(OperatorError):
    """An operator of Data-Juicer's cannot be made, or misses a package: no row is the reason."""


def run_operator(name: str, key: str, fields: Mapping[str, Any], table: pa.Table) -> pa.Table:
    """The rows that an operator of Data-Juicer's makes of a table.

    Args:
        name: the operator's.
        key: tells operators with different fields apart; one instance is kept for each.
        fields: as the recipe has them.
        table: the rows, numbered in the column `ROW`.

    Raises:
        OperatorError: it failed; one line.
        NotReadyError: it cannot be made, or misses a package.
    """
    try:
        return _run_foreign(name, key, fields, table)
    except (RejuiceError, OSError, MemoryError):
        raise
    except NotInstalledError as error:
        found = f"needs {error.package}, which is not installed"
        raise NotReadyError(found, f"pip install {shlex.quote(error.package)}") from error
    except Exception as error:
        # Third-party code: its message may be a page, and the first line names the problem.
        first = next(iter(str(error).splitlines()), "")
        text_key = fields.get("text_key", "text")
        missing = text_key not in table.column_names
        hint = f"it may need column '{text_key}': set text_keys or text_key" if missing else ""
        kind = OperatorError if key in _instances else NotReadyError
        raise kind(f"failed with {type(error).__name__}: {first}", hint) from error


def _run_foreign(name: str, key: str, fields: Mapping[str, Any], table: pa.Table) -> pa.Table:
    operator = _instances.get(key)
    if operator is None:
        operator = _instances[key] = _load(name, fields)
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops.base_op import Mapper
    from datasets import Dataset
    from datasets.table import InMemoryTable

    rows = table[ROW]
    one_of_each = isinstance(operator, Mapper) and not operator.is_batched_op()
    if one_of_each:
        # A function of the user's sees the columns that the dataset has, and no other.
        table = table.drop_columns([ROW])
    # Without a fingerprint, Hugging Face would hash all rows to make one.
    dataset = NestedDataset(Dataset(InMemoryTable(table), fingerprint=uuid4().hex))
    out = operator.run(dataset)
    if one_of_each:
        return rows_of(out)[0].append_column(ROW, rows)
    if ROW not in out.column_names:
        raise OperatorError(
            "Data-Juicer's operator removed the column that numbers the rows",
            "run this recipe with dj-process",
        )
    whole, rows = rows_of(out)
    if len(rows) == whole.num_rows:
        return whole
    mask = np.zeros(whole.num_rows, bool)
    mask[rows] = True
    return whole.filter(pa.array(mask))


_instances: dict[str, Any] = {}
"""This process's instances, by name and fields: some operators load a model when built."""


def _load(name: str, fields: Mapping[str, Any]) -> Any:
    import datasets
    from loguru import logger

    logger.disable("data_juicer")
    datasets.disable_progress_bars()
    forbid_installs()
    from data_juicer.ops import OPERATORS

    kind, given = OPERATORS.modules[name], arguments(fields)
    found = find(name)
    if found is not None and needs(found.defined, given).asks_server:
        most = fields.get("num_proc")
        kind, more = concurrent(kind, most if isinstance(most, int) and most > 0 else REQUESTS)
        given = {**more, **given}
    return kind(**given)
