"""Where the program is in a response."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..thoughts import answer_part

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^\n`]*?)[ \t\r]*")
_PYTHON = frozenset({"python", "python3", "py", "py3"})


class CodeBlock(NamedTuple):
    """A fenced block of a response: its language, in lower case, and what is in it."""

    language: str
    code: str


def extract_code(response: str, *, whole: bool = True) -> str | None:
    r"""The program in a response, None where there is none.

    It is the last fenced block that is labelled as Python, else the last block, else the whole
    response. A block after it that only uses what it defines, or has nothing but comments, is an
    example of its use. Only what follows the last thought counts (`thoughts.py`), and inside one
    that is not closed there is no program. A block without an end, where generation was cut off,
    ends with the response.

    Args:
        response: as the policy wrote it.
        whole: whether a response without a fenced block is itself a program.

    >>> extract_code("Here it is:\n```python\nprint(1)\n```\nIt prints 1.")
    'print(1)\n'
    """
    text = answer_part(response)
    if text is None:
        return None
    blocks = list(_blocks(text))
    if not blocks:
        return text if whole and text.strip() else None
    python = [block for block in blocks if block.language in _PYTHON]
    code = _program([block.code for block in python or blocks])
    return code if code.strip() else None


def _program(codes: list[str]) -> str:
    """The last of some blocks of code that is no example of the use of one before it."""
    defined = list(map(_defined, codes[:-1]))
    for at in range(len(codes) - 1, 0, -1):
        if not _uses(codes[at], frozenset().union(*defined[:at])):
            return codes[at]
    return codes[0]


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined(code: str) -> frozenset[str]:
    """The functions and classes that a block defines."""
    tree = _parsed(code)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (
        frozenset(each.name for each in tree.body if isinstance(each, kinds))
        if tree
        else frozenset()
    )


def _uses(code: str, names: frozenset[str]) -> bool:
    """Whether a block is an example: it has no statement, or needs one of these names."""
    tree = _parsed(code)
    if tree is None:
        return False
    if not tree.body:
        return True
    loaded, own = set[str](), set[str]()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, kinds) and node.name:
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.alias):
            own.add(node.asname or node.name)
    return not names.isdisjoint(loaded - own)


def _blocks(text: str) -> Iterator[CodeBlock]:
    """Fenced blocks, after CommonMark; one that is indented as a whole loses its indentation."""
    lines = iter(text.split("\n"))
    for line in lines:
        opened = _FENCE.fullmatch(line)
        if not opened:
            continue
        indent, fence, info = opened.groups()
        code = list[str]()
        for inner in lines:
            closed = _FENCE.fullmatch(inner)
            if closed and closed[2].startswith(fence) and not closed[3]:
                break
            spaces = len(inner) - len(inner.lstrip(" \t"))
            code.append(inner[min(len(indent), spaces) :])
        yield CodeBlock(info.partition(" ")[0].lower(), "".join(f"{each}\n" for each in code))
