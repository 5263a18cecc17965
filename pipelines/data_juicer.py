"""Our operators inside Data-Juicer: `dj-process` finds this module by its entry point.

Each installed operator is registered under its own name as an operator of Data-Juicer's kind
`Pipeline`, the one kind that is handed all rows at once, and that both executors know. It works
on the Arrow table behind Data-Juicer's dataset; no row becomes a Python object.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Optional, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
from data_juicer.ops.base_op import OPERATORS, Pipeline
from data_juicer.utils.ray_utils import is_ray_mode
from loguru import logger
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from ..operators import (
    Change,
    DataError,
    Groups,
    Operator,
    RejuiceError,
    Scope,
    build,
    get,
    installed,
)
from ..operators.groups import Array, hash_each
from ..operators.registry import code_version, config_json
from .apply import change_of
from .books import decisions
from .commit import write_arrow
from .export import run_folder
from .frame import Frame
from .recipe import Step, step_names


def register(kind: type[Operator]) -> type[Any]:
    """Make an operator known to Data-Juicer, under its own name.

    Returns:
        The class that Data-Juicer will build, with a signature made from the operator's fields,
        so that its checks, suggestions and command-line overrides work.
    """

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        _build(self, kind, args, kwargs)

    # Data-Juicer and jsonargparse read a class by its constructor's signature and docstring.
    construct.__signature__ = _signature(kind)  # type: ignore[attr-defined]
    construct.__doc__ = _docstring(kind)
    members = {"__init__": construct, "run": _run, "__doc__": kind.__doc__, "__module__": __name__}
    juicer = type(kind.__name__, (Pipeline,), members)
    OPERATORS.register_module(kind.name(), juicer)
    return juicer


def register_installed() -> None:
    """Register every installed operator; one that does not import is left out with a warning."""
    for name in installed():
        try:
            register(get(name))
        except Exception as error:
            # Anybody's package. Data-Juicer would drop all of ours for the sake of one.
            logger.warning(f"operator '{name}' is not available: {type(error).__name__}: {error}")


def plain(table: pa.Table) -> pa.Table:
    """The table with every large or view string and list as the plain one that operators know."""
    fields = [field.with_type(_plain(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


class Heads(NamedTuple):
    """Where groups begin: a hash of each group's `prompt_id`, and its row in the dataset."""

    hashes_G: Array
    rows_G: Array


