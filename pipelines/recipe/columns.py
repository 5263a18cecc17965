"""Whether a recipe fits its dataset: columns are followed to the end, and the first rows tried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ...operators import ALL, DataError, Kind, Operator, RecipeError, Scope
from ...operators.columns import SHARED_IN_GROUP, columns_of, is_text
from ...operators.condition import exclude_each_other, matches
from ...operators.errors import shortened, shown, suggest
from ...operators.mapper.group_stats_mapper import GroupStatsMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.mapper.prompt_template_mapper import PromptTemplateMapper, columns_in
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.mapper.unit_test_mapper import UnitTestMapper
from ...operators.registry import load_all
from ..data_juicer.settings import setting_warnings
from ..data_juicer.steps import ForeignOperator
from ..dataset.files import suffix_of
from ..dataset.parquet import GroupColumns
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath
from ..dataset.schemas import conform
from ..dataset.spec import DatasetSpec, not_there
from ..dataset.write import KINDS, WrittenByRuns, check_export_path, written_of
from .recipe import Recipe
from .steps import Step, server_warnings, weight_warnings

# --- The walk: the columns before and after each step, who wrote them and what they are of ----

Position: TypeAlias = Callable[[Step], str]
"""Where a message about a step points, such as `Recipe.where`."""
Origins: TypeAlias = Mapping[str, Collection[str]]
"""By column, the columns from which it was computed, directly or by way of others."""


class Column(NamedTuple):
    writers: tuple[Step | None, ...] = (None,)  # several, each in rows of its own; None: dataset
    of: frozenset[str] = frozenset()  # from which it was computed
    stale: tuple[str, Step] | None = None  # which of these has been replaced since, and by whom

    @property
    def steps(self) -> list[Step]:
        return [step for step in self.writers if step is not None]


ByName: TypeAlias = Mapping[str, Column]


class Passed(NamedTuple):
    step: Step
    before: ByName
    after: ByName
    is_known: bool  # whether `before` are all: no step before it may add or remove any
    ends_known: bool  # the same of `after`


def walk(steps: Sequence[Step], columns: Iterable[str], origins: Origins) -> list[Passed]:
    """The columns on the way through steps; `origins` are those of what a run has written."""
    there: ByName = {name: Column(of=frozenset(origins.get(name, ()))) for name in columns}
    places, known = list[Passed](), True
    for step in steps:
        after, known_before = _after(step, there), known
        if _is_unknown(step):
            keeps = isinstance(step.operator, ForeignOperator) and step.operator.found.keeps_columns
            known = known and keeps
        places.append(Passed(step, there, after, known_before, known))
        there = after
    return places


def _is_unknown(step: Step) -> bool:
    return isinstance(step.operator, ForeignOperator) or step.operator.reads() == ALL


def _after(step: Step, before: ByName) -> ByName:
    operator, after, of = step.operator, dict(before), frozenset[str]()
    writes, removed = operator.writes(), () if operator.where else operator.removes()
    if not _is_unknown(step):
        reads = [name for name in operator.needs_of(before) if name in before]
        of = of.union(reads, *(before[name].of for name in reads))
        if "prompt" in writes and "response" in of:
            # The new prompts are about the responses, and so is what was computed of these.
            after, of = {n: each._replace(of=frozenset()) for n, each in after.items()}, frozenset()
        for name in sorted(before.keys() & set(writes)):
            # A response that an operator changes, and does not replace, is still the same one; what
            # says something about it, such as a verdict, is another one then.
            about = name != "response" and "response" in after[name].of
            if name not in reads or about:
                _mark_stale(after, name, step)
    for name in removed:
        after.pop(name, None)
    for name in writes:  # Where the step has a condition, the other rows are as they were.
        old = after.get(name, Column(())) if operator.where else Column(())
        after[name] = Column((*old.writers, step), of | old.of)
    return after


def _mark_stale(columns: dict[str, Column], replaced: str, step: Step) -> None:
    for name, column in columns.items():
        if replaced in column.of and column.stale is None:
            alone = len(column.steps) == 1
            if not (alone and _are_apart(step.operator, column.steps[0].operator)):
                columns[name] = column._replace(stale=(replaced, step))


def _are_apart(one: Operator, other: Operator) -> bool:
    """Whether no row matches the conditions of both."""
    return bool(one.where and other.where and exclude_each_other(one.where, other.where))


def computed_from(
    steps: Sequence[Step], columns: Iterable[str], origins: Origins
) -> dict[str, frozenset[str]]:
    """From which columns each was computed after some steps, as far as is known."""
    places = walk(steps, columns, origins)
    return {name: each.of for name, each in places[-1].after.items() if each.of} if places else {}


# --- What is checked of a recipe and its dataset --------------------------------------


def checked_schema(recipe: Recipe, dataset: Dataset | None = None) -> pa.Schema:
    """The dataset's schema, once paths, columns and first rows are right.

    A dataset that the recipe generates need not be written yet.
    """
    spec = recipe.head.dataset_spec
    check_export_path(recipe.path, recipe.head.export_path, spec)
    if generated := recipe.head.generated_datasets and recipe.head.generated_part():
        path, of_path = generated
        rows = of_path.first_rows(path)
        for name in spec.selection.missing(rows):
            raise not_there(name, rows.column_names, path)
        rows = spec.selection.of(rows, suffix_of(path))
        check_columns(recipe, rows.schema)
        check_replaced(recipe.steps, rows.column_names, path, recipe.where)
        check_first_rows(recipe, rows)
        return rows.schema
    dataset = dataset or recipe.opened()
    schema = dataset.first_rows.schema
    try:
        check_columns(recipe, schema)
    except RecipeError:
        if dataset.schema.equals(schema):
            raise
        schema = dataset.schema
        check_columns(recipe, schema)
    check_replaced(recipe.steps, schema.names, spec, recipe.where)
    try:
        check_first_rows(recipe, dataset.first_rows)
    except DataError:
        if dataset.schema.equals(dataset.first_rows.schema):
            raise
        with suppress(RecipeError):  # Fields of a struct, too, may first turn up further down.
            check_first_rows(recipe, conform(dataset.first_rows, dataset.schema))
    return schema


def check_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Check that ids are texts, and that each step finds what it reads."""
    for name in ("prompt_id", "response_id"):
        kind = schema.field(name).type if name in schema.names else pa.string()
        if not is_text(kind) and not pa.types.is_null(kind):  # Null: a column without a value.
            where = str(recipe.head.dataset_spec)
            raise DataError(f"column '{name}' is {kind}", "make it a string", where=where)
    for at, step in enumerate(recipe.steps):
        theirs = step.operator if isinstance(step.operator, ForeignOperator) else None
        for column, name in theirs.named_entries if theirs else ():
            earlier = (each.operator for each in recipe.steps[:at])
            if not _has(schema, column, name) and not any(
                each.may_write(column, name)
                if isinstance(each, ForeignOperator)
                else column in each.writes()
                for each in earlier
            ):
                what = f"{KINDS[column]} '{name}'" if name else f"a {KINDS[column]}"
                right = f"put a step that writes {what} before it"
                found = f"no step before it writes {what}"
                raise RecipeError(found, right, where=recipe.where(step))
    check_reads(recipe.steps, schema.names, recipe.where)


