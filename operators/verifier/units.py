r"""Units, counters and magnitudes of other languages, behind a number or a formula.

A known unit becomes that in English (`км` is `km`), a magnitude multiplies (`5万` is 50,000), a
counter says nothing (`12个`), and any other short noun is a unit that is not known, as "apples"
is. A word that changes the number (`以上`) makes it no number at all.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .languages import LANGUAGES
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

# --- Units that follow a number -------------------------------------------------------

# --- Unit names -----------------------------------------------------------------------
# Names of units in other languages than English, for the names in English below.

UNIT_NAMES: dict[str, str] = {
    "km": (
        "ki-lô-mét "
        "公里 千米 キロメートル 킬로미터 км километр километра километров кілометр кілометрів "
        'กิโลเมตร กม كيلومتر كيلومترا كم کیلومتر ק"מ קילומטר किलोमीटर किमी কিলোমিটার '
        "χιλιόμετρα χλμ kilómetro kilómetros quilômetro quilômetros kilometro kilometri "
        "chilometro chilometri kilomètre kilomètres kilometra"
    ),
    "m": (
        "米 公尺 メートル 미터 м метр метра метров метрів метри เมตร متر مترا أمتار מטר מטרים "
        "मीटर মিটার μέτρα metros metri mètre mètres mét"
    ),
    "cm": (
        "厘米 公分 センチメートル センチ 센티미터 см сантиметр сантиметра сантиметров "
        'เซนติเมตร ซม سنتيمتر سم سانتی‌متر سانتیمتر ס"מ सेंटीमीटर सेमी সেন্টিমিটার centímetro '
        "centímetros centimetri zentimeter centimètre centimètres εκατοστά"
    ),
    "mm": (
        "毫米 公厘 ミリメートル ミリ 밀리미터 мм миллиметр миллиметра миллиметров มิลลิเมตร "
        'مليمتر ملم מ"מ मिलीमीटर milímetro milímetros millimètre millimètres'
    ),
    "kg": (
        "公斤 千克 キログラム キロ 킬로그램 кг килограмм килограмма килограммов кілограм "
        'кілограмів กิโลกรัม กก كيلوغرام كيلوجرام كجم کیلوگرم ק"ג קילוגרם किलोग्राम किलो কেজি '
        "κιλά kilogramo kilogramos quilograma quilogramas ki-lô-gam "
        "kilogramm kilogramme kilogrammes "
        "chilogrammi kilo kilos"
    ),
    "g": (
        "克 グラム 그램 г гр грамм грамма граммов грам грамів กรัม غرام جرام غراما גרם ग्राम "
        "গ্রাম γραμμάρια gramo gramos gramme grammes gramm grammi"
    ),
    "mg": "毫克 ミリグラム мг миллиграмм миллиграммов มิลลิกรัม",
    "tonne": "吨 噸 公吨 トン 톤 тонна тонны тонн ตัน طن tonelada toneladas tonnes tonnen टन",
    "hour": (
        "小时 小時 个小时 個小時 钟头 鐘頭 時間 시간 ч час часа часов годин година години "
        "ชั่วโมง ساعة ساعات ساعت שעה שעות घंटे घंटा घण्टे ঘণ্টা ώρες ώρα heure heures stunde "
        "stunden hora horas uur godzin godziny godzina saat giờ timmar hodin hodiny"
    ),
    "minute": (
        "分钟 分鐘 分間 мин минута минуты минут хв хвилин хвилини นาที دقيقة دقائق دقیقه דקה "
        "דקות मिनट মিনিট λεπτά minuten minuto minutos minuti minuut minut minuty dakika phút "
        "minuter"
    ),
    "second": (
        "秒 秒钟 秒鐘 秒間 초 сек секунда секунды секунд วินาที ثانية ثوان ثانیه שנייה שניות "
        "सेकंड सेकेंड সেকেন্ড sekunde sekunden segundo segundos seconde secondes secondi "
        "saniye giây sekunder sekund"
    ),
    "day": (
        "天 日 日間 일 день дня дней днів дні วัน يوم أيام يوما روز יום ימים दिन দিন ημέρες "
        "μέρες tage tagen jour jours día días dias giorni giorno dagen gün ngày hari dagar dní "
        "dnů"
    ),
    "week": (
        "周 週 星期 礼拜 禮拜 週間 주일 неделя недели недель тижнів тижні สัปดาห์ أسبوع أسابيع "
        "هفته שבועות सप्ताह হপ্তা woche wochen semaine semaines semana semanas settimane hafta "
        "tuần"
    ),
    "month": (
        "个月 個月 か月 ヶ月 カ月 ヵ月 개월 달 месяц месяца месяцев місяців เดือน شهر أشهر ماه "
        "חודשים महीने महीना মাস monate monaten meses tháng"
    ),
    "year": (
        "年 年間 년 год года лет років роки ปี سنة سنوات سال שנים वर्ष साल বছর έτη χρόνια "
        "jahre jahren años anos année années anni yıl năm"
    ),
    "liter": (
        "升 公升 リットル 리터 л литр литра литров літрів ลิตร لتر لترا ליטר लीटर লিটার λίτρα "
        "litro litros litri"
    ),
    "ml": "毫升 ミリリットル 밀리리터 мл миллилитр миллилитров มิลลิลิตร مل मिलीलीटर",
    "dollar": (
        "美元 美金 ドル 달러 доллар доллара долларов доларів ดอลลาร์ دولار دولارا دولارات דולר "
        "דולרים डॉलर ডলার δολάρια dólar dólares dollari đô đô_la dolar"
    ),
    "euro": "欧元 歐元 ユーロ 유로 евро євро ยูโร يورو یورو אירו यूरो ইউরো ευρώ",
    "gbp": "英镑 英鎊 ポンド 파운드",
    "yuan": "元 圆 圓 块钱 塊錢 人民币 юань юаней юаня",
    "yen": "円 日元 日圓 엔 иен иена иены",
    "krw": "원 韩元 韓元",
    "ruble": "руб рубль рубля рублей рублів р ₽ rublos rubel",
    "rupee": "रुपये रुपए रुपया रुपयों रू টাকা",
    "baht": "บาท",
    "degree": (
        "度 градус градуса градусов градусів องศา درجة درجات מעלות डिग्री grados graus "
        "gradi stopni độ"
    ),
    "celsius": "摄氏度 攝氏度 ℃",
}

ASCII_UNITS = {
    word: unit for unit, text in UNIT_NAMES.items() for word in text.split() if word.isascii()
}
"""Those that an ASCII text may have: English has none of these words for anything else."""


# --- Units that follow a number -------------------------------------------------------


class Unit(NamedTuple):
    """A unit of a known dimension; `scale` turns it into the first unit of its dimension."""

    dimension: str
    scale: Fraction


def _table() -> dict[str, Unit]:
    listed = {
        "length": "m metre meter:1 km kilometer kilometre:1000 cm centimeter centimetre:1/100 "
        "mm millimeter millimetre:1/1000 ft foot feet:0.3048 in inch inche:0.0254 "
        "mi mile:1609.344 yd yard:0.9144",
        "mass": "kg kilogram:1 g gram:1/1000 mg milligram:1/1000000 lb pound:0.45359237 "
        "oz ounce:0.028349523125 ton:907.18474 tonne:1000",
        "time": "s sec second:1 min minute:60 h hr hour:3600 day:86400 week:604800 ms:1/1000 "
        "month:2629800 yr year:31557600",
        "volume": "l liter litre:1 ml milliliter millilitre:1/1000",
        "usd": "$ dollar usd buck:1 cent ¢:1/100",
        "eur": "€ euro eur:1",
        "gbp": "£ gbp:1",
        "jpy": "yen:1",
        "cny": "yuan rmb cny:1",
        "yen or yuan": "¥:1",
        "krw": "krw:1",
        "rub": "ruble rouble rub:1",
        "thb": "baht:1",
        "inr": "₹ rupee:1",
        "angle": r"\circ degree deg:1",
        "kelvin": "kelvin K:1",
        "celsius": "celsius:1",
        "fahrenheit": "fahrenheit:1",
        "energy": "joule J kj:1",
        "force": "newton N:1",
        "power": "watt W:1 kW kilowatt:1000",
    }
    units = dict[str, Unit]()
    for dimension, text in listed.items():
        for group in re.findall(r"([^:]+):(\S+)", text):
            for name in group[0].split():
                units[name] = Unit(dimension, Fraction(group[1]))
    return units | {word: units[name] for word, name in ASCII_UNITS.items()}


UNITS = _table()
# Two currencies have the sign ¥.
_ONE_SIGN = frozenset(frozenset(("yen or yuan", each)) for each in ("jpy", "cny"))
_SINGLE = {"m", "g", "s", "h", "l", "L", "K", "J", "N", "W", "V", "A", "C", "F"}
_UNIT_AFTER = re.compile(r"(?<=[\w})])\s+([A-Za-z]{2,}[A-Za-z. ]*(?:\^\s*\{?\s*[0-9]\s*\}?)?)$")
_WORD = re.compile(r"[A-Za-z¢€£$]+|\\circ")
_PHRASE = re.compile(
    r"(?:\\circ|[A-Za-z]+\.?|[¢€£])(?:\s*\^\s*\{?\s*[0-9]\s*\}?)?"
    r"(?:\s*(?:/|\\cdot|\s|-|\*)\s*[A-Za-z]+\.?(?:\s*\^\s*\{?\s*-?[0-9]\s*\}?)?){0,6}$"
)
# Words that change the number, so that the phrase is not a unit.
_NOT_A_UNIT = frozenset(
    listed(
        "or and not plus minus times over out of squared cubed factorial half halves third "
        "thirds quarter quarters fourths fifths tenths hundredths hundred thousand million billion "
        "trillion thousandth thousandths millionths sixths sevenths eighths ninths "
        "dozen percent percentage than point to through between mod modulo choose "
        "maybe perhaps but if when where is are equals if root pi infinity infinite divided "
        "multiplied remainder with base possibly either nor least most minimum maximum above "
        "below sin cos tan log ln sqrt "
        # "or", "more", "less", "at least", "half" in other languages
        "oder mehr weniger meer minder mindestens wenigstens zum hoch halb einhalb ou moins "
        "davantage demi demie menos mais mas lub albo nebo eller flera veya fazla az fazlasi "
        "bucuk atau lebih kurang setengah pangkat kuadrat carre cuadrado quadrado quadrato "
        "quadrat mezzo mezza bukan nicht jan feb mar apr may jun jul aug sep oct nov dec "
        "january february march april june july august september october november december"
    )
)
_TEMPERATURE = re.compile(
    r"^(?:\^?\s*\\circ|degrees?)\s*(c|f)(?:elsius|ahrenheit)?$", re.IGNORECASE
)
_PER_UNIT = {"mph": ("mile", "hour"), **dict.fromkeys(("kph", "kmh", "kmph"), ("km", "hour"))}


class Measure(NamedTuple):
    """A unit phrase: a known unit, or the stems of its words."""

    known: Unit | None
    stems: frozenset[str]


def split_measure(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit. One letter is a name, as in `2\\pi r h`."""
    found = _UNIT_AFTER.search(text)
    measure = read_unit(found[1].replace(" ^", "^"), attached=False) if found else None
    if found is None or measure is None:
        return text, None
    if measure.known:
        return text[: found.start()], measure
    return (text[: found.start()] if measure.stems <= {"unit"} else text), None


