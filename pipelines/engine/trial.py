"""What the first rows of a dataset show before a run: `rejuice check` tries on them what it can.

The steps that make prompts and read recorded responses are applied to these rows, and the result is
written as the export would be. Steps that call a model, a server or another library are not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import yaml

from ...operators import (
    ALL,
    Change,
    ColumnRangeFilter,
    DataError,
    ExactDeduplicator,
    MathVerifyMapper,
    PromptTemplateMapper,
    RecordedRolloutMapper,
    RejuiceError,
    RewardSumMapper,
    Scope,
)
from ...operators.arrow_compute import pc
from ...operators.columns import (
    Choices,
    alternatives,
    as_text,
    at_path,
    columns_of,
    has_box,
    is_list,
    is_text,
)
from ...operators.errors import shown
from ..dataset.files import is_folder
from ..dataset.read import Dataset, place_of
from ..dataset.spec import lines_about_files
from ..dataset.write import writer
from ..recipe.columns import lines_about_tests, named_columns
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .conditional_step import MatchLog, unmatched_lines
from .frame import Frame, GroupStarts
from .steps import (
    apply_steps,
    check_prompts,
    identity_lines,
    iterate_steps,
    prefix_errors_with_step,
    with_columns,
)

_SOURCES = ("source", "dataset", "dataset_name", "ability", "category", "domain", "subject")
"""What datasets call the column that says which task or dataset a prompt is of."""
_MOST_SOURCES = 20  # With more values, the figures do not show them.
_OPTIONS = re.compile(
    r"(?i)(answer_)?choices|options|endings|(?P<one>(op|option|choice|answer|sol)_?)[0-9a-e]"
)
"""What datasets call a column of options, or those with one option each."""
_WRITTEN = 100
_LOOKED_AT = 1000


def tried(recipe: Recipe, dataset: Dataset) -> list[str]:
    """Lines about what the first rows show that is worth a look."""
    # Of equal questions, a deduplicator before sampling keeps one. What reads numbers is tried on
    # those of the dataset.
    numeric = ColumnRangeFilter | RewardSumMapper
    known = PromptTemplateMapper | RecordedRolloutMapper | ExactDeduplicator | numeric
    steps = list(takewhile(lambda step: isinstance(step.operator, known), recipe.steps))
    same, frame = list[str](), Frame.of(dataset.first_rows)
    lines = list(lines_about_files(dataset.spec))
    grouped = any(step.operator.scope is not Scope.ROW for step in recipe.steps)
    try:
        for applied in iterate_steps(steps, frame):
            frame = applied.after
            if isinstance(applied.step.operator, PromptTemplateMapper):
                lines += _of_references(recipe, applied.step, applied.before.table(), frame)
                change = applied.result.change
                with suppress(ValueError, OverflowError):  # Dates that Python has not.
                    same += lines_about_prompts(recipe, applied.step, applied.before, change)
        is_whole = grouped and dataset.is_small()
        made = apply_steps(steps, Frame.of(dataset.table())) if is_whole else frame
    except RejuiceError as error:
        raise error.at(str(dataset.spec)) from None
    if grouped:
        files = [(str(file), table.num_rows) for file, table in dataset.first_tables]
        check_prompts(recipe, [GroupStarts.of(made, 0)], lambda row: place_of(row, files), same)
    _try_to_write(recipe, frame)
    lines += lines_about_responses(recipe, Frame.of(dataset.first_rows))
    with suppress(DataError):  # A field may first turn up further down.
        lines += lines_about_tests(recipe, dataset.first_rows)
    return [*lines, *same, *_of_sources(recipe, dataset.first_rows)]


def lines_about_responses(recipe: Recipe, first: Frame) -> Iterator[str]:
    for step in recipe.steps:
        if isinstance(step.operator, RecordedRolloutMapper):
            names = columns_of(step.operator.columns, first.column_names)
            rows = first.select([n for n in names if n in first.column_names]).slice(0, _LOOKED_AT)
            with suppress(DataError):  # It ends the run where nothing is before the step.
                yield from (f"{step.name}: {each}" for each in step.operator.lines_about(rows))


def unmatched_warnings(recipe: Recipe) -> Iterator[str]:
    """Lines about steps whose `where` no row of a small dataset matches, by its columns alone."""
    dataset, written = recipe.opened(), set[str]()
    if not dataset.is_small():
        return
    frame = Frame.of(dataset.table())
    for step in recipe.steps:
        if step.operator.reads() == ALL:  # It may write any column.
            return
        names = columns_of(step.operator.where or (), frame.column_names)
        with prefix_errors_with_step(step, recipe):
            match = MatchLog.of(step.operator, frame) if written.isdisjoint(names) else None
        if match is not None:
            yield from unmatched_lines([(recipe.where(step), match.why_none())])
        written.update(step.operator.writes())


def _of_sources(recipe: Recipe, rows: pa.Table) -> Iterator[str]:
    """How figures by source are had, where only the name of the column stands against them.

    A recipe that has `columns`, or reads the column by its own name, knows what it does.
    """
    there, operators = rows.column_names, [step.operator for step in recipe.steps]
    read = {name for each in operators for name in (*each.needs_of(there), *each.writes())}
    if recipe.head.columns is not None or "data_source" in {*there, *read}:
        return
    for name in there:
        if name in _SOURCES and name not in read and is_text(rows[name].type):
            n = pc.count_distinct(rows[name]).as_py()
            if 2 <= n <= _MOST_SOURCES:
                names = {old: "data_source" if old == name else old for old in there}
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
    operator = step.operator
    assert isinstance(operator, PromptTemplateMapper)
    if operator.reference is None:
        return []
    lines = list[str]()
    column = at_path(rows, operator.reference)
    if operator.reference_form == "auto" and operator.reference_pattern is None:
        texts = column.flatten() if is_list(column.type) else column
        found = texts.to_pylist() if is_text(texts.type) else []
        if boxed := sum(has_box(text or "") for text in found):
            lines.append(
                f"{step.name}: in {boxed:,} of the first {rows.num_rows:,} rows the reference is "
                f"the content of the last \\boxed{{}} of column '{operator.reference}' "
                "(reference_form: boxed)."
            )
    operators = (each.operator for each in recipe.steps)
    verifier = next((each for each in operators if isinstance(each, MathVerifyMapper)), None)
    return lines if verifier is None else [*lines, *_ungradable(step, frame, verifier)]


def _ungradable(step: Step, frame: Frame, verifier: MathVerifyMapper) -> list[str]:
    """Which types the references have, unless all are numbers, and which are no use."""
    references = frame.select(["reference"])["reference"].to_pylist()
    # The column of types may be made by a step in between.
    rows = frame.table() if set(verifier.reads()) - {"response"} <= {*frame.column_names} else None
    given = verifier.types_of(rows) if rows else [verifier.given_type()] * len(references)
    pairs = [pair for pair in zip(references, given, strict=True) if pair[0] is not None]
    if all(each is None and text.isdecimal() for text, each in pairs):
        return []
    from ...operators.verifier import check_reference
    from ...operators.verifier.typed import AnswerType, type_of

    reasons = {pair: check_reference(*pair) for pair in dict.fromkeys(pairs)}
    usable = [(t, each or type_of(alternatives(t)[0])) for t, each in pairs if not reasons[t, each]]
    types = Counter(kind for _, kind in usable)
    examples = {kind: f" (such as {shown(text)})" for text, kind in reversed(usable)}
    examples[AnswerType.NUMBER] = ""
    counts = [f"{n:,} {kind.value}{examples[kind]}" for kind, n in types.most_common()]
    lines = [f"{step.name}: types of the first references: {', '.join(counts)}."]
    bad = [pair for pair in pairs if reasons[pair]]
    if bad:
        share, n = len(bad) / len(references), len(references)
        lines.append(
            f"{step.name}: {share:.1%} of the first {n:,} references cannot be graded against, "
            f"such as {shown(bad[0][0])} ({reasons[bad[0]]})."
        )
    return lines if set(types) - {AnswerType.NUMBER} else lines[1:]


def lines_about_prompts(recipe: Recipe, step: Step, frame: Frame, change: Change) -> list[str]:
    """What rows show once a step has made prompts of them: parts of prompts that differ, and
    references that all name an option, where the recipe does not say so."""
    made, before = frame.after(change), frame.after(change._replace(columns={}))
    lines = identity_lines(recipe, step, before, made)
    operator = step.operator
    assert isinstance(operator, PromptTemplateMapper)
    columns = _columns_of_options(before.column_names)
    if operator.choices or operator.reference is None or not columns:
        return lines
    for first in (0, 1):
        other = operator.model_copy(update={"choices": columns, "first_choice": first})
        options = other.options(before.select(other.reads_of(before.column_names)))
        pairs = zip(made.select(["prompt", "reference"]).to_pylist(), options, strict=True)
        named = [(row, o) for row, o in pairs if row["reference"] and isinstance(o, Choices)]
        if named and all(each.right for _, each in named):
            break
    else:
        return lines
    are_texts = all(row["reference"] in each.texts for row, each in named)
    are_shown = all(text in str(row["prompt"]) for row, each in named for text in each.texts)
    are_numbers = not are_texts and all(row["reference"].isdecimal() for row, _ in named)
    if are_texts != are_shown and not are_numbers:  # Letters can be known, or none is given.
        return lines
    kind = "numbers below the length of" if are_numbers else "options in"
    right = f"choices: [{', '.join(columns)}]{', first_choice: 1' if first else ''}"
    right += "" if are_shown else f", question: {with_columns(other, 'choices')}"
    return [
        *lines,
        f"{step.name}: the first references are {kind} {named_columns(columns)}, such as "
        f"{named[0][0]['reference']!r}, and no other form of an option is right; if that is "
        f"{as_text(named[0][1].right)}, set {right}.",
    ]


def _columns_of_options(names: Iterable[str]) -> tuple[str, ...]:
    """The first column of options, or all with one each that are called as the first is."""
    found = list(filter(None, map(_OPTIONS.fullmatch, names)))
    of_first = [each[0] for each in found if each["one"] == found[0]["one"]]
    return tuple(of_first if found and found[0]["one"] else of_first[:1])
