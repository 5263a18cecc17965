"""Where the program is in a response."""

from __future__ import annotations

import re

from ..chats import after_thoughts, final_channel
from ..verifier.places import own_text

# A fence may be behind the tag that ends a thought, and before an end token. One that is indented
# by four or more closes no block: it is one in a docstring.
_BLOCK = re.compile(
    r"(?:^|(?<=>))(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}(?!~))(?P<info>[^\n`]{0,100})\n"
    r"(?P<code>.*?)(?:(?P<end>^(?:(?P=indent))? {0,3}(?P=fence)[`~]*[ \t\r]*(?=$|[<\[]))|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PYTHON = (["python"], ["python3"], ["py"], ["py3"])
_STATEMENT = re.compile(r"^[^\S\n]*[^#\s]", re.MULTILINE)
_TAGS = re.compile(
    r"\A\s*(?:(?:<answer>|<code>|\[PYTHON\])(?:[ \t\r]*\n)?)+"
    r"|(?:(?:</answer>|</code>|\[/PYTHON\])\s*){1,2}\Z"
)
"""What may be around a response as a whole."""


def extract_code(response: str, *, whole: bool = True) -> str | None:
    r"""Return the program in a response, None where there is none.

    It is the last fenced block that is labelled as Python, else the last block, else the whole
    response; a block of comments alone is none. Only what follows the last thought counts, and
    inside one that is not closed there is no program. A block without an end, where generation was
    cut off, ends with the response, and a response with its end token.

    >>> extract_code("Here it is:\n```python\nprint(1)\n```\nIt prints 1.")
    'print(1)\n'
    """
    final = final_channel(response)
    text = None if final is None else after_thoughts(_own_turn(final))
    if text is None:
        return None
    text = _TAGS.sub("", text)
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return text if whole and text.strip() else None
    programs = [block for block in blocks if _STATEMENT.search(block["code"])]
    python = [block for block in programs if block["info"].lower().split()[:1] in _PYTHON]
    return _outdented((python or programs)[-1]) if programs else None


def _outdented(block: re.Match[str]) -> str:
    """What is in a block, without the indentation of its fence."""
    width = len(block["indent"])
    return re.sub(rf"^[ \t]{{0,{width}}}", "", block["code"], flags=re.MULTILINE)


def _own_turn(text: str) -> str:
    """A text up to its end token; one within a block that is closed is the program's."""
    hidden = _BLOCK.sub(lambda b: b[0] if b["end"] is None else "x" * len(b[0]), text)
    # In one line `own_text` finds no question, which may be a comment `# Problem: ...` here.
    return text[: len(own_text(hidden.replace("\n", " ")))]