def read_unit(tail: str, *, attached: bool) -> Measure | None:
    """Return the unit phrase after a number, None if this is not a unit.

    `attached` is whether nothing separates number and phrase: `5cm` is a length, `5x` a product,
    so only known units of at least two letters count there.
    """
    tail = _TEMPERATURE.sub(lambda m: {"c": "celsius", "f": "fahrenheit"}[m[1].lower()], tail)
    tail = re.sub(r"\^\s*\\circ", r"\\circ", tail)
    if not attached:  # "17 (apples)", "2/3 of the cake"
        tail = re.sub(r"^[(\[]([A-Za-z ]+)[)\]]$|^of (?=[A-Za-z ]+$)", r"\1", tail)
    of = re.match(r"([A-Za-z]{3,}) of [0-9]+$", tail)  # "5 boxes of 12" counts boxes
    if of and of[1].lower() not in _NOT_A_UNIT:
        return Measure(None, frozenset({_stem(of[1])}))
    if not _PHRASE.match(tail):
        return None
    words = _WORD.findall(tail)
    lowered = [w.lower() for w in words]
    if lowered[0] in _NOT_A_UNIT or any(w in _NOT_A_UNIT - {"of", "to"} for w in lowered):
        return None
    first = words[0]
    # One letter is a variable unless it is a common unit; so are letters attached to the number.
    if (
        len(first) == 1
        and (first not in _SINGLE or attached)
        and first not in UNITS.keys() - _SINGLE
    ):
        return None
    if len(first) == 1 and first.isalpha() and first not in _SINGLE:
        return None
    if attached and _lookup(first) is None and first.lower() not in _PER_UNIT:
        return None
    return _measure(tail, words)