def _has(schema: pa.Schema, column: str, name: str) -> bool:
    """Whether a dataset may have a statistic or a tag of Data-Juicer's."""
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    # What a JSON text holds is only known when it is read.
    return not name or not pa.types.is_struct(kind) or kind.get_field_index(name) >= 0


def check_reads(steps: Sequence[Step], columns: Iterable[str], where: Position) -> None:
    """Check that each step finds what it reads."""
    answers = set[str]()
    for at, (step, there, _, is_known, _) in enumerate(walk(steps, columns, {})):
        operator = step.operator
        if isinstance(operator, PromptTemplateMapper) and operator.reference is not None:
            answers.update(columns_of([operator.reference], there))
        if not is_known:
            return
        text = operator.text_column if isinstance(operator, ForeignOperator) else None
        # Data-Juicer reads `meta.text` out of column `meta`.
        if text is not None and not {text, text.partition(".")[0]} & there.keys():
            listed = ", ".join(sorted(there))
            right = f"set text_keys, or text_key of the step; there are: {listed}"
            found = f"its text column '{text}' is missing"
            raise RecipeError(found, _writers(text) or right, where=where(step))
        if _is_unknown(step):
            continue
        for name in operator.needs_of(there):
            if name not in there:
                # What a tool reads distinguishes prompts, but it is the tool that needs it.
                reads = next((s for s in steps[at:] if s.operator.reader_of(name)), step)
                reader = reads.operator.reader_of(name)
                by = f", which {reader} reads," if reader else ""
                found = f"column '{shortened(name)}'{by} is missing"
                right = _remedy(name, there)
                maker = operator if isinstance(operator, PromptTemplateMapper) else None
                if maker and f"{{{name}" in f"{maker.question}{maker.system}":
                    right += f"; if it is text, double its braces: {{{{{name}}}}}"
                if name == "verdict" and "pass_rate" in operator.optional_reads().keys() & there:
                    right = "use column_range_filter for a pass rate that was not measured here"
                raise RecipeError(found, right, where=where(reads))
            if name in answers and (reader := operator.reader_of(name)):
                found = f"{reader} reads column '{name}', which has the answer"
                raise RecipeError(found, "let it read another column", where=where(step))
        for name, of in operator.optional_reads().items():
            if name in there and not there[name].steps and of in there and there[of].steps:
                found = f"column '{name}' is the dataset's, and '{of}' was written since"
                right = f"{_remedy(name, there)}, or rename it in the dataset"
                raise RecipeError(found, right, where=where(step))


