import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.unit_tests.code_block import extract_code

CODE = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    "response",
    [
        f"```python\n{CODE}```",
        f"Here:\n\n```Python\n{CODE}```\nIt prints:\n```text\n3\n```",
        f"```py\nx = 1\n```\nor better\n~~~python3 title=a\n{CODE}~~~",
        f"```\n{CODE}```",
        f"```text\n3\n```\n```\n{CODE}```",
        f"<think>```python\nx\n```</think>\n```python\n{CODE}```",
        f"````python\n{CODE}````",
        "1. So:\n   ```python\n   def f(x):\n       return x\n   ```\n2. Done",
        f"```python\n{CODE}```\r\n",
    ],
)
def test_the_last_block_counts(response):
    assert extract_code(response) == CODE


def test_a_block_that_was_cut_off_ends_with_the_response():
    assert extract_code("```python\ndef f(x):\n    ret") == "def f(x):\n    ret\n"


def test_a_response_without_a_block():
    assert extract_code("    return x\n") == "    return x\n"
    assert extract_code("    return x\n", whole=False) is None


@pytest.mark.parametrize(
    "response", ["", " \n", "```python\n\n```", "<think>```python\nx\n```", "<think>a</think> "]
)
def test_no_program(response):
    assert extract_code(response) is None


def test_a_fence_in_a_string_of_a_longer_block():
    code = 'text = """\n```python\n"""\n'
    assert extract_code(f"````python\n{code}````") == code


@given(st.text(alphabet="`~ \npython<think>/x", max_size=60))
def test_any_response_has_a_program_or_none(response):
    found = extract_code(response)
    assert found is None or found.strip()


FENCED = "```python\n{}\n```\n"
SOLVE = "def solve(n):\n    return 2 * n"


@pytest.mark.parametrize(
    ("blocks", "at"),
    [
        ([SOLVE, "print(solve(3))"], 0),
        (["print(int(input()) * 2)", "# Input: 2\n# Output: 4"], 0),
        ([SOLVE, "assert solve(1) == 2", "# that is all"], 0),
        ([SOLVE, f"{SOLVE}\nprint(solve(3))"], 1),
        ([SOLVE, "solve = lambda n: 2 * n\nprint(solve(int(input())))"], 1),
        ([SOLVE, "print(2 * int(input()))"], 1),
        (["def helper(): pass", SOLVE, "print(solve(1))"], 1),
        ([SOLVE, "print(solve("], 1),
        (["# a", "# b"], 0),
        (
            [
                "def dfs(i): return i",
                "class S:\n def f(self, n):\n  def dfs(i): return i\n  return dfs(n)",
            ],
            1,
        ),
        (["def check(v): return v", "def solve(xs, check): return [check(x) for x in xs]"], 1),
    ],
)
def test_an_example_of_its_use_hides_no_program(blocks, at):
    response = "Usage:\n".join(map(FENCED.format, blocks))
    assert extract_code(response) == f"{blocks[at]}\n"
