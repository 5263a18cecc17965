r"""Units, counters and magnitudes of other languages, behind a number or a formula.

A known unit becomes that of `measures` (`км` is `km`), a magnitude multiplies (`5万` is 50,000), a
counter says nothing (`12个`), and any other short noun is a unit that is not known, as "apples"
is. A word that changes the number (`以上`) makes it no number at all.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from . import measures
from .languages import LANGUAGES
from .measures import UNIT_NAMES, Measure, read_unit
from .phrases import (
    FOREIGN,
    LETTER,
    compiled,
    fold,
    folding,
    is_unspaced,
    languages_of,
    phrases_of,
    size,
    without_polite,
    words_in,
)
from .words import FOREIGN_MAGNITUDES, listed

# --- A value and the unit after it, in any language -----------------------------------


def split_unit(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit, as `measures.split_unit`."""
    if not text.isascii():
        value, unit = split_foreign_unit(text)
        if value != text:
            return value, unit
    return measures.split_unit(text)


# --- Units, counters and magnitudes of other languages, behind a number or a formula ---

_UNSPACED_MAGNITUDES = {
    10: "十 拾", 100: "百 佰 백 ร้อย", 1_000: "千 仟 천 พัน", 10**4: "万 萬 만 หมื่น", 10**5: "แสน",
    10**6: "ล้าน", 10**8: "亿 億 억", 10**12: "兆 조",
}  # fmt: skip
_PERCENT = frozenset(
    listed(
        "процент процента процентов проценти відсотків prozent procent procenta procento persen "
        "प्रतिशत फीसदी শতাংশ เปอร์เซ็นต์ 퍼센트 パーセント درصد אחוז אחוזים"
    )
)
_PERCENT_PHRASE = re.compile(
    "por ciento|por cento|pour cent|per cento|phan tram|بالمئة|بالمائة|في المئة|في المائة"
    "|τοις εκατο"
)
_SQUARES = re.compile("квадратн\\w+|кв|квадратних|cuadrados|carres|quadrados|quadrati|มุมฉาก|مربعا?")
_CUBES = re.compile("кубическ\\w+|куб|кубічних|cubicos|cubes|cubicos|cubi|مكعبا?")
_COUNTER = (
    "个|個|箇|ヶ|只|隻|支|枝|本|册|冊|张|張|条|條|头|頭|匹|名|位|人|口|件|辆|輛|艘|架|台|臺|朵|"
    "颗|顆|粒|块|塊|片|页|頁|层|層|间|間|座|家|户|戶|棵|株|双|雙|对|對|副|套|组|組|批|次|遍|回|"
    "趟|场|場|种|種|类|類|份|箱|盒|包|袋|瓶|杯|碗|盘|盤|罐|桶|根|把|道|题|題|步|排|行|列|段|句|"
    "字|枚|羽|着|足|膳|軒|歳|才|岁|歲|つ|点|點|分|月|号|號|时|時|倍|番|通|単位|位|학생|개|명|"
    "마리|권|장|대|병|잔|송이|그루|살|번|가지|쌍|켤레|채|척|점|회|층|칸|자루|봉지|상자|사람|배|"
    "분|등|호|조각|ครั้ง|คน|ตัว|ลูก|ผล|ใบ|เล่ม|ชิ้น|อัน|คัน|แผ่น|ดอก|ต้น|ขวด|แก้ว|กล่อง|ถุง|"
    "ข้อ|หน่วย|เท่า"
)
_NOTHING = frozenset(
    listed(
        "штук штуки штука шт единиц единицы единица ед stück stuck stk unidades unidad pièces "
        "tane adet उत्तर عدد sztuk sztuki szt"
    )
)
_PER = frozenset(listed("в за на par por pro per je w"))
_LARGEST = 10**15
_MOST = 4.0  # words of an unknown unit
_OF = re.compile(r"(?:d['’]|(?:de|di|von|van|av) )(?=[^\W\d_]{2})")
_BRACKETED = re.compile(rf"[(\[]\s*(?:[单單単]位\s*:?|단위\s*:?)?\s*([{LETTER}][{LETTER} ]*)[)\]]$")
_BEHIND = re.compile(rf"(?<=[\w)}}])\s*([{FOREIGN}][{LETTER} /.]*(?:\^\s*\{{?[23]\}}?)?)$")
_POWER = re.compile(r"\s*\^\s*\{?\s*([23])\s*\}?")


class Tail(NamedTuple):
    """What follows a number: a factor, whether it is a percentage, and its unit."""

    factor: int = 1
    percent: bool = False
    measure: Measure | None = None


def _keys(text: str) -> list[str]:
    return [word.replace("_", " ") for word in listed(text)]


class _Words(NamedTuple):
    """The tables of this module, as they match folded text."""

    magnitudes: dict[str, int]
    units: dict[str, str]
    unspaced_magnitude: re.Pattern[str]
    unspaced_unit: re.Pattern[str]