def check_replaced(
    steps: Sequence[Step],
    columns: Iterable[str],
    dataset: AnyPath | DatasetSpec,
    where: Position,
) -> None:
    """Check that nothing of the user's is replaced, and that nothing is left that was computed of
    what is replaced, such as the verdict of a response that a later step samples anew.

    A step may replace what it reads, and compute again what an earlier step of the same operator or
    the run that made the dataset has written. Steps whose conditions exclude each other may write
    the same column, each in its own rows.
    """
    # Columns that one of Data-Juicer's operators may remove are still followed: few remove any.
    columns, written = list(columns), WrittenByRuns()
    replaced = {*columns}.intersection(chain.from_iterable(s.operator.writes() for s in steps))
    if replaced and DatasetSpec.of(dataset).exists():  # Only then: files are opened for it.
        written = written_of(dataset)
    places = walk(steps, columns, written.origins)
    for step, before, *_ in places:
        own = list[str]()
        for name in step.operator.writes():
            if name in before and name not in step.operator.replaces():
                _check_writers(step, name, before[name], where)
                if None in before[name].writers and name not in written.columns:
                    own.append(name)
        if own:
            them = "it" if len(own) == 1 else "them"
            raise RecipeError(
                f"would replace {named_columns(own)} of the dataset",
                f"rename {them} there, or drop {them} there to have {them} computed again",
                where=where(step),
            )
    _check_current(places, where)


def _check_writers(step: Step, name: str, column: Column, where: Position) -> None:
    """Refuse to replace a column of another operator before it, in a row that both are about."""
    own = step.operator
    for writer in column.steps:
        other = writer.operator
        if other.name() != own.name() and not _are_apart(own, other):
            both = ": a row may match the `where` of both" if other.where and own.where else ""
            raise RecipeError(
                f"would replace column '{name}' of step {writer.number} {writer.name}{both}",
                "give each of them a `where` that excludes the other's, or leave one out",
                where=where(step),
            )


def _check_current(places: Sequence[Passed], where: Position) -> None:
    for step, before, _, is_known, _ in places:
        if is_known and not _is_unknown(step):
            for name in step.operator.needs_of(before):
                if name in before and before[name].stale:
                    raise _stale(name, before, where, f", and {step.name} reads it")
    if places and places[-1].ends_known:
        for name, column in places[-1].after.items():
            if column.stale:
                raise _stale(name, places[-1].after, where)


def _stale(name: str, columns: ByName, where: Position, why: str = "") -> RecipeError:
    column = columns[name]
    assert column.stale is not None  # It is asked of those alone.
    replaced, step = column.stale
    others = sorted(n for n, each in columns.items() if each.stale and n != name)
    also = f" (as are {', '.join(others)})" if others else ""
    writer = "an earlier run"
    right = (
        f"compute it again after this step, or read the dataset without '{replaced}' or without "
        f"'{name}' (`columns`)"
    )
    if column.steps:
        writer = f"step {column.steps[-1].number} {column.steps[-1].name}"
        right = f"put {writer} after this step, too, or leave it out"
    found = f"replaces '{replaced}', of which {writer} computed '{name}'{also}{why}"
    return RecipeError(found, right, where=where(step))


