"""The graded rows of a stored run, and what a second verifier makes of them.

    Stored ──graded_rows──> GradedRows ──rechecked──> recheck_N ──agreement──> Agreement

The first verifier is the recipe's own, by the verdicts on file; the second is math-verify alone, by
`verdict_recheck_mapper`. They share no code, so that where they differ one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Operator
from ...operators.columns import flat, of_task, right_and_wrong
from ...operators.compute import pc
from ...operators.confidence import Interval95, wilson_interval
from ...operators.groups import Array
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.mapper.verdict_recheck_mapper import VerdictRecheckMapper
from ..engine.frame import Frame
from .stored import Stored, StoredSet

_TEXTS = ("response_id", "prompt_id", "response", "reference", "extracted_answer", "verdict")
_READ = (*_TEXTS, "prompt", "task")
_ROWS_AT_ONCE = 1_000


class GradedRows(NamedTuple):
    """The answers of a stored run that a verifier has graded right or wrong; axis _N.

    Attributes:
        table: `set`, the name of the set; `row`, its place among the set's answers, from 0;
            `response_id`, `prompt_id`, `response`, `reference`, `extracted_answer` and `verdict` as
            texts, null where the run has none; and `prompt`, as it is on file.
        verifier: the step that wrote the verdicts.
        operator: its operator; None where the recipe does not have it.
        ungraded: answers without a verdict, or that could not be graded; they are not in `table`.
    """

    table: pa.Table
    verifier: str
    operator: Operator | None
    ungraded: int

    @property
    def by_math_verify_mapper(self) -> MathVerifyMapper | None:
        """The verifier, where it can be run again without asking anybody."""
        return self.operator if isinstance(self.operator, MathVerifyMapper) else None


def graded_rows(stored: Stored) -> GradedRows | None:
    """The graded answers of all sets; None where no set has a verdict.

    Rows are those that the verifier graded, also where a later step dropped them; where what steps
    did is not on file, those that are left.

    Raises:
        RejuiceError: the files of the run are damaged.

    Example:
        >>> graded_rows(open_stored(Path("curated.parquet"))).table.num_rows
        12
    """
    answers = [each for each in stored.sets if each.kind == "answers"]
    tables = [table for each in answers for table in _of_set(each)]
    if not tables:
        return None
    table = pa.concat_tables(tables, promote_options="default")
    right_N, wrong_N = right_and_wrong(table["verdict"])
    name, operator = verifier_of(answers[0])
    graded_N = right_N | wrong_N
    ungraded = int((~graded_N).sum())
    return GradedRows(table.filter(pa.array(graded_N)), name, operator, ungraded)


def _of_set(one: StoredSet) -> Iterator[pa.Table]:
    """The answers of a set, part by part; nothing where it has no verdicts."""
    first = 0
    for part in [0] if one.incomplete else range(one.parts):
        found = Frame.of(one.final()) if one.incomplete else as_graded(one, part)
        names = found.column_names
        if "verdict" not in names or "response" not in names:
            continue
        table = found.select([name for name in _READ if name in names])
        if "task" in names:  # Judgements have labels of their own.
            table = table.filter(pa.array(~of_task(table, "verify"))).drop_columns(["task"])
        yield _with_places(table, one.name, first)
        first += table.num_rows


def as_graded(one: StoredSet, part: int) -> Frame:
    """Rows after the last step that wrote verdicts, with what it read; else as sampled."""
    found = one.base(part)
    for each in one.applied(part):
        change = each.result.change
        if "verdict" in change.columns and change.parents is None:
            kept = change._replace(reasons=None) if change.reasons is not None else change
            found = each.before.after(kept)
    return found


def _with_places(table: pa.Table, name: str, first: int) -> pa.Table:
    n = table.num_rows
    columns = {
        "set": pa.array([name] * n, pa.string()),
        "row": pa.array(np.arange(first, first + n)),
    }
    for text in _TEXTS:
        there = text in table.column_names
        columns[text] = table[text].cast(pa.string()) if there else pa.nulls(n, pa.string())
    if "prompt" in table.column_names:
        columns["prompt"] = table["prompt"]
    return pa.table(columns)


def verifier_of(one: StoredSet) -> tuple[str, Operator | None]:
    """The step that wrote the verdicts of a set, and its operator."""
    writing = [step for step in one.recipe.steps if "verdict" in step.operator.writes()]
    own = [step for step in one.steps if "verdict" in step.operator.writes()]
    last = (own or writing)[-1:]
    return (last[0].name, last[0].operator) if last else ("the dataset", None)


class Agreement(NamedTuple):
    """How often two verifiers give the same verdict.

    Attributes:
        both: rows on which both decided.
        agree: of these, with the same verdict.
        interval: of the share that agrees; None where `both` is 0.
        to_wrong: right by the first verifier and wrong by the second.
        to_right: the reverse.
        undecided: the second verifier failed, or what it would need is not there.
    """

    both: int
    agree: int
    interval: Interval95 | None
    to_wrong: int
    to_right: int
    undecided: int


def rechecked(graded: GradedRows) -> Iterator[list[str | None]]:
    """What math-verify makes of the rows, a thousand after the other.

    Yields:
        `correct`, `wrong_answer`, `timeout`, `verifier_error` or None for each: None where there is
        no answer or no reference, or the answer exceeds the limits of what is read as mathematics.
    """
    operator = VerdictRecheckMapper()
    table = graded.table.select([*operator.reads()])
    if (own := graded.by_math_verify_mapper) is None:
        # Other verifiers extract no answer, or not one of mathematics.
        table = table.set_column(
            table.column_names.index("extracted_answer"),
            "extracted_answer",
            _extracted(table["response"]),
        )
    else:
        operator = VerdictRecheckMapper(timeout=own.timeout)
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        piece = table.slice(start, _ROWS_AT_ONCE)
        yield flat(operator.apply(piece).columns["recheck"]).to_pylist()


def _extracted(responses: pa.ChunkedArray) -> pa.Array:
    from ...operators.verifier import extract_answer

    found = (extract_answer(each) if each else None for each in responses.to_pylist())
    return pa.array(found, pa.string())


def agreement(graded: GradedRows, recheck_N: Sequence[str | None]) -> Agreement:
    """Compare the verdicts on file with those of the second verifier.

    Args:
        graded: rows.
        recheck_N: of `rechecked`, joined.
    """
    right_N, again_N, decided_N = decisions(graded, recheck_N)
    both = int(decided_N.sum())
    agree = int((decided_N & (right_N == again_N)).sum())
    return Agreement(
        both,
        agree,
        wilson_interval(agree / both, both) if both else None,
        int((decided_N & right_N & ~again_N).sum()),
        int((decided_N & ~right_N & again_N).sum()),
        graded.table.num_rows - both - int(no_answer(graded).sum()),
    )


def decisions(graded: GradedRows, recheck_N: Sequence[str | None]) -> tuple[Array, Array, Array]:
    """bool[N] each: right by the first verifier, right by the second, and the second decided."""
    right_N, _ = right_and_wrong(graded.table["verdict"])
    again_N, wrong_N = right_and_wrong(pa.chunked_array([pa.array(recheck_N, pa.string())]))
    return right_N, again_N, again_N | wrong_N


def no_answer(graded: GradedRows) -> Array:
    """bool[N]: the first verifier found no answer, so that there is nothing to compare."""
    return np.asarray(pc.equal(graded.table["verdict"], "no_answer"))
