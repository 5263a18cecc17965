"""A normal form for the many ways to write the same mathematics.

This module only rewrites text and evaluates nothing. Callers have checked `limits.refusal`, so
spans are short and shallow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from .phrases import languages_of
from .words import listed, tables

# --- Numbers with a decimal comma, as German, French or Russian write them ------------
# `3,5` is two numbers in English. In a response of such a language it may be either, so both
# readings are compared with the reference: as it stands, and with a decimal point.

_AROUND = 1_000  # characters before the end of a response, which show its language
_NUMBER = re.compile(
    r"([^\d,()\[\]{}]*)(\d{1,3}(?:[.\u00a0\u202f ]\d{3})+|\d+)(?:,(\d+))?([^\d,]*)", re.DOTALL
)
_BRACED = re.compile(r"(?<=\d)\{,\}(?=\d{1,2}(?!\d))")


def with_point(number: str, response: str) -> str | None:
    """A number with a decimal point that has a comma, or points between thousands; None if it has
    not."""
    plain = _BRACED.sub(",", number)
    found = _NUMBER.fullmatch(plain)
    if not found or not (found[3] or "." in found[2]):
        return None
    names = languages_of(response[-_AROUND:])
    if plain == number and not any(tables().languages[name].comma for name in names):
        return None
    before, whole, part, after = found.groups(default="")
    return f"{before}{re.sub(r'[^0-9]', '', whole)}{part and f'.{part}'}{after}"


# --- A normal form for the many ways to write the same mathematics --------------------

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–—‐‑‒﹣－", "-"),
        **{"×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/"},
        **{"√": r"\sqrt ", "π": r"\pi ", "∞": r"\infty ", "±": r"\pm ", "∓": r"\mp "},
        **{"≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne "},
        **{"∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "≈": r"\approx "},
        **{
            "°": r"^\circ ",
            "θ": r"\theta ",
            "α": r"\alpha ",
            "β": r"\beta ",
            "λ": r"\lambda ",
            "ℝ": r"\mathbb{R}",
        },
        **{"＄": "$", "％": "%", "，": ",", "：": ":", "。": ".", "“": '"', "”": '"', "’": "'"},
        **{label: f"; ({number}) " for number, label in enumerate("①②③④⑤", 1)},
        **{"\u200b": "", "\ufeff": "", "\u2061": "", "\u2062": ""},
    }
)
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_RAISED, _LOWERED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_METRES = re.compile("(?<=[0-9])(?=m[²³](?![0-9A-Za-z]))")
_FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt|cal|frak)|bm|boldsymbol|mbox"
    r"|hbox|operatorname\*?|emph|underline|boxed|fbox|displaystyle|mathop)\s*(?=\{)"
)
# `12^{\text{th}}`, and without a font only what ends this numeral: `2^{st}` is a power.
_ORDINAL = re.compile(
    r"(?<=\d)\s*\^\s*(?:\{\s*)?\\(?:text|mathrm|textrm)\s*\{\s*(st|nd|rd|th)\s*\}(?:\s*\})?"
    r"|((?<=1)\^\{st|(?<=2)\^\{nd|(?<=3)\^\{rd|(?<=\d)\^\{th)\}"
)
_TWICE_ESCAPED = re.compile(r"\\\\(?=[a-zA-Z]{2}|[{}])")
_ODD_BACKSLASHES = re.compile(r"(?<!\\)\\(?:\\\\)*(?!\\)")
_GROUP = r"((?:[^{}]|\{[^{}]*\})*?)"  # one level of braces inside

Instead = str | Callable[[re.Match[str]], str]
Rules = list[tuple[re.Pattern[str], Instead]]


def rules(*pairs: tuple[str, Instead]) -> Rules:
    return [(re.compile(pattern), instead) for pattern, instead in pairs]


def rewritten(text: str, rules: Rules) -> str:
    for pattern, instead in rules:
        text = pattern.sub(instead, text)
    return text


def rewritten_inside_out(text: str, rules: Rules) -> str:
    """A text by rules that are applied until nothing changes."""
    before = None
    while text != before:
        before, text = text, rewritten(text, rules)
    return text


_INSTEAD = {
    name: instead
    for instead, names in (
        (r"\frac", "dfrac tfrac cfrac"), (r"\binom", "dbinom tbinom"), (r"\mod ", "bmod"),
        (r"\le ", "leq leqslant leqq"), (r"\ge ", "geq geqslant geqq"), (r"\ne ", "neq"),
        ("<", "lt"), (">", "gt"), (r"\{", "lbrace"), (r"\}", "rbrace"), ("*", "ast"),
        ("|", "lvert rvert vert mid"), (":", "colon ratio"), (r"\emptyset ", "varnothing O"),
        (" or ", "lor vee"), (" and ", "land wedge"), (r"^\circ ", "degree"),
        ("£", "pounds textsterling"), ("€", "euro texteuro"),
        (" ", "displaystyle textstyle limits nolimits rm bf it hline quad qquad thinspace"),
        (" ", "medspace thickspace negthinspace negmedspace negthickspace"),
    )
    for name in listed(names)
}  # fmt: skip
_NAMED = re.compile(r"\\([a-zA-Z]+)")
_SYNONYMS = rules(
    (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s*\.?", ""),
    (r"(?<!\\)\\[,;: >]|~|\\[hv]space\s*\{[^{}]*\}", " "),
    (r"(?<=\d)(?:\{,\s*\}|,\s*\\!)\s*(?=\d{3}(?!\d))", ""),  # no separator
    (r"(?<!\\)\\!|\\(?:text)?color\s*\{[^{}]*\}", ""),
    (r"\{,\}", ","),
    (r"\\mathbb\s*(?:\{\s*([A-Z])\s*\}|([A-Z]))", r"\\mathbb{\1\2}"),
    ("<=", r"\\le "),
    (">=", r"\\ge "),
    ("!=", r"\\ne "),
    (r"\\(begin|end)\{array\}(?:\{[lcr|]*\})?", r"\\\1{matrix}"),
    (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])", r"^\\circ "),
    (r"(?<=\d) x (?=\d)", r" \\times "),
    (r"^\s*([a-zA-Z]) in (?=[(\[{\\])", r"\1 \\in "),
    (r"\bnegative (?=[\d\\$])|^minus (?=[\d\\$])", "-"),
    (r"(?<=[\w)}])\s*\*\*\s*(?=[\w({+-])", "^"),
    (r"\^\s*(\d|\{[^{}]*\})\s*_\s*(\w|\{[^{}]*\})", r"_\2^\1"),  # `v^2_0`
)
_DELIMITER = re.compile(r"\\[()]|(?<!\\)\\[\[\]]")
_DOLLAR = re.compile(r"(?<!\\)\$")
_INFIX = rules(
    (rf"(?<!\\)\{{{_GROUP}\\over(?![a-zA-Z]){_GROUP}\}}", r"{\\frac{\1}{\2}}"),
    (rf"(?<!\\)\{{{_GROUP}\\choose(?![a-zA-Z]){_GROUP}\}}", r"{\\binom{\1}{\2}}"),
)
_ROOTS = rules(
    (r"(?<![\\a-zA-Z])sqrt\s*(?=\()", r"\\sqrt"),
    (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\sqrt\s*(\[[^][]*\])?\s*(\d+|[a-zA-Z]|\\[a-zA-Z]+)(?![a-zA-Z{])", r"\\sqrt\1{\2}"),
)
_FRACTIONS = rules(
    # `\frac \pi4`: a command without arguments of its own.
    (r"\\(frac|binom)\s*([0-9a-zA-Z]|\\[a-zA-Z]+(?![a-zA-Z]|\s*[\[{]))", r"\\\1{\2}"),
    (rf"\\(frac|binom)\s*\{{{_GROUP}\}}\s*([0-9a-zA-Z])", r"\\\1{\2}{\3}"),
    (r"\\frac\s*\{\s*([^{}]*?)\s*\}\s*\{\s*([^{}]*?)\s*\}", r"\\frac{\1}{\2}"),
    (r"(?<=\^)\s*(\\frac\{[^{}]*\}\{[^{}]*\})", r"{\1}"),
)
_GOES_ON = re.compile(r",\s*(?:\.\.+|\\(?:l|c)?dots)\s*$")
# `]2, 5[` is the open interval, as schools in France or Germany write it.
_OPEN_HIGH = re.compile(r"([\[\](])([^\[\]()]*[,;][^\[\]()]*)\[(?=\s*(?:$|\\c[au]p|U\b))")
_OPEN_LOW = re.compile(r"(?:(?<=^)|(?<=[pU] ))\]([^\[\]()]*[,;][^\[\]()]*)([\])])")
_SPACES = re.compile(r"\s+")


def plain(span: str) -> str:
    r"""The span in plain notation: one spelling per symbol, no delimiters, fonts or end marks.

    >>> plain(r"\(\dfrac12\).")
    '\\frac{1}{2}'
    """
    text = _characters(span)
    if _TWICE_ESCAPED.search(text):  # `(5, \\infty)`
        if not _ODD_BACKSLASHES.search(text):
            text = text.replace("\\\\", "\\")
        elif "\\begin" not in text:  # there `\\` begins a row
            text = _TWICE_ESCAPED.sub(r"\\", text)
    text = _ORDINAL.sub(lambda m: m[1] or m[2][-2:], text)
    text = _NAMED.sub(lambda m: _INSTEAD.get(m[1], m[0]), text)
    text = rewritten(text, _SYNONYMS)
    text = _DELIMITER.sub(" ", _without_fonts(text))
    if len(_DOLLAR.findall(text)) % 2 == 0:  # an odd number of them means money
        text = _DOLLAR.sub(" ", text)
    if "\\over" in text or "\\choose" in text:
        text = rewritten_inside_out(f"{{{text}}}", _INFIX)
    if "sqrt" in text:
        text = rewritten_inside_out(text, _ROOTS)
    if "frac" in text or "binom" in text:
        text = rewritten_inside_out(text, _FRACTIONS)
    text = _SPACES.sub(" ", text).strip()
    if "[" in text:
        text = _OPEN_LOW.sub(r"(\1\2", _OPEN_HIGH.sub(r"\1\2)", text))
    return _ends(text)


def _characters(span: str) -> str:
    if span.isascii():
        return span
    from .phrases import joined_in_english, readable, translated

    span = joined_in_english(readable(span))
    text = _VULGAR.sub(
        lambda m: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", m[0]).split("⁄")), span
    )
    text = _METRES.sub(" ", text)  # typed as one character it is no power of a letter
    text = _RAISED.sub(r"^{\g<0>}", _LOWERED.sub(r"_{\g<0>}", text))
    text = unicodedata.normalize("NFKC", translated(text, _CHARACTERS)).replace("−", "-")
    return text.replace("\u0e4d\u0e32", "\u0e33")  # one vowel of Thai


def _without_fonts(text: str) -> str:
    r"""The text of `\text{...}` and its like, at any depth: `\mathbf{\frac{9}{7}}`."""
    while found := _FONT.search(text):
        start, end = found.end(), closes_at(text, found.end())
        inside = f" {text[start + 1 : end]} {text[end + 1 :]}" if end > 0 else text[start:]
        text = text[: found.start()] + inside
    return text


def _ends(text: str) -> str:
    """Without end marks, markdown and redundant outer braces; `1, 2, ...` stays open."""
    if _GOES_ON.search(text):
        return text
    while True:
        before = text
        text = re.sub(r"(?:\\|[.,;:\s])+$", "", text.strip())
        for mark in ("**", "__", "*", "_", "`", '"', "'"):
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)]
        text = re.sub(r"^(?:=|\\approx\b|[:,;]|\*\*)\s*", "", text)
        if text.startswith("{") and closes_at(text, 0) == len(text) - 1:
            text = text[1:-1]
        if text == before:
            return text


def closes_at(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`; -1 if there is none.

    Round and square brackets may close one another: `[0, 1)` is one interval.
    """
    opening = text[start]
    stack = [opening]
    for i in range(start + 1, len(text)):
        c = text[i]
        if c in "([{":
            stack.append(c)
        elif c in ")]}":
            top = stack.pop()
            if (top == "{") != (c == "}"):
                return -1
            if not stack:
                return i
    return -1


def split_top(text: str, separator: re.Pattern[str], *, keep: bool = False) -> list[str]:
    """Pieces of the text between separators outside all brackets.

    With `keep`, the first group of each separator stands between its pieces, as in `re.split`.
    """
    depth, start, i, pieces = 0, 0, 0, list[str]()
    while i < len(text):
        c = text[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth == 0 and (m := separator.match(text, i)):
            pieces.append(text[start:i].strip())
            pieces += [m[1]] if keep else []
            start = i = m.end()
            continue
        i += 1
    pieces.append(text[start:].strip())
    return pieces
