r"""References that the textual check lets through, and what an answer to a good one breaks."""

import pytest
from graded_cases import check_boxed

from rejuice.operators.verifier import check_reference, check_references

UNREADABLE = [
    r"\foo{3}",
    r"(1, \foo{3})",
    r"\frac{1}{0}",
    r"\begin{pmatrix}1&\foo{3}\\3&4\end{pmatrix}",
    r"[\foo{2}, 3)",
]
READABLE = [
    "3", "-1/2", r"\frac{1}{2}", "x+1", "(1, 2)", r"[1, \sqrt{2})", "Paris", "no solution",
    r"\text{(E)}", "E", "x = 3", "y = 2x + 1", "x < 3", r"\{1, 2\}", "2:3", "June 5",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"10\pi \approx 31.4", "(n-1)!", "2^{2005}",
]  # fmt: skip


def test_references_are_parsed() -> None:
    assert [check_reference(each) for each in UNREADABLE] == [None] * len(UNREADABLE)
    found = check_references([*UNREADABLE, *READABLE, None, "nan"])
    assert all(found[: len(UNREADABLE)]), found
    assert found[len(UNREADABLE) : -2] == [None] * len(READABLE)
    assert found[-2:] == [check_reference(None), check_reference("nan")]


def none_is_equal(answers: list[str], references: list[str]) -> None:
    check_boxed((r, answer, "wrong_answer") for answer in answers for r in references)


def test_letters_as_references_are_never_missing() -> None:
    references = ["E", r"\text{(E)}", "E_1", "a + b + c", "2x"]
    none_is_equal(["4", "x+1", "(1, 2)", r"\foo{3}"], references)


def test_what_the_answer_breaks_is_wrong() -> None:
    answers = [
        r"\sum_{k=1}^n 2 \cos (k^2 a)",  # a bound that is free
        r"\prod_{k=1}^{n} k^{x}",
        r"2\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1\\2\\3\end{pmatrix}",
        r"\frac{1}{0}",
        r"\foo",
    ]
    none_is_equal(answers, [r"\sqrt{2}", "42", "x+1", r"\{1, 2\}"])


@pytest.mark.slow
def test_references_over_the_old_limits() -> None:
    cases = [
        (r"2 \cdot 2^{2004}", "2^{2005}", True),
        ("2^{2005}+1", "2^{2005}", False),
        ("4^{1009}-1", "2^{2018}-1", True),
        (r"\left(n-1\right)!", "(n-1)!", True),
        (r"\frac{n!}{n}", "(n-1)!", True),
        ("n!", "(n-1)!", False),
        ("(x+y+z+1)^{900}(x+2)^{999}+1", "(x+y+z+1)^{900}(x+2)^{999}", False),
        ("10^{100}x+1", "10^{100}x", False),
        (r"\binom{n}{k}", r"\frac{n!}{k!(n-k)!}", True),
        (r"\frac{1}{2} \omega \hbar", r"\frac{\hbar\omega}{2}", True),
        (r"\gcd(4,6)", "2", True),
        (r"\min(2,3)", "2", True),
        (r"\gcd(4,6)", "12", False),
        (r"17 \bmod 5", "2", True),
        (r"17 \bmod 5", "17", False),
        (r"\sum_{k=1}^{3} c", "3c", True),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}", True),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n-1)}{2}", False),
        (r"\lim_{x \to \infty} \frac{1}{x}", r"\frac{1}{x}", False),  # one `x` is bound
        (r"\frac{1}{x}", r"\lim_{x \to \infty} \frac{1}{x}", False),
        (r"\int_0^1 x dx", "x", False),
        (r"\sum_{k=1}^{3} k", "6k", False),
        (r"f^{-1}(x) = \frac{5+4 x}{5}", r"\frac{5+4x}{5}", True),
        (r"\frac{5+4x}{5}", r"f^{-1}(x)=\frac{5+4 x}{5}", True),
    ]
    check_boxed((reference, answer, equal) for answer, reference, equal in cases)
