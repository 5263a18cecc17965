"""Numbers with a decimal comma, as German, French or Russian write them.

`3,5` is two numbers in English. In a response of such a language it may be either, so both readings
are compared with the reference: as it stands, and with a decimal point.
"""

from __future__ import annotations

import re

from .languages import LANGUAGES
from .phrases import languages_of

_AROUND = 1_000  # characters before the end of a response, which show its language
_COMMA = re.compile(
    r"([^\d,()\[\]{}]*)(\d{1,3}(?:[.\u00a0\u202f ]\d{3})+|\d+),(\d+)([^\d,]*)", re.DOTALL
)
_GROUPS = re.compile(r"([^\d,()\[\]{}]*)(\d{1,3}(?:\.\d{3})+)([^\d,]*)", re.DOTALL)
_SEPARATOR = re.compile(r"\D")
_BRACED = re.compile(r"(?<=\d)\{,\}(?=\d{1,2}(?!\d))")


def with_point(number: str, response: str) -> str | None:
    r"""A number with a decimal point that has a comma, or points between thousands; None if it has not.

    Args:
        number: an answer or a reference, perhaps with a unit.
        response: whose language decides. The comma of `3{,}5` is one in any language.

    Example:
        >>> with_point("3,5 Meter", "Die Antwort lautet 3,5 Meter.")
        '3.5 Meter'
        >>> with_point("3,5", "The answer is 3,5.")
    """  # noqa: E501
    plain = _BRACED.sub(",", number)
    found = _COMMA.fullmatch(plain)
    groups = None if found else _GROUPS.fullmatch(plain)
    if not found and not groups:
        return None
    if plain == number and not _has_comma(response):
        return None
    if found:
        before, whole, part, after = found.groups()
        return f"{before}{_SEPARATOR.sub('', whole)}.{part}{after}"
    assert groups is not None
    before, whole, after = groups.groups()
    return f"{before}{_SEPARATOR.sub('', whole)}{after}"


def _has_comma(response: str) -> bool:
    names = languages_of(response[-_AROUND:])
    return any(name in LANGUAGES and LANGUAGES[name].comma for name in names)
