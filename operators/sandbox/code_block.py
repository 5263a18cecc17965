"""Where the program is in a response."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ..chats import after_thoughts, final_channel
from ..verifier.end_of_turn import own_text

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^\n`]*?)[ \t\r]*")
_PYTHON = frozenset({"python", "python3", "py", "py3"})
_TAGGED = re.compile(
    r"\s*(?:<(?P<tag>code|answer)>|\[PYTHON\])(?:[ \t\r]*\n)?(?P<inner>.*?)"
    r"(?:(?(tag)</(?P=tag)>|\[/PYTHON\])\s*)?",
    re.DOTALL,
)
_SHOWN = re.compile(r"\s*>>> |[^A-Za-z_]*\Z")
"""How a block that is no Python begins where it shows a session or numbers."""
_CLOSING_TAG = re.compile(r"</(\w+)>")
"""Such as `</s>`, which is no end token where an opening tag is before it."""
_TOKENS_AT_MOST = 64
_BUILTINS = frozenset(dir(builtins))

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class CodeBlock(NamedTuple):
    """A fenced block of a response."""

    language: str  # in lower case
    code: str  # what is in it
    is_closed: bool  # whether it has an end


def extract_code(response: str, *, whole: bool = True) -> str | None:
    r"""Return the program in a response, None where there is none.

    It is the last fenced block that is labelled as Python, else the last block, else the whole
    response. A block after it that only uses what it defines, shows what it reads or prints, or has
    nothing but comments, is an example of its use. Earlier blocks that it needs, such as one with a
    helper, belong to it. Only what follows the last thought counts, and inside one
    that is not closed there is no program. A block without an end, where generation was cut off,
    ends with the response, and a response with its end token.

    >>> extract_code("Here it is:\n```python\nprint(1)\n```\nIt prints 1.")
    'print(1)\n'
    """
    final = final_channel(response)
    text = None if final is None else after_thoughts(_own_turn(final))
    if text is None:
        return None
    text = _without_tags(text)
    blocks = list(_blocks(text))
    if not blocks:
        return text if whole and text.strip() else None
    python = [block for block in blocks if block.language in _PYTHON]
    code = _program([block.code for block in python or blocks])
    return code if code.strip() else None


def _without_tags(text: str) -> str:
    """Return a text without tags such as `<code>` around it as a whole."""
    for _ in range(2):  # A tag may be in another one.
        tagged = _TAGGED.fullmatch(text)
        text = tagged["inner"] if tagged else text
    return text


def _own_turn(text: str) -> str:
    """Return a text up to its end token; one that a program or its explanation mentions is none."""
    # In one line `own_text` finds no question, which may be a comment `# Problem: ...` here.
    line = text.replace("\n", " ")
    end = 0
    for _ in range(_TOKENS_AT_MOST):
        end += len(own_text(line[end:]))
        tag = _CLOSING_TAG.match(text, end)
        is_element = tag is not None and f"<{tag[1]}>" in text[:end]
        if end >= len(text) or (not is_element and _is_complete(text[:end])):
            return text[:end]
        end += 1
    return text


def _is_complete(response: str) -> bool:
    """Whether a response can end here: in no thought, string or comment, nor before its program."""
    text = after_thoughts(response)
    if text is None:
        return False
    text = _without_tags(text)
    blocks = list(_blocks(text))
    if blocks and blocks[-1].is_closed:
        return True
    code = blocks[-1].code.removesuffix("\n") if blocks else text
    if code.lstrip("\r\n")[:1] in {" ", "\t"}:
        code = f"def begun():\n{code}"
    is_comment = _parsed(f"{code})") is not None
    return bool(code.strip()) and _parsed(code) is not None and not is_comment


class _Facts:
    """What a block of code does.

    Attributes:
        code: the block.
        tree: it as Python, None if it is none.
        functions: functions and classes that it defines.
        names: these, and what it assigns or imports outside of functions, but no built-in name.
        free: names that it uses and does not define.
        imported: what it imports from modules that do not belong to Python.
        reads: whether it reads input.
        runs: whether it prints or calls a function by itself, as a program does.
        is_inert: whether it only has constants, assertions, imports and messages.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.tree = _parsed(code)
        body = self.tree.body if self.tree else []
        outside = [node for statement in body for node in _outside_functions(statement)]
        self.functions = frozenset(each.name for each in body if isinstance(each, _Definition))
        bound = {name for node in outside for name in _bound(node)}
        self.names = (self.functions | bound) - _BUILTINS
        nodes = [node for each in body for node in ast.walk(each)]
        loaded = {node.id for node in nodes if isinstance(node, ast.Name)}
        self.free = frozenset(loaded.difference(*map(_bound, nodes)))
        self.imported = frozenset(
            name
            for node in outside
            if isinstance(node, ast.ImportFrom) and not _is_standard(node)
            for name in _bound(node)
        )
        self.reads = any(map(_reads, nodes))
        self.runs = any(map(_runs, outside))
        self.is_inert = not self.reads and all(map(_is_inert, body))

    @property
    def defines(self) -> bool:
        """Whether it defines anything but tests."""
        return any(not name.lower().startswith("test") for name in self.functions)


