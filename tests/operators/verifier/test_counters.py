r"""Digits, units, counters and magnitudes of other languages, in an answer and in a reference."""

from each import check_each
from graded_cases import check_boxed, check_verdicts

from rejuice.operators.verifier import check_reference
from rejuice.operators.verifier.fractions_and_decimals import read_number


def test_digits_and_punctuation() -> None:
    numbers = ["１２", "١٢", "۱۲", "१२", "১২", "๑๒", "௧௨", "၁၂", "𝟏𝟐", "12．", "١٢٫٠", "（12）"]
    check_boxed(("12", number, True) for number in numbers)
    check_boxed((number, "12", True) for number in numbers)
    cases = [
        ("1200", "١٬٢٠٠", True),
        ("12.5", "१२.५", True),
        ("12%", "１２％", True),
        ("3:2", "3：2", True),
        ("(1,2)", "（1，2）", True),
        ("-12", "－12", True),
        ("1,2", "1、2", True),
        ("12", "1、2", False),
        ("12", "12、13", False),
        ("12", "10～12", False),
        ("12", "１２００", False),
    ]
    check_boxed(cases)


def test_what_says_nothing_about_the_number() -> None:
    tails = r"""
个 ¦ 個 ¦ 个苹果 ¦  个 ¦ \text{ 元} ¦ \text{个} ¦ 円です ¦ 개입니다 ¦ 人 ¦ 本の木 ¦  яблок ¦  штук ¦  рублей ¦  Äpfel
 élèves ¦  años ¦  सेब ¦  रुपये ¦  تفاحة ¦  ผล ¦  บาท ¦  quả táo ¦  elma ¦  öğrenci ¦ (個) ¦ （单位：个） ¦  Stück ¦ 점 ¦ 元/个
"""
    check_boxed(
        case
        for tail in tails.strip("\n").replace("\n", " ¦ ").split(" ¦ ")
        for case in (
            (f"12{tail}", "12", True),
            ("12", f"12{tail}", True),
            ("13", f"12{tail}", False),
        )
    )


def test_what_changes_the_number() -> None:
    tails = r"""
以上 ¦ 以下 ¦ 左右 ¦ 多个 ¦ 余人 ¦ 以内 ¦ 個以上 ¦ 人未満 ¦ 个左右 ¦ 次方 ¦ 平方 ¦ 分之一 ¦ の倍数 ¦ 個半 ¦ 개 이상 ¦ 명 미만 ¦ 여 개 ¦ 의 배수
 больше ¦  или больше ¦  и более ¦  в квадрате ¦  с половиной ¦  oder mehr ¦  Äpfel oder mehr ¦  zum Quadrat ¦  ou plus
 ou davantage ¦  o más ¦  al cuadrado ¦  से अधिक ¦  से कम ¦  أو أكثر ¦  ขึ้นไป ¦  ยกกำลังสอง ¦  trở lên ¦  rưỡi ¦ 'den fazla ¦  buçuk
万 ¦ 千 ¦ 百 ¦ 亿 ¦ 億 ¦ 만 ¦ 억 ¦ 천 ¦  тысяч ¦  тыс. ¦  миллион ¦  millones ¦  mil ¦  Millionen ¦  Tausend ¦  हज़ार ¦  लाख ¦  करोड़
 ألف ¦  مليون ¦  พัน ¦  หมื่น ¦  แสน ¦  ล้าน ¦  bin ¦  milyon ¦  nghìn ¦  triệu ¦  ribu ¦ λ ¦ х ¦ x ¦ （错误） ¦ 或13 ¦ и 13 ¦ 元3角
"""
    check_boxed(
        case
        for tail in tails.strip("\n").replace("\n", " ¦ ").split(" ¦ ")
        for case in (("12", f"12{tail}", False), (f"12{tail}", "12", False))
    )


def test_magnitudes_multiply() -> None:
    cases = [
        ("50000", "5万", True),
        ("50000", r"\boxed{5}万", True),
        ("50000", r"\boxed{5} 万元", True),
        ("5", r"\boxed{5}万", False),
        ("1200", "一千二百", True),
        ("1000000", "100만 원", True),
        ("12000", "12 тыс. рублей", True),
        ("2000000000", "2 mil millones", True),
        ("12000000", "12 millions d'euros", True),
        ("1200000", "12 lakh", True),
        ("12000000000", "12 พันล้านบาท", True),
        ("125000", "12.5万", True),
        ("12 km", "12千米", True),
        ("12000 km", "12千米", False),
    ]
    check_verdicts(cases)


def test_numerals_of_chinese() -> None:
    cases = [
        ("十二", 12),
        ("二十个", 20),
        ("一百零二", 102),
        ("三千五百", 3500),
        ("二〇二四", 2024),
    ]
    cases += [("两万", 20_000), ("九元", 9), ("一万亿", 10**12)]

    def check(text: str, value: int) -> None:
        assert getattr(read_number(text), "value", None) == value

    check_each(cases, check)
    # Words that begin with a numeral, and what is read in two ways.
    words = ["三角形", "一样", "千米", "一万二", "一百二", "十二以上", "万一", "一次函数"]
    assert [word for word in words if read_number(word)] == []


def test_units_of_a_known_dimension() -> None:
    cases = [
        ("12 m", "12 км", False),
        ("12 km", "12 км", True),
        ("12 km", "12公里", True),
        ("12 km", "12000 米", True),
        ("5 km", r"5\text{ км}", True),
        ("12 km/h", "12 км/ч", True),
        ("12 km/h", "12 км в час", True),
        ("12 km/h", "12 км", False),
        ("12 m^2", "12平方米", True),
        ("12 m^2", "12 кв. м", True),
        ("12 m^2", "12 mètres carrés", True),
        ("12 cm^3", "12立方厘米", True),
        ("12 cm^2", "12立方厘米", False),
        ("60 minutes", "1小时", True),
        ("2 hours", "120 Minuten", True),
        ("2 hours", "120 Sekunden", False),
        ("12 kg", "12 kilogrammes", True),
        ("12 kg", "12 граммов", False),
        ("$12", "12美元", True),
        ("$12", "12元", False),
        ("¥12", "12元", True),
        ("¥12", "12円", True),
        ("12円", "12元", False),
        (r"2\sqrt{3}", r"2\sqrt{3}\text{ 厘米}", True),
        (r"2\sqrt{3}\text{ см}", r"2\sqrt{3}", True),
        (r"2\sqrt{3}", r"2\sqrt{3}万", False),
        ("12个苹果", "12个梨", True),
        ("12个苹果", "12个", True),
        ("12 яблок", "12 яблока", True),
    ]
    check_boxed(cases)


def test_percent() -> None:
    cases = [
        ("0.5", "50 процентов", True),
        ("0.5", "50 Prozent", True),
        ("0.5", "百分之50", True),
        ("0.5", "50 por ciento", True),
        ("0.5", "50٪", True),
        ("0.5", "50 яблок", False),
    ]
    check_boxed(cases)


def test_the_limits_hold_for_digits_of_any_script() -> None:
    answers = ["٩^{٩^{٩^٩}}", "９^{９^{９^９}}", "१" * 500, "١٠٠٠٠٠٠!", "9" + "万" * 200]
    check_boxed(("42", answer, "wrong_answer") for answer in answers)
    assert all(check_reference(answer) for answer in answers[:4])
