"""Whether a recipe fits its dataset: the first rows are tried, and columns followed to the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ...operators import ALL, DataError, Kind, Operator, RecipeError, Scope
from ...operators.columns import SHARED_IN_GROUP, columns_of
from ...operators.condition import Where, exclude_each_other, matches
from ...operators.errors import suggest
from ...operators.mapper.group_stats_mapper import GroupStatsMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.mapper.prompt_template_mapper import PromptTemplateMapper
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.registry import load_all
from ..data_juicer.steps import ForeignOperator
from ..dataset.files import suffix_of
from ..dataset.parquet import GroupColumns
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath
from ..dataset.schemas import conform, is_text
from ..dataset.spec import DatasetSpec, not_there
from ..dataset.write import KINDS, WrittenByRuns, check_export_path, written_of
from .recipe import Recipe
from .steps import Step

# --- Whether the first rows have references, and such that can be graded against -----
#
# So a wrong `reference_pattern` is found before anything is sampled.

_SHOWN = 40


def check_first_rows(recipe: Recipe, rows: pa.Table) -> None:
    """Find the references of the first rows, where the recipe begins with `prompt_template_mapper`.

    Raises:
        DataError: a row has no reference, and the step does not drop such rows.
        RecipeError: no row has one, or the verifier can use none.
    """
    step, path = recipe.steps[0], recipe.head.dataset_spec
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
    verifiers = (s.operator for s in recipe.steps if isinstance(s.operator, MathVerifyMapper))
    together = [each for each in verifiers if not exclude_each_other(operator.where, each.where)]
    found = _problem(operator, references, together)
    if found is not None:
        what, right = found
        what = f"of the first {rows.num_rows:,} rows of {path}, {what}"
        raise RecipeError(what, right, where=recipe.where(step))


def _problem(
    operator: PromptTemplateMapper,
    references: Sequence[str],
    verifiers: Sequence[MathVerifyMapper],
) -> tuple[str, str] | None:
    """What is wrong with the references, and what would be right; None if some can be used."""
    pattern, column = operator.reference_pattern, operator.reference
    if not references:
        if pattern is None:
            return f"none has a reference in column '{column}'", "name the column in `reference`"
        found = f"none matches reference_pattern {pattern!r} in column '{column}'"
        return found, "change the pattern, or put rows that match it first"
    given = [each.answer_type for each in verifiers if each.answer_type_column is None]
    # Whole numbers can be graded against, which is known without the verifier.
    if not given or (None in given and any(text.isdecimal() for text in references)):
        return None
    from ...operators.verifier import AnswerType, check_reference

    types = [each and AnswerType(each) for each in given]
    if any(check_reference(text, each) is None for text in references for each in types):
        return None
    first = " ".join(references[0].split())
    shown = first if len(first) <= _SHOWN else f"{first[:_SHOWN]}..."
    reason = check_reference(references[0], types[0])
    found = f"none has a reference that can be graded against: {shown!r} ({reason})"
    if pattern is None:
        return found, "take the answer out of it by reference_pattern, such as '#### (.*)'"
    if re.compile(pattern).groups:
        return found, "let the first group of reference_pattern be the bare answer"
    return found, "put the answer into a group of reference_pattern, as in '#### (.*)'"


# --- Helper columns -------------------------------------------------------------------
# Whether the statistics and tags that steps of Data-Juicer's name are there when they run.


def check_helper_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Check that each statistic or tag that a step names may be there.

    Raises:
        RecipeError: one is neither in the dataset, nor does an earlier step write it.
    """
    for at, step in enumerate(recipe.steps):
        if not isinstance(step.operator, ForeignOperator):
            continue
        for column, name in step.operator.named_entries:
            kind = KINDS[column]
            if not _is_in(schema, column, name) and not _is_written(
                recipe.steps[:at], column, name
            ):
                what = f"{kind} '{name}'" if name else f"a {kind}"
                raise RecipeError(
                    f"no step before it writes {what}",
                    f"put a step that writes {what} before it",
                    where=recipe.where(step),
                )


def _is_in(schema: pa.Schema, column: str, name: str) -> bool:
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    # What a JSON text holds is only known when it is read.
    return not name or not pa.types.is_struct(kind) or kind.get_field_index(name) >= 0


def _is_written(steps: Sequence[Step], column: str, name: str) -> bool:
    return any(
        step.operator.may_write(column, name)
        if isinstance(step.operator, ForeignOperator)
        else column in step.operator.writes()
        for step in steps
    )


