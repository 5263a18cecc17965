"""Whether a response's final answer equals the reference: exact first, symbolic if needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat

from ..columns import alternatives
from ..logs import logger
from .answer import extract_answer
from .fractions_and_decimals import read_number
from .limits import refusal
from .pool import FAILURES, Slug, Verdict
from .structure import exactly, is_missing

# --- Whether an answer is worked out, or only a formula with the right value ----------
# An equal value does not show that a policy has solved a problem: the formula of the question, put
# into a box, is equal to the answer of many. Where that matters, `is_worked_out` asks for the form
# of the reference as well.

_OPERATIONS = re.compile(
    r"\\(sum|prod|i{0,3}nt|oint|lim|gcd|lcm|min|max|det|[dt]?binom|choose|[bp]?mod|lfloor|lceil)"
    r"(?![a-zA-Z])|(\\frac\s*\{\s*(?:d|\\partial)\s*\}|')|((?<![a-zA-Z]{2})!|\|)"
)
_STEPS = re.compile(r"(?<![<>!])=|\\approx(?![a-zA-Z])|≈")
_THOUSANDS = re.compile(r"(?<=\d),\s*\\!\s*(?=\d)")
_DELIMITERS = re.compile(r"\$|\\[()\[\]]|(?<!\\)\\[,;:! ]|\\(?:left|right)(?![a-zA-Z])")
_RATIO = re.compile(r"(?:/\s*|\}\s*\{\s*|\\[dtc]?frac\s*\d\s*\{?)(\d+)")
_CONSTANT = re.compile(
    r"(?:[\d.\s(){}\[\]^_/*+eiπ!-]|\\(?:[dtc]?frac|sqrt|pi|cdot|times|ln|lg|log|sin|cos|tan)(?![a-zA-Z]))+"
)
_ROOT_AS_POWER = re.compile(r"\^\s*\{\s*(\d+)\s*/\s*(\d+)\s*\}")
_PRODUCT = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])")
_SYMBOL = re.compile(r"\d+(?:\.\d+)?|\\[a-zA-Z]+|[a-zA-Z]|[-+/^*]")


def is_worked_out(answer: str, reference: str) -> bool:
    r"""Return whether an answer has a form that a reference of this form asks for.

    * A reference that is a numeral (`42`, `\frac{3}{4}`, `0.5`, `12 cm`) asks for a numeral: no
      operation but a fraction in lowest terms. Of `x = 1 + 2 = 3` the end counts.
    * A constant (`2\sqrt{3}`, `\frac{\pi}{4}`) asks for a closed form of at most one symbol more
      than its own: a numeral, a letter, a command or a sign is a symbol.
    * No answer may have an operation (a sum, an integral, a derivative, a binomial) that the
      reference does not have.

    >>> is_worked_out(r"\sum_{k=1}^{100} k", "5050"), is_worked_out("n=5050", "5050")
    (False, True)
    """
    if answer == reference:
        return True
    if refusal(answer):
        return False
    value = _STEPS.split(_DELIMITERS.sub(" ", _THOUSANDS.sub(",", answer)))[-1]
    if read_number(reference):
        number, ratio = read_number(value), _RATIO.search(value)
        return number is not None and (ratio is None or int(ratio[1]) == number.value.denominator)
    if set(_OPERATIONS.findall(value)) - set(_OPERATIONS.findall(reference)):
        return False
    known = _DELIMITERS.sub(" ", reference)
    return not _CONSTANT.fullmatch(known) or len(_symbols(value)) <= len(_symbols(known)) + 1


def _symbols(text: str) -> list[str]:
    return _SYMBOL.findall(_PRODUCT.sub(" ", _ROOT_AS_POWER.sub(r" \1 \2 ", text)))


# --- Verifier -------------------------------------------------------------------------

__all__ = [
    "FAILURES",
    "Slug",
    "Verdict",
    "check_reference",
    "check_references",
    "extract_answer",
    "verify",
    "verify_batch",
]

_log = logger(__name__)
_PHRASE = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\b|:)", re.IGNORECASE)


def verify(
    response: str | None,
    reference: str | None,
    *,
    timeout: float = 5.0,
    worked_out: bool = False,
) -> Verdict:
    r"""Return the verdict about one response.

    `response` is the whole text of a policy, or a bare answer; `reference` is the bare
    reference answer, such as `18` or `\frac{1}{2}`, never a worked solution. `timeout` is
    in seconds of processor time and applies to the symbolic tier; the exact tier takes
    microseconds. With `worked_out`, an equal value is not enough: of a numeral as reference, the
    answer must be a numeral, too.

    >>> verify("18 - 6 = 12, so the answer is 12.", "12")
    Verdict(verdict='correct', answer='12')
    """
    _check_text("responses", (response,))
    _check_text("references", (reference,))
    _check_limits(timeout, None)
    several = _each(reference)
    if len(several) > 1:
        return _best(
            verify_batch(
                [response] * len(several),
                several,
                timeout=timeout,
                workers=1,
                worked_out=worked_out,
            )
        )
    reference = several[0]
    slug, answer = _at_once(response, reference, worked_out)
    verdicts = [Verdict(slug or "wrong_answer", answer)]
    if slug is None and answer is not None and reference is not None:
        _decide({(answer, reference): [0]}, verdicts, timeout, workers=1)
    return verdicts[0]


def verify_batch(
    responses: Sequence[str | None],
    references: Sequence[str | None],
    *,
    timeout: float = 5.0,
    workers: int | None = None,
    worked_out: bool = False,
) -> list[Verdict]:
    """Return the verdicts about many responses, in order.

    A reference may be several right answers (`columns.alternatives`). The exact tier runs in
    this process; undecided pairs are spread over `workers` processes (default: one per usable
    core), equal pairs once per call. A null reference is a `verifier_error` for its own pair only.

    Raises:
        TypeError: a response or reference is neither text nor None, or not in a sequence.
        ValueError: the sequences differ in length, or a limit is not positive.
        rejuice.operators.verifier.pool.WorkerPoolError: no process could be started.
    """
    _check_text("responses", responses)
    _check_text("references", references)
    if len(responses) != len(references):
        raise ValueError(f"{len(responses)} responses but {len(references)} references")
    _check_limits(timeout, workers)
    several = [_each(reference) for reference in references]
    sizes = list(map(len, several))
    flat = list(chain.from_iterable(several))
    if len(flat) == len(references):
        return _verdicts(responses, flat, timeout, workers, worked_out)
    repeated = list(chain.from_iterable(map(repeat, responses, sizes)))
    verdicts = _verdicts(repeated, flat, timeout, workers, worked_out)
    ends = accumulate(sizes)
    return [_best(verdicts[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@lru_cache(maxsize=1024)  # the responses of a group have one reference
def _each(reference: str | None) -> Sequence[str | None]:
    """The answers each of which is right, without those that nothing can be graded against."""
    if reference is None:
        return [None]
    several = alternatives(reference)
    if len(several) == 1:
        return several
    return [each for each in several if check_reference(each) is None] or several[:1]


def _best(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict by several right answers: right by one, else unknown by one, else wrong."""
    for wanted in (("correct",), FAILURES):
        for verdict in verdicts:
            if verdict.verdict in wanted:
                return verdict
    return verdicts[0]