@lru_cache(maxsize=1)
def _words() -> _Words:
    units = {fold(word): unit for unit, text in UNIT_NAMES.items() for word in _keys(text)}
    unspaced = {word: n for n, text in _UNSPACED_MAGNITUDES.items() for word in _keys(text)}
    longest = sorted((u for u in units if is_unspaced(u)), key=len, reverse=True)
    magnitude = "|".join(unspaced)
    unit = "|".join(map(re.escape, longest))
    return _Words(
        {fold(word): n for word, n in FOREIGN_MAGNITUDES.items()} | unspaced,
        units,
        re.compile(rf"(?:(?![千천][米克瓦卡帕])(?:{magnitude}))\s*"),
        re.compile(
            rf"(?P<power>平方|立方|제곱|세제곱|ตาราง|ลูกบาศก์)?(?P<unit>{unit})"
            rf"(?:(?:/|每|毎)(?P<per>{unit}))?|(?P<counter>{_COUNTER})"
        ),
    )


def leading(text: str) -> int:
    """How many characters behind a number are its magnitude, unit or counter."""
    folded = fold(text)
    at = magnitude_length(folded)
    rest = folded[at:]
    gap = len(rest) - len(rest.lstrip(" "))
    if unspaced := _words().unspaced_unit.match(rest, gap):
        return at + unspaced.end()
    word = re.match(rf"[{LETTER}\"]+", rest[gap:])
    known = word and (word[0] in _words().units or word[0] in _PERCENT)
    return at + gap + word.end() if word and known else at


def magnitude_length(folded: str) -> int:
    """How many characters at the start of a text are magnitudes."""
    at = 0
    while found := _magnitude(folded[at:]):
        at += found[1]
    return at


def _magnitude(folded: str) -> tuple[int, int] | None:
    """The magnitude at the start of a text, and how many characters it takes."""
    gap = len(folded) - len(folded.lstrip(" "))
    if unspaced := _words().unspaced_magnitude.match(folded, gap):
        return _words().magnitudes[unspaced[0].strip()], unspaced.end()
    word = re.match(rf"[{LETTER}]+", folded[gap:])
    if not word or word[0] not in _words().magnitudes:
        return None
    end = gap + word.end()
    return _words().magnitudes[word[0]], end + (folded[end : end + 1] == ".")


def read_tail(tail: str) -> Tail | None:
    """What follows a number; None if it changes the number, or is no unit."""
    bracketed = _BRACKETED.match(tail.strip())
    folded = fold(bracketed[1] if bracketed else tail.strip())
    factor, percent = 1, False
    while (found := _magnitude(folded)) and factor < _LARGEST:
        factor, folded = factor * found[0], folded[found[1] :]
    folded = _OF.sub("", folded.strip(" ."))
    if changes(folded):
        return None
    if phrases := phrases_of(folded):
        # A tail that is all politeness has a character before it: that of the number.
        folded = without_polite(f"0{folded}", phrases)[1:]
    phrase = _PERCENT_PHRASE.match(folded)
    first = folded.split(" ", 1)[0]
    if phrase or first in _PERCENT or folded[:1] == "%":
        end = phrase.end() if phrase else len(first) if first in _PERCENT else 1
        percent, folded = True, folded[end:].strip()
    if not folded:
        return Tail(factor, percent)
    if size(folded) > _MOST or re.search(r"(?<!\^)(?<!\{)\d", folded):
        return None
    unit = _unit(folded)
    return None if unit is None else Tail(factor, percent, unit.measure)


def changes(folded: str) -> bool:
    """Whether words behind a number make it another answer: "or more", "squared"."""
    names = languages_of(folded)
    if names and all(LANGUAGES.get(name, LANGUAGES["zh"]).scripts for name in names):
        return bool(compiled(names).after.search(folded))
    return bool(_latin_changes().search(folded))


@lru_cache(maxsize=1)
def _latin_changes() -> re.Pattern[str]:
    words = [each.after for each in LANGUAGES.values() if not each.scripts]
    letters = {point: letter for point, letter in folding().items() if point > 127}
    pattern = "|".join(words).translate(letters).replace(" ", r"\s+")
    return re.compile(rf"(?<![^\W\d_])(?:{pattern})(?![^\W\d_])")


class _TailUnit(NamedTuple):
    measure: Measure | None


