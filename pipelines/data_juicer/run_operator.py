"""An operator of Data-Juicer's on a table, in this process. The first one imports Data-Juicer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import EngineError, OperatorError
from ...operators.columns import find_path
from .catalogue import find
from .concurrent import REQUESTS, concurrent
from .datasets import lowered, nested, rows_of
from .failures import described
from .fields import arguments
from .installs import no_installs
from .needs import needs
from .result import ROW
from .servers import server
from .watch import Failures, ServerLostError, watch_model, watching
from .with_ray import needs_ray, run_with_ray


class Ran(NamedTuple):
    """What an operator of Data-Juicer's has made of a table.

    Attributes:
        rows: that it made.
        failures: what went wrong.
    """

    rows: pa.Table
    failures: Failures


def run_operator(name: str, key: str, fields: Mapping[str, Any], table: pa.Table) -> Ran:
    """The rows that an operator of Data-Juicer's makes of a table.

    Args:
        name: the operator's.
        key: tells operators with different fields apart; one instance is kept for each.
        fields: as the recipe has them.
        table: the rows, numbered in the column `ROW`.

    Raises:
        OperatorError: it failed; one line.
        NotReadyError: it cannot be made, or misses a package.
        EngineError: the server that it asks cannot be reached, or refuses all requests.
    """
    with described(name, fields, table, is_made=lambda: key in _instances), no_installs():
        try:
            with watching() as failures:
                ran = Ran(_run_foreign(name, key, fields, table), failures)
                failures.calls.check_answered()
                return ran
        except ServerLostError as error:
            kind = find(name)
            asked = None if kind is None else server(kind, fields)
            raise EngineError(error.found) if asked is None else asked.lost(error) from None


def prepare(name: str, key: str, fields: Mapping[str, Any]) -> None:
    """Make an operator now, for `run_operator` to find: its constructor checks its fields.

    Raises:
        NotReadyError: it cannot be made, or misses a package.
    """
    with described(name, fields, None, is_made=lambda: False), no_installs(), watching():
        _instance(name, key, fields)


def _run_foreign(name: str, key: str, fields: Mapping[str, Any], table: pa.Table) -> pa.Table:
    kind = find(name)
    if kind is not None and needs_ray(kind.defined):
        # Made anew: it holds actors of Ray's, which remember the rows of an earlier table.
        return run_with_ray(_load(name, fields), table)
    operator = _instance(name, key, fields)
    path = str(getattr(operator, "text_key", None) or "")
    lifted = None if path in table.column_names else find_path(table, path)
    if lifted is not None:
        # Data-Juicer finds a field of a column in rows, and not in batches, which many read.
        return lowered(_run(operator, table.append_column(path, lifted)), path)
    return _run(operator, table)


def _run(operator: Any, table: pa.Table) -> pa.Table:
    from data_juicer.ops.base_op import Mapper

    rows = table[ROW]
    one_of_each = isinstance(operator, Mapper) and not operator.is_batched_op()
    if one_of_each:
        # A function of the user's sees the columns that the dataset has, and no other.
        table = table.drop_columns([ROW])
    out = operator.run(nested(table))
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


def _instance(name: str, key: str, fields: Mapping[str, Any]) -> Any:
    if key not in _instances:
        _instances[key] = _load(name, fields)
    return _instances[key]


_instances: dict[str, Any] = {}
"""This process's instances, by name and fields: some operators load a model when built."""


def _load(name: str, fields: Mapping[str, Any]) -> Any:
    import datasets

    datasets.disable_progress_bars()
    from data_juicer.ops import OPERATORS

    found, given = find(name), arguments(fields)
    if name not in OPERATORS.modules and found is not None and found.plugin is not None:
        found.plugin.load()
    kind = OPERATORS.modules[name]
    asks_server = found is not None and needs(found.defined, given).asks_server
    if asks_server:
        most = fields.get("num_proc")
        kind, more = concurrent(kind, most if isinstance(most, int) and most > 0 else REQUESTS)
        given = {**more, **given}
    # Bytecode of a file that a field names is looked up by its time in seconds: after an edit
    # within a second the code from before it would run.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        operator = kind(**given)
    finally:
        sys.dont_write_bytecode = writes
    if asks_server:
        watch_model(operator)
    return operator