def _verdicts(
    responses: Sequence[str | None],
    references: Sequence[str | None],
    timeout: float,
    workers: int | None,
    worked_out: bool,
) -> list[Verdict]:
    verdicts = list[Verdict]()
    undecided = dict[tuple[str, str], list[int]]()
    for response, reference in zip(responses, references, strict=True):
        slug, answer = _at_once(response, reference, worked_out)
        if slug is None and answer is not None and reference is not None:
            undecided.setdefault((answer, reference), []).append(len(verdicts))
        verdicts.append(Verdict(slug or "wrong_answer", answer))
    if undecided:
        _decide(undecided, verdicts, timeout, workers)
    return verdicts


def _at_once(
    response: str | None, reference: str | None, worked_out: bool
) -> tuple[Slug | None, str | None]:
    """Return the slug as far as no process is needed for it, else None; and the answer."""
    answer = extract_answer(response) if response else None
    if reference is None:
        return "verifier_error", answer
    if answer is None:
        return "no_answer", None
    if worked_out and not is_worked_out(answer, reference):
        return "wrong_answer", answer
    equal = exactly(answer, reference)
    if equal is None:
        return None, answer
    if not equal and response and _is_equal_with_point(answer, reference, response):
        equal = True
    return ("correct" if equal else "wrong_answer"), answer


