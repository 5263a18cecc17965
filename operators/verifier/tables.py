"""Reads words.yaml: the words of other languages, and the units. A bare number does not need it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple


class Language(NamedTuple):
    """Its words; words.yaml says what each field is."""

    scripts: str = ""
    noun: str = ""
    adj: str = ""
    link: str = ""
    direct: bool = False
    choose: str = ""
    no: str = ""
    but: str = ""
    joins: str = ""
    yields: str = ""
    before: str = ""
    after: str = ""
    wrong: str = ""
    supposes: str = ""
    unsure: str = ""
    polite: str = ""
    common: str = ""
    letters: str = ""
    spaced: bool = True
    comma: bool = False


class Tables(NamedTuple):
    """The sections of words.yaml, with words as keys."""

    languages: dict[str, Language]
    magnitudes: dict[str, int]
    unspaced_magnitudes: dict[str, int]
    counters: str
    countless: list[str]
    prefixes: dict[str, int]
    prefixed: list[str]
    unprefixed: list[str]
    currencies: list[str]
    names: dict[str, str]


@lru_cache(maxsize=1)
def tables() -> Tables:
    import yaml  # most answers are numbers, which need none of this

    text = Path(__file__).with_name("words.yaml").read_text("utf-8")
    text = re.sub(r"(?<=\S)\|\n +", "|", text)  # alternatives are broken behind a bar
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    data["languages"] = {name: Language(**each) for name, each in data["languages"].items()}
    data["countless"] = data["countless"].split()
    by_word = ("magnitudes", "unspaced_magnitudes", "names")
    return Tables(**data | {name: _by_word(data[name]) for name in by_word})


def _by_word(section: dict[Any, str]) -> dict[str, Any]:
    return {word.replace("_", " "): key for key, text in section.items() for word in text.split()}
