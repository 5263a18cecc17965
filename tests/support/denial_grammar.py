"""Responses in which the right number is denied or affirmed, drawn from templates in five languages.

`tests/support/denials/*.yaml` was written without sight of the verifier's rules. A third of its
templates, drawn at random, was kept apart until the rules were final: the part "apart".

In a template, `# name` begins a category, and the pilcrow is a line break.

    <N> <M> <K>       the right number and two others, plain, in bold type or between dollars
    <NU> <MU> <KU>    the same, in some draws with a unit; <U>: the unit alone
    <n> <m> <k>       the same, without marks
    <A> + <B> = N, <C> - <D> = N; <a> <b> <c> <d> without marks
    <lo> <hi>         M and N in rising order
    <X> <Xc>          "the answer", and with a capital
    <W> <Wc>          whose answer it is: "my friend"
    <S> <T>           two names
    <CI> <CS>         an open condition (indicative, subjunctive)
    <CA>              a step of the calculation as a condition: "we add everything up"
    <CF> <CFc>        a counterfactual clause
    "M<N |", "whole |"   what the numbers of a draw must fulfil
"""

import random
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import yaml

LANGUAGES = ("en", "de", "fr", "es", "zh")
KINDS = ("denial", "affirmation")
PARTS = ("open", "apart")
_FOLDER = Path(__file__).parent / "denials"
_MARK = "\ue000"  # stands for N until the text is known to have it nowhere else
_HAN = "\u4e00-\u9fff"
_CONSTRAINT = re.compile(r"((?:K<)?[MN][<>][NM](?:<M)?|whole) \| ")
_FITS = {
    "": lambda k, m, n: True,
    "whole": lambda k, m, n: n == int(n),
    "M<N": lambda k, m, n: m < n,
    "M>N": lambda k, m, n: m > n,
    "K<N<M": lambda k, m, n: k < n < m,
}
# Of lines before the answer, at most one of these, and first.
_OPENER = re.compile(
    r"First|Let|1|Zuerst|Gehen|Schauen|d'abord|Procédons|Regardons|Primero|Vayamos|Veamos|首先"
    r"|我们|共是|première|primera|ersten|first part"
)
_STYLES = {"plain": "%s", "bold": "**%s**", "dollar": "$%s$", "bolddollar": "**$%s$**"}


class DrawnResponse(NamedTuple):
    """A response, and the number that is right."""

    language: str
    template: str
    response: str
    answer: str


class _Template(NamedTuple):
    id: str
    language: str
    kind: str
    part: str
    constraint: str
    text: str


def drawn(part: str, kind: str, count: int, seed: int = 0) -> list[DrawnResponse]:
    """Responses of all languages and templates in equal shares, in a random order."""
    rng = random.Random(f"heldout-grammar/{part}/{kind}/{seed}")
    decks: dict[str, list[_Template]] = {language: [] for language in LANGUAGES}
    found = []
    for i in range(count):
        language = LANGUAGES[i % len(LANGUAGES)]
        if not decks[language]:
            every = _templates()
            decks[language] = [t for t in every if t[1:4] == (language, kind, part)]
            rng.shuffle(decks[language])
        template = decks[language].pop()
        text, number = _draw(template, rng)
        text = text.replace("⟦", "").replace("⟧", "").replace(_MARK, number)
        found.append(DrawnResponse(language, template.id, text, number))
    rng.shuffle(found)
    return found


@lru_cache
def _tables(language: str) -> dict:
    return yaml.safe_load((_FOLDER / f"{language}.yaml").read_text("utf-8"))


@lru_cache
def _templates() -> list[_Template]:
    found = []
    for language in LANGUAGES:
        for kind in KINDS:
            rows = list(_parsed(_tables(language)[kind]))
            order = list(range(len(rows)))
            random.Random(f"split-20240611/{language}/{kind}").shuffle(order)
            apart = set(order[: round(len(rows) / 3)])
            for i, (category, constraint, text) in enumerate(rows):
                part = "apart" if i in apart else "open"
                name = f"{language}/{kind}/{category}/{i:02d}"
                found.append(_Template(name, language, kind, part, constraint, text))
    return found


