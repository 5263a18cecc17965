"""Units that follow a number."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from .words import listed

# --- Unit names -----------------------------------------------------------------------
# Names of units in other languages than English, for the names that `measures.py` has.

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
_PER = {"mph": ("mile", "hour"), **dict.fromkeys(("kph", "kmh", "kmph"), ("km", "hour"))}


class Measure(NamedTuple):
    """A unit phrase: a known unit, or the stems of its words."""

    known: Unit | None
    stems: frozenset[str]


def split_unit(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit. One letter is a name, as in `2\\pi r h`."""
    found = _UNIT_AFTER.search(text)
    measure = read_unit(found[1].replace(" ^", "^"), attached=False) if found else None
    if found is None or measure is None:
        return text, None
    if measure.known:
        return text[: found.start()], measure
    return (text[: found.start()] if measure.stems <= {"unit"} else text), None


def read_unit(tail: str, *, attached: bool) -> Measure | None:
    """The unit phrase after a number, None if this is not a unit.

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
    if attached and _lookup(first) is None and first.lower() not in _PER:
        return None
    return _measure(tail, words)


def _measure(tail: str, words: list[str]) -> Measure:
    if len(words) == 1 and "^" not in tail and words[0].lower() not in _PER:
        return Measure(_lookup(words[0]), frozenset({_stem(words[0])}))
    expanded = [w for word in words for w in _PER.get(word.lower(), (word,))]
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
    """The factor from `b` to `a`; 1 if a unit is missing; None if they contradict."""
    if a is None or b is None:
        return Fraction(1)
    if a.known and b.known:
        same = a.known.dimension == b.known.dimension
        same = same or frozenset((a.known.dimension, b.known.dimension)) in _ONE_SIGN
        return b.known.scale / a.known.scale if same else None
    if a.known is None and b.known is None and a.stems & b.stems:
        return Fraction(1)
    return None
