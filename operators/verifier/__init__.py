"""Whether a response's final answer equals the reference: exact first, symbolic if needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat

from ..columns import alternatives, listed_answers
from ..logs import logger
from ..workers import usable_cores
from .answer import extract_answer
from .answer_types import Conventions
from .fractions_and_decimals import read_number, refusal
from .lists import as_tuple
from .notation import with_point
from .pool import FAILURES, GradingOutcome, Slug, Verdict, shared_pool
from .structure import exactly, is_missing
from .typed import COMPUTED, MEASURED, AnswerType, grade, takes, type_of, whole_expression
from .worked_out import is_worked_out, last_value
from .worker import Rule

__all__ = [
    "FAILURES",
    "AnswerType",
    "Slug",
    "Verdict",
    "check_reference",
    "check_references",
    "extract_answer",
    "verify",
    "verify_batch",
]

_log = logger(__name__)
_DECORATION = re.compile(r"\A[-=_]{3,}\s*\n|\A<<|>>\Z|[\U0001f300-\U0001faff✅✓✔⭐✨]")
_LETTER = re.compile(r"\W*([A-Ja-j])\W*")
_PHRASE = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\b|:)", re.IGNORECASE)


def verify(
    response: str | None,
    reference: str | None,
    *,
    answer_type: AnswerType | None = None,
    timeout: float = 5.0,
    worked_out: bool = True,
    tolerance: float | None = None,
    ordered_lists: bool = False,
) -> Verdict:
    r"""Return the verdict about one response.

    `response` is the whole text of a policy, or a bare answer; `reference` is the bare
    reference answer, such as `18` or `\frac{1}{2}`, never a worked solution. `timeout` is
    in seconds of processor time and applies to the symbolic tier; the exact tier takes
    microseconds. The other arguments are those of `verify_batch`.

    >>> verify("18 - 6 = 12, so the answer is 12.", "12")
    Verdict(verdict='correct', answer='12')
    """
    return verify_batch(
        [response],
        [reference],
        answer_types=[answer_type],
        timeout=timeout,
        workers=1,
        worked_out=worked_out,
        tolerance=tolerance,
        ordered_lists=ordered_lists,
    )[0]


def verify_batch(
    responses: Sequence[str | None],
    references: Sequence[str | None],
    *,
    answer_types: Sequence[AnswerType | None] | None = None,
    timeout: float = 5.0,
    workers: int | None = None,
    worked_out: bool = True,
    tolerance: float | None = None,
    ordered_lists: bool = False,
) -> list[Verdict]:
    """Return the verdicts about many responses, in order.

    A reference may be several right answers (`columns.alternatives`). The exact tier runs in
    this process; undecided pairs are spread over `workers` processes (default: one per usable
    core), equal pairs once per call. A null reference, and one that its type does not take, is a
    `verifier_error` for its own pair only.

    Args:
        answer_types: of each reference; None where it shows its type by itself.
        worked_out: whether an equal value is not enough: a numeral asks for a numeral.
        tolerance: of a number or amount, relative to the reference: 0.01 is 1%. With it, a
            reference `12.5 ± 0.5` is a range.
        ordered_lists: whether a list has an order.

    Raises:
        TypeError: a response or reference is neither text nor None, or not in a sequence.
        ValueError: the sequences differ in length, or a limit is not positive.
        rejuice.operators.verifier.pool.WorkerPoolError: no process could be started.
    """
    _check_text("responses", responses)
    _check_text("references", references)
    if len(responses) != len(references):
        raise ValueError(f"{len(responses)} responses but {len(references)} references")
    if timeout <= 0 or (workers is not None and workers < 1):
        raise ValueError(f"timeout and workers must be positive, got {timeout} and {workers}")
    several = [_each(*pair, ordered_lists) for pair in _typed(references, answer_types)]
    sizes = list(map(len, several))
    flat = list(chain.from_iterable(several))
    repeated = list(chain.from_iterable(map(repeat, responses, sizes)))
    conventions = Conventions(worked_out, tolerance, ordered_lists)
    verdicts = _verdicts(repeated, flat, timeout, workers, conventions)
    if len(flat) == len(references):
        return verdicts
    ends = accumulate(sizes)
    parts = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    pairs = zip(references, parts, strict=True)
    return [_best(reference, verdicts[part]) for reference, part in pairs]


_Typed = tuple[str | None, AnswerType | None]  # a reference, and the type that it is given


def _typed(
    references: Sequence[str | None], types: Sequence[AnswerType | None] | None
) -> Iterator[_Typed]:
    if types is not None and len(types) != len(references):
        raise ValueError(f"{len(references)} references but {len(types)} types of them")
    return zip(references, types or repeat(None, len(references)), strict=True)


@lru_cache(maxsize=1024)  # the responses of a group have one reference
def _each(
    reference: str | None, given: AnswerType | None, ordered: bool = False
) -> Sequence[_Typed]:
    """The answers each of which is right, without those that nothing can be graded against."""
    if reference is None or given in (AnswerType.TEXT, AnswerType.JSON):
        return [(reference, given)]
    if given is AnswerType.LIST:
        whole = ", ".join(listed_answers(reference) or [reference])
        own = type_of(whole)
        computed = (as_tuple(whole) if ordered else whole, own)
        return [computed, (whole, given)] if own in COMPUTED else [(whole, given)]
    several = alternatives(reference)
    if len(several) > 1:
        if type_of(reference) in (AnswerType.JSON, AnswerType.LIST):
            several = [*several, reference]  # The list itself is right, too.
        several = [each for each in several if check_reference(each, given) is None] or several[:1]
    is_ordered = ordered and (given or type_of(reference)) in COMPUTED
    return [(as_tuple(each) if is_ordered else each, given) for each in several]


def _best(reference: str | None, verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict by several right answers: right by one, else unknown by one, else wrong.

    Of the letter and the numbers of an option, `["B", "7"]`, another letter decides, unless it
    belongs to a number, as in `7 A`.
    """
    letter = _LETTER.fullmatch(verdicts[0].answer or "")
    given = listed_answers(reference or "") if letter else None
    is_option = given and (len(given) == 2 or given[-1].isdecimal())  # Its label may be a number.
    if letter and given and is_option and re.fullmatch("[A-J]", given[0]):
        own, numbers = re.compile(rf"\b{letter[1]}\b"), (*COMPUTED, *MEASURED)
        pairs = zip(given, verdicts, strict=False)  # The last may be about the list itself.
        verdicts = [v for a, v in pairs if type_of(a) not in numbers or own.search(v.answer or "")]
    for wanted in (("correct",), FAILURES):
        for verdict in verdicts:
            if verdict.verdict in wanted:
                return verdict
    return verdicts[0]