# --- Computed from --------------------------------------------------------------------
# From which columns each column was computed: what is computed of a response that is sampled anew
# is no longer true.

Origins = Mapping[str, Collection[str]]
"""By column, the columns from which it was computed, directly or by way of others."""


class _Followed:
    """The columns of rows while they go through steps.

    Args:
        columns: of the dataset.
        origins: of those that a run has written.
    """

    def __init__(self, columns: Iterable[str], origins: Origins) -> None:
        self.there = set(columns)
        self.origins = {name: frozenset(of) for name, of in origins.items()}
        self.stale = dict[str, tuple[str, Step]]()  # with what was replaced, and by which step
        # of columns that a step has written, its condition; None: all rows, or several steps
        self.conditions = dict[str, Where | None]()

    def apply(self, step: Step) -> None:
        """Follow the columns through a step."""
        operator = step.operator
        reads = [name for name in operator.needs_of(self.there) if name in self.there]
        writes, removed = frozenset(operator.writes()), frozenset(operator.removes_of_all())
        of = frozenset(reads).union(*(self.origins.get(name, ()) for name in reads))
        if "prompt" in writes and "response" in of:
            # The new prompts are about the responses, and so is what was computed of these.
            self.origins.clear()
            of = frozenset()
        for name in sorted(writes & self.there):
            # A response that an operator changes, and does not replace, is still the same one; what
            # says something about it, such as a verdict, is another one then.
            about = name != "response" and "response" in self.origins.get(name, ())
            if name in reads and not about:
                continue
            for other, its in self.origins.items():
                # Computed in rows that this step is not about, it is as current as before.
                apart = exclude_each_other(operator.where, self.conditions.get(other))
                is_left = other not in writes | removed and other in self.there
                if name in its and is_left and not apart:
                    self.stale.setdefault(other, (name, step))
        before = {name: self.origins.get(name, frozenset()) for name in writes}
        for name in removed | writes:
            self.origins.pop(name, None)
            self.stale.pop(name, None)
        for name in operator.writes():  # In the other rows, it is what it was.
            self.origins[name] = of | before[name] if operator.where else of
            self.conditions[name] = None if name in self.conditions else operator.where
        self.there = (self.there - removed) | writes


def check_current(
    steps: Sequence[Step],
    columns: Iterable[str],
    origins: Origins,
    where: Callable[[Step], str],
) -> None:
    """Check that no column is left of something that a later step has replaced.

    Raises:
        RecipeError: a verdict, say, is of a response that a later step samples anew.
    """
    followed = _Followed(columns, origins)
    for at, step in enumerate(steps):
        if _is_unknown(step):
            if isinstance(step.operator, ForeignOperator) and step.operator.keeps_columns:
                continue
            return  # What it adds and removes is only known once it has run.
        for name in step.operator.needs_of(followed.there):
            if name in followed.stale:
                raise _error(name, followed.stale, steps[:at], where, f", and {step.name} reads it")
        followed.apply(step)
    for name in followed.stale:
        raise _error(name, followed.stale, steps, where, "")


def _error(
    name: str,
    stale: Mapping[str, tuple[str, Step]],
    before: Sequence[Step],
    where: Callable[[Step], str],
    why: str,
) -> RecipeError:
    replaced, step = stale[name]
    writers = [s for s in before if name in s.operator.writes() and s.number < step.number]
    others = sorted(stale.keys() - {name})
    also = f" (as are {', '.join(others)})" if others else ""
    if replaced in step.operator.reads():
        keep = f"write another column than '{replaced}'"
    elif writers:
        without = f"read its export without '{replaced}' (`columns`)"
        keep = f"run the steps before this one as a recipe of their own, and {without}"
    else:
        keep = f"read the dataset without '{replaced}' (`columns`)"
    if writers:
        writer = f"step {writers[-1].number} {writers[-1].name}"
        right = f"put {writer} after this step, too, or leave it out"
    else:
        writer = "the run that made the dataset"
        right = f"let a step after this one compute {name} again, or leave it out of the dataset"
    return RecipeError(
        f"replaces '{replaced}', of which {writer} computed '{name}'{also}{why}: "
        "it would stay as it was",
        f"{right}; to keep it as it is, {keep}",
        where=where(step),
    )


def computed_from(
    steps: Sequence[Step], columns: Iterable[str], origins: Origins
) -> dict[str, frozenset[str]]:
    """From which columns each column was computed after some steps, as far as is known."""
    followed = _Followed(columns, origins)
    for step in steps:
        if not _is_unknown(step):
            followed.apply(step)
    return followed.origins


