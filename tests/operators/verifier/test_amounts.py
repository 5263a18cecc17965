"""Quantities, percentages and money: what takes a reference, what is found, what is equal."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.verifier.amounts import MONEY, PERCENT, QUANTITY, Amount
from rejuice.operators.verifier.answer_types import AnswerRules


def equal(rules: AnswerRules, answer: str, reference: str) -> bool:
    """Whether the one amount of an answer equals that of a reference."""
    assert rules.takes(reference), reference
    found = {mention.value for mention in rules.mentions(answer)}
    (wanted,) = rules.mentions(reference)
    return len(found) == 1 and rules.equal(found.pop(), wanted.value)


@pytest.mark.parametrize(
    ("reference", "answers"),
    [
        ("4.5 L", r"4.5\text{ liters} | 4.5 litres | 4500 mL | 4500\ \text{cm}^3 | 4.5\ \ell"),
        ("10 Ω", r"10\ \Omega | 10 ohms | 0.01\,\mathrm{k\Omega}"),
        ("5 MHz", "5000 kHz | 5 megahertz | 5,000,000 Hz"),
        ("240 kJ", r"240000 J | 2.4\times10^{5}\ \text{J} | 2.4e5 J | 2.4·10⁵ J"),
        ("36 km/h", "10 m/s | 36 kilometers per hour | 36 kmh | 36 km an hour"),
        (
            "5 m/s",
            r"5\ \mathrm{m \cdot s^{-1}} | 5\,ms^{-1} | 5 m s⁻¹ | 5\ \frac{\text{m}}{\text{s}}",
        ),
        ("9.8 m/s²", "9.8 m/s per second | 9.8 m/s^2 | 9.8 meters per second squared | 9.8 m/s2"),
        ("1 N", r"1 kg·m/s² | 1\ \text{kg}\cdot\text{m}/\text{s}^2 | 1 newton"),
        ("4.2 J/(g °C)", "4.2 J/g/K | 4.2 kJ kg^{-1} K^{-1}"),
        ("1 cm^2", "100 mm² | 0.0001 m^2 | 1 square centimeter | 1 sq. cm"),
        ("20 °C", r"20\,^{\circ}\mathrm{C} | 20 degrees Celsius"),
        ("180 degrees", r"180° | \pi\text{ rad} | 180^\circ"),
        ("63 in", "5 ft 3 in | 5 feet and 3 inches | 5ft3in"),
        ("42195 m", "42 195 m | 42,195 m | 42{,}195 m | 42.195 km"),
        (
            "1.5 kg",
            r"1,5 kg | \frac{3}{2} kg | 1 1/2 kg | 1½ kg | one and a half kilograms | a kilogram and a half",
        ),
        ("10 km", "10 公里 | 10 километров | 10 kilomètres | ten kilometers"),
        ("2 m", "1.5 m + 0.5 m = 2 m | it is **2 m** high | (2 m)"),
        ("62.0 mph", "99.78 km/h | 62.0 miles per hour"),
        ("5-10 kg", "5–10 kg | 5 to 10 kg | 5 kg - 10 kg"),
        ("0 °C", "0.0 °C"),
    ],
)
def test_a_quantity_in_other_words_and_units(reference: str, answers: str) -> None:
    for answer in answers.split(" | "):
        assert equal(QUANTITY, answer, reference), answer


@pytest.mark.parametrize(
    ("reference", "answers"),
    [
        ("240 J", "240 kJ | 240 W | 240 N"),
        ("240 Hz", "240 s | 240 rpm"),
        ("5 m/s", "5 m/s^2 | 5 km/s | 5 m"),
        ("20 °C", "293.15 K | 68 °F | 20°"),
        ("240 degrees", "240 rad"),
        ("62.0 mph", "100 km/h | 99.9 km/h"),
        ("62 mph", "99.78 km/h"),
        ("9.81 m/s²", "9.8 m/s² | 9.807 m/s²"),
        ("5-10 kg", "5 kg | 7 kg | 10-5 kg"),
        # Operations left undone are no amounts, nor is a part of them.
        ("3 kg", "5 kg - 2 kg | 1 kg + 2 kg | 3 \\times 1 kg | 2\\sqrt{3} kg | 12.5 ± 3 kg"),
        ("3 kg", "3 | 3 apples | > 3 kg | 3%"),
    ],
)
def test_another_quantity(reference: str, answers: str) -> None:
    for answer in answers.split(" | "):
        assert not equal(QUANTITY, answer, reference), answer


@pytest.mark.parametrize(
    ("rules", "reference", "answers"),
    [
        (PERCENT, "12%", r"12 % | 12\% | 12 percent | 12 per cent | 12 Prozent | 0.12 | 12"),
        (PERCENT, r"33\frac{1}{3}\%", r"\frac{1}{3} | 33 1/3 % | 100/3 percent"),
        (PERCENT, "-10%", "−10% | minus 10 percent | -0.1"),
        (PERCENT, "0.5%", "0.005 | 0.50 %"),
        (PERCENT, "5 percentage points", "5% | 5 pp | 5 %-points"),
        (MONEY, "$1,250.00", r"1250 dollars | USD 1250 | \$1250 | US$ 1,250 | 1250 | $1.25k"),
        (MONEY, "C$135", "135 CAD | $135 | 135 Canadian dollars"),
        (MONEY, "95¢", "$0.95 | 95 cents | 0.95 dollars"),
        (MONEY, "$5.30", "5 dollars and 30 cents | 530 cents | $5.3"),
        (MONEY, "$1.7 billion", "$1.7B | 1.7bn dollars | $1,700 million | 1.7 billion"),
        (MONEY, "520 thousand euros", "€520,000 | 520k EUR | 520.000,00 €"),
        (MONEY, "£5", "5 pounds | 5 GBP"),
        (MONEY, "500 yen", "¥500 | 500円 | JPY 500"),
        (MONEY, "₹500", "Rs. 500 | 500 rupees"),
        (MONEY, "-$5", "$-5 | ($5) | -5 dollars"),
        (MONEY, "$18", r"$\$18$ | $18$ | $9 + $9 = $18 | it is **$18**"),
        (MONEY, "$5-$10", "$5-10 | $5 to $10"),
    ],
)
def test_percentages_and_money_in_other_words(
    rules: AnswerRules, reference: str, answers: str
) -> None:
    for answer in answers.split(" | "):
        assert equal(rules, answer, reference), answer


@pytest.mark.parametrize(
    ("rules", "reference", "answers"),
    [
        (PERCENT, "0.5%", "50% | 0.5 | 5%"),
        (PERCENT, "5%", "500% | 5 percentage points | 0.5 | $5 | 5 kg | 2% + 3%"),
        (MONEY, "$18", "€18 | 18% | 18 kg | $9 + $9 | $1.8 | -$18"),
        (MONEY, "US$135", "C$135"),
        (MONEY, "500 yuan", "500 yen"),
        (MONEY, "$1.5 million", "$1.5 | 1.5 billion | $1.5 thousand"),
        (MONEY, "95 cents", "$95"),
        (MONEY, "$5-$10", "$5 | $7"),
    ],
)
def test_other_percentages_and_money(rules: AnswerRules, reference: str, answers: str) -> None:
    for answer in answers.split(" | "):
        assert not equal(rules, answer, reference), answer


@pytest.mark.parametrize(
    ("rules", "references"),
    [
        # Durations are another type's; a formula and a letter after a number are mathematics.
        (QUANTITY, "12 | 12 apples | 3.5 hours | 2 weeks | 5m | 2mg | 2\\sqrt{3} cm | 2\\pi cm"),
        (QUANTITY, "12% | $5 | 5 kg of rice | x = 5 | 5 pm | 1/s | > 5 kg | 2 m + 3 m"),
        (PERCENT, "0.12 | 12 | 12% of 5 | 12 percentile | $12"),
        (MONEY, "12 | 5 pounds | 5 kg | 12% | $5 per hour | 3M | $3 + $4"),
    ],
)
def test_references_of_no_or_another_type(rules: AnswerRules, references: str) -> None:
    for reference in references.split(" | "):
        assert not rules.takes(reference), reference


@pytest.mark.parametrize(
    ("rules", "text", "found"),
    [
        (QUANTITY, "It runs 100 km in 2 hours.", ["100 km"]),
        (QUANTITY, "It took 2 hours.", ["2 hours"]),
        (QUANTITY, "2 kg of rice, 3 L of water, 5 in all", ["2 kg", "3 L"]),
        (QUANTITY, "v = 100 m / 20 s = 5 m/s", ["5 m/s"]),
        (PERCENT, "of the 20, 5% or 10 percent", ["5%", "10 percent"]),
        (PERCENT, "a share of 0.25 of 3 kg", ["0.25"]),
        (MONEY, "3 pens for $5 and USD 6 each", ["$5", "USD 6"]),
        (MONEY, "the cost ($5) and 7", ["$5"]),
        (MONEY, "It costs 18.", ["18"]),
    ],
)
def test_mentions_in_their_order(rules: AnswerRules, text: str, found: list[str]) -> None:
    assert [text[each.start : each.end] for each in rules.mentions(text)] == found


@pytest.mark.parametrize(
    "text", [f"5 {'m' * 3000}^-1", "5 " + " " * 3000, "5 m" * 900, "$5-" * 900]
)
def test_odd_texts_are_read_at_once(text: str) -> None:
    for rules in (QUANTITY, PERCENT, MONEY):
        assert not rules.takes(text)


UNITS = [
    "mm",
    "km",
    "g",
    "kg",
    "J",
    "MJ",
    "kWh",
    "mL",
    "L",
    "m/s",
    "km/h",
    "ft",
    "mi",
    "lb",
    "mol/L",
]


@given(
    st.fractions(min_value=-1000, max_value=1000, max_denominator=50),
    st.sampled_from(UNITS),
    st.sampled_from(UNITS),
)
def test_conversion_there_and_back(number: Fraction, unit: str, other: str) -> None:
    one, two, there = _amount(f"1 {unit}"), _amount(f"1 {other}"), _amount(f"{number} {unit}")
    converted = number * one.value / two.value
    back = _amount(f"{converted} {other}")
    same = one.dimension == two.dimension
    assert (back == there) == same
    assert QUANTITY.equal(back, there) == QUANTITY.equal(there, back) == same
    assert len({back, there}) == (1 if same else 2)


def _amount(text: str) -> Amount:
    ((value, _, _),) = QUANTITY.mentions(text)
    assert isinstance(value, Amount)
    return value
