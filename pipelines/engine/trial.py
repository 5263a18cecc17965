"""What the first rows of a dataset show before a run: `rejuice check` tries on them what it can.

The steps that make prompts and read recorded responses are applied to these rows, and the result is
written as the export would be. Steps that call a model, a server or another library are not.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import accumulate, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import yaml

from ...operators import (
    ALL,
    ExactDeduplicator,
    MathVerifyMapper,
    PromptTemplateMapper,
    RecordedRolloutMapper,
    RejuiceError,
    Scope,
)
from ...operators.arrow_compute import pc
from ...operators.columns import at_path, columns_of, has_box, is_list, is_text
from ..dataset.files import is_folder
from ..dataset.read import Dataset
from ..dataset.write import writer
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .frame import Frame, GroupStarts
from .match_log import MatchLog, unmatched_lines
from .repeated_prompts import check_prompts
from .steps import (
    apply_steps,
    identity_lines,
    iterate_steps,
    prefix_errors_with_file,
    prefix_errors_with_step,
)

_SHOWN = 40
_SOURCES = ("source", "dataset", "dataset_name", "ability", "category", "domain", "subject")
"""What datasets call the column that says which task or dataset a prompt is of."""
_MOST_SOURCES = 20  # With more values, the figures do not show them.
_WRITTEN = 100


def tried(recipe: Recipe, dataset: Dataset) -> list[str]:
    """Return lines about what the first rows show that is worth a look.

    Raises:
        RejuiceError: with the line with which the run would end.
    """
    steps = list(takewhile(_is_tried, recipe.steps))
    lines, frame = list[str](), Frame.of(dataset.first_rows)
    try:
        for applied in iterate_steps(steps, frame):
            frame = applied.after
            if isinstance(applied.step.operator, PromptTemplateMapper):
                lines += _of_references(recipe, applied.step, applied.before.table(), frame)
                lines += identity_lines(recipe, applied.step, applied.before, frame)
        if any(step.operator.scope is not Scope.ROW for step in recipe.steps):
            whole = dataset.is_small()
            made = apply_steps(steps, Frame.of(dataset.table())) if whole else frame
            check_prompts(recipe, [GroupStarts.of(made, 0)], lambda row: _place(dataset, row))
    except RejuiceError as error:
        raise error.at(str(dataset.spec)) from None
    _try_to_write(recipe, frame)
    return [*lines, *_of_sources(recipe, dataset.first_rows)]


def _is_tried(step: Step) -> bool:
    # Of equal questions, a deduplicator before sampling keeps one.
    tried = (PromptTemplateMapper, RecordedRolloutMapper, ExactDeduplicator)
    return isinstance(step.operator, tried)


def unmatched_warnings(recipe: Recipe) -> Iterator[str]:
    """Lines about steps whose `where` no row of a small dataset matches, by its columns alone."""
    dataset, written = recipe.opened(), set[str]()
    if not (any(step.operator.where for step in recipe.steps) and dataset.is_small()):
        return
    frame = Frame.of(dataset.table())
    for step in recipe.steps:
        if step.operator.reads() == ALL:  # It may write any column.
            return
        names = columns_of(step.operator.where or (), frame.column_names)
        with prefix_errors_with_file(recipe, step), prefix_errors_with_step(step):
            match = MatchLog.of(step.operator, frame) if written.isdisjoint(names) else None
        if match is not None:
            yield from unmatched_lines([(recipe.where(step), match.why_none())])
        written.update(step.operator.writes())


def _place(dataset: Dataset, row: int) -> str:
    """Return what to call a row of the first rows, given its number from 0."""
    if len(dataset.files) == 1:
        return f"row {row + 1}"
    sizes = [table.num_rows for _, table in dataset.first_tables]
    begins = list(accumulate(sizes, initial=0))
    at = bisect.bisect_right(begins, row) - 1
    return f"row {row - begins[at] + 1} of {dataset.first_tables[at][0]}"


def _of_sources(recipe: Recipe, rows: pa.Table) -> Iterator[str]:
    """Yield how figures by source are had, where only the name of the column stands against them.

    A recipe that has `columns`, or reads the column by its own name, knows what it does.
    """
    read = {name for step in recipe.steps for name in step.operator.needs_of(rows.column_names)}
    read |= {name for step in recipe.steps for name in step.operator.writes()}
    if recipe.head.columns is not None or "data_source" in {*rows.column_names, *read}:
        return
    for name in rows.column_names:
        if name in _SOURCES and name not in read and is_text(rows[name].type):
            n = pc.count_distinct(rows[name]).as_py()
            if 2 <= n <= _MOST_SOURCES:
                names = {old: "data_source" if old == name else old for old in rows.column_names}
                text = yaml.safe_dump(names, default_flow_style=True, sort_keys=False, width=10**6)
                yield (
                    f"Pass rate and reward are shown by column data_source: to have them for each "
                    f"of the {n} values of '{name}', add columns: {text.strip()}"
                )
                return


def _try_to_write(recipe: Recipe, frame: Frame) -> None:
    """Write some rows where nobody looks, in the format of the export."""
    export = recipe.head.export_path
    suffix = ".parquet" if is_folder(export) else export.suffix
    table = frame.table().slice(0, _WRITTEN)
    with (
        TemporaryDirectory(prefix="rejuice-") as folder,
        writer(Path(folder) / f"rows{suffix}", table.schema) as write,
    ):
        write(table)


def _of_references(recipe: Recipe, step: Step, rows: pa.Table, frame: Frame) -> list[str]:
    """Return where references were found, and how many of them cannot be graded against."""
    operator = step.operator
    assert isinstance(operator, PromptTemplateMapper)
    lines, n = list[str](), rows.num_rows
    if operator.reference is None:
        return []
    column = at_path(rows, operator.reference)
    if operator.reference_form == "auto" and operator.reference_pattern is None:
        texts = column.flatten() if is_list(column.type) else column
        found = texts.to_pylist() if is_text(texts.type) else []
        boxed = sum(has_box(text or "") for text in found)
        if boxed:
            where = f"of column '{operator.reference}' (reference_form: boxed)"
            found = f"in {boxed:,} of the first {n:,} rows the reference is the content"
            lines.append(f"{step.name}: {found} of the last \\boxed{{}} {where}.")
    if any(isinstance(each.operator, MathVerifyMapper) for each in recipe.steps):
        lines += _ungradable(step, frame)
    return lines


def _ungradable(step: Step, frame: Frame) -> list[str]:
    references = frame.select(["reference"])["reference"].to_pylist()
    unsure = [text for text in references if text is not None and not text.isdecimal()]
    if not unsure:
        return []
    from ...operators.verifier import check_reference

    reasons = {text: check_reference(text) for text in dict.fromkeys(unsure)}
    bad = [text for text in unsure if reasons[text]]
    if not bad:
        return []
    shown = bad[0] if len(bad[0]) <= _SHOWN else f"{bad[0][:_SHOWN]}..."
    share, n = len(bad) / len(references), len(references)
    return [
        f"{step.name}: {share:.1%} of the first {n:,} references cannot be graded against, such as "
        f"{shown!r} ({reasons[bad[0]]})."
    ]