def _is_unknown(step: Step) -> bool:
    return isinstance(step.operator, ForeignOperator) or step.operator.reads() == ALL


# --- The columns that steps read and write, followed from the dataset to the end -----


def checked_schema(recipe: Recipe, dataset: Dataset | None = None) -> pa.Schema:
    """Return the dataset's schema, once paths, columns and first rows are right.

    A dataset that the recipe generates need not be written yet.

    Raises:
        RejuiceError: the dataset cannot be read, the export would harm it, a step reads a column
            that is not there or would replace one that it does not read, or no prompts can be made
            of the first rows.
    """
    spec = recipe.head.dataset_spec
    check_export_path(recipe.path, recipe.head.export_path, spec)
    generated = recipe.head.generated_part()
    if generated is not None:
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
    schema = dataset.first_schema
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
        if dataset.schema.equals(dataset.first_schema):
            raise
        with suppress(RecipeError):  # Fields of a struct, too, may first turn up further down.
            check_first_rows(recipe, conform(dataset.first_rows, dataset.schema))
    return schema


def check_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Follow the columns through the recipe before anything is run.

    Raises:
        RecipeError: a step reads a column that neither the dataset nor an earlier step has, or a
            statistic of the dataset's of what an earlier step has written anew; or as
            `check_helper_columns`.
        DataError: an id is not a text.
    """
    for name in ("prompt_id", "response_id"):
        if name in schema.names and not _may_be_text(schema.field(name).type):
            found = f"column '{name}' is {schema.field(name).type}"
            raise DataError(found, "make it a string", where=str(recipe.head.dataset_spec))
    check_helper_columns(recipe, schema)
    check_reads(recipe.steps, schema.names, recipe.where)


def check_reads(
    steps: Sequence[Step], columns: Iterable[str], where: Callable[[Step], str]
) -> None:
    """Follow the columns, so that each step finds what it reads.

    Raises:
        RecipeError: neither `columns` nor an earlier step has what a step reads, they have a
            statistic of what an earlier step has written anew, or a tool reads the answer.
    """
    columns, written, answers = set(columns), set[str](), set[str]()
    for at, step in enumerate(steps):
        operator = step.operator
        if isinstance(operator, PromptTemplateMapper) and operator.reference is not None:
            answers.update(columns_of([operator.reference], columns))
        if isinstance(operator, ForeignOperator):
            _check_text(step, operator.text_column, columns, where)
            if operator.keeps_columns:
                continue
        if operator.reads() == ALL:
            return  # What it adds and removes is only known once it has run.
        for name in operator.needs_of(columns):
            if name not in columns:
                # What a tool reads distinguishes prompts, but it is the tool that needs it.
                reads = next((s for s in steps[at:] if s.operator.reader_of(name)), step)
                reader = reads.operator.reader_of(name)
                found = f"column '{name}'{f', which {reader} reads,' if reader else ''} is missing"
                remedy = _kept_remedy(name, steps[:at]) or _remedy(name, columns)
                raise RecipeError(found, remedy, where=where(reads))
            if name in answers and operator.reader_of(name):
                raise RecipeError(
                    f"{operator.reader_of(name)} reads column '{name}', which has the answer",
                    "let it read another column",
                    where=where(step),
                )
        for statistic, of in operator.optional_reads().items():
            if statistic in columns - written and of in written:
                raise RecipeError(
                    f"column '{statistic}' is the dataset's, and '{of}' was written since",
                    f"{_remedy(statistic, columns)}, or rename it in the dataset",
                    where=where(step),
                )
        columns.difference_update(operator.removes_of_all())
        columns.update(operator.writes())
        written.update(operator.writes())


def _check_text(
    step: Step, text: str | None, columns: set[str], where: Callable[[Step], str]
) -> None:
    """Refuse a step of Data-Juicer's whose text column is nowhere before it."""
    # Data-Juicer reads `meta.text` out of column `meta`.
    if text is None or not columns.isdisjoint({text, text.partition(".")[0]}):
        return
    there = ", ".join(sorted(columns))
    remedy = _writers(text) or f"set text_keys, or text_key of the step; there are: {there}"
    raise RecipeError(f"its text column '{text}' is missing", remedy, where=where(step))


