"""Exact values, and plain sentences where there is none."""

import asyncio
from fractions import Fraction

import pytest
from hostile_text import in_linear_time
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.agents.tool import Observation, described
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.calculator import Calculator, value_of


def call(expression):
    async def work():
        toolbox = await Toolbox.of([Calculator()])
        return await toolbox.call("calculator", {"expression": expression}, {})

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("8 * 46", "368"),
        ("(46-3) × 8 =", "344"),
        ("1,200 × 15%", "180"),
        ("1,234,567.5 + .5", "1234568"),
        ("10/3", "10/3 (about 3.33333333333)"),
        ("1/3*3", "1"),
        ("0.1+0.2", "0.3"),
        ("-0.001", "-0.001"),
        ("5 ÷ 4", "1.25"),
        ("$3.50 * 4", "14"),
        ("8x46", "368"),
        ("7 % 2", "1"),
        ("7%2", "1"),
        ("100% - 20%", "0.8"),
        ("2 * -5%", "-0.1"),
        ("-7 // 2", "-4"),
        ("-2**2", "-4"),
        ("2^-2", "0.25"),
        ("−5 + +3", "-2"),
        ("007 + 1e3", "1007"),
        ("1**99999999999999999999", "1"),
        ("1/2**100", "1/1267650600228229401496703205376 (about 7.88860905221E-31)"),
        ("1/7**80", "about 2.46692984352E-68"),
    ],
)
def test_values(expression, text):
    assert call(expression) == Observation(text, "ok")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1/0", "division by zero"),
        ("3 % (2 - 2)", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("2 ** 0.5", "an exponent must be a whole number"),
        ("9**9**9", "the result is too large"),
        ("10**800 * 10**800", "the result is too large"),
        ("1e9999", "'e9999' is neither a number nor an operation"),
        ("50 + 10%", "a percentage in a sum is ambiguous: write 0.1 * 50 for 10% of 50"),
        ("__import__('os')", "'__import__('os')' is neither a number nor an operation"),
        ("n0 + 1", "'n0' is neither a number nor an operation"),
        ("price * 3", "'price' is neither a number nor an operation"),
        ("1,2", "',2' is neither a number nor an operation"),
        ("2 3", "this is not an expression of numbers"),
        ("2 (3)", "this is not an expression of numbers"),
        ("(1, 2)", "',' is neither a number nor an operation"),
        ("3 +", "this is not an expression of numbers"),
        ("()", "this is not an expression of numbers"),
        ("", "there is no expression"),
        ("1" * 301, "the expression is longer than 300 characters"),
    ],
)
def test_no_value(expression, text):
    found = call(expression)
    assert found.status == "error"
    assert found.text == text


@pytest.mark.parametrize(
    "expression",
    ["(" * 149 + "1" + ")" * 149, "-" * 299 + "1", "9" * 300, "1**" * 99 + "1", "9*" * 149 + "9"],
)
def test_the_worst_expressions_take_no_time(expression):
    assert in_linear_time(call, expression).text


NUMBERS = st.integers(0, 10**6).map(str) | st.decimals(0, 999, places=2).map(str)
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda each: f"({' '.join(each)})"
    ),
    max_leaves=6,
)


@given(SUMS)
def test_values_are_those_of_fractions(expression):
    names = {"Fraction": Fraction}
    source = "".join(
        f"Fraction('{part}')" if part[:1].isdigit() else part
        for part in expression.replace("(", "( ").replace(")", " )").split(" ")
    )
    try:
        expected = eval(source, names)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            value_of(expression)
    else:
        assert value_of(expression) == expected


def test_what_the_policy_reads():
    async def work():
        (function,) = await Calculator().functions()
        return described(function)

    assert asyncio.run(work()) == {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Calculate an expression of numbers exactly, with + - * / // % ** and "
            "parentheses.",
            "parameters": {
                "type": "object",
                "properties": {
                    "expression": {"type": "string", "description": "such as 8 * (46 - 3)"}
                },
                "required": ["expression"],
                "additionalProperties": False,
            },
        },
    }