def _parsed(block: str) -> Iterator[tuple[str, str, str]]:
    category = ""
    for line in block.strip().split("\n"):
        if re.match(r"# [a-z]+$", line):
            category = line[2:]
            continue
        found = _CONSTRAINT.match(line)
        constraint, text = (found[1], line[found.end() :]) if found else ("", line)
        yield category, constraint, text.replace("¶", "\n")


def _draw(template: _Template, rng: random.Random) -> tuple[str, str]:
    """A text with marks for N, and N, which is nowhere else in it."""
    for attempt in range(2_000):
        if attempt % 40 == 0:
            number = _number(rng)
        text = _filled(template, number, rng, attempt % 40 < 25)
        if text is not None and _shown(number) not in text and _MARK in text:
            return text, _shown(number)
    raise AssertionError(f"no draw fits {template.id}")


def _filled(template: _Template, n: Decimal, rng: random.Random, steps: bool) -> str | None:
    """A text, or None where the numbers do not fit the template."""
    language, text = template.language, template.text
    words = _tables(language)["vocabulary"]
    m = _near(rng, n, 1 if "<" in template.constraint else 2)
    k = _near(rng, n, 1 if "K" in template.constraint else 2)
    if len({n, m, k}) < 3 or not _FITS[template.constraint](k, m, n) or _overlap(n, m, k):
        return None
    whole = n == n.to_integral_value()
    a = Decimal(rng.randint(1, max(1, int(n) - 1)))
    d = Decimal(rng.randint(2, max(9, min(200, int(n)))))
    if not whole and rng.random() < 0.5:
        a, d = a + Decimal(rng.randint(1, 9)) / 10, d + Decimal(rng.randint(1, 9)) / 10
    if a >= n and re.search("<[AaBb]>", text):
        return None
    n_style, m_style = _style(rng, template.kind)
    names = rng.sample(words["S"], 2)
    unit = rng.choice(words["Uc"] if whole and rng.random() < 0.6 else words["Um"])
    has_unit, gap = rng.random() < 0.4, " "
    if language == "zh":
        gap = " " if rng.random() < 0.5 else ""
        text = _with_gaps(text, has_unit) if gap else text
    english = language == "en" and unit == "dollars" and whole
    first = english and n_style == m_style == "plain" and rng.random() < 0.5
    put = {}
    for key, value in zip("NMKABCD", (_MARK, m, k, a, n - a, n + d, d), strict=True):
        shown = value if value == _MARK else _shown(value)
        style = _STYLES[n_style if key == "N" else m_style]
        dressed = style % shown
        with_unit = dressed + gap + unit if has_unit else dressed
        with_unit = f"${shown}" if has_unit and first else with_unit
        put |= {key: dressed, key.lower(): shown, f"{key}U": with_unit}
    put |= {"lo": put["N" if n < m else "M"], "hi": put["M" if n < m else "N"]}
    text = _worded(text, put, words, names, unit, rng)
    text = _with_steps(text, language, names, rng, steps)
    return _spelled(text, language, _shown(n), rng)


def _worded(
    text: str, put: dict, words: dict, names: list[str], unit: str, rng: random.Random
) -> str:
    chosen = {key: rng.choice(words[key]) for key in ("X", "W", "CF")}
    put |= chosen | {f"{key}c": value[:1].upper() + value[1:] for key, value in chosen.items()}
    put |= {"S": names[0], "T": names[1], "U": unit}
    put["CI"] = rng.choice(words["CI"])
    put["CS"] = rng.choice(words.get("CS", words["CI"]))
    put["CA"] = rng.choice(words["CA"])
    token = re.compile("<(" + "|".join(sorted(put, key=len, reverse=True)) + ")>")
    for _ in range(2):  # A clause has names.
        text = token.sub(lambda found: put[found[1]], text)
    return text