def _program(codes: list[str]) -> str:
    """The last of some blocks of code that is no example, with those before it that it needs."""
    if len(codes) == 1:
        return codes[0]
    facts = list(map(_Facts, codes))
    suppliers = [_suppliers(at, facts) for at in range(len(facts))]
    for at in range(len(facts) - 1, 0, -1):
        found = _program_at(at, facts, suppliers)
        if found is not None:
            return found
    return codes[0]


def _program_at(at: int, facts: list[_Facts], suppliers: list[list[int]]) -> str | None:
    """Return the program that ends with a block; None if that is an example of one before it."""
    block, before = facts[at], facts[:at]
    has_program = any(each.tree and not each.is_inert for each in before)
    if block.tree is None:
        return None if has_program and _SHOWN.match(block.code) else block.code
    if not block.tree.body or (block.is_inert and has_program):
        return None
    if any(block.imported & (each.names - each.imported) for each in before):
        return None  # From a module `solution`, say, which is what the block before is.
    used = [facts[place] for place in _needed(at, suppliers)]
    uses_function = any(block.free & each.functions for each in before)
    is_part = block.defines or block.reads
    if not used:
        return None if uses_function and not is_part else block.code
    if any(each.runs for each in used):
        return block.code if is_part and not uses_function else None
    if is_part or any(each.reads for each in used) or all(each.is_inert for each in used):
        return "".join(each.code for each in [*used, block])
    return None


def _suppliers(at: int, facts: list[_Facts]) -> list[int]:
    """Return which blocks before one define names that it uses."""
    found, missing = list[int](), facts[at].free
    for place in range(at - 1, -1, -1):
        if not missing:
            break
        if missing & facts[place].names:
            found.append(place)
            missing -= facts[place].names
    return found


def _needed(at: int, suppliers: list[list[int]]) -> list[int]:
    """Return the blocks before one that define what it uses, and what they use in turn."""
    found, users = set[int](), [at]
    while users:
        new = set(suppliers[users.pop()]) - found
        found |= new
        users.extend(new)
    return sorted(found)


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _outside_functions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement and what is in it, without the insides of functions and classes."""
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            nodes.extend(ast.iter_child_nodes(node))


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a part of a program defines."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, _Definition | ast.ExceptHandler):
        return [node.name] if node.name else []
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Import):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [each.asname or each.name for each in node.names]
    return []


def _is_standard(node: ast.ImportFrom) -> bool:
    """Return whether an import is from a module of Python."""
    module = (node.module or "").partition(".")[0]
    return not node.level and module in sys.stdlib_module_names


def _reads(node: ast.AST) -> bool:
    """Return whether a part of a program reads input."""
    if isinstance(node, ast.Attribute):
        return node.attr == "stdin"
    if isinstance(node, ast.Name):
        return node.id in {"stdin", "fileinput"}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    file = node.args[0] if node.func.id == "open" and node.args else None
    is_stdin = isinstance(file, ast.Constant) and file.value in {0, "/dev/stdin"}
    return node.func.id == "input" or is_stdin


def _runs(node: ast.AST) -> bool:
    """Return whether a part of a program prints, or calls a function for what it does."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "print"
    return isinstance(node.func, ast.Attribute) and node.func.attr in {"write", "writelines"}


def _is_inert(statement: ast.stmt) -> bool:
    """Return whether a statement computes nothing that a program is for."""
    if isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return statement.value is None or _is_constant(statement.value)
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "print"
    ):
        return all(map(_is_constant, [*value.args, *(each.value for each in value.keywords)]))
    return not any(isinstance(each, ast.Call) for each in ast.walk(value))


def _is_constant(value: ast.expr) -> bool:
    """Return whether an expression uses no name."""
    return not any(isinstance(each, ast.Name | ast.Lambda) for each in ast.walk(value))


def _blocks(text: str) -> Iterator[CodeBlock]:
    """Fenced blocks, after CommonMark; one that is indented as a whole loses its indentation."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        opened = _FENCE.fullmatch(lines[at])
        at += 1
        if not opened:
            continue
        indent, fence, info = opened.groups()
        end = _end_of_block(lines, at, indent, fence)
        language = info.partition(" ")[0].lower()
        yield CodeBlock(language, _outdented(lines[at:end], indent), end < len(lines))
        at = end + 1


def _outdented(lines: list[str], indent: str) -> str:
    """Return lines of a block without the indentation of its fence."""
    spaces = (min(len(indent), len(line) - len(line.lstrip(" \t"))) for line in lines)
    return "".join(f"{line[each:]}\n" for line, each in zip(lines, spaces, strict=True))


def _end_of_block(lines: list[str], start: int, indent: str, fence: str) -> int:
    """Return the line that closes a block, or the number of lines.

    A fence that is indented by four or more is one in a docstring, unless the code is complete
    before it, or no other closes the block before the next one.
    """
    width = len(indent.expandtabs(4)) + 3
    further: int | None = None
    for at in range(start, len(lines)):
        found = _FENCE.fullmatch(lines[at])
        if not found or not found[2].startswith(fence):
            continue
        is_closing = not found[3]
        if len(found[1].expandtabs(4)) <= width:
            if is_closing:
                return at
            if further is not None:
                return further
        elif is_closing and further is None:
            if _parsed(_outdented(lines[start:at], indent)):
                return at
            further = at
    return len(lines) if further is None else further
