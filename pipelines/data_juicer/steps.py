"""Data-Juicer's operators as steps of ours. The first one that is applied imports Data-Juicer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict

from ...operators import (
    ALL,
    Change,
    Columns,
    Kind,
    Operator,
    OperatorError,
    RecipeError,
    RejuiceError,
    Scope,
)
from ...operators.cache_key import cache_key_json
from ...operators.errors import suggest
from ..dataset.arrow_types import is_text
from .catalogue import OTHER_KINDS, ForeignKind, find, names
from .concurrent import REQUESTS, concurrent
from .datasets import rows_of
from .installs import NotInstalledError, forbid_installs
from .needs import needs

_SCOPES = {
    "mapper": Scope.ROW,
    "filter": Scope.ROW,
    "deduplicator": Scope.DATASET,
    "selector": Scope.DATASET,
}
_PROCESS_FIELDS = frozenset({"auto_op_parallelism", "num_proc"})
"""How many processes work: fields for `dj-process`, as `rejuice run` has workers of its own."""
_ROW = "__rejuice_row__"
_HELPER = "__dj__"


def step(name: str, fields: Mapping[str, Any], text_key: str = "text") -> Operator:
    """An operator of Data-Juicer as one of ours.

    Args:
        name: its name, for which `exists` is true.
        fields: its fields in the recipe.
        text_key: its text column, where `fields` does not name one.

    Raises:
        RecipeError: it cannot run here, or a field is unknown or missing, or a package that it
            needs with these fields is not installed.
    """
    found = find(name)
    if found is None:
        near = suggest(name, names())
        raise RecipeError(f"Data-Juicer has no operator '{name}'", near)
    if found.kind in OTHER_KINDS:
        raise RecipeError(
            f"it is of Data-Juicer's kind {found.kind}, whose rows come from several rows each",
            "run this recipe with dj-process",
        )
    if name.startswith("ray_"):
        raise RecipeError("it needs Ray", "run this recipe with dj-process, executor_type: ray")
    _check_fields(found, fields)
    missing = needs(found.defined, _arguments(fields)).missing
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RecipeError(
            f"it needs {' and '.join(missing)}, which {verb} not installed",
            f"pip install {shlex.join(missing)}",
        )
    given = dict(fields)
    if text_key != "text":
        given.setdefault("text_key", text_key)
    return _kind(name, found.kind)(**given)


class NotReadyError(OperatorError):
    """An operator of Data-Juicer's cannot be made, or misses a package: no row is the reason."""


class ForeignOperator(Operator):
    """One of Data-Juicer's operators, with the fields that the recipe gives it."""

    model_config = ConfigDict(extra="allow")

    foreign_name: ClassVar[str]
    gil_bound: ClassVar[bool] = True
    depends_on: ClassVar[tuple[str, ...]] = ("py-data-juicer",)

    @classmethod
    def name(cls) -> str:
        """The name Data-Juicer registered it under."""
        return cls.foreign_name

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so a worker has to make it, too.
        return step, (self.name(), self.model_extra)

    @property
    def asks_server(self) -> bool:
        """Whether it sends requests to a model's server, row by row."""
        found = find(self.name())
        fields = _arguments(self.model_extra or {})
        return found is not None and needs(found.defined, fields).asks_server

    def cache_key_fields(self) -> Mapping[str, Any]:
        every = super().cache_key_fields()
        return {name: each for name, each in every.items() if name not in _PROCESS_FIELDS}

    def reads(self) -> Columns:
        return ALL

    def digest(self, table: pa.Table) -> pa.Table:
        return table

    def apply(self, table: pa.Table) -> Change:
        if table.num_rows == 0:
            return Change()
        numbered = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        out = _run(self.name(), cache_key_json(self), self.model_extra or {}, numbered)
        return _change(table, out, self.name().lower())


def asks_server(operator: Operator) -> bool:
    """Whether a step is one of Data-Juicer's that sends requests to a model's server."""
    return isinstance(operator, ForeignOperator) and operator.asks_server


def _arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What Data-Juicer's class is made with: it works in this process, and hides no error."""
    given = {key: value for key, value in fields.items() if key not in _PROCESS_FIELDS}
    return {**given, "skip_op_error": False, "auto_op_parallelism": False, "num_proc": None}