def _with_steps(text: str, language: str, names: list[str], rng: random.Random, steps: bool) -> str:
    """A text with some lines of a solution before it, and words after it."""
    words, lines = _tables(language)["vocabulary"], []
    if steps:
        some = rng.sample(words["pre"], rng.choices((0, 1, 2, 3), (35, 25, 25, 15))[0])
        opening = [line for line in some if _OPENER.search(line)][:1]
        rest = [line for line in some if not _OPENER.search(line)]
        lines = [_step(rng, names, line) for line in opening + rest]
    space = "" if language == "zh" else " "
    between = rng.choice((space, space, "\n", "\n\n"))
    last = rng.choice((between, "\n\n"))
    if text.lstrip("⟦").startswith("####"):
        last = "\n"
    if lines:
        text = between.join(lines) + last + text
    if re.search("[.。]⟧?$", text) and rng.random() < 0.06:
        text += rng.choice((space, "\n\n")) + rng.choice(words["tail"])
    return text


def _step(rng: random.Random, names: list[str], text: str) -> str:
    i, j = rng.randint(2, 60), rng.randint(2, 60)
    values = {"i": i, "j": j, "s": i + j, "p": i * j, "S": names[0], "T": names[1]}
    return re.sub("<([ijspST])>", lambda found: str(values[found[1]]), text)


def _spelled(text: str, language: str, number: str, rng: random.Random) -> str:
    """A text with the spelling and the quotation marks of its language."""
    if language == "es":  # "o" is "u" before "ocho" and "once"
        pattern = rf"\bo(?=(?: | \}} )[*$]*(?:8|11(?!\d)|{_MARK}))"
        begins = re.match(r"8|11(?!\d)", number)
        text = re.sub(pattern, lambda m: _or(m, text, bool(begins)), text)
    if language in ("en", "fr") and rng.random() < 0.3:
        text = text.replace("'", "\u2019")
    if language == "fr" and rng.random() < 0.25:
        text = re.sub(r" (?=[:;?!»])", "\u00a0", text).replace("« ", "«\u00a0")
    return text


def _or(found: re.Match[str], text: str, changes: bool) -> str:
    follows = text[found.end() :].lstrip(" }*$")
    return "o" if follows.startswith(_MARK) and not changes else "u"


def _with_gaps(text: str, has_unit: bool) -> str:
    """Spaces between numbers and Chinese characters."""
    text = re.sub(f"(?<=[{_HAN}])(?=<(?:[NMKABCD]U?|lo|hi)>)", " ", text)
    text = re.sub(f"(<(?:[NMKABCD]|lo|hi)>)(?=[{_HAN}]|<U>)", r"\1 ", text)
    return re.sub(f"(<[NMK]U>)(?=[{_HAN}])", r"\1" if has_unit else r"\1 ", text)


def _overlap(n: Decimal, *others: Decimal) -> bool:
    """Whether the digits of one number stand in another."""
    right = _shown(n)
    shown = [_shown(x) for x in others]
    return any(right in x or (x in right and len(x) > 1) for x in shown)


def _shown(x: Decimal) -> str:
    text = format(x, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(rng: random.Random) -> Decimal:
    size = rng.random()
    for most, low, high in ((0.30, 2, 99), (0.60, 100, 999), (0.84, 1000, 9999)):
        if size < most:
            return Decimal(rng.randint(low, high))
    return _decimal(rng, 2, 999)


def _decimal(rng: random.Random, low: int, high: int) -> Decimal:
    while True:
        x = Decimal(rng.randint(low * 100, high * 100)) / 100
        if rng.random() < 0.6:
            x = x.quantize(Decimal("0.1"))
        if x != x.to_integral_value() and low <= x <= high:
            return Decimal(_shown(x))


def _near(rng: random.Random, n: Decimal, lowest: int) -> Decimal:
    """Another number of about the size of n, with decimals only where n has them."""
    whole = n == n.to_integral_value()
    if rng.random() < 0.5:
        low, high = max(lowest, int(n) - 30), int(n) + 30
    else:
        low, high = lowest, max(60, int(n) * 2)
    if not whole and rng.random() < 0.6:
        return _decimal(rng, low, high)
    return Decimal(rng.randint(low, high))


def _style(rng: random.Random, kind: str) -> tuple[str, str]:
    """How N and the other numbers are marked; in a denial, N never stands out alone."""
    chance = rng.random()
    for most, style in ((0.58, "plain"), (0.72, "bold"), (0.86, "dollar"), (0.90, "bolddollar")):
        if chance < most:
            return style, style
    if kind == "affirmation":
        return rng.choice(("bold", "dollar", "bolddollar")), "plain"
    return "plain", "plain"
