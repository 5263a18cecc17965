import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.sandbox.code_block import extract_code

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


READS = "print(int(input()) * 2)"
DOUBLE = "def dbl(x):\n    return 2 * x"


@pytest.mark.parametrize(
    ("blocks", "parts"),
    [
        ([DOUBLE, "print(dbl(int(input())))"], [0, 1]),
        ([DOUBLE, "print(dbl(int(input())))", "# Input: 2"], [0, 1]),
        (["def h(n): return n * 2", "def dbl(n): return h(n)"], [0, 1]),
        (["def h(n): return n * 2", "def dbl(n): return h(n)", "print(dbl(2))"], [0, 1]),
        (["def h(n): return n", "def unused(): pass", "def dbl(n): return h(n)"], [0, 2]),
        (["import sys", "print(int(sys.stdin.readline()) * 2)"], [0, 1]),
        (["import os.path", "def f(p): return os.path.join(p, 'a')"], [0, 1]),
        (["import math", "def dbl(n): return math.floor(n * 2)"], [0, 1]),
        (["import math", "print(math.floor(2.5))"], [0, 1]),
        (["n = int(input())", "print(n * 2)"], [0, 1]),
        (["def main():\n    print(int(input()))", "main()"], [0, 1]),
        ([f"{DOUBLE}\nprint(dbl(int(input())))", "n = int(input())\nprint(dbl(n))"], [0]),
        ([f"import sys\n{READS}", "print(int(sys.stdin.readline()) * 2)"], [1]),
        ([DOUBLE, "def test_dbl():\n    assert dbl(1) == 2\ntest_dbl()"], [0]),
        (["def f(input): return input", "print(f(2))"], [0]),
        (["def sum(a, b): return a + b", "print(sum(1, 2))"], [0]),
        (["def sum(a, b): return a + b", "def total(xs): return sum(xs)"], [1]),
        (["input = open(0).readline", READS], [1]),
    ],
)  # fmt: skip
def test_a_program_may_be_in_several_blocks(blocks, parts):
    response = "Main:\n".join(map(FENCED.format, blocks))
    assert extract_code(response) == "".join(f"{blocks[at]}\n" for at in parts)


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        (READS, "4"),
        (READS, "4 5\n6"),
        (READS, "[1, 2]"),
        (READS, "YES"),
        (READS, "assert 2*2 == 4\nprint('ok')"),
        (READS, "print(2 * 2)"),
        (READS, "nums = [2, 7]\ntarget = 9"),
        (DOUBLE, "import math"),
        (DOUBLE, ">>> dbl(2)\n4"),
        (DOUBLE, "from solution import dbl\nprint(dbl(2))"),
        (DOUBLE, "from solution import *\nprint(dbl(2))"),
        ("dbl = lambda n: n*2", "print(dbl(2))"),
    ],
)
def test_what_a_program_reads_or_prints_does_not_hide_it(program, shown):
    for label in ("python", ""):
        response = f"```{label}\n{program}\n```\nOutput:\n```{label}\n{shown}\n```\n"
        assert extract_code(response) == f"{program}\n"
        assert extract_code(f"```{label}\n{shown}\n```") == f"{shown}\n", "where it is alone"


@pytest.mark.parametrize(
    ("earlier", "last"),
    [
        ("print('Helo')", "print('Hello')"),
        ("Some text.", "print('Hello')"),
        ("3", READS),
        (READS, "print(sum(range(3)))"),
        (READS, "import sys\nsys.stdout.write(str(sum(range(3))))"),
        ("n = 1\nprint(n)", "n = 2\nprint(n)"),
        (DOUBLE, "from functools import lru_cache\n@lru_cache\ndef dbl(x): return x"),
    ],
)
def test_a_better_program_is_no_example(earlier, last):
    assert extract_code(f"{FENCED.format(earlier)}Better:\n{FENCED.format(last)}") == f"{last}\n"


