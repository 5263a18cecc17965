"""JSON that anybody may have written: whatever is wrong with it is found before it does harm."""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

# --- JSON as language models write it, with LaTeX in it -------------------------------
# To JSON, `\b`, `\f`, `\n`, `\r` and `\t` are control characters, and a backslash before most other
# characters is an error. A model that writes `{"answer": "\frac{24}{2}"}` means neither. So a
# backslash that begins a command of LaTeX stays one here, and so does one that JSON would refuse:
#
# - `\b` and `\f` always: nobody means a backspace or a form feed;
# - `\n`, `\r` and `\t` where they and the letters after them are a command, such as `\times`. Where
#   the text may be a program, a few of them begin a line instead, as in `\ni = 0`.

_decoder = json.JSONDecoder(strict=False)  # Models write programs with line breaks in strings.
_KEPT = "\ufdd0"  # Stands for a backslash that stays one: no character, so no text has it.
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([a-zA-Z]+|.))", re.DOTALL)
_OF_JSON = frozenset("\"\\/'")
"""After these a backslash is that of JSON, or of a language that is not read here."""
_COMMANDS = {
    "r": "rangle rbrace rbrack rceil rfloor rgroup rho rhd right rightarrow rightharpoonup "
    "rightleftharpoons rightrightarrows rightsquigarrow risingdotseq rm root rtimes rVert rvert",
    "t": "tan tanh tau tbinom text textbf textit textmd textnormal textrm textsf texttt textup "
    "tfrac therefore theta thetasym thickapprox thicksim thinspace tilde times tiny to top "
    "triangle triangledown triangleleft trianglelefteq triangleq triangleright trianglerighteq",
    "n": "nabla natural ncong ne nearrow neg neq newcommand newline nexists ngeq ngeqslant ngtr ni "
    "nleftarrow nleq "
    "nleqslant nless nmid nolimits nonumber normalsize not notag notin nparallel nprec nrightarrow "
    "nsim nsubseteq nsucc nsupseteq ntriangleleft ntriangleright nu nvdash nwarrow",
}
_KNOWN = {letter: frozenset(names.split()) for letter, names in _COMMANDS.items()}
LATEX_OF_N = _KNOWN["n"]
"""Commands of LaTeX that begin as a line break is written in many languages."""
_NAMES = frozenset(
    {"ne", "neg", "neq", "ni", "nless", "nmid", "not", "nu", "tag", "text", "to", "top"}
)
"""Commands whose letters after the first could be a name in a program."""
_BEGINS_A_LINE = re.compile(
    r"\s*(?:(?:[-+*/%|&^@]|//|\*\*|<<|>>)?=(?!=)|[(\[.:,])"  # `i //= 2`, `top(x)`
    r"|\s+if\s[^\\\"]{0,200}?\selse\s"  # `u if x else y`
)
"""What follows such a name where it begins a line of a program."""


class JsonObject(NamedTuple):
    """A JSON object in a text."""

    fields: dict[str, Any]  # its fields
    end: int  # the place in the text where it ends
    begin: int  # where it begins


def json_objects(text: str, *, is_program: bool = True) -> list[JsonObject]:
    """In order, without those within others."""
    kept = _with_kept_backslashes(text, is_program=is_program)
    found, place = list[JsonObject](), kept.find("{")
    while place >= 0:
        try:
            fields, end = _decoder.raw_decode(kept, place)
            # Half of a pair of surrogates can be written in JSON, but nowhere else.
            json.dumps(fields, ensure_ascii=False).encode()
            found.append(JsonObject(_restored(fields), end, place))
            place = end
        except (ValueError, RecursionError):  # No JSON, or a number of thousands of digits.
            place += 1
        place = kept.find("{", place)
    return found


def as_utf8(text: str) -> str:
    """Half a pair of surrogates becomes a `?`."""
    return text.encode(errors="replace").decode()


