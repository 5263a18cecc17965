"""What Data-Juicer takes for the columns of a recipe of ours: also those that our steps write.

Data-Juicer looks for the text of each of its operators in the dataset, before the first step. A
recipe that samples has the responses only after a step of ours. So where a recipe has an operator
of ours, its loader demands no column and drops no row, as `rejuice run`; and its preflight follows
the columns through the steps, as `rejuice check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from typing import Any

from data_juicer.ops.base_op import OPERATORS

from ...operators import RejuiceError
from ..data_juicer.catalogue import KINDS, find
from ..data_juicer.steps import unchecked
from ..recipe.columns import check_reads
from ..recipe.steps import Step, step_names
from .current_run import current_run
from .deduplicators import allow_on_ray
from .step_in_run import StepInRun
from .stop import stop


def see_our_columns() -> None:
    """Let Data-Juicer's loader and preflight see the columns that steps of ours write."""
    from data_juicer.config import config  # Which may be importing us: its imports are done.

    class Parser(config.ArgumentParser):  # type: ignore[misc]
        def parse_args(self, *args: Any, **kwargs: Any) -> Any:
            # Only now: what is wrapped imports Data-Juicer's operators, and so us.
            _wrap()
            return super().parse_args(*args, **kwargs)

    config.ArgumentParser = Parser


@cache
def _wrap() -> None:
    from data_juicer.core import preflight
    from data_juicer.core.data.dataset_builder import DatasetBuilder

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    preflight.post_instantiation_check = _preflight(preflight.post_instantiation_check)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_loader_demands_no_column_and_drops_no_row
    DatasetBuilder.load_dataset = _load(DatasetBuilder.load_dataset)


def _load(load: Callable[..., Any]) -> Callable[..., Any]:
    """`DatasetBuilder.load_dataset`, for which a recipe with an operator of ours has no text."""

    @wraps(load)
    def load_dataset(self: Any, **kwargs: Any) -> Any:
        settings = self.cfg
        if not _has_ours(getattr(settings, "process", None) or ()):
            return load(self, **kwargs)
        text_keys, settings.text_keys = settings.text_keys, []  # The steps have theirs already.
        try:
            return load(self, **kwargs)
        finally:
            settings.text_keys = text_keys

    return load_dataset


def _preflight(check: Callable[..., None]) -> Callable[..., None]:
    """`post_instantiation_check`, with the columns as they are before each step."""

    @wraps(check)
    def post_instantiation_check(ops: Sequence[Any], schema: Any, cfg: Any = None) -> None:
        ours = [op for op in ops if hasattr(op, "operator_class")]
        if not ours or not schema:
            check(ops, schema, cfg)
            return
        if getattr(cfg, "executor_type", None) == "ray":
            allow_on_ray(ops, keep_hashes=bool(getattr(cfg, "keep_hashes_in_res_ds", False)))
        check(ops, None, cfg)  # Without the columns, all but these are checked.
        try:
            run = current_run()
            first = StepInRun(ours[0].operator, getattr(ours[0], "_op_cfg", None), run)
            skipped = [next(iter(entry)) for entry in run.skipped] if run else []
            check_reads(list(_steps(ops, skipped)), schema.columns, first.where)
        except RejuiceError as error:
            stop(error)

    return post_instantiation_check


def _has_ours(process: Iterable[Mapping[str, Any]]) -> bool:
    kinds = (OPERATORS.modules.get(name) for entry in process for name in entry)
    return any(hasattr(kind, "operator_class") for kind in kinds)


def _steps(ops: Sequence[Any], skipped: Sequence[str]) -> Iterator[Step]:
    """The steps of a run, up to the first one whose columns nobody knows.

    Args:
        ops: that it runs.
        skipped: the names of those before them, as it goes on from a checkpoint.
    """
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    kinds = [op._name for op in ops]
    names = step_names([*skipped, *kinds])[len(skipped) :]
    steps = zip(kinds, names, ops, strict=True)
    for number, (kind, name, op) in enumerate(steps, len(skipped) + 1):
        if hasattr(op, "operator_class"):
            yield Step(number, name, op.operator)
            continue
        found = find(kind)
        if found is None or found.kind not in KINDS:
            return
        yield Step(number, name, unchecked(kind, found.kind, text_key=op.text_key))
