"""Our operators inside Data-Juicer: `dj-process` finds this module by its entry point.

Each installed operator is registered under its own name as an operator of Data-Juicer's kind
`Pipeline`, the only kind that gets all rows at once and that both executors support. It works
on the Arrow table of Data-Juicer's dataset; no row becomes a Python object.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, Optional, Union, get_args, get_origin

import data_juicer
import numpy as np
import pyarrow as pa
from data_juicer.ops.base_op import OPERATORS, Pipeline
from data_juicer.utils.ray_utils import is_ray_mode
from loguru import logger
from pydantic_core import to_jsonable_python

from ...operators import (
    Change,
    Groups,
    Operator,
    RejuiceError,
    ResumableOperator,
    Scope,
    build,
    get,
    installed,
)
from ...operators.cache_key import cache_key_json, code_version
from ...operators.config import field_docs
from ...operators.operator import COMMON_FIELDS, on_definition
from ...operators.registry import conflicts
from ..data_juicer.tables import plain, stored_rows
from ..dataset.parquet import cuts
from ..dataset.write import filled
from ..engine.conditional_step import unmatched_lines
from ..engine.frame import Frame, GroupStarts, check_contiguous
from ..engine.plan import default_chunk_rows
from ..engine.report import AuditLog, empty_result
from ..engine.steps import (
    RunStep,
    apply_steps,
    apply_to_digests,
    digest,
    known_change,
    prefix_errors_with_step,
    run_step,
)
from ..recipe.columns import check_replaced
from ..recipe.steps import Step
from .patches import change_data_juicer, change_runs
from .step_in_run import StepInRun, current_run, stop

# --- The source of classes ------------------------------------------------------------
# Where Data-Juicer's tools find the source of a class that stands for an operator of ours.


def class_source(kind: type[Operator]) -> dict[str, str]:
    """`__module__` and `__qualname__` with which `inspect` finds the operator's source.

    `OPSearcher`, and so `dj-mcp`, reads the source of every registered class, and fails for all
    where one has none or lies outside of Data-Juicer's folder, as in an editable install. So its
    class gets a module to itself, with the operator's file as a path from that folder.
    """
    documented = next(filter(_has_source, kind.__mro__))
    name = f"{__name__}.{kind.name()}"
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_upstream_tools.py::test_the_searcher_lists_every_operator
    root = Path(data_juicer.__file__).resolve().parent.parent
    file = os.path.relpath(Path(inspect.getfile(documented)).resolve(), root)
    # No module object: `inspect` would take it for the module of everything in the file.
    sys.modules[name] = SimpleNamespace(__file__=str(root / file))  # type: ignore[assignment]
    return {"__module__": name, "__qualname__": documented.__qualname__}


def _has_source(kind: type) -> bool:
    with suppress(OSError, TypeError):  # A class of a console, or that no `class` statement made.
        return bool(inspect.getsource(kind))
    return False


# --- Pickling of the operators that Data-Juicer builds --------------------------------
# Their classes are made when Data-Juicer starts, and are in no module: what is pickled is the
# operator's own class and the arguments. Any pickler can read it, in any process.


def reduce(self: Any) -> tuple[Any, ...]:
    """`__reduce__` of an operator: how it was built, and what Data-Juicer has set since."""
    # The base class wraps methods in local functions, which the constructor makes again.
    state = {name: value for name, value in vars(self).items() if not callable(value)}
    return _rebuild, (self.operator_class, self._init_args, self._init_kwargs), state


def _rebuild(kind: type[Operator], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if kind.name() not in OPERATORS.modules:  # One on disk, read before its class was registered.
        for call in on_definition:
            call(kind)
    return OPERATORS.modules[kind.name()](*args, **kwargs)


# --- The class that stands for an operator of ours in Data-Juicer ---------------------


def register(kind: type[Operator]) -> type[Any]:
    """Register an operator with Data-Juicer, as a class with a signature made from its fields."""

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        _build(self, kind, args, kwargs)

    # Data-Juicer and jsonargparse read a class by its constructor's signature and docstring.
    construct.__signature__ = _signature(kind)  # type: ignore[attr-defined]
    docs = field_docs(kind)
    lines = [f":param {name}: {docs.get(name, name)}" for name in _parameters(kind)]
    construct.__doc__ = "\n".join(["Initialization method.", "", *lines])
    members = {
        "__init__": construct,
        "__reduce__": reduce,
        "run": _run,
        # The third executor partitions rows without regard to groups.
        "_supported_exec_modes": ("default", "ray"),
        "operator_class": kind,
        "unchecked": (),  # of a run whose columns are not checked, its steps with their entries
        "__doc__": kind.__doc__,
        **class_source(kind),
    }
    juicer = type(kind.__name__, (Pipeline,), members)
    OPERATORS.register_module(kind.name(), juicer)
    return juicer


def _build(self: Any, kind: type[Operator], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = _parameters(kind)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    Pipeline.__init__(self, **{k: v for k, v in given.items() if k not in names})
    # The signature cannot say "no default": Data-Juicer would ask for it on the command line.
    own = {
        name: given[name]
        for name, field in kind.model_fields.items()
        if name in given and not (field.is_required() and given[name] is None)
    }
    try:
        self.operator = build(kind, own)
    except RejuiceError as error:
        stop(error.at(kind.name()))
    change_runs()  # An executor can be given a configuration that no parser of its has read.


def _parameters(kind: type[Operator]) -> list[str]:
    """The fields of an operator; those that all operators have come last."""
    return [*kind.own_fields(), *COMMON_FIELDS]


def _run(self: Any, dataset: Any, *, exporter: Any = None, tracer: Any = None) -> Any:
    """Apply the operator to all rows, and write its audit log beside the export."""
    if self.operator.on == "train":
        return dataset
    # An operator of Data-Juicer keeps the entry of `process` that it was built from.
    entry = getattr(self, "_op_cfg", None)
    step_in_run = StepInRun(self.operator, entry, current_run())
    try:
        if step_in_run.is_first and step_in_run.run and self.unchecked:
            # Data-Juicer made no preflight: it knows no columns, or is set not to.
            columns = dataset.columns() if is_ray_mode() else dataset.column_names
            steps = [StepInRun(op, of, step_in_run.run).step for op, of in self.unchecked]
            check_replaced(steps, columns or (), step_in_run.dataset, step_in_run.where)
        if is_ray_mode():
            from .on_ray import run
        else:
            run = run_on_default
        start = time.perf_counter()
        out, log = run(step_in_run.step, dataset)
        done = log.step(step_in_run.step.name)
        done.seconds = time.perf_counter() - start
        step_in_run.write(done)
        line = done.report()
        for each in unmatched_lines([(line.step, line.unmatched)]):
            logger.warning(f"step {step_in_run.step.number} {each}")
        found = empty_result(self.operator, line)
        if found:  # Data-Juicer's run goes on: to end it would lose what earlier steps have made.
            logger.warning(f"step {step_in_run.step.number} {step_in_run.step.name}: {found}")
    except RejuiceError as error:
        stop(step_in_run.located(error))
    finally:
        if isinstance(step_in_run.step.operator, ResumableOperator):
            step_in_run.step.operator.close()
    return out


def _signature(kind: type[Operator]) -> inspect.Signature:
    parameter, keyword = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [parameter("self", keyword)]
    for name in _parameters(kind):
        field = kind.model_fields[name]
        default = None
        if not field.is_required():
            default = to_jsonable_python(field.get_default(call_default_factory=True))
        annotation = _annotation(field.annotation)
        if default is None:
            annotation = Optional[annotation]  # noqa: UP045 (they do not support `X | None`)
        parameters.append(parameter(name, keyword, default=default, annotation=annotation))
    # Named so, Data-Juicer's own fields (`text_key`, `num_proc`) are taken by the base class.
    parameters.append(parameter("args", parameter.VAR_POSITIONAL))
    parameters.append(parameter("kwargs", parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _annotation(kind: Any) -> Any:
    """A type that both Data-Juicer and jsonargparse understand; `Any` for the others.

    pydantic validates the value in any case, where the operator is built.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, float, bool, str, type(None)) or origin is Literal:
        return kind
    if origin in (Union, UnionType) and (known := [_annotation(arg) for arg in inner]):
        return Any if Any in known else Union[tuple(known)]  # noqa: UP007
    return Any