def _measure(tail: str, words: list[str]) -> Measure:
    if len(words) == 1 and "^" not in tail and words[0].lower() not in _PER_UNIT:
        return Measure(_lookup(words[0]), frozenset({_stem(words[0])}))
    expanded = [w for word in words for w in _PER_UNIT.get(word.lower(), (word,))]
    power = "".join(re.findall(r"\^\s*\{?\s*(-?[0-9])", tail))
    square = {"square": "2", "sq": "2", "cubic": "3"}
    power += "".join(square.get(w.lower(), "") for w in words)
    stems = {
        _stem(w)
        for w in expanded
        if w.lower() not in {"per", "a", "an", "the", "of", "each", *square, "in", "total"}
    }
    # A compound is identified by its parts: cm^2 and cm differ.
    if all(_lookup(w) for w in expanded if w.lower() not in {"per", "a", "an", *square}):
        canonical = "/".join(sorted(_canonical(w) for w in expanded if _lookup(w))) + power
        return Measure(Unit(canonical, Fraction(1)), frozenset(stems))
    return Measure(None, frozenset(stems))


def _lookup(word: str) -> Unit | None:
    for name in (word, word.lower(), word.rstrip("."), _stem(word)):
        if name in UNITS and not (name != word and name in _SINGLE):
            return UNITS[name]
    return None