def _unit(folded: str) -> _TailUnit | None:
    """The unit that a text is; None if it is none."""
    if found := _words().unspaced_unit.match(folded):
        noun = folded[found.end() :].strip().lstrip("的の의")
        if found["unit"]:
            return _TailUnit(_known(found["power"] or "", found["unit"], found["per"]))
        return _TailUnit(Measure(None, frozenset({noun})) if noun else None)
    words = [w.strip(".") for w in re.split(r"[\s.]+", folded) if w.strip(".")]
    parts = [part for word in words for part in re.split(r"(/)", word) if part]
    if known := _spaced_unit(parts):
        return _TailUnit(known)
    nouns = words_in(folded)
    if not nouns or any(len(w) == 1 and w.upper() != w for w in nouns[:1]):
        return None  # one letter is a name
    if re.search(rf"[^{LETTER}\s'’.\-/]", folded):
        return None
    stems = frozenset(w[:4] for w in nouns if w not in _NOTHING)
    return _TailUnit(Measure(None, stems) if stems else None)


def _spaced_unit(parts: list[str]) -> Measure | None:
    """The unit of words such as `кв. м`, `км/ч`, `metros cuadrados`."""
    power = ""
    names = list[str]()
    for part in parts[:6]:
        raised = _POWER.search(part)
        word = part[: raised.start()] if raised else part
        power = raised[1] if raised else power
        if _SQUARES.fullmatch(word) or _CUBES.fullmatch(word):
            power = "2" if _SQUARES.fullmatch(word) else "3"
        elif names and (word == "/" or word in _PER):
            names.append("/")
        elif word in _words().units and (not names or names[-1] == "/"):
            names.append(_words().units[word])
        elif names:
            break
        else:
            return None
    names = names[:-1] if names and names[-1] == "/" else names
    if not names:
        return None
    return read_unit(names[0] + (f"^{power}" if power else "") + "".join(names[1:]), attached=False)


def _known(power: str, unit: str, per: str | None) -> Measure | None:
    raised = {"": "", "立方": "^3", "세제곱": "^3", "ลูกบาศก์": "^3"}.get(power, "^2")
    units = _words().units
    return read_unit(units[unit] + raised + (f"/{units[per]}" if per else ""), attached=False)


def split_foreign_unit(text: str) -> tuple[str, Measure | None]:
    """A formula without the known unit or counter after it, and the unit."""
    found = _BEHIND.search(text)
    if not found:
        return text, None
    tail = read_tail(found[1])
    if (
        tail is None
        or tail.factor != 1
        or tail.percent
        or (tail.measure and not tail.measure.known)
    ):
        return text, None
    return text[: found.start(1)].strip(), tail.measure


# --- numerals of Chinese, Japanese and Korean -----------------------------------------

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
_SMALL = {"十": 10, "百": 100, "千": 1_000, "백": 100, "천": 1_000, "십": 10, "拾": 10}
_LARGE = {**dict.fromkeys("万萬만", 10**4), **dict.fromkeys("亿億억", 10**8)}
_NUMERAL = re.compile(
    rf"(?:\d+(?:\.\d+)?(?=\s?[{''.join((*_SMALL, *_LARGE))}](?![米克瓦卡帕]))"
    rf"|[{''.join(_DIGITS)}十拾])"
    rf"(?:\s?\d+(?:\.\d+)?|[{''.join((*_DIGITS, *_SMALL, *_LARGE))}](?![米克瓦卡帕])){{0,40}}"
)
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\S")


def numeral(text: str) -> tuple[Fraction, str] | None:
    """A number such as `十二` or `3亿5000万`, and what follows it; only before what is a unit."""
    found = _NUMERAL.match(text)
    if not found:
        return None
    value, rest = _value(_TOKEN.findall(found[0])), text[found.end() :]
    if value is None:
        return None
    tail = read_tail(rest) if rest.strip() else Tail()
    named = tail is not None and (tail.measure is None or tail.measure.known is not None)
    # `三角形` begins with a numeral and is none.
    return (value, rest) if named or text[0] in "0123456789" else None


def _value(tokens: list[str]) -> Fraction | None:
    """The value of digits and magnitudes; None for what has two readings, such as `一万二`."""
    total, section, current, last = Fraction(0), Fraction(0), None, 0
    for token in tokens:
        if token in _SMALL or token in _LARGE:
            factor = _SMALL.get(token) or _LARGE[token]
            if current is None and factor != 10 and not section and not total:
                return None
            if factor < 10**4:
                section += (1 if current is None else current) * factor
            else:
                section += current or 0
                total = (total + section) * factor if factor > last else total + section * factor
                section = Fraction(0)
                last = factor
            current = None
        elif token in _DIGITS:
            current = (
                current * 10 + _DIGITS[token] if current is not None else Fraction(_DIGITS[token])
            )
        elif current is None or current == 0:
            current = Fraction(token)
        else:
            return None
    unclear = current is not None and 0 < current < 10 and len(tokens) > 1 and _unclear(tokens)
    return None if unclear else total + section + (current or 0)


def _unclear(tokens: list[str]) -> bool:
    """Whether a last digit may count the next smaller magnitude: `一万二` is 12,000 in speech."""
    before = tokens[-2]
    return before in _LARGE or (before in _SMALL and _SMALL[before] > 10)