# --- A step on an Arrow table, with the default executor; on Ray see `on_ray.py` ------
# Rows are worked on in pieces of whole groups, as in our engine: Arrow gathers at most 2 GB of text
# at once.


class Piece(NamedTuple):
    frame: Frame
    first_row: int  # how many rows its table has before them


def run_on_default(step: Step, dataset: Any) -> tuple[Any, AuditLog]:
    made = pieces(dataset, default_chunk_rows([step.operator]))
    if step.operator.scope is not Scope.ROW:
        with prefix_errors_with_step(step):
            check_contiguous([GroupStarts.of(piece.frame, piece.first_row) for piece in made])
    log = AuditLog()
    tables = [
        apply_steps([step], piece.frame, run=run, log=log, first_row=piece.first_row).table()
        for piece, run in zip(made, _runs(step, made), strict=True)
    ]
    table = filled(pa.concat_tables(tables, promote_options="permissive"))
    if _is_saved(dataset):
        # Columns that no step wrote are still in the files of the checkpoint that the run goes on
        # from, and Data-Juicer writes its next checkpoint over them.
        table = _copied(table)
    return _wrapped(step.operator, dataset, table, log.step(step.name).written), log


def pieces(dataset: Any, size: int) -> list[Piece]:
    """The rows of a Hugging Face dataset, in pieces of about `size` rows and of whole groups."""
    table, rows = stored_rows(dataset)
    starts, made = np.arange(len(rows)), list[Piece]()
    if "prompt_id" in table.column_names:
        starts = Groups.of_column(table["prompt_id"].take(pa.array(rows))).starts_G
    for start, end in pairwise([0, *cuts(starts, size), len(rows)]):
        part = rows[start:end]
        low, high = (int(part[0]), int(part[-1]) + 1) if len(part) else (0, 0)
        frame = Frame.of(plain(table.slice(low, high - low)))
        if len(part) < high - low:  # Its rows keep their numbers.
            frame = frame.after(Change(parents=part - low))
        made.append(Piece(frame, low))
    return made