def _is_equal_with_point(answer: str, reference: str, response: str) -> bool:
    """Whether they are equal if a comma in them is a decimal one, as it may be in the response."""
    if not ("," in answer or "." in answer or "," in reference or "." in reference):
        return False
    from .notation import with_point

    ours, theirs = with_point(answer, response), with_point(reference, response)
    if ours is None and theirs is None:
        return False
    pairs = {(a or answer, b or reference) for a in (ours, None) for b in (theirs, None)}
    return any(exactly(*pair) for pair in pairs - {(answer, reference)})


def _check_limits(timeout: float, workers: int | None) -> None:
    if timeout <= 0 or (workers is not None and workers < 1):
        raise ValueError(f"timeout and workers must be positive, got {timeout} and {workers}")


def _check_text(name: str, texts: Sequence[str | None]) -> None:
    if isinstance(texts, str):
        raise TypeError(f"{name} is one str, not a sequence of them")
    for i, text in enumerate(texts):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name}[{i}] is {type(text).__name__}, not str or None")


def _decide(
    undecided: dict[tuple[str, str], list[int]],
    verdicts: list[Verdict],
    timeout: float,
    workers: int | None,
) -> None:
    """Fill in the verdicts of the symbolic tier."""
    gradable = list[tuple[str, str]]()
    for pair, rows in undecided.items():
        reason = check_reference(pair[1])
        if reason is None:
            gradable.append(pair)
            continue
        _log.warning("cannot grade against the reference %.80r: %s", pair[1], reason)
        for row in rows:
            verdicts[row] = Verdict("verifier_error", pair[0])
    if not gradable:
        return
    # Imported here, because answers that numbers decide never need a process.
    from ..workers import usable_cores
    from .pool import shared_pool

    workers = workers or usable_cores()
    outcomes = shared_pool(workers).run(gradable, timeout=timeout, workers=workers)
    for pair, outcome in zip(gradable, outcomes, strict=True):
        if outcome.reason:
            _log.info("%s: %.80r against %.80r: %s", outcome.slug, *pair, outcome.reason)
        for row in undecided[pair]:
            verdicts[row] = Verdict(outcome.slug, pair[0])


def check_references(
    references: Sequence[str | None], *, timeout: float = 5.0, workers: int | None = None
) -> list[str | None]:
    """Return why nothing can be graded against each reference, None where it is usable, in order.

    Formulas are parsed and evaluated, as for an answer, by the processes of `verify_batch`.

    Raises:
        rejuice.operators.verifier.pool.WorkerPoolError: no process could be started.
    """
    from .fractions_and_decimals import read_number

    if any(len(_each(each)) > 1 for each in references):
        return _checked_each(references, timeout, workers)
    reasons = {each: check_reference(each) for each in references}
    formulas = [
        each for each, why in reasons.items() if each and why is None and not read_number(each)
    ]
    if formulas:
        from ..workers import usable_cores
        from .pool import shared_pool

        workers = workers or usable_cores()
        pairs = [("", each) for each in formulas]
        pool = shared_pool(workers)
        outcomes = pool.run(pairs, timeout=timeout, workers=workers, rule="reference")
        for each, outcome in zip(formulas, outcomes, strict=True):
            if outcome.slug != "correct":
                reasons[each] = outcome.reason or f"it has no value after {timeout:g} s"
    return [reasons[each] for each in references]


def _checked_each(
    references: Sequence[str | None], timeout: float, workers: int | None
) -> list[str | None]:
    """As `check_references`, where some are several right answers: one of them is enough."""
    several = [
        [each for each in _each(reference) if each != reference] or [reference]
        for reference in references
    ]
    flat = list(dict.fromkeys(chain.from_iterable(several)))
    reasons = dict(zip(flat, check_references(flat, timeout=timeout, workers=workers), strict=True))
    found = ([reasons[each] for each in answers] for answers in several)
    return [None if None in of_each else of_each[0] for of_each in found]


def check_reference(reference: str | None) -> str | None:
    """Return why nothing can be graded against this reference; None if it is usable.

    It only inspects the text and starts no process, so it can be used while loading data.
    """
    if reference is None:
        return "the reference is null"
    if not reference.strip():
        return "the reference is empty"
    several = alternatives(reference)
    if len(several) > 1:
        reasons = [check_reference(each) for each in several if each != reference]
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
    if extract_answer(reference) is None:
        return "the reference contains no answer"
    return None