def _change(table: pa.Table, out: pa.Table, slug: str) -> Change:
    """The change from `table` to the rows of `out`, in the order of `table`."""
    rows = np.asarray(out[_ROW])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows, kind="stable")
        rows, out = rows[order], out.take(pa.array(order))
    dropped = np.ones(table.num_rows, bool)
    dropped[rows] = False
    names = [name for name in out.column_names if name != _ROW]
    kept = [n for n in names if n in table.column_names or not n.startswith(_HELPER)]
    several = len(np.unique(rows)) < len(rows)
    # `filter` works chunk by chunk; `take` builds one array, which holds at most 2 GB of text.
    before = table.take(pa.array(rows)) if several else table.filter(pa.array(~dropped))
    written = ((name, _written(before, out[name], name)) for name in kept)
    columns = {name: column for name, column in written if column is not None}
    without = tuple(name for name in table.column_names if name not in names)
    reasons = pa.array([slug], pa.string()).take(
        pa.array(np.zeros(len(dropped), int), mask=~dropped)
    )
    reasons = reasons if dropped.any() else None
    if several:
        return Change(columns, reasons, parents=rows, without=without)
    # Without parents a column has a value for each input row; that of a dropped row is null.
    at = np.zeros(table.num_rows, np.int64)
    at[rows] = np.arange(len(rows))
    spread = pa.array(at, mask=dropped)
    columns = {name: column.take(spread) for name, column in columns.items()}
    return Change(columns, reasons, without=without)


def _written(before: pa.Table, new: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """The column in the type of the old one where that fits; None where nothing has changed."""
    if name not in before.column_names:
        return new
    old = before[name]
    if _same_family(new.type, old.type):
        try:
            new = new.cast(old.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return new  # The old type is too narrow for its values.
    return None if _is_same(new, old) else new


def _is_same(new: pa.ChunkedArray, old: pa.ChunkedArray) -> bool:
    if new.type != old.type or new.equals(old):
        return bool(new.type == old.type)
    if not pa.types.is_floating(new.type) or not new.is_null().equals(old.is_null()):
        return False
    # Arrow takes nan and nan for different values; a column with nan may still be unchanged.
    one, other = (np.asarray(column.fill_null(0)) for column in (new, old))
    return bool(np.array_equal(one, other, equal_nan=True))


def _same_family(one: pa.DataType, other: pa.DataType) -> bool:
    if one == other or pa.types.is_null(one):
        return bool(one != other)
    types = pa.types
    families = (types.is_integer, types.is_floating, types.is_nested, types.is_temporal, is_text)
    return any(is_in(one) and is_in(other) for is_in in families)


def _run(name: str, key: str, fields: Mapping[str, Any], table: pa.Table) -> pa.Table:
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
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # Without a fingerprint, Hugging Face would hash all rows to make one.
    dataset = NestedDataset(Dataset(InMemoryTable(table), fingerprint=uuid4().hex))
    out = operator.run(dataset)
    if _ROW not in out.column_names:
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

    kind, arguments = OPERATORS.modules[name], _arguments(fields)
    found = find(name)
    if found is not None and needs(found.defined, arguments).asks_server:
        most = fields.get("num_proc")
        kind, more = concurrent(kind, most if isinstance(most, int) and most > 0 else REQUESTS)
        arguments = {**more, **arguments}
    return kind(**arguments)


@cache
def _kind(name: str, kind: str) -> type[ForeignOperator]:
    slug = name.lower()
    return type(
        name,
        (ForeignOperator,),
        {
            "__module__": __name__,
            "__doc__": f"Data-Juicer's `{name}`.",
            "__annotations__": {
                "foreign_name": "ClassVar[str]",
                "kind": "ClassVar[Kind]",
                "scope": "ClassVar[Scope]",
            },
            "foreign_name": name,
            "kind": Kind(kind),
            "scope": _SCOPES[kind],
            "reasons": {slug: f"Data-Juicer's {name} did not keep the row"},
        },
    )


def _check_fields(found: ForeignKind, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name not in found.known:
            near = suggest(name, found.known) or f"its fields are: {', '.join(found.known)}"
            raise RecipeError(f"unknown field '{name}'", near)
        if name == "skip_op_error" and value:
            raise RecipeError(
                f"field 'skip_op_error' is {value!r}, which loses rows silently", "leave it out"
            )
        if any(_HELPER in text for text in _texts(value)):
            raise RecipeError(
                f"field '{name}' names a helper column of Data-Juicer, which rejuice does not have",
                "run this recipe with dj-process",
            )
    for name in found.required:
        if name not in fields:
            raise RecipeError(f"field '{name}' is missing", "it has no default")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