def json_value(text: str) -> Any:
    """The text is JSON as a whole, or there is a ValueError."""
    try:
        found = _strict.decode(_with_kept_backslashes(text, is_program=True))
        json.dumps(found, ensure_ascii=False).encode()
        return _restored(found)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_strict = json.JSONDecoder(strict=False, parse_constant=_refuse)


def _with_kept_backslashes(text: str, *, is_program: bool) -> str:
    """The text, of the same length, with another character for each backslash that stays one."""
    if "\\" not in text:
        return text

    def written(found: re.Match[str]) -> str:
        name: str | None = found[1]
        if name is None or name[0] in _OF_JSON:
            return found[0]
        known = _KNOWN.get(name[0])
        if known is not None and name not in known:
            return found[0]
        if is_program and name in _NAMES and _BEGINS_A_LINE.match(text, found.end()):
            return found[0]
        return _KEPT + name

    return _ESCAPE.sub(written, text)


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(_KEPT, "\\")
    if isinstance(value, dict):
        return {_restored(name): _restored(each) for name, each in value.items()}
    return [_restored(each) for each in value] if isinstance(value, list) else value


# --- JSON that anybody may have written -----------------------------------------------

_MOST_DIGITS = 308
"""Digits of a whole number that a float can be near: `float` refuses those of more."""


_DEEP = 2048
"""Lists and objects within each other that are too many for the stack of Arrow's parser, about."""


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`, with a ValueError also where values are nested too deeply, or a whole number
    has too many digits."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:  # It is no ValueError.
        raise ValueError("its values are nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def is_very_deep(text: bytes) -> bool:
    """Whether Arrow's parser would overflow its stack."""
    start, length = 0, 2 * _DEEP  # Only in a line that is so long.
    while len(text) - start >= length:
        newline = text.rfind(b"\n", start, start + length)
        if newline < 0 or not _is_between(text, newline):
            newline = _end_of_object(text, start + length)
            if _is_deep(np.frombuffer(text, np.uint8, newline - start, start)):
                return True
        start = newline + 1
    return False


def _end_of_object(text: bytes, start: int) -> int:
    """The first end of a line from `start` on that is between two objects; else, of the text."""
    newline = text.find(b"\n", start)
    while newline >= 0 and not _is_between(text, newline):
        newline = text.find(b"\n", newline + 1)
    return len(text) if newline < 0 else newline


def _is_between(text: bytes, newline: int) -> bool:
    """Whether the end of a line is between two objects, and not within one."""
    before, after = text[max(0, newline - 8) : newline], text[newline + 1 : newline + 9]
    ends, begins = before.rstrip(b" \t\r"), after.lstrip(b" \t\r\n")
    return ends.endswith(b"}") and (begins.startswith(b"{") or newline + 1 == len(text))


def _is_deep(text: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    opens = (text == ord("[")) | (text == ord("{"))
    if np.count_nonzero(opens) < _DEEP:
        return False
    closes = (text == ord("]")) | (text == ord("}"))
    depths = np.cumsum(opens.view(np.int8) - closes.view(np.int8), dtype=np.int64)
    # Above the lowest before it: texts may hold brackets, too.
    return bool((depths - np.minimum.accumulate(depths)).max() >= _DEEP - 1)


_BESIDE = re.compile(
    r"""(?s)\\.|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[}\]]|[\d.]+(?:e[+-]?\d+)?)"""
    r"""(\s+(?=['"{\[]|-?[\d.]))?"""
)
"""A value, and white space before the next: numpy writes no commas."""


def list_in(text: str) -> list[Any] | None:
    """The list that a text is, in JSON or as Python, also as a tuple, or numpy writes it."""
    text = _BESIDE.sub(lambda found: found[0] if not found[2] else f"{found[1]},", text.strip())
    for read in (parse_json, ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            found = read(text)
            return list(found) if isinstance(found, (list, tuple)) and text[0] in "[(" else None
    return None
