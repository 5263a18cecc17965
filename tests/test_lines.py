"""The lines that `tools/count_lines.py` counts, and the budget that `make lint` has for them."""

import lint_length

from tools.count_lines import count

FILE = '''"""A module.

With a blank line in its docstring.
"""

# A comment.
WIDTH = 3  # Code.


class Box:
    """A class."""

    size: int
    """A field."""

    def name(self):
        text = """
# Not a docstring.
"""
        return text
'''


def test_each_line_is_of_one_kind():
    # The line with # in a string is taken for a comment.
    expected = {"lines": 20, "docstrings": 5, "comments": 2, "blank": 5, "code": 8, "field_docs": 1}
    assert count(FILE) == {"files": 1, **expected}


def test_an_exceeded_row_fails():
    lines = {"operators": 100, "pipelines/engine": 1_011, "trainer/new": 1}
    found = list(lint_length.over_budget(lines, {"operators": 100, "pipelines/engine": 1_010}))
    assert len(found) == 2
    for fact in ("pipelines/engine", "1,011", "1,010", "tests/budget.yaml", "commit of its own"):
        assert fact in found[0]
    assert "trainer/new" in found[1]