def named_columns(columns: Sequence[str]) -> str:
    """`column 'a'`, or `columns 'a', 'b'`."""
    names = ", ".join(f"'{name}'" for name in columns)
    return f"column{'s' if len(columns) > 1 else ''} {names}"


def group_columns(recipe: Recipe, schema: pa.Schema) -> GroupColumns:
    """Columns of the dataset whose consecutive equal values make a group.

    They are what the step that writes `prompt_id` reads; of several, each with a condition, what
    all of them read, or what each reads if they have nothing in common. Where a step uses the
    dataset's own `prompt_id` before it is overwritten, or where no step writes it, it is that
    column.
    """
    own = ("prompt_id",) if "prompt_id" in schema.names else ()
    found = list[tuple[str, ...]]()
    for step in recipe.steps:
        operator = step.operator
        is_group_step = operator.scope is not Scope.ROW and "prompt_id" in operator.reads()
        if not found and own and is_group_step:
            return own
        if "prompt_id" in operator.writes():
            reads = operator.reads_of(schema.names)
            found.append(tuple(name for name in reads if name in schema.names))
            if not operator.where:
                break
    if len(found) < 2:
        return found[0] if found else own
    # Of fewer columns, more rows are equal: a part of the dataset may end between no two of them.
    shared = tuple(name for name in found[0] if all(name in reads for reads in found[1:]))
    return shared or tuple(found)


# --- What to do about a missing column ------------------------------------------------

_KEPT = "recorded_rollout_mapper with keep_fields: {FIELD: COLUMN} or parallel: {LISTS: COLUMN}"
_BY_OPTION = {
    "verdict": "reward_function_mapper with correct_above",
    "response_token_ids": _KEPT,
    "response_logprobs": _KEPT,
}
"""By column, an operator that writes it only where a field is set."""


def _remedy(missing: str, columns: Iterable[str]) -> str:
    there = sorted(columns)
    return _writers(missing) or suggest(missing, there) or f"there are: {', '.join(there)}"


def _writers(missing: str) -> str:
    """Which operators write a column, as what to do; empty where none does."""
    writers = []
    for name, kind in load_all()[0].items():
        # Only its output columns are asked for, so any value does for a required field.
        required: Any = {f: () for f, info in kind.model_fields.items() if info.is_required()}
        operator = kind.model_construct(**required)
        if missing in operator.writes() and missing not in operator.reads():
            writers.append(name)
    writers += [_BY_OPTION[missing]] if missing in _BY_OPTION else []
    if not writers:
        return ""
    named = " or ".join(filter(None, [", ".join(writers[:-1]), writers[-1]]))
    return f"{named} writes it: put that step before this one"


# --- Whether the first rows have references, or tests, that can be graded against -----
# So a wrong `reference_pattern` is found before anything is sampled.


def lines_about_tests(recipe: Recipe, rows: pa.Table) -> list[str]:
    """Lines about first rows whose tests cannot be read, or checkers are not; a RecipeError if no
    tests can."""
    lines, names = list[str](), set(rows.column_names)
    for step in recipe.steps:
        operator = step.operator
        if not isinstance(operator, UnitTestMapper):
            continue
        for name in () if operator.checker else names & {"generated_checker", "checker"}:
            if rows[name].null_count < len(rows):
                found = f"column '{name}', which may decide what is right to print, is not read"
                lines.append(f"{step.name}: {found}: add checker: {name}")
        if {*operator.needs_of(names)} - names - {"response"}:
            continue  # A step writes the tests.
        from ...operators.sandbox.cases import AssertCase, helpers_of

        at_N = np.flatnonzero(matches(operator.where or {}, rows))[:100]
        n, bad, helpers = 0, list[str](), set[str]()
        try:
            for row, cases in zip(at_N, operator.cases(rows.take(pa.array(at_N))), strict=True):
                n += bool(cases)
                bad += [f"row {row + 1}: {cases}"] if isinstance(cases, ValueError) else []
                if isinstance(cases, tuple) and not operator.prefix:
                    asserts = (each for each in cases if isinstance(each, AssertCase))
                    helpers.update(*map(helpers_of, asserts))
        except DataError as error:
            raise error.at(f"{recipe.head.dataset_spec}, step {step.number} {step.name}") from None
        if helpers:
            found = f"tests call {', '.join(sorted(helpers)[:3])}, which they do not define"
            lines.append(f"{step.name}: {found}: a program must, or the column of `prefix`")
        found = f"bad_tests in {len(bad):,} of the first {n:,} rows that have tests, such as "
        if bad and len(bad) == n:
            right = "name another column or field in `tests`, or take other rows"
            raise RecipeError(f"{found}{bad[0]}", right, where=recipe.where(step))
        lines += [f"{step.name}: {found}{each}." for each in bad[:1]]
    return lines