NEXT_TURN = "<|im_end|>\n<|im_start|>user\nTriple it.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "after",
    ["", "<|im_end|>", "<|endoftext|>", "</s>", NEXT_TURN, f"{NEXT_TURN}<think>a</think>\n"],
)
def test_a_response_ends_with_its_end_token(after):
    other = "```python\nprint(int(input()) * 3)\n```" if "user" in after else ""
    for before in (f"```python\n{READS}\n```", f"```python\n{READS}\n```\nIt doubles."):
        assert extract_code(f"{before}{after}{other}") == f"{READS}\n"
        assert extract_code(f"<think>a</think>{before}{after}{other}") == f"{READS}\n"
    assert extract_code(f"```python\n{READS}{after}{other}") == f"{READS}\n"
    assert extract_code(f"{READS}{after}{other}") == (READS if after or not other else None)
    body = "    if x:\n        return x\n    return 1"
    assert extract_code(f"{body}{after}") == body
    assert extract_code(f"\n{body}{after}") == f"\n{body}"


@pytest.mark.parametrize("code", [
    "print(input().replace('</s>', ''))", "# </s> ends it\nprint(input())", "s = '''\n<|im_end|>\n'''",
    "print(f'<s>{input()}</s>')", "# Answer: 4\n# Problem: double it\nprint(4)",
])  # fmt: skip
def test_a_program_may_mention_end_tokens(code):
    assert extract_code(f"The answer:\n```python\n{code}\n```<|im_end|>") == f"{code}\n"
    assert extract_code(f"Without `</s>` at its end:\n```python\n{code}\n```") == f"{code}\n"
    assert extract_code(f"<think>`</s>`?</think>```python\n{code}\n```") == f"{code}\n"
    assert extract_code(f"{code}\n<|im_end|>") == f"{code}\n"


def test_an_element_is_no_end_token():
    response = "```python\nprint(1)\n```\nFor <s>1</s>:\n```python\nprint(input())\n```"
    assert extract_code(response) == "print(input())\n"


def test_a_fence_in_a_docstring_ends_no_block():
    code = 'def f(x):\n    """It is x.\n\n    ```\n    f(1)\n    ```\n    """\n    return x\n'
    assert extract_code(f"```python\n{code}```\nIt prints:\n```\n1\n```") == code
    inner = code.replace("```\n    f", "```python\n    f")
    assert extract_code(f"```python\n{inner}```") == inner
    listed = "".join(f"    {line}\n" for line in f"```python\n{code}```".split("\n"))
    assert extract_code(f"1. So:\n{listed}").replace("\n\n", "\n") == code.replace("\n\n", "\n")


@pytest.mark.parametrize("after", ["", "\nIt prints:\n```\n1\n```", "\n```python\n1\n```"])
def test_a_fence_that_is_indented_too_far_ends_a_program(after):
    assert extract_code(f"```python\n{CODE}    ```{after}") == CODE


@pytest.mark.parametrize(
    "form",
    [
        "<code>{}</code>",
        "<code>\n{}</code>\n",
        "[PYTHON]\n{}[/PYTHON]",
        "[PYTHON]\n{}",
        "<answer>{}</answer>",
        "<answer>\n<code>\n{}</code></answer>",
        "<answer>```python\n{}```</answer>",
    ],
)
def test_tags_around_a_program(form):
    assert extract_code(form.format(CODE)) == CODE
    assert extract_code(f"{form.format(CODE)}<|im_end|>") == CODE
    body = "    return x\n"
    assert extract_code(form.format(body)) == body


def test_tags_around_nothing():
    assert extract_code("<answer> </answer>") is None
    assert extract_code("<answer>print(1)</answer>", whole=False) is None


def test_deep_and_many_blocks():
    deep = f"print({'+'.join(['1'] * 3000)})"
    assert extract_code(FENCED.format(SOLVE) + FENCED.format(deep)) is not None
    blocks = [f"def f{at}(): return f{at - 1}()" for at in range(500)]
    found = extract_code("\n".join(map(FENCED.format, [*blocks, *["print(f499())"] * 500])))
    assert found == "".join(f"{each}\n" for each in blocks)
    assert extract_code("a </s>" * 5000) is not None