def _verdicts(
    responses: Sequence[str | None],
    references: Sequence[_Typed],
    timeout: float,
    workers: int | None,
    conventions: Conventions,
) -> list[Verdict]:
    verdicts = list[Verdict]()
    undecided = dict[tuple[str, str], list[int]]()
    for response, (reference, given) in zip(responses, references, strict=True):
        slug, answer = _at_once(response, reference, given, conventions)
        if slug is None and answer is not None and reference is not None:
            undecided.setdefault((answer, reference), []).append(len(verdicts))
        verdicts.append(Verdict(slug or "wrong_answer", answer))
    if undecided:
        _decide(undecided, verdicts, timeout, workers)
    return verdicts


def _at_once(
    response: str | None, reference: str | None, given: AnswerType | None, conventions: Conventions
) -> tuple[Slug | None, str | None]:
    """The slug as far as no process is needed for it; and the answer."""
    if reference is None or (given and not takes(given, reference)):
        return "verifier_error", extract_answer(response) if response else None
    if not response:
        return "no_answer", None
    kind = given or type_of(reference)
    if kind not in COMPUTED and (given or not is_missing(reference)):
        right, answer = grade(response, reference, kind, conventions)
        if right is not None or kind not in MEASURED:
            slug: Slug = "no_answer" if right is None else "correct" if right else "wrong_answer"
            return slug, answer
    answer = extract_answer(response)
    if answer and answer.isdecimal() and reference.isdecimal() and not conventions.tolerance:
        equal = exactly(answer, reference)
        return None if equal is None else "correct" if equal else "wrong_answer", answer
    answer = answer and (_DECORATION.sub("", answer).strip() or answer)
    equal = _compared(answer, reference, response, conventions) if answer else False
    whole = None if equal or kind is not AnswerType.EXPRESSION else whole_expression(response)
    if whole:
        found = _compared(whole, reference, response, conventions)
        if found or not answer or (found is None and (equal is False or "=" not in whole)):
            answer, equal = whole, found
    if not answer:
        return "no_answer", None
    if equal is None:
        return None, as_tuple(answer) if conventions.ordered_lists else answer
    return ("correct" if equal else "wrong_answer"), answer


def _compared(answer: str, reference: str, response: str, conventions: Conventions) -> bool | None:
    """Whether a number or formula equals the reference; None where only a process can tell."""
    if answer != reference and conventions.worked_out and not is_worked_out(answer, reference):
        return False
    equal = exactly(as_tuple(answer) if conventions.ordered_lists else answer, reference)
    if not equal and conventions.tolerance and _is_near(answer, reference, conventions):
        return True
    return equal if equal is not False else _is_equal_with_point(answer, reference, response)


def _is_near(answer: str, reference: str, conventions: Conventions) -> bool:
    """Whether a number is near that of the reference, or in its range `12.5 ± 0.5`."""
    center, *range_ = re.split(r"±|\\pm(?![a-zA-Z])", reference)
    found = read_number(last_value(answer))
    wanted, *more = map(read_number, (center, *range_))
    if not found or not wanted or not all(more) or len(more) > 1:
        return False
    away = abs(found.value - wanted.value)
    return conventions.is_near(found.value, wanted.value) or any(
        each is not None and away <= each.value for each in more
    )