def check_first_rows(recipe: Recipe, rows: pa.Table) -> None:
    """Check tests, and what the first steps find: references and recorded responses."""
    lines_about_tests(recipe, rows)
    step, path = recipe.steps[0], recipe.head.dataset_spec
    known = (PromptTemplateMapper, RecordedRolloutMapper)  # They leave the columns as they are.
    for each in takewhile(lambda each: isinstance(each.operator, known), recipe.steps):
        if isinstance(each.operator, RecordedRolloutMapper) and not each.operator.where:
            try:
                list(each.operator.lines_about(rows))
            except DataError as error:
                raise error.at(f"{path}, step {each.number} {each.name}") from None
    operator = step.operator
    if not isinstance(operator, PromptTemplateMapper):
        return
    there = rows.column_names
    if operator.reference is None or not set(operator.needs_of(there)) <= set(there):
        return  # There are none, or a column begins further down.
    try:
        if operator.where:
            rows = rows.filter(pa.array(matches(operator.where, rows)))
        references = operator.first_references(rows)
    except DataError as error:
        raise error.at(f"{path}, step {step.number} {step.name}") from None
    if not rows.num_rows:
        return  # Those that the step is about come further down.
    given = list[str | None]()
    for other in recipe.steps:
        own = other.operator
        if isinstance(own, MathVerifyMapper) and not _are_apart(operator, own):
            given += [own.answer_type] if own.answer_type_column is None else []
    found = _problem(operator, references, given)
    if found is not None:
        what = f"of the first {rows.num_rows:,} rows of {path}, {found[0]}"
        raise RecipeError(what, found[1], where=recipe.where(step))


def _problem(
    operator: PromptTemplateMapper, references: Sequence[str], given: Sequence[str | None]
) -> tuple[str, str] | None:
    """What is wrong with references of these types, and what is right; None if some can be used."""
    pattern, column = operator.reference_pattern, operator.reference
    if not references:
        if pattern is None:
            return f"none has a reference in column '{column}'", "name the column in `reference`"
        found = f"none matches reference_pattern {pattern!r} in column '{column}'"
        return found, "change the pattern, or put rows that match it first"
    # Whole numbers can be graded against, which is known without the verifier.
    if not given or (None in given and any(text.isdecimal() for text in references)):
        return None
    from ...operators.verifier import AnswerType, check_reference

    types = [None if each is None else AnswerType(each) for each in given]
    if any(check_reference(text, each) is None for text in references for each in types):
        return None
    first, reason = shown(" ".join(references[0].split())), check_reference(references[0], types[0])
    found = f"none has a reference that can be graded against: {first} ({reason})"
    return found, "let the first group of reference_pattern be the bare answer, as in '#### (.*)'"


# --- Warnings of steps that change a group between sampling and what is computed of it ---
#
#     sampling ──> verdict ──> a step that drops single responses ──> pass rate, advantage
#
# The pass rate of a prompt, and the mean and the deviation of its rewards, estimate what the policy
# gives. Of a group that has lost responses because of what is in them, they estimate something
# else; docs/group-statistics.md has the figures. Operators declare both sides:
# `drops_within_groups` and `estimates`.

_DROPPED = {
    Kind.DEDUPLICATOR: "repeated responses, the policy's likeliest,",
    Kind.SELECTOR: "the responses that it does not choose",
}


