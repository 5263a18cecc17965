import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.sandbox import grading

CODE = "def f(x):\n    return x\n"


def extract_code(response, **fields):
    found = grading.extract_code(response, **fields)
    assert found is None or found[1] == "python"
    return found and found[0]


def language(response):
    return grading.extract_code(response)[1]


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
    assert extract_code("```python\ndef f(x):\n    ret") == "def f(x):\n    ret"


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


READS = "print(int(input()) * 2)"


def test_the_last_python_block_counts_also_after_others():
    blocks = [f"```python\n{READS}\n```", "```python\nprint(3)\n```", "```\n4\n```"]
    assert extract_code("\nor\n".join(blocks)) == "print(3)\n"
    assert extract_code("\nor\n".join(blocks[:1] + blocks[2:])) == f"{READS}\n"
    assert extract_code("```sh\npython a.py\n```\n```\nprint(4)\n```") == "print(4)\n"


def test_a_block_of_comments_is_no_program():
    usage = "```python\n# example: input 2\n\n# prints 4\n```"
    assert extract_code(f"```python\n{READS}\n```\nUsage:\n{usage}") == f"{READS}\n"
    assert extract_code(usage) is None
    assert extract_code(f"{usage}\n```\n{READS}\n```") == f"{READS}\n"


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
    assert extract_code(f"{READS}{after}{other}") == (READS if after or not other else None)
    assert extract_code(f"```python\n{READS}{after}") == READS
    body = "    if x:\n        return x\n    return 1"
    assert extract_code(f"{body}{after}") == body
    assert extract_code(f"\n{body}{after}") == f"\n{body}"


@pytest.mark.parametrize("code", [
    "print(input().replace('</s>', ''))", "# </s> ends it\nprint(input())", "s = '''\n<|im_end|>\n'''",
    "print(f'<s>{input()}</s>')", "# Answer: 4\n# Problem: double it\nprint(4)",
])  # fmt: skip
def test_a_program_in_a_block_may_mention_end_tokens(code):
    assert extract_code(f"The answer:\n```python\n{code}\n```<|im_end|>") == f"{code}\n"


def test_a_fence_in_a_docstring_ends_no_block():
    code = 'def f(x):\n    """It is x.\n\n    ```\n    f(1)\n    ```\n    """\n    return x\n'
    assert extract_code(f"```python\n{code}```\nIt prints:\n```\n1\n```") == code
    inner = code.replace("```\n    f", "```python\n    f")
    assert extract_code(f"```python\n{inner}```") == inner
    listed = "".join(f"    {line}\n" for line in f"```python\n{code}```".split("\n"))
    assert extract_code(f"1. So:\n{listed}").replace("\n\n", "\n") == code.replace("\n\n", "\n")


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


def test_many_blocks():
    assert extract_code(f"```python\n{CODE}```\n" * 5000) == CODE
    assert extract_code("a </s>" * 5000) == "a "
    assert extract_code("```\n    ```x" * 5000) is not None


@pytest.mark.parametrize("text", ["~" * 9000, "</answer> " * 9000 + "x", f"```py{' ' * 9000}"])
def test_a_policy_that_repeats_itself_is_read_at_once(text):
    assert extract_code(text) == text


def test_empty_lines_are_no_program():
    assert extract_code("```py\n" + "\n" * 90_000) is None


CPP = "#include <iostream>\nint main() { std::cout << 3; }\n"


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("cpp", "cpp"),
        ("C++17", "cpp"),
        ("{.cpp .numberLines}", "cpp"),
        ("language-java", "java"),
        ("c", "c"),
        ("js", "javascript"),
        ("c#", "csharp"),
        ("Rust title=a", "rust"),
        ("hs", "haskell"),
    ],
)
def test_the_language_of_a_block(label, name):
    found = grading.extract_code(f"So:\n```{label}\nclass A {{}}\n```\n")
    assert found == ("class A {}\n", name)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (CPP, "cpp"),
        (f"// Sums.\n/* By\nus */\n#pragma once\n{CPP}", "cpp"),
        ("using namespace std;\n", "cpp"),
        ("import java.util.*;\npublic class A {}", "java"),
        ("public class Main {", "java"),
        ("package main\n\nfunc main() {}", "go"),
        ("fn main() { }", "rust"),
        ("const n = 3;", "javascript"),
        ("console.log(3)", "javascript"),
        ("function solve(n) { return n }", "javascript"),
        ("let [a, b] = [1, 2];", "javascript"),
        ("class Solution {\npublic:\n  int f() { return 1; }\n};", "cpp"),
    ],
)
@pytest.mark.parametrize("form", ["{}", "```\n{}\n```", "```text\n{}\n```"])
def test_a_program_shows_its_language(form, code, name):
    assert language(form.format(code)) == name


@pytest.mark.parametrize(
    "code",
    [
        "# include <a>\nprint(1)",
        "#include the border\nprint(1)",
        "#include <stdio.h> is not needed in Python\nprint(1)",
        "class A:\n    pass",
        "let = 3",
        "let x be the answer; so x = 3",
        "function solve(n)\n  return n*2\nend",
        "import javalang",
        "function = len",
        "use = 1",
        "package = 'main'",
    ],
)
def test_a_python_program_shows_no_other_language(code):
    assert extract_code(code) == code


def test_a_python_block_wins_over_other_languages():
    cpp, python = f"```cpp\n{CPP}```\n", f"```python\n{READS}\n```\n"
    plain, printed, shell = f"```\n{READS}\n```\n", "```\n3 4\n```\n", "```bash\ng++ a.cpp\n```\n"
    for response in (cpp + python, python + cpp + printed, cpp + plain, plain + cpp):
        assert extract_code(response) == f"{READS}\n"
    for response in (
        cpp,
        cpp + printed,
        shell + cpp + printed + shell,
        f"<think>{python}</think>{cpp}",
    ):
        assert grading.extract_code(response) == (CPP, "cpp")
    assert extract_code(printed) == "3 4\n"
    java = "```java\nclass A { }\n```\n"
    for shown in ("System.out.print(3)", "class Node holds a value"):
        assert grading.extract_code(f"{java}\n```\n{shown}\n```")[1] == "java"


@pytest.mark.parametrize("label", ["c", "d", "R", "java"])
def test_python_in_a_block_with_a_wrong_label(label):
    assert extract_code(f"```{label}\n{READS}\n```") == f"{READS}\n"
    assert language(f"```{label}\nprint(3);}}\n```") == label.lower()
    assert language(f"```{label}\nn <- 3\nprint(n)\n```") == label.lower()


@pytest.mark.parametrize(
    "text", ["// " * 9000, "/* *" * 9000, "# " * 9000, "/**/" * 9000, "#\n" * 9000]
)
def test_comments_without_an_end_are_read_at_once(text):
    assert extract_code(f"{text}\nx") == f"{text}\nx"