def _runs(step: Step, made: Sequence[Piece]) -> Iterator[RunStep]:
    if step.operator.scope is not Scope.DATASET:
        return (partial(run_step, first_row=piece.first_row) for piece in made)
    with prefix_errors_with_step(step):
        digests = [digest(step.operator, piece.frame) for piece in made]
        changes = apply_to_digests(step.operator, digests)
    return (known_change(change) for change in changes)


def _is_saved(dataset: Any) -> bool:
    """Whether a dataset lies in a folder of `save_to_disk`, such as a checkpoint."""
    from datasets.config import DATASET_STATE_JSON_FILENAME

    folders = {Path(file["filename"]).parent for file in dataset.cache_files}
    return any((folder / DATASET_STATE_JSON_FILENAME).exists() for folder in folders)


def _copied(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _wrapped(operator: Operator, before: Any, table: pa.Table, written: set[str]) -> Any:
    from data_juicer.core.data import NestedDataset
    from datasets import Dataset, DatasetInfo, Features
    from datasets.fingerprint import Hasher
    from datasets.table import InMemoryTable

    features = Features.from_arrow_schema(table.schema)
    for name, feature in before.features.items():
        if name in features and name not in written:
            features[name] = feature  # An image or a class label is more than its Arrow type.
    # Made from what was done: Hugging Face would hash all rows, and caches the next steps by it.
    # private: datasets==5.2.0, tests/pipelines/dj_process/test_plugin.py::test_the_fingerprint_tells_configs_apart
    made_of = [before._fingerprint, cache_key_json(operator), code_version(type(operator))]
    return NestedDataset(
        Dataset(
            InMemoryTable(table.cast(features.arrow_schema)),
            info=DatasetInfo(features=features),
            fingerprint=Hasher.hash(made_of),
        )
    )


# --- Registration ---------------------------------------------------------------------


def _register_on_definition(kind: type[Operator]) -> None:
    known = kind.name() in OPERATORS.modules or kind.__module__.startswith("rejuice.")
    # Data-Juicer pickles its operators, which a class inside a function does not allow.
    if not known and "<locals>" not in kind.__qualname__:
        register(kind)


def register_installed() -> None:
    """Register every installed operator; one that does not import is left out with a warning."""
    for name in [*installed(), *conflicts()]:
        try:
            register(get(name))
        except Exception as error:
            # A third-party package is broken. Raised, it would make Data-Juicer drop all of ours.
            logger.warning(f"operator '{name}' is not available: {type(error).__name__}: {error}")


register_installed()
# Operators on disk are defined when Data-Juicer imports its `custom_operator_paths`.
on_definition.append(_register_on_definition)
change_data_juicer()