def step_warnings(
    recipe: Recipe, columns: Collection[str] = (), *, training: bool = False
) -> list[str]:
    """Lines about what is rarely meant, and about what the first failed call would end."""
    steps, where, theirs = recipe.steps, recipe.where, recipe.for_data_juicer
    lines = setting_warnings(theirs) if theirs and not training else []
    lines += [*weight_warnings(steps, where), *server_warnings(steps, where)]
    for step in steps:
        maker = step.operator if isinstance(step.operator, PromptTemplateMapper) else None
        named = set(columns_in(maker.template)) - {"question"} if maker else set[str]()
        if maker and named & {*columns}:
            right = f"set question: {maker.as_question(maker.template)} in its place"
            lines.append(f"{where(step)}: `template` has columns, which stay text: {right}")
    return lines + group_warnings(recipe, columns, training=training)


def group_warnings(
    recipe: Recipe, columns: Collection[str] = (), *, training: bool = False
) -> list[str]:
    """One line for each step that drops responses by their content before a group is summarised.

    So may the run that made the dataset have done: also a line where its statistics, of `columns`
    as far as they are known, are replaced. In training, dropped rows have no gradient either.
    """
    training = training or recipe.head.train is not None
    steps, places = recipe.steps, walk(recipe.steps, columns, {})
    sampling = [at for at, step in enumerate(steps) if "response" in step.operator.writes()]
    first = sampling[0] if sampling else -1
    # Responses that the dataset has, in whatever columns; all else that is there before sampling is
    # the prompt's.
    stored = {*steps[first].operator.reads()} - SHARED_IN_GROUP if sampling else set[str]()
    later = (name for step in steps[max(first, 0) :] for name in step.operator.writes())
    of_responses = {*stored, *later} if sampling else None
    lines = [] if sampling else _replaced_statistics(recipe, places)
    for at, step in enumerate(steps):
        sampled = at > first or not stored.isdisjoint(step.operator.reads())
        if sampled and _drops_within_groups(step.operator, of_responses):
            affected = [place for place in places[at + 1 :] if _estimates(place)]
            named = {place.step.name: place.step.operator.estimates for place in affected}
            if training and not any("advantage" in each.operator.writes() for each in steps):
                named["the update"] = GrpoAdvantageMapper.estimates
            if named:
                uses = any(place.step.operator.optional_reads() for place in affected)
                lines.append(_group_line(recipe.where(step), step, named, uses, training))
    return lines


def _replaced_statistics(recipe: Recipe, places: Sequence[Passed]) -> list[str]:
    return [
        f"{recipe.where(step)}: replaces pass_rate and group_n of the dataset; if the run that "
        "wrote it dropped single responses, they are then those of the rest, not of the group that "
        "was sampled; read what that run read instead"
        for step, *_ in places
        if isinstance(step.operator, GroupStatsMapper)
        and places[0].before.keys() >= {*step.operator.writes()}
    ][:1]


def _drops_within_groups(operator: Operator, of_responses: set[str] | None) -> bool:
    reads = operator.reads()
    if isinstance(operator, ForeignOperator) and operator.text_column is not None:
        named = (value for value in operator.fields.values() if isinstance(value, str))
        reads = (operator.text_column, *named)
    if operator.scope is Scope.ROW and reads and reads != ALL:
        of_prompt = set[str]() if of_responses is None else {*reads} - of_responses
        if (SHARED_IN_GROUP | of_prompt).issuperset(reads):
            return False  # All responses to a prompt have the same values, so the same fate.
    return operator.drops_within_groups()


def _estimates(place: Passed) -> bool:
    """Whether a step computes something of a group, other than from statistics that are there."""
    statistics = place.step.operator.optional_reads().keys()
    return bool(place.step.operator.estimates) and not (
        statistics and statistics <= place.before.keys()
    )


def _group_line(
    where: str, step: Step, affected: Mapping[str, str], uses: bool, training: bool
) -> str:
    """The warning; `uses`: an affected step would use statistics of the sample, were they there."""
    what = _DROPPED.get(step.operator.kind, "single responses by their content")
    computed = ", ".join(dict.fromkeys(affected.values()))
    line = f"{where}: drops {what} before {' and '.join(affected)}: {computed}"
    line += " are then those of the rest, not of the group that was sampled"
    if training:
        return f"{line}, and what it drops has no gradient; leave it out of training"
    line += f"; put it after {list(affected)[-1]}"
    return f"{line}, or {GroupStatsMapper.name()} before it for the pass rate" if uses else line