def check_replaced(
    steps: Sequence[Step],
    columns: Iterable[str],
    dataset: AnyPath | DatasetSpec,
    where: Callable[[Step], str],
) -> None:
    """Follow who wrote each column, so that nothing of the user's is replaced, and nothing is left
    that was computed of what is replaced.

    A step may replace what it reads, and compute again what an earlier step of the same operator or
    the run that made the dataset has written. Steps whose conditions exclude each other may write
    the same column, each in its own rows.

    Raises:
        RecipeError: a step would replace another column, or what another one was computed from.
    """
    # Columns that one of Data-Juicer's operators may remove are still followed: few remove any.
    columns, written = list(columns), None
    writers: dict[str, tuple[Step | None, ...]] = dict.fromkeys(columns, (None,))
    for step in steps:
        operator = step.operator
        known = [name for name in operator.writes() if name in writers]
        taken = [name for name in known if name not in operator.replaces()]
        _check_of_steps(step, {name: writers[name] for name in taken}, where)
        of_dataset = [name for name in known if None in writers[name]]
        if of_dataset:
            if written is None:  # Only now, and once: files are opened for it.
                there = DatasetSpec.of(dataset).exists()
                written = written_of(dataset) if there else WrittenByRuns()
            may_be_replaced = written.columns.union(operator.replaces())
            of_dataset = [name for name in of_dataset if name not in may_be_replaced]
        if of_dataset:
            them = "it" if len(of_dataset) == 1 else "them"
            raise RecipeError(
                f"would replace {_named(of_dataset)} of the dataset",
                f"rename {them} there, or drop {them} there to have {them} computed again",
                where=where(step),
            )
        for name in operator.removes_of_all():
            writers.pop(name, None)
        for name in operator.writes():
            writers[name] = (*(writers.get(name, ()) if operator.where else ()), step)
    check_current(steps, columns, written.origins if written else {}, where)


def _check_of_steps(
    step: Step, writers: Mapping[str, Sequence[Step | None]], where: Callable[[Step], str]
) -> None:
    """Refuse to replace a column of another operator before it, in a row that both are about."""
    operator = step.operator
    for name, of_column in writers.items():
        for writer in of_column:
            if writer is None or writer.operator.name() == operator.name():
                continue
            if not exclude_each_other(writer.operator.where, operator.where):
                found = f"would replace {_named([name])} of step {writer.number} {writer.name}"
                right = "give each of them a `where`, so that no row is for both"
                if writer.operator.where and operator.where:
                    found += ": a row may match the `where` of both"
                    right = "change them so that no row can"
                right = f"{right}, or leave one of the two steps out"
                raise RecipeError(found, right, where=where(step))


def _named(columns: Sequence[str]) -> str:
    """`column 'a'`, or `columns 'a', 'b'`."""
    names = ", ".join(f"'{name}'" for name in columns)
    return f"column{'s' if len(columns) > 1 else ''} {names}"


