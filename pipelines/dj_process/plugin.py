"""Our operators inside Data-Juicer: `dj-process` finds this module by its entry point.

Each installed operator is registered under its own name as an operator of Data-Juicer's kind
`Pipeline`, the one kind that is handed all rows at once, and that both executors know. It works
on the Arrow table behind Data-Juicer's dataset; no row becomes a Python object.
"""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, Optional, Union, get_args, get_origin

import pyarrow as pa
from data_juicer.ops.base_op import OPERATORS, Pipeline
from data_juicer.utils.ray_utils import is_ray_mode
from loguru import logger
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from ...operators import Operator, RejuiceError, ResumableOperator, Scope, build, get, installed
from ...operators.operator import on_definition
from ...operators.registry import conflicts
from ..apply.report import Report, StepReport
from ..dataset.arrow_files import write_arrow
from ..dataset.write import run_folder
from ..engine.finish import Ledger
from ..recipe.recipe import Step, step_names


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
    members = {
        "__init__": construct,
        "run": _run,
        # Their third executor cuts the rows into partitions without regard to groups.
        "_supported_exec_modes": ("default", "ray"),
        "__doc__": kind.__doc__,
        "__module__": __name__,
    }
    juicer = type(kind.__name__, (Pipeline,), members)
    OPERATORS.register_module(kind.name(), juicer)
    return juicer


def _learn(kind: type[Operator]) -> None:
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
            # Anybody's package. Data-Juicer would drop all of ours for the sake of one.
            logger.warning(f"operator '{name}' is not available: {type(error).__name__}: {error}")


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
            from .on_ray import run
        else:
            from .on_default import run
        start = time.perf_counter()
        out, ledger = run(place.step, dataset, place.is_first_with_groups)
        ledger.tally.seconds = time.perf_counter() - start
        place.keep(ledger)
    except RejuiceError as error:
        _stop(error.at(f"step {place.step.number} {place.step.name}"))
    finally:
        if isinstance(place.step.operator, ResumableOperator):
            place.step.operator.close()
    return out


class _Place:
    """Where in the recipe a step is, and where its books are kept."""

    def __init__(
        self,
        step: Step,
        before: Sequence[str],
        resumed: bool,
        export_path: str | None,
        head: dict[str, str],
    ) -> None:
        self.step, self.export_path, self.head = step, export_path, head
        ours = [get(name) for name in before if name in installed()]
        self.is_first = not ours and not resumed
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
        # A run that goes on from a checkpoint is told the steps that are left, and no more.
        resumed = bool(settings.get("use_checkpoint"))
        head = {
            "project_name": str(settings.get("project_name")),
            "recipe": ", ".join(map(str, settings.get("config") or [])),
            "dataset_path": str(settings.get("dataset_path")),
            "export_path": str(path),
        }
        return cls(step, kinds[:at] if at else [], resumed, path, head)

    def keep(self, ledger: Ledger) -> None:
        if self.export_path is None or "://" in self.export_path:
            return  # Run from Python without an export, or into a store: no folder is beside it.
        export_path = Path(self.export_path)
        folder = run_folder(export_path)
        if self.is_first:
            # What is there tells of the rows that are about to be replaced.
            shutil.rmtree(folder, ignore_errors=True)
        write_arrow(
            folder / self.step.label / "decisions.arrow", pa.concat_tables(ledger.decisions)
        )
        line = ledger.tally.report(self.step.name)
        done = () if self.is_first else Report.read(export_path).steps
        Report.of(
            [*done, *_between(done, line), line], key="dj-process", chunk_rows=0, **self.head
        ).write(folder)


def _between(done: Sequence[StepReport], line: StepReport) -> Iterator[StepReport]:
    """What Data-Juicer's own operators did since our last step, as one line of the funnel."""
    change = line.rows_in - done[-1].rows_out if done else 0
    if change:
        dropped = {"data_juicer": -change} if change < 0 else {}
        before = done[-1].rows_out
        added = max(change, 0)
        yield StepReport("data_juicer", before, line.rows_in, added, dropped, 0.0, False, {}, {})


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


def take_train_section() -> None:
    """Let Data-Juicer's parser accept `train:` in a recipe, which only `rejuice train` reads.

    It refuses keys that it does not know, and has no other way to be told of one.
    """
    from data_juicer.config import config  # Which may be importing us: its imports are done.

    class Parser(config.ArgumentParser):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.add_argument("--train", type=Any, help="Settings of `rejuice train`.")

    config.ArgumentParser = Parser


register_installed()
# Operators on disk are defined when Data-Juicer imports its `custom_operator_paths`.
on_definition.append(_learn)
take_train_section()
