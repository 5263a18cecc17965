import pytest

from rejuice.operators.logs import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é 数 \U0001f600", "é 数 \U0001f600"),
        ("a\x1b[31mb\x07\x9b", r"a\u001b[31mb\u0007\u009b"),
        ("\u202eab\u2066c\u061c\u200e", r"\u202eab\u2066c\u061c\u200e"),
        ("a\u200bb\ufeff\u2028", r"a\u200bb\ufeff\u2028"),
        ("\U000e0041", r"\U000e0041"),
        ("a\nb\tc\r", "a\nb\tc\\u000d"),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text, shown):
    assert visible(text) == shown


def test_on_one_line():
    assert visible("a\nb\tc", one_line=True) == r"a\nb\tc"
