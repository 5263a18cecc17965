"""The graded rows of a stored run, what a second verifier makes of them, and metamorphic checks.

    Stored ──graded_rows──> GradedRows ──rechecked──> recheck_N ──agreement──> Agreement

The first verifier is the recipe's own, by the verdicts on file; the second is math-verify alone, by
`verdict_recheck_mapper`. They share no code, so that where they differ one of them is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Operator
from ...operators.arrow_compute import pc
from ...operators.columns import flat, of_task, right_and_wrong
from ...operators.condition import described
from ...operators.confidence import Interval95, wilson_interval
from ...operators.groups import Array, hash_each, mix, uniform_of
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ..engine.frame import Frame
from ..recipe.steps import Step
from .stored import Stored, StoredSet

_TEXTS = ("response_id", "prompt_id", "response", "reference", "extracted_answer", "verdict")
_READ = (*_TEXTS, "prompt", "task")
ROWS_AT_ONCE = 1_000


class GradedRows(NamedTuple):
    """The answers of a stored run that a verifier has graded right or wrong; axis _N."""

    # `set`, the name of the set; `row`, its place among the set's answers, from 0; `response_id`,
    # `prompt_id`, `response`, `reference`, `extracted_answer` and `verdict` as texts, null where
    # the run has none; and `prompt`, as it is on file
    rows: pa.Table
    verifier: str  # the steps that wrote the verdicts, each with its condition, if it has one
    operators: tuple[Operator, ...]  # theirs; none where the verdicts are the dataset's
    ungraded: int  # answers without a verdict, or that could not be graded; they are not in `rows`

    @property
    def by_math_verify_mapper(self) -> MathVerifyMapper | None:
        """The last verifier that can be run again without asking anybody."""
        again = [each for each in self.operators if isinstance(each, MathVerifyMapper)]
        return again[-1] if again else None


def graded_rows(stored: Stored) -> GradedRows | None:
    """Those of all sets, also those that a later step dropped; None without a verdict."""
    answers = [each for each in stored.sets if each.kind == "answers"]
    tables = [table for each in answers for table in _of_set(each)]
    if not tables:
        return None
    table = pa.concat_tables(tables, promote_options="default")
    right_N, wrong_N = right_and_wrong(table["verdict"])
    steps = verifiers_of(answers[0])
    name = " and ".join(map(_named, steps)) or "the dataset"
    graded_N = right_N | wrong_N
    ungraded = int((~graded_N).sum())
    operators = tuple(step.operator for step in steps)
    return GradedRows(table.filter(pa.array(graded_N)), name, operators, ungraded)


def _named(step: Step) -> str:
    where = step.operator.where
    return f"{step.name} ({described(where)})" if where else step.name


def _of_set(one: StoredSet) -> Iterator[pa.Table]:
    first = 0
    for part in [0] if one.incomplete else range(one.parts):
        found = Frame.of(one.final()) if one.incomplete else as_graded(one, part)
        names = found.column_names
        if "verdict" not in names or "response" not in names:
            continue
        table = found.select([name for name in _READ if name in names])
        if "task" in names:  # Judgements have labels of their own.
            table = table.filter(pa.array(~of_task(table, "verify")))
        n = table.num_rows
        nothing = pa.nulls(n, pa.string())
        texts = {x: table[x].cast(pa.string()) if x in names else nothing for x in _TEXTS}
        prompt = {"prompt": table["prompt"]} if "prompt" in names else {}
        places = {"set": pa.repeat(one.name, n), "row": pa.array(np.arange(first, first + n))}
        yield pa.table({**places, **texts, **prompt})
        first += n


def as_graded(one: StoredSet, part: int) -> Frame:
    """Rows after the last step that wrote verdicts, with what it read; else as sampled."""
    found = one.base(part)
    for each in one.applied(part):
        change = each.result.change
        if "verdict" in change.columns and change.parents is None:
            kept = change._replace(reasons=None) if change.reasons is not None else change
            found = each.before.after(kept)
    return found


def verifiers_of(one: StoredSet) -> list[Step]:
    """The steps that wrote the verdicts of a set; several, where they have conditions."""
    own = [step for step in one.steps if "verdict" in step.operator.writes()]
    writing = own or [step for step in one.recipe.steps if "verdict" in step.operator.writes()]
    # What one writes in all rows takes the place of what others wrote before.
    in_all = [at for at, step in enumerate(writing) if not step.operator.where]
    return writing[in_all[-1] :] if in_all else writing


class Agreement(NamedTuple):
    both: int  # rows on which both decided
    agree: int  # of these, with the same verdict
    interval: Interval95 | None  # of the share that agrees; None where `both` is 0
    to_wrong: int  # right by the first verifier and wrong by the second
    to_right: int  # the reverse
    undecided: int  # the second verifier failed, or what it would need is not there


def rechecked(graded: GradedRows) -> Iterator[list[str | None]]:
    """Yield what math-verify makes of the rows, a thousand after the other.

    None is where there is no answer or no reference, or the answer exceeds the limits of what is
    read as mathematics.
    """
    from ...operators import VerdictRecheckMapper  # The verifier is loaded where it is used.

    own, operator = graded.by_math_verify_mapper, VerdictRecheckMapper()
    table = graded.rows.select([*operator.reads()])
    if own is not None:
        operator = VerdictRecheckMapper(timeout=own.timeout)
    else:  # Other verifiers extract no answer, or not one of mathematics.
        from ...operators.verifier import extract_answer

        answers = [extract_answer(text) if text else None for text in table["response"].to_pylist()]
        at = table.column_names.index("extracted_answer")
        table = table.set_column(at, "extracted_answer", pa.array(answers, pa.string()))
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        piece = table.slice(start, ROWS_AT_ONCE)
        yield flat(operator.apply(piece).columns["recheck"]).to_pylist()


def agreement(graded: GradedRows, recheck_N: Sequence[str | None]) -> Agreement:
    right_N, again_N, decided_N = decisions(graded, recheck_N)
    both = int(decided_N.sum())
    agree = int((decided_N & (right_N == again_N)).sum())
    return Agreement(
        both,
        agree,
        wilson_interval(agree / both, both) if both else None,
        int((decided_N & right_N & ~again_N).sum()),
        int((decided_N & ~right_N & again_N).sum()),
        graded.rows.num_rows - both - int(no_answer(graded).sum()),
    )


def decisions(graded: GradedRows, recheck_N: Sequence[str | None]) -> tuple[Array, Array, Array]:
    """bool[N] each: right by the first verifier, right by the second, and the second decided."""
    right_N, _ = right_and_wrong(graded.rows["verdict"])
    again_N, wrong_N = right_and_wrong(pa.chunked_array([pa.array(recheck_N, pa.string())]))
    return right_N, again_N, again_N | wrong_N


def no_answer(graded: GradedRows) -> Array:
    """bool[N]: the first verifier found no answer, so that there is nothing to compare."""
    return np.asarray(pc.equal(graded.rows["verdict"], "no_answer"))


# --- Metamorphic checks: what must leave a verdict, and what must change it -----------
#     answer, reference ──grade──> verdict
#        │ another way to write the same, or another value
#        └──> answer', reference' ──grade──> must be the same verdict, or must not be right
#
# No label is needed: a verifier that grades `1234` right and `1,234` wrong errs in one of the two,
# whichever. Pairs are the distinct pairs of extracted answer and reference, the answer in a box,
# and graded by the run's own `math_verify_mapper`. A pair fails a check if one of the ways to write
# it does.
#
# Source: T. Y. Chen, S. C. Cheung, S. M. Yiu, Metamorphic testing: a new approach for generating
# next test cases, 1998.

MOST_PAIRS = 5_000
"""Distinct pairs that are checked; of more, a seeded sample."""
KEEP = ("thousands", "LaTeX", "units", "order")
"""Checks that must leave every verdict."""
CHANGE = ("value + 1", "sign", "inverted fraction")
"""Checks after which a right answer must not be right."""
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)")
_FRACTION = re.compile(r"(-?)(?:(\d+)/(\d+)|\\[dt]?frac\{(\d+)\}\{(\d+)\})")
_UNITS = ("cm", "kg", "minutes", "dollars")
_SPACING = re.compile(r"\$|\\[,;:!]|\d,\d{3}(?!\d)")
"""Where a comma or semicolon may separate nothing."""
_MOST_DIGITS = 24


class FailingPair(NamedTuple):
    check: str
    answer: str
    reference: str
    verdict: str
    new_answer: str
    new_reference: str
    new_verdict: str


class CheckedRate(NamedTuple):
    check: str  # of `KEEP` or `CHANGE`
    pairs: int  # distinct pairs to which it applies
    failing: int  # of these
    # Wilson's 95%, of the share that fails; None where there is no pair
    interval: Interval95 | None


class MetamorphicResult(NamedTuple):
    rates: tuple[CheckedRate, ...]  # of `KEEP`, then of `CHANGE`
    failing: tuple[FailingPair, ...]  # pairs, in the order of the checks
    pairs: int  # distinct pairs that were checked, of `distinct`
    distinct: int  # pairs of the run


class _Trial(NamedTuple):
    check: str
    pair: int
    answer: str
    reference: str


def metamorphic_checks(
    graded: GradedRows, operator: MathVerifyMapper, seed: int
) -> MetamorphicResult:
    distinct = _pairs(graded)
    pairs = _chosen(list(distinct), seed)
    verdicts = _graded(pairs, operator)
    decided = {"correct", "wrong_answer", "no_answer"}
    # In a box, an answer may be another one: `\boxed{7`, from a response that was cut off.
    trials = [
        trial
        for at, pair in enumerate(pairs)
        if verdicts[at] in decided and (verdicts[at] == "correct") == distinct[pair]
        for trial in _trials(at, *pair, right=verdicts[at] == "correct")
    ]
    again = _graded([(each.answer, each.reference) for each in trials], operator)
    failing: dict[tuple[str, int], FailingPair] = {}
    applies: dict[str, set[int]] = {check: set() for check in (*KEEP, *CHANGE)}
    for trial, verdict in zip(trials, again, strict=True):
        applies[trial.check].add(trial.pair)
        before = verdicts[trial.pair]
        same = (before == "correct") == (verdict == "correct") and verdict in decided
        if same if trial.check in CHANGE else not same:
            found = FailingPair(
                trial.check, *pairs[trial.pair], before, trial.answer, trial.reference, verdict
            )
            failing.setdefault((trial.check, trial.pair), found)
    order = [*KEEP, *CHANGE]
    failed, rates = Counter(name for name, _ in failing), list[CheckedRate]()
    for check, its in applies.items():
        interval = wilson_interval(failed[check] / len(its), len(its)) if its else None
        rates.append(CheckedRate(check, len(its), failed[check], interval))
    listed = sorted(failing.values(), key=lambda each: order.index(each.check))
    return MetamorphicResult(tuple(rates), tuple(listed), len(pairs), len(distinct))


def _pairs(graded: GradedRows) -> dict[tuple[str, str], bool]:
    """The distinct pairs of answer and reference, and whether they were graded right."""
    names = ("extracted_answer", "reference", "verdict")
    columns = [graded.rows[name].to_pylist() for name in names]
    return {
        (answer, reference): verdict == "correct"
        for answer, reference, verdict in zip(*columns, strict=True)
        if answer is not None and reference is not None
    }


def _chosen(pairs: list[tuple[str, str]], seed: int) -> list[tuple[str, str]]:
    if len(pairs) <= MOST_PAIRS:
        return pairs
    joined = pa.array(["\0".join(pair) for pair in pairs], pa.string())
    uniform = uniform_of(mix(hash_each(joined, seed=seed & 0xFFFFFFFFFFFFFFFF)))
    return [pairs[at] for at in np.sort(np.argsort(uniform, kind="stable")[:MOST_PAIRS])]


def _graded(pairs: Sequence[tuple[str, str]], operator: MathVerifyMapper) -> list[str]:
    from ...operators.verifier import verify_batch

    found = verify_batch(
        [f"\\boxed{{{answer}}}" for answer, _ in pairs],
        [reference for _, reference in pairs],
        answer_types=[operator.given_type()] * len(pairs),
        **operator.conventions(),
    )
    return [each.verdict for each in found]


def _trials(at: int, answer: str, reference: str, *, right: bool) -> Iterator[_Trial]:
    for check, rewrites in _REWRITES.items():
        if check == "order" and "=" in answer + reference:
            continue  # `x = 1, y = 2` names its members, so that `1, 2` has an order.
        for rewrite in rewrites:
            if (text := rewrite(answer)) is not None:
                yield _Trial(check, at, text, reference)
            if (text := rewrite(reference)) is not None:
                yield _Trial(check, at, answer, text)
    if _value(answer) is not None and _value(reference) is not None:
        unit = _UNITS[len(answer + reference) % len(_UNITS)]
        yield _Trial("units", at, f"{answer} {unit}", f"{reference} {unit}")
    if right:
        for check, change in zip(CHANGE, (_plus_one, _negated, _inverted), strict=True):
            if (text := change(answer)) is not None:
                yield _Trial(check, at, text, reference)


def _fraction(text: str) -> tuple[str, int, int] | None:
    """The sign, numerator and denominator of a written fraction."""
    if len(text) > _MOST_DIGITS or not (found := _FRACTION.fullmatch(text)):
        return None
    above, below = (int(each) for each in found.groups()[1:] if each is not None)
    return found[1], above, below


def _value(text: str) -> Fraction | None:
    if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if (parts := _fraction(text)) and parts[2]:
        return Fraction(-parts[1] if parts[0] else parts[1], parts[2])
    return None


def _thousands(text: str) -> str | None:
    """`1234` as `1,234`, and the reverse."""
    if _value(text) is None:
        return None
    if "," in text:
        return text.replace(",", "")
    # `01234` is not how a number is written.
    return f"{int(text):,}" if re.fullmatch(r"-?[1-9]\d{3,}", text) else None


def _other_fraction(text: str) -> str | None:
    r"""`a/b` as `\frac{a}{b}`, and the reverse."""
    if (parts := _fraction(text)) is None:
        return None
    sign, above, below = parts
    return f"{sign}\\frac{{{above}}}{{{below}}}" if "/" in text else f"{sign}{above}/{below}"


def _display_fraction(text: str) -> str | None:
    if "\\dfrac" in text:
        return text.replace("\\dfrac", "\\frac")
    return text.replace("\\frac", "\\dfrac") if "\\frac" in text else None


def _in_dollars(text: str) -> str | None:
    formula = "\\" in text and not re.search(r"\\text|\\\\|\\$", text)
    formula = formula and text.count("{") == text.count("}")
    is_formula = formula or _value(text) is not None
    return f"${text}$" if "$" not in text and is_formula else None


def _sized_parentheses(text: str) -> str | None:
    if "\\\\" in text:  # Escaped twice, or a matrix.
        return None
    if "\\left" in text:
        return text.replace("\\left", "").replace("\\right", "")
    found = re.sub(r"(?<![\\\w])\(([^()]*)\)", r"\\left(\1\\right)", text)
    return found if found != text else None


def _unit_as_text(text: str) -> str | None:
    found = re.sub(r"(?<=\d) ([A-Za-z]{2,12})$", r" \\text{ \1}", text)
    return found if found != text else None


def _reversed_list(text: str) -> str | None:
    """The members of a list or set, the last first; points and intervals have an order."""
    if len(text) > 1_000 or _SPACING.search(text) or not re.search("[,;]", text):
        return None
    from ...operators.verifier.lists import read_collection

    found = read_collection(text)
    if found is None or found.kind not in ("list", "set") or len(set(found.items)) < 2:
        return None
    joined = ", ".join(reversed(found.items))
    return f"\\{{{joined}\\}}" if found.kind == "set" else joined


def _plus_one(text: str) -> str | None:
    value = _value(text)
    return None if value is None else str(value + 1)


def _negated(text: str) -> str | None:
    return str(-value) if (value := _value(text)) else None


def _inverted(text: str) -> str | None:
    value = _value(text) if _fraction(text) else None
    return str(1 / value) if value not in (None, 0, 1, -1) else None


_REWRITES: dict[str, tuple[Callable[[str], str | None], ...]] = {
    "thousands": (_thousands,),
    "LaTeX": (_other_fraction, _display_fraction, _in_dollars, _sized_parentheses, _unit_as_text),
    "order": (_reversed_list,),
}