def _canonical(word: str) -> str:
    unit = _lookup(word)
    return f"{unit.dimension}*{unit.scale}" if unit else word


def _stem(word: str) -> str:
    lowered = word.lower().rstrip(".")
    return lowered[:-1] if lowered.endswith("s") and len(lowered) > 2 else lowered


def agree(a: Measure | None, b: Measure | None) -> Fraction | None:
    """Return the factor from `b` to `a`; 1 if a unit is missing; None if they contradict."""
    if a is None or b is None:
        return Fraction(1)
    if a.known and b.known:
        same = a.known.dimension == b.known.dimension
        same = same or frozenset((a.known.dimension, b.known.dimension)) in _ONE_SIGN
        return b.known.scale / a.known.scale if same else None
    if a.known is None and b.known is None and a.stems & b.stems:
        return Fraction(1)
    return None


# --- Units, counters and magnitudes of other languages, behind a number or a formula ---

# --- A value and the unit after it, in any language -----------------------------------


def split_unit(text: str) -> tuple[str, Measure | None]:
    """Return a value without the unit after it, and the unit, as `split_measure`."""
    if not text.isascii():
        value, unit = split_foreign_unit(text)
        if value != text:
            return value, unit
    return split_measure(text)


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
    """Return how many characters behind a number are its magnitude, unit or counter."""
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
    """Return how many characters at the start of a text are magnitudes."""
    at = 0
    while found := _magnitude(folded[at:]):
        at += found[1]
    return at


def _magnitude(folded: str) -> tuple[int, int] | None:
    """Return the magnitude at the start of a text, and how many characters it takes."""
    gap = len(folded) - len(folded.lstrip(" "))
    if unspaced := _words().unspaced_magnitude.match(folded, gap):
        return _words().magnitudes[unspaced[0].strip()], unspaced.end()
    word = re.match(rf"[{LETTER}]+", folded[gap:])
    if not word or word[0] not in _words().magnitudes:
        return None
    end = gap + word.end()
    return _words().magnitudes[word[0]], end + (folded[end : end + 1] == ".")


def read_tail(tail: str) -> Tail | None:
    """Return what follows a number; None if it changes the number, or is no unit."""
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
    """Return whether words behind a number make it another answer: "or more", "squared"."""
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
    """Return the unit that a text is; None if it is none."""
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
    """Return the unit of words such as `кв. м`, `км/ч`, `metros cuadrados`."""
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
    """Return a formula without the known unit or counter after it, and the unit."""
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
