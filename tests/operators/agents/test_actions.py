"""Actions as policies write them, however they write them."""

import pytest
from hostile_text import in_linear_time

from rejuice.operators.agents import Action
from rejuice.operators.agents.flows.react import Answer, Call, Malformed, read_json, read_line


def line(text, cut_off=False):
    return read_line(Action(text, cut_off))


def as_json(text, cut_off=False):
    return read_json(Action(text, cut_off))


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("search: apples: red ones", Call(..., "search", "apples: red ones")),
        ("  search :  apples \n", Call(..., "search", "apples")),
        ("answer: 368", Answer(..., "368")),
        ("answer:", Answer(..., "")),
        ("search apples", Malformed(...)),
        (": apples", Malformed(...)),
        ("", Malformed(...)),
        ("search: apples\n-> 5 apples", Malformed("search: apples -> 5 apples")),
    ],
)
def test_a_line(text, move):
    shown = move.shown if isinstance(move.shown, str) else " ".join(text.split())
    assert line(text) == move._replace(shown=shown)


@pytest.mark.parametrize("before", ["<think>\n8 of them?\n</think>\n\n", "8 of them?</think>"])
def test_a_line_after_a_thought(before):
    assert line(f"{before}answer: 368") == Answer("answer: 368", "368")
    assert line("<think>answer: 368") == Malformed("")


def test_the_end_of_a_line_that_was_cut_off_is_not_known():
    assert line("answer: 36", cut_off=True) == Malformed("answer: 36")


CALL = '{"tool": "search", "arguments": {"query": "a"}}'


@pytest.mark.parametrize(
    ("text", "move"),
    [
        (CALL, Call(CALL, "search", {"query": "a"})),
        (f"First I search.\n{CALL}\n-> 5 apples", Call(f"First I search.\n{CALL}", "search", {"query": "a"})),
        (f"<think>{CALL} or {{}}?</think>\n{CALL}", Call(CALL, "search", {"query": "a"})),
        ('{"tool": "now"}', Call('{"tool": "now"}', "now", {})),
        ('{"tool": "run", "arguments": "{}"}', Call(..., "run", "{}")),
        ('{"tool": "run", "arguments": {"code": "a\nb"}}', Call(..., "run", {"code": "a\nb"})),
        ('{"answer": "368"}', Answer(..., "368")),
        ('{"answer": 368}', Answer(..., "368")),
        ('{"answer": 100000000000000000000000}', Answer(..., "1" + 23 * "0")),
        ('{"answer": {"answer": 1}}', Answer(..., '{"answer": 1}')),
        (f"{CALL} {CALL}", Malformed(...)),
        ('{"answer": 1, "tool": "search"}', Malformed(...)),
        ('{"name": "search", "arguments": {"query": "a"}}', Call(..., "search", {"query": "a"})),
        ('{"type": "function", "name": "search", "parameters": {}}', Call(..., "search", {})),
        ('{"name": "search", "arguments": "{}"}', Call(..., "search", "{}")),
        ('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', Call(..., "now", {})),
        ('<tool_call>{"name": "now", "arguments": {}}</tool_call>\n-> 5', Call('<tool_call>{"name": "now", "arguments": {}}</tool_call>', "now", {})),
        ('{"name": "apples"}', Malformed(...)),
        ('{"name": "a", "arguments": {}, "x": 1}', Malformed(...)),
        ('Of {"name": "apples"}: {"answer": "5"}', Answer(..., "5")),
        ('{"name": "a", "arguments": {}} {"answer": 1}', Malformed(...)),
        (f"<think>I would call {CALL}", Malformed(...)),
        ('<think>Or {"answer": "1"}', Malformed(...)),
        (f"{CALL} <think>{CALL}", Malformed(...)),
        (f"[THINK]{CALL}[/THINK]{CALL}", Call(CALL, "search", {"query": "a"})),
        ('{"tool": 7}', Malformed(...)),
        ('{"tool": "a", "arguments": 7}', Malformed(...)),
        ('{"tool": "a", "arguments": {', Malformed(...)),
        ('{"tool": "a", "arguments": {"b": "\\ud800"}}', Malformed(...)),
        ('{"answer": ' + "9" * 5000 + "}", Malformed(...)),
        ("368", Malformed(...)),
    ],
)  # fmt: skip
def test_json(text, move):
    shown = move.shown if isinstance(move.shown, str) else text
    assert as_json(text) == move._replace(shown=shown)


@pytest.mark.parametrize("part", ["{", '{"a":', '{"a":[', '{"a":1}', "{'"])
def test_nested_objects_are_read_in_a_moment(part):
    in_linear_time(as_json, part * (8_000 // len(part)))
