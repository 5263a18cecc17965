r"""Plain algebra by Python's parser means what math-verify's parser reads."""

import pytest
from each import check_each
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.verifier.symbolic import AGREEMENT, close, evaluations, parsed, read_algebra

LETTERS = ["x", "y", "a", "A", "x_1", "x_{12}", "E_1", r"\alpha", r"\theta_2", "e", r"\pi"]
ATOMS = st.sampled_from([*LETTERS, "2", "13", "0.5", "(x+1)", r"\sqrt{2}", r"\frac{1}{x}"])
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", r" \cdot ", r"\times "]), inner).map("".join),
        st.tuples(ATOMS, inner).map(" ".join),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: rf"\sqrt{{{each}}}"),
        st.tuples(ATOMS, st.sampled_from(["^2", "^{-1}", "^x", "^{x+1}"])).map("".join),
        st.tuples(inner, inner).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
        inner.map(lambda each: f"-{each}"),
    ),
    max_leaves=6,
)


def same(f: object, g: object) -> bool:
    return f == g or all(close(x, y, AGREEMENT) for x, y in evaluations(f, g))


@pytest.mark.slow
@given(formula=FORMULAS)
def test_it_is_what_the_other_parser_reads(formula: str) -> None:
    ours = read_algebra(formula)
    theirs = None if ours is None else parsed(formula)
    # `\sqrt{e-e}` of the parser is not carried out, and in numbers a rounding error.
    assert theirs is None or same(ours, theirs.doit())


@pytest.mark.slow
def test_plain_algebra() -> None:
    formulas = [
        "x+1", "2x^2", r"\frac{1}{2}x", r"\sqrt{x+1}^2", "x_1 + x_{12}", "E_1", r"2\pi r",
        r"e^{i\pi}", "-x^2", "(x+1)(x-1)", r"2\cdot-3", r"\frac{\frac{1}{2}}{x}", "4^{0.5}", "x^y z",
    ]  # fmt: skip

    def check(formula: str) -> None:
        ours, theirs = read_algebra(formula), parsed(formula)
        assert ours is not None
        assert same(ours, theirs)

    check_each(formulas, check)


def test_decimals_are_exact() -> None:
    assert str(read_algebra("0.12345678901234567891x")) == (
        "12345678901234567891*x/100000000000000000000"
    )


def test_what_may_be_read_in_two_ways_is_left_to_the_other() -> None:
    formulas = [
        "1/2x", "f(x)", r"2\frac{1}{3}", "x^23", "x^2^3", "7 5", r"\sqrt[3]{x}", r"\sin x", "asin x",
        "ln x", "x'", "|x|", "n!", "(x", "x)", "(2,3)", r"\frac{d}{dx}x^2", r"\frac{x}{y", "x =", "",
        "area", "x <2", r"\frac12", "5^2 3", "x_1_2", "1.2.3x", "3 .5", "()", "x/(y)",
        r"\frac{84}+{2}", r"\frac{x}-",
    ]  # fmt: skip

    def check(formula: str) -> None:
        assert read_algebra(formula) is None

    check_each(formulas, check)
