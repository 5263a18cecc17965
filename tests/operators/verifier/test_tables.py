"""words.yaml: it is whole, it is read once, and bare numbers do without it."""

import configparser
from pathlib import Path

import pytest
import yaml
from graded_cases import check_boxed

from rejuice.operators.verifier import verify
from rejuice.operators.verifier.phrases import compiled
from rejuice.operators.verifier.units import unit_at
from rejuice.operators.verifier.words import tables

ROOT = Path(__file__).resolve().parents[3]


def test_a_wheel_has_the_file() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    data = setup["options.package_data"]["rejuice.operators.verifier"]
    assert (ROOT / "operators" / "verifier" / data).is_file()


def test_any_loader_of_yaml_reads_it() -> None:
    text = (ROOT / "operators" / "verifier" / "words.yaml").read_text("utf-8")
    assert yaml.safe_load(text)["languages"].keys() == tables().languages.keys()
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 900


@pytest.mark.parametrize("name", tables().languages)
def test_the_words_of_a_language_are_regular_expressions(name: str) -> None:
    assert compiled((name,)).noun.pattern


def test_names_of_units_are_of_known_units() -> None:
    unknown = {name for name in tables().names.values() if not unit_at(name, 0)[0].dimension}
    assert unknown == set()


@pytest.mark.parametrize("answer", ["42", "1,042.5", "-42", r"\$42", r"\frac{3}{4}", "42%"])
def test_a_bare_number_does_not_load_it(answer: str) -> None:
    tables.cache_clear()
    assert not verify(rf"We add the two and get \boxed{{{answer}}}.", "17")
    assert tables.cache_info().currsize == 0


def test_a_unit_that_only_the_answer_has_is_ignored() -> None:
    pairs = (
        ("9.8", r"9.8\ \Omega"),
        ("9.8", "9.8 m/s²"),
        ("12", "12kPa"),
        ("12", "12 кв.м"),
        ("15", r"\$15 per hour"),
    )
    check_boxed([(reference, answer, True) for reference, answer in pairs])


def test_units_of_both_sides_agree() -> None:
    check_boxed(
        [
            ("12 kg", "12 ki-lô-gam", True),
            ("12 м²", "12 квадратных метров", True),
            ("60 km/h", "60 км в час", True),
            ("60 km/h", "60 км", False),
            ("12 m", "12 кв.м", False),
            ("$15 per hour", "15 dollars per hour", True),
            ("$15 per hour", "€15 per hour", False),
            ("12 apples", "12 pears", True),
            ("0.64N", "0.640 N", True),
        ]
    )


def test_degrees_and_a_fraction_of_pi_are_one_angle() -> None:
    check_boxed(
        [
            (r"30^\circ", r"\frac{\pi}{6}", True),
            ("150°", r"\dfrac{5\pi}{6}\text{ radians}", True),
            (r"30^\circ", r"\frac{\pi}{3}", False),
            ("5 m", r"\frac{\pi}{6}", False),
        ]
    )
