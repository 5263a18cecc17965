"""Text of a dataset, a response or a judge for a terminal: nothing in it may steer the terminal."""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format (bidi, zero-width) and surrogate characters, and separators of lines."""
_SHORT = {"\n": "\\n", "\t": "\\t"}
_MAY_BE_HIDDEN = re.compile(r"[^ -~]")


def visible(text: str, *, one_line: bool = False) -> str:
    r"""A text with what cannot be seen as escapes, such as `\u001b`.

    Args:
        text: of whomever.
        one_line: whether line breaks and tabs become `\n` and `\t`, too.

    Example:
        >>> visible("a\u202eb")
        'a\\u202eb'
    """
    return _MAY_BE_HIDDEN.sub(lambda found: _shown(found[0], one_line), text)


def _shown(character: str, one_line: bool) -> str:
    if character in _SHORT:
        return _SHORT[character] if one_line else character
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
