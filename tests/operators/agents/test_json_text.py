r"""JSON of models with LaTeX in it: a backslash that begins a command stays one."""

import json

import pytest
from each import check_each
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.json_text import json_objects, json_value

CONTROL = frozenset(map(chr, range(32)))


def in_answer(text):
    """What a string is read as, in a final answer."""
    ((fields, *_),) = json_objects(f'{{"answer": "{text}"}}', is_program=False)
    return fields["answer"]


def in_arguments(text):
    return json_value(f'{{"code": "{text}"}}')["code"]


LATEX = [
    r"\boxed{12}", r"\frac{24}{2}", r"\frac12", r"\beta", r"\forall x", r"\bar x", r"\times",
    r"2 \times 3", r"\theta", r"\text{cm}", r"\tfrac{1}{2}", r"\tan(x)", r"\to 0", r"\tau = 3",
    r"\right)", r"\rho", r"\rightarrow", r"\nabla f", r"\neq", r"a \ne b", r"\nu", r"\notin",
    r"\sqrt{2}", r"\pi", r"\alpha", r"\left(", r"\cdot", r"\infty", r"\underline{x}", r"\uparrow",
    r"\(x\)", r"\[x\]", r"\{1, 2\}", r"50\%", r"\$5", r"1\,000", r"\_", r"\f", r"\b", r"\b1", r"\d+",
    r"\nu <= 3", r"\nu >= 3", r"\nu == 3", r"\nu / 2", r"\nu ** 2", r"\ni A", r"\nu if it is large",
]  # fmt: skip


def test_commands_in_an_answer_keep_their_backslashes():
    def check(text):
        assert in_answer(text) == text
        assert in_answer(text.replace("\\", r"\\")) == text, "as JSON wants it"
        assert not CONTROL & set(in_answer(text))

    check_each(LATEX, check)


def test_commands_in_arguments_keep_them_too():
    def check(text):
        assert in_arguments(text) == text
        assert in_arguments(text.replace("\\", r"\\")) == text

    check_each([text for text in LATEX if text != r"\to 0"], check)


PROGRAMS = [
    r"a=3*4\nprint(a)", r"for i in x:\n\ttotal += i\n\tif i:\n\t\treturn i", r"x = 1\ni = 0", r"\nu=3",
    r"\nne = 1", r"if x:\n\ttop = 5", r"if x:\n\ttag(x)", r"a\nnot_b", r"x\neq = a == b", r"\ni += 1",
    r"a\r\nb", r"\"quoted\" \\ \/ \u00e9\uABCD", r"\n", r"\t", r"a\n\nb", r"\nelse:\n\tpass",
    r"i = 24\ni //= 2\nprint(i)", r"nu = 2\nnu **= 2", r"x\ni <<= 1\ni >>= 1", r"u = 1\nu @= w",
    r"x = 0\nu if x else y", r"x\ni if x > 0 else f(y)\nprint(x)",
]  # fmt: skip


def test_programs_are_read_as_json_has_them():
    def check(text):
        assert in_arguments(text) == json.loads(f'"{text}"')

    check_each(PROGRAMS, check)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
))  # fmt: skip
def test_json_without_ambiguous_escapes_is_read_as_such(value):
    text = json.dumps(value, ensure_ascii=True)
    plain = json.loads(text)
    if any(escape in text for escape in (r"\b", r"\f", r"\n", r"\r", r"\t", r"\ufdd0")):
        return
    if any(0xD800 <= ord(each) < 0xE000 for each in json.dumps(plain, ensure_ascii=False)):
        return
    assert json_value(text) == plain


@pytest.mark.parametrize(
    "text", ["", "{", "{'a': 1}", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000, '{"a": 1} b']
)
def test_what_is_no_json(text):
    with pytest.raises(ValueError, match=r"."):
        json_value(text)


def test_places_are_those_of_the_text():
    text = r'So \boxed{1}: {"answer": "\frac{1}{2}"} \text{and} {"a": "\beta"}.'
    found = json_objects(text)
    assert [text[each.begin : each.end] for each in found] == [
        r'{"answer": "\frac{1}{2}"}',
        r'{"a": "\beta"}',
    ]
    assert [each.fields for each in found] == [{"answer": r"\frac{1}{2}"}, {"a": r"\beta"}]