def _is_equal_with_point(answer: str, reference: str, response: str) -> bool:
    """Whether they are equal if a comma in them is a decimal one, as it may be in the response."""
    if not ("," in answer or "." in answer or "," in reference or "." in reference):
        return False
    ours, theirs = with_point(answer, response), with_point(reference, response)
    if ours is None and theirs is None:
        return False
    pairs = {(a or answer, b or reference) for a in (ours, None) for b in (theirs, None)}
    return any(exactly(*pair) for pair in pairs - {(answer, reference)})


def _check_text(name: str, texts: Sequence[str | None]) -> None:
    if isinstance(texts, str):
        raise TypeError(f"{name} is one str, not a sequence of them")
    if set(map(type, texts)) <= {str, type(None)}:
        return
    for i, text in enumerate(texts):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name}[{i}] is {type(text).__name__}, not str or None")


def _decide(
    undecided: dict[tuple[str, str], list[int]],
    verdicts: list[Verdict],
    timeout: float,
    workers: int | None,
) -> None:
    gradable = list[tuple[str, str]]()
    for pair, rows in undecided.items():
        reason = check_reference(pair[1])
        if reason is None:
            gradable.append(pair)
            continue
        _log.warning("cannot grade against the reference %.80r: %s", pair[1], reason)
        for row in rows:
            verdicts[row] = Verdict("verifier_error", pair[0])
    outcomes = _outcomes(gradable, timeout, workers)
    for pair, outcome in zip(gradable, outcomes, strict=True):
        if outcome.reason:
            _log.info("%s: %.80r against %.80r: %s", outcome.slug, *pair, outcome.reason)
        for row in undecided[pair]:
            verdicts[row] = Verdict(outcome.slug, pair[0])


def _outcomes(
    pairs: Sequence[tuple[str, str]], timeout: float, workers: int | None, rule: Rule = "equivalent"
) -> list[GradingOutcome]:
    if not pairs:
        return []
    workers = workers or usable_cores()
    return shared_pool(workers).run(pairs, timeout=timeout, workers=workers, rule=rule)


def check_references(
    references: Sequence[str | None],
    *,
    answer_types: Sequence[AnswerType | None] | None = None,
    timeout: float = 5.0,
    workers: int | None = None,
) -> list[str | None]:
    """Return why nothing can be graded against each reference, None where it is usable, in order.

    Formulas are parsed and evaluated, as for an answer, by the processes of `verify_batch`. Of
    several right answers, one that is usable is enough.

    Raises:
        rejuice.operators.verifier.pool.WorkerPoolError: no process could be started.
    """
    wanted = [_to_check(*pair) for pair in _typed(references, answer_types)]
    reasons = {pair: check_reference(*pair) for pair in chain.from_iterable(wanted)}
    formulas = [
        (text, given)
        for (text, given), why in reasons.items()
        if text and why is None and (given or type_of(text)) in COMPUTED and not read_number(text)
    ]
    outcomes = _outcomes([("", str(text)) for text, _ in formulas], timeout, workers, "reference")
    for each, outcome in zip(formulas, outcomes, strict=True):
        if outcome.slug != "correct":
            reasons[each] = outcome.reason or f"it has no value after {timeout:g} s"
    found = ([reasons[each] for each in pairs] for pairs in wanted)
    return [None if None in of_each else of_each[0] for of_each in found]


def _to_check(reference: str | None, given: AnswerType | None) -> Sequence[_Typed]:
    """The answers of a reference with several ones, else itself."""
    several = _each(reference, given)
    parts = [each for each in several if each[0] != reference]
    return parts if len(several) > 1 and parts else [(reference, given)]


def check_reference(reference: str | None, answer_type: AnswerType | None = None) -> str | None:
    """Return why nothing can be graded against this reference; None if it is usable.

    It only inspects the text and starts no process, so it can be used while loading data.
    """
    if reference is None:
        return "the reference is null"
    if not reference.strip():
        return "the reference is empty"
    if answer_type is AnswerType.TEXT:
        return None
    several = alternatives(reference)
    if len(several) > 1 and answer_type not in (AnswerType.LIST, AnswerType.JSON):
        reasons = [check_reference(each, answer_type) for each in several if each != reference]
        return None if None in reasons else reasons[0]
    if is_missing(reference):
        return f"{reference.strip()!r} is a missing value, not an answer"
    reason = refusal(reference)
    if reason:
        return reason
    if any(mark in reference for mark in ("####", "\\boxed", "<answer>", "<think>")):
        return "the reference is a worked solution, not a bare answer"
    if _PHRASE.match(reference):
        return "the reference is a sentence, not a bare answer"
    if answer_type and not takes(answer_type, reference):
        return f"{reference!r} is not of the type {answer_type.value}"
    if (answer_type or type_of(reference)) in COMPUTED and extract_answer(reference) is None:
        return "the reference contains no answer"
    return None
