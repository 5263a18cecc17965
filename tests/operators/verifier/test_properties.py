"""What must hold for every input."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hostile_text import in_linear_time
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.verifier import check_reference, extract_answer, verify, verify_batch
from rejuice.operators.verifier.structure import exactly

integers = st.integers(-(10**15), 10**15)
REPEATED = r"\boxed{ } { \boxed{1} <think> </think> <answer> </answer> #### $ = - ( ) [ , 1, \ * ."
TOKENS = (
    r"\boxed{ \fbox{ { } ( ) [ ] $ $$ \( \) \[ \] #### <think> </think> <answer> </answer> "
    r"\frac \sqrt ^ _ , ; : . - + = < > | \pm \mp \cup \{ \} or and not 1 2 42 1,000 3.5 x y "
    r"\begin{pmatrix} \end{pmatrix} & \\ % \% \le \ne \in \infty \text{ answer is Answer: A: half "
)
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *TOKENS.split(),
            " ",
            "\n",
            "–",
            "½",
            "€",
            "\x00",
            "\ud800",
            "million",
            "dozen",
            "\\",
            "!",
            "**",
        ]
    ),
    max_size=30,
)
texts = st.one_of(st.text(max_size=200), FRAGMENTS.map("".join), FRAGMENTS.map(" ".join))


@pytest.mark.slow
@given(texts)
@settings(max_examples=400, deadline=None)
def test_extraction_never_raises_and_finds_text_of_the_response(text: str) -> None:
    answer = extract_answer(text)
    assert answer is None or answer.strip()


@pytest.mark.slow
@given(texts, texts)
@settings(max_examples=400, deadline=None)
def test_the_exact_tier_never_raises(answer: str, reference: str) -> None:
    assert exactly(answer, reference) in {True, False, None}
    check_reference(reference)


def spellings(n: int) -> list[str]:
    grouped = f"{n:,}"
    return [
        f"{n}",
        grouped,
        f"{n}.0",
        f"${grouped}",
        f"$${n}$$",
        rf"\boxed{{{n}}}",
        rf"\frac{{{2 * n}}}{{2}}",
        f"{3 * n}/3",
        f"**{n}**",
        f"x = {n}",
        f"{n} apples",
        f"{100 * n}%",
        rf"{n}\text{{ cm}}",
        grouped.replace(",", r"\,"),
        grouped.replace(",", "{,}"),
        f"The answer is {n}.",
        f"So it is 7.\n#### {grouped}",
        f"<think>{n + 1}</think>It is {n}.",
        f"So the result is ${n}$.",
        f"{n}e0",
        rf"{n} \times 10^0",
        f"{n}".replace("-", "−"),
    ]


@pytest.mark.slow
@given(integers)
@settings(max_examples=150, deadline=None)
def test_every_spelling_of_a_number_is_that_number(n: int) -> None:
    verdicts = verify_batch(spellings(n), [str(n)] * len(spellings(n)), worked_out=False)
    assert [s for s, v in zip(spellings(n), verdicts, strict=True) if v.verdict != "correct"] == []


@given(integers, integers)
@settings(max_examples=150, deadline=None)
def test_no_spelling_of_another_number_is(n: int, m: int) -> None:
    # 50% may stand for 50, which is what 100 * n % means for 100 * n.
    if m in {n, 100 * n}:
        return
    verdicts = verify_batch(spellings(n), [str(m)] * len(spellings(n)), worked_out=False)
    assert [s for s, v in zip(spellings(n), verdicts, strict=True) if v.verdict == "correct"] == []


@pytest.mark.slow
@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
@settings(max_examples=200, deadline=None)
def test_fractions_are_exact_and_symmetric(p: Fraction, q: Fraction) -> None:
    a, b = (rf"\frac{{{x.numerator}}}{{{x.denominator}}}" for x in (p, q))
    assert exactly(a, b) is exactly(b, a) is (p == q)
    assert exactly(a, f"{p.numerator}/{p.denominator}") is True


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6
    ),
    st.integers(1, 3),
)
@settings(max_examples=200, deadline=None)
def test_decimals_are_not_rounded(value, places: int) -> None:
    near = value + value.__class__(1).scaleb(-4 - places)
    assert exactly(str(value), str(near)) is False
    assert exactly(str(value), f"{value}0") is True


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=5, unique=True), st.randoms())
@settings(max_examples=100, deadline=None)
def test_sets_have_no_order_and_tuples_have(items: list[int], random) -> None:
    shuffled = random.sample(items, len(items))
    joined, other = (", ".join(map(str, x)) for x in (items, shuffled))
    assert exactly(rf"\{{{joined}\}}", rf"\{{{other}\}}") is True
    assert exactly(joined, other) is True
    assert exactly(f"({joined})", f"({other})") is (items == shuffled)


@pytest.mark.alone
@pytest.mark.parametrize(
    "unit",
    [
        *REPEATED.split(),
        "answer is ", "is the answer ", "\nA: ", "\n#### ", " ", "\n", "1 or ", "a ", "the answer: 1. ", "</think>\n<think>",
        "we get 1 ", "2^{", "(1+", "x_1 ", "3 \\cdot ", "5! ", "$2$ ", "7 or ",
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_takes_linear_time(unit: str) -> None:
    for text in (unit * (1_000_000 // len(unit)), unit * (1_000_000 // len(unit)) + "42"):
        # 1 MB of \boxed{ is 140,000 boxes.
        in_linear_time(verify, text, "42")