def group_columns(recipe: Recipe, schema: pa.Schema) -> GroupColumns:
    """Return columns of the dataset whose consecutive equal values make a group.

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
    if not found:
        return own
    # Of fewer columns, more rows are equal: a part of the dataset may end between no two of them.
    shared = tuple(name for name in found[0] if all(name in reads for reads in found[1:]))
    return shared or (found[0] if len(found) == 1 else tuple(found))


def _may_be_text(kind: pa.DataType) -> bool:
    """Return a column without a single value has type null."""
    return is_text(kind) or bool(pa.types.is_null(kind))


_TOKEN_IDS, _LOGPROBS = "response_token_ids", "response_logprobs"


def _kept_remedy(missing: str, before: Sequence[Step]) -> str:
    """Return how recorded responses keep a column that sampling writes; empty: it is not that."""
    recorded = any(isinstance(step.operator, RecordedRolloutMapper) for step in before)
    if not recorded or missing not in (_TOKEN_IDS, _LOGPROBS):
        return ""
    return (
        f"let {RecordedRolloutMapper.name()} keep it: keep_fields: {{FIELD: {missing}}} where "
        f"responses are structs, or parallel: {{COLUMN: {missing}}} of lists beside them"
    )


def _remedy(missing: str, columns: set[str]) -> str:
    """Return what to do about a missing column."""
    return (
        _writers(missing) or suggest(missing, columns) or f"there are: {', '.join(sorted(columns))}"
    )


_BY_OPTION = {"verdict": "reward_function_mapper with correct_above"}
"""By column, an operator that writes it only where a field is set."""


def _writers(missing: str) -> str:
    """Return which operators write a column, as what to do; empty where none does."""
    writers = []
    for name, kind in load_all()[0].items():
        # Only its output columns are asked for, so any value does for a required field.
        required: Any = {f: () for f, info in kind.model_fields.items() if info.is_required()}
        operator = kind.model_construct(**required)
        if missing in operator.writes() and missing not in operator.reads():
            writers.append(name)
    if missing in _BY_OPTION:
        writers.append(_BY_OPTION[missing])
    if not writers:
        return ""
    *others, last = writers
    named = f"{', '.join(others)} or {last}" if others else last
    return f"{named} writes it: put that step before this one"


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
_TRAINING = "the update"


def group_warnings(
    recipe: Recipe, columns: Collection[str] = (), *, training: bool = False
) -> list[str]:
    """One line for each step that drops responses by their content before a group is summarised.

    So may the run that made the dataset have done: also a line where its statistics are replaced.

    Args:
        recipe: the recipe.
        columns: those of its dataset, as far as they are known.
        training: whether it is about to be trained with; a recipe with a `train:` section always
            counts as one for training, in which dropped rows have no gradient either.
    """
    training = training or recipe.head.train is not None
    steps, known = recipe.steps, set(columns)
    sampling = [at for at, step in enumerate(steps) if "response" in step.operator.writes()]
    first = sampling[0] if sampling else -1
    # Responses that the dataset has, in whatever columns; all else that is there before sampling is
    # the prompt's.
    stored = {*steps[first].operator.reads()} - SHARED_IN_GROUP if sampling else set[str]()
    later = (name for step in steps[max(first, 0) :] for name in step.operator.writes())
    of_responses = {*stored, *later}
    lines = [] if sampling else _replaced_statistics(recipe, known)
    for at, step in enumerate(steps):
        sampled = at > first or not stored.isdisjoint(step.operator.reads())
        if sampled and _drops_within_groups(step.operator, bool(sampling), of_responses):
            affected = dict(_affected(steps[at + 1 :], known))
            if training and not any("advantage" in each.operator.writes() for each in steps):
                affected[_TRAINING] = GrpoAdvantageMapper.estimates
            if affected:
                uses = any(s.name in affected and s.operator.optional_reads() for s in steps)
                lines.append(_line(recipe, step, affected, uses, training))
        known.update(step.operator.writes())
    return lines


def _replaced_statistics(recipe: Recipe, columns: set[str]) -> list[str]:
    """Return a line for the step that computes statistics again which the dataset has already."""
    steps = (step for step in recipe.steps if isinstance(step.operator, GroupStatsMapper))
    return [
        f"{recipe.where(step)}: replaces pass_rate and group_n of the dataset; if the run that "
        "wrote it dropped single responses, they are then those of the rest, not of the group that "
        "was sampled; read what that run read instead"
        for step in steps
        if columns.issuperset(step.operator.writes())
    ][:1]


def _drops_within_groups(operator: Operator, samples: bool, of_responses: set[str]) -> bool:
    """Return whether a step may drop some responses to a prompt and keep others."""
    reads = operator.reads()
    if isinstance(operator, ForeignOperator) and operator.text_column is not None:
        named = (value for value in (operator.model_extra or {}).values() if isinstance(value, str))
        reads = (operator.text_column, *named)
    if operator.scope is Scope.ROW and reads and reads != ALL:
        shared = SHARED_IN_GROUP | ({*reads} - of_responses if samples else set())
        if shared.issuperset(reads):
            return False  # All responses to a prompt have the same values, so the same fate.
    return operator.drops_within_groups()


def _affected(later: tuple[Step, ...], known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the later steps that compute something of a group, and what."""
    known = set(known)
    for step in later:
        statistics = step.operator.optional_reads()
        if step.operator.estimates and not (statistics and known.issuperset(statistics)):
            yield step.name, step.operator.estimates
        known.update(step.operator.writes())


def _line(recipe: Recipe, step: Step, affected: dict[str, str], uses: bool, training: bool) -> str:
    """The warning; `uses`: an affected step would use statistics of the sample, were they there."""
    what = _DROPPED.get(step.operator.kind, "single responses by their content")
    computed = ", ".join(dict.fromkeys(affected.values()))
    line = f"{recipe.where(step)}: drops {what} before {' and '.join(affected)}: {computed}"
    line += " are then those of the rest, not of the group that was sampled"
    if training:
        return f"{line}, and what it drops has no gradient; leave it out of training"
    line += f"; put it after {list(affected)[-1]}"
    return f"{line}, or {GroupStatsMapper.name()} before it for the pass rate" if uses else line