def heads(frame: Frame, first_row: int) -> Heads:
    """The groups of some rows, before which the dataset has `first_row` rows."""
    if "prompt_id" not in frame.column_names:
        return Heads(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    prompt_ids = frame.select(["prompt_id"])["prompt_id"]
    starts_G = Groups.of_column(prompt_ids).starts_G
    hashes_G = hash_each(prompt_ids.take(pa.array(starts_G)))
    return Heads(hashes_G, frame.source_rows[starts_G] + first_row)


def check_groups(parts: Sequence[Heads]) -> None:
    """Every prompt must be one run of rows; a second run would be a second, smaller group.

    Raises:
        DataError: a prompt comes up again; the message names both rows.
    """
    hashes = np.concatenate([part.hashes_G for part in parts])
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(np.diff(hashes[order]) == 0)
    if len(again):
        rows = np.concatenate([part.rows_G for part in parts])[order]
        first, second = int(rows[again[0]]) + 1, int(rows[again[0] + 1]) + 1
        raise DataError(
            f"rows {first} and {second} have the same prompt but are not next to each other",
            "sort the rows by prompt; of a folder, dj-process reads the files in any order",
        )


def _build(self: Any, kind: type[Operator], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = list(kind.model_fields)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    fields = {name: given[name] for name in names if name in given}
    for name, field in kind.model_fields.items():
        # The signature cannot say "no default": Data-Juicer would ask for it on the command line.
        if field.is_required() and fields.get(name, ...) is None:
            del fields[name]
    Pipeline.__init__(self, **{k: v for k, v in given.items() if k not in names})
    try:
        self.operator = build(kind, fields)
    except RejuiceError as error:
        _stop(error.at(kind.name()))


def _run(self: Any, dataset: Any, *, exporter: Any = None, tracer: Any = None) -> Any:
    """Apply the operator to all rows, and keep its decisions beside the export."""
    place = _Place.of(self, exporter)
    try:
        if is_ray_mode():
            from .data_juicer_ray import run

            out, dropped = run(place.step, dataset, place.is_first_with_groups)
        else:
            out, dropped = _run_table(place.step, dataset, place.is_first_with_groups)
        place.keep(dropped)
    except RejuiceError as error:
        _stop(error.at(f"step {place.step.number} {place.step.name}"))
    return out


def _run_table(step: Step, dataset: Any, new_groups: bool) -> tuple[Any, pa.Table]:
    from data_juicer.core.data import NestedDataset
    from datasets import Dataset, DatasetInfo, Features
    from datasets.fingerprint import Hasher
    from datasets.table import InMemoryTable

    frame = _frame(dataset)
    if new_groups:
        check_groups([heads(frame, 0)])
    change = change_of(step.operator, frame)
    table = frame.after(change).table()
    features = Features.from_arrow_schema(table.schema)
    for name, feature in dataset.features.items():
        if name in features and name not in change.columns:
            features[name] = feature  # An image or a class label is more than its Arrow type.
    # Made from what was done: Hugging Face would hash all rows, and caches the next steps by it.
    kind = type(step.operator)
    made_of = [dataset._fingerprint, config_json(step.operator), code_version(kind)]
    out = Dataset(
        InMemoryTable(table.cast(features.arrow_schema)),
        info=DatasetInfo(features=features),
        fingerprint=Hasher.hash(made_of),
    )
    return NestedDataset(out), decisions(frame, change, step.name)


def _frame(dataset: Any) -> Frame:
    frame = Frame.of(plain(dataset.data.table.replace_schema_metadata(None)))
    if dataset._indices is None:
        return frame
    # Rows that were filtered out before are still in the table. Hugging Face would gather the
    # others one by one; a frame gathers the columns that are read.
    rows = dataset._indices.table.column(0).to_numpy().astype(np.int64)
    return frame.after(Change(parents=rows))


class _Place:
    """Where in the recipe a step is, and where its books are kept."""

    def __init__(self, step: Step, before: Sequence[str], export_path: str | None) -> None:
        self.step, self.export_path = step, export_path
        ours = [get(name) for name in before if name in installed()]
        self.is_first = not ours
        grouped = step.operator.scope is not Scope.ROW
        self.is_first_with_groups = grouped and all(kind.scope is Scope.ROW for kind in ours)

    @classmethod
    def of(cls, juicer: Any, exporter: Any) -> _Place:
        from data_juicer.config import config

        # The executor for Ray hands over no exporter; the configuration is a global of theirs.
        settings = getattr(config, "global_cfg", None) or {}
        process = settings.get("process") or []
        kinds = [next(iter(entry)) for entry in process]
        # They keep the very entry of `process` in the operator that was built from it.
        entry = getattr(juicer, "_op_cfg", None)
        at = next((at for at, other in enumerate(process) if other is entry), None)
        name = juicer.operator.name()
        step = Step(1, name, juicer.operator)
        if at is not None:
            step = Step(at + 1, step_names(kinds)[at], juicer.operator)
        path = getattr(exporter, "export_path", None) or settings.get("export_path")
        return cls(step, kinds[:at] if at else [], path)

    def keep(self, dropped: pa.Table) -> None:
        if self.export_path is None or "://" in self.export_path:
            return  # Run from Python without an export, or into a store: no folder is beside it.
        folder = run_folder(Path(self.export_path))
        if self.is_first:
            # What is there tells of the rows that are about to be replaced.
            shutil.rmtree(folder, ignore_errors=True)
        write_arrow(folder / self.step.label / "decisions.arrow", dropped)


def _stop(error: RejuiceError) -> NoReturn:
    """End the process with one line.

    Data-Juicer's executors stop on an exception of a `Pipeline` whatever `skip_op_error` says,
    but print three traces of it. `SystemExit` passes them, and nothing that skips errors of
    operators takes it for one.
    """
    logger.error(str(error))
    logger.disable("data_juicer")
    raise SystemExit(1)


def _signature(kind: type[Operator]) -> inspect.Signature:
    parameter, keyword = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [parameter("self", keyword)]
    for name, field in kind.model_fields.items():
        default = None if field.is_required() else _default(field)
        annotation = _annotation(field.annotation)
        if default is None:
            annotation = Optional[annotation]  # noqa: UP045 (they know no `X | None`)
        parameters.append(parameter(name, keyword, default=default, annotation=annotation))
    # Named so, Data-Juicer's own fields (`text_key`, `num_proc`) are taken by the base class.
    parameters.append(parameter("args", parameter.VAR_POSITIONAL))
    parameters.append(parameter("kwargs", parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _default(field: FieldInfo) -> Any:
    return to_jsonable_python(field.get_default(call_default_factory=True))


def _annotation(kind: Any) -> Any:
    """A type as both Data-Juicer and jsonargparse take it; what they do not know is `Any`.

    pydantic checks the value in any case, where the operator is built.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, float, bool, str, type(None)) or origin is Literal:
        return kind
    if origin in (Union, UnionType) and (known := [_annotation(arg) for arg in inner]):
        return Any if Any in known else Union[tuple(known)]  # noqa: UP007
    return Any


def _docstring(kind: type[Operator]) -> str:
    fields: Mapping[str, FieldInfo] = kind.model_fields
    lines = [f":param {name}: {field.description or name}" for name, field in fields.items()]
    return "\n".join(["Initialization method.", "", *lines])


register_installed()
