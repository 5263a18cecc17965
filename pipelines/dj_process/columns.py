"""What Data-Juicer takes for the columns of a recipe of ours: also those that our steps write.

Data-Juicer looks for the text of each of its operators in the dataset, before the first step. A
recipe that samples has the responses only after a step of ours. So where a recipe has an operator
of ours, its loader demands no column and drops no row, as `rejuice run`; and its preflight follows
the columns through the steps, as `rejuice check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...operators import RecipeError, RejuiceError
from ..data_juicer.catalogue import KINDS, find
from ..data_juicer.steps import unchecked
from ..dataset.selection import not_there
from ..recipe.columns import check_reads
from ..recipe.dataset_block import selection
from ..recipe.steps import Step, step_names
from . import reading
from .current_run import current_run
from .ours import has_ours, is_ours
from .step_in_run import StepInRun
from .stop import stop


def load_dataset(load: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
    """`DatasetBuilder.load_dataset`, for which a recipe with an operator of ours has no text."""
    settings = builder.cfg
    columns = getattr(settings, "columns", None)
    if not columns and not has_ours(getattr(settings, "process", None) or ()):
        return load(builder, *args, **kwargs)
    strategies = getattr(builder, "load_strategies", None) or []
    read_here = bool(strategies) and all(map(reading.is_read_here, strategies))
    for strategy in strategies if read_here else ():
        strategy.load_data = partial(reading.load_data, strategy)
    text_keys, settings.text_keys = settings.text_keys, []  # The steps have theirs already.
    try:
        found = load(builder, *args, **kwargs)
    except RejuiceError as error:
        stop(error)
    finally:
        settings.text_keys = text_keys
    if read_here or not columns:
        return found
    return _selected(found, columns, str(settings.get("dataset_path")))


def _selected(dataset: Any, columns: Any, path: str) -> Any:
    """The dataset with the columns that the recipe selects, under their new names."""
    from data_juicer.core.data import NestedDataset
    from data_juicer.utils.ray_utils import is_ray_mode

    try:
        selected = selection(columns)
        if is_ray_mode():
            raise RecipeError("`columns` is not read under Ray", "rename columns in the dataset")
        names = selected.names or ()
        for name, _ in names:
            if name not in dataset.column_names:
                raise not_there(name, dataset.column_names, path)
    except (RejuiceError, ValueError) as error:
        stop(error if isinstance(error, RejuiceError) else RecipeError(f"columns: {error}"))
    found = dataset.select_columns([old for old, _ in names])
    return NestedDataset(found.rename_columns(dict(names)))


def post_instantiation_check(
    check: Callable[..., None], ops: Sequence[Any], dataset_schema: Any, cfg: Any = None
) -> None:
    """`post_instantiation_check`, with the columns as they are before each step."""
    ours = [op for op in ops if is_ours(op)]
    if not ours or not dataset_schema:
        check(ops, dataset_schema, cfg)
        return
    check(ops, None, cfg)  # Without the columns, all but these are checked.
    try:
        run = current_run()
        first = StepInRun(ours[0].operator, getattr(ours[0], "_op_cfg", None), run)
        skipped = [next(iter(entry)) for entry in run.skipped] if run else []
        check_reads(list(_steps(ops, skipped)), dataset_schema.columns, first.where)
    except RejuiceError as error:
        stop(error)


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
        if is_ours(op):
            yield Step(number, name, op.operator)
            continue
        found = find(kind)
        if found is None or found.kind not in KINDS:
            return
        yield Step(number, name, unchecked(kind, found.kind, text_key=op.text_key))
