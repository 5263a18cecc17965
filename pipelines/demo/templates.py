"""The texts that problems are made of.

In a text, `{A}`, `{B}`, `{C}` are people, `{things}`, `{boxes}`, `{item}` are things, and single
small letters are numbers: a to d are 2 to 20, k and m 2 to 9, v and w 20 to 90, y 100 to 300.
In an operation, `r1` is the result of the first line; in its text, `{step}` is the operation
written out, such as `3 + 4 = 7`.
"""

from __future__ import annotations

from typing import NamedTuple

RANGES = {
    **dict.fromkeys("abcd", (2, 20)),
    **dict.fromkeys("km", (2, 9)),
    **dict.fromkeys("vw", (20, 90)),
    "y": (100, 300),
}
"""Least and greatest value of each number."""

# fmt: off
NAMES = {
    "train": (
        "Anna", "Ben", "Carl", "Dana", "Emma", "Finn", "Gina", "Hugo",
        "Ivy", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga", "Paul",
    ),
    "validation": ("Rosa", "Sam", "Tina", "Umar", "Vera", "Will", "Yara", "Zoe"),
    "test": ("Adam", "Bella", "Cleo", "David", "Ella", "Fred", "Grace", "Henry"),
}
"""Who appears in the problems of each split; nobody appears in two."""

WORDS = {
    "things": (
        "apples", "books", "cards", "coins", "cookies", "eggs", "flowers", "marbles",
        "pears", "pencils", "photos", "plums", "shells", "stamps", "stickers", "toys",
    ),
    "boxes": ("bags", "baskets", "boxes", "jars"),
    "item": ("ball", "cap", "kite", "lamp"),
}
"""What a slot for a thing is filled with."""
# fmt: on


class Line(NamedTuple):
    """One line of a worked solution."""

    sentence: str  # its text
    operation: str  # `LEFT OP RIGHT`, with numbers, letters and earlier results
    # whether the operation follows from a comparison, which can be taken the wrong way round: B has
    # 3 more than A
    compares: bool = False


class Template(NamedTuple):
    """A problem without its names and numbers; each of its lines is a step."""

    name: str
    question: str
    lines: tuple[Line, ...]


def _template(name: str, question: str, *lines: Line) -> Template:
    return Template(name, question, lines)


TEMPLATES = (
    # One step.
    _template(
        "gift",
        "{A} has {a} {things}. {B} gives {A} {b} more. How many {things} does {A} have now?",
        Line("{A} now has {step} {things}.", "a + b"),
    ),
    _template(
        "loss",
        "{A} had {a} {things} and lost {b} of them. How many {things} are left?",
        Line("There are {step} {things} left.", "a - b"),
    ),
    _template(
        "full_boxes",
        "{A} fills {k} {boxes} with {a} {things} each. How many {things} are there in all?",
        Line("In all there are {step} {things}.", "k * a"),
    ),
    _template(
        "sharing",
        "{A} shares {a} {things} equally among {k} friends. How many {things} does each get?",
        Line("Each friend gets {step} {things}.", "a / k"),
    ),
    _template(
        "more",
        "{A} has {a} {things}. {B} has {b} more than {A}. How many {things} does {B} have?",
        Line("{B} has {step} {things}.", "a + b", compares=True),
    ),
    _template(
        "fewer",
        "{A} has {a} {things}. {B} has {b} fewer than {A}. How many {things} does {B} have?",
        Line("{B} has {step} {things}.", "a - b", compares=True),
    ),
    _template(
        "twice",
        "{A} has {a} {things}. {B} has twice as many. How many {things} does {B} have?",
        Line("{B} has {step} {things}.", "a * 2", compares=True),
    ),
    _template(
        "price",
        "{A} buys {k} {things}. Each one costs {a} dollars. How many dollars does {A} pay?",
        Line("{A} pays {step} dollars.", "k * a"),
    ),
    _template(
        "older",
        "{A} is {a} years old. {B} is {b} years older than {A}. How old is {B}?",
        Line("{B} is {step} years old.", "a + b", compares=True),
    ),
    _template(
        "difference",
        "{A} has {a} {things} and {B} has {b}. How many more {things} does {A} have than {B}?",
        Line("{A} has {step} more {things}.", "a - b", compares=True),
    ),
    # Two steps.
    _template(
        "gift_and_loss",
        "{A} has {a} {things}. {B} gives {A} {b} more, and then {A} loses {c}. "
        "How many {things} does {A} have now?",
        Line("With the gift {A} has {step} {things}.", "a + b"),
        Line("Then {A} has {step} left.", "r1 - c"),
    ),
    _template(
        "more_together",
        "{A} has {a} {things}. {B} has {b} more than {A}. How many do they have together?",
        Line("{B} has {step} {things}.", "a + b", compares=True),
        Line("Together they have {step} {things}.", "a + r1"),
    ),
    _template(
        "fewer_together",
        "{A} finds {a} {things}. {B} finds {b} fewer than {A}. How many do they find together?",
        Line("{B} finds {step} {things}.", "a - b", compares=True),
        Line("Together they find {step} {things}.", "a + r1"),
    ),
    _template(
        "joint_sharing",
        "{A} finds {a} {things} and {B} finds {b}. They share all of them equally among "
        "{k} friends. How many {things} does each get?",
        Line("Together they have {step} {things}.", "a + b"),
        Line("Each friend gets {step} {things}.", "r1 / k"),
    ),
    _template(
        "boxes_and_loose",
        "{A} has {k} {boxes} with {a} {things} each, and {b} more on the table. "
        "How many {things} are there in all?",
        Line("The {boxes} hold {step} {things}.", "k * a"),
        Line("In all there are {step} {things}.", "r1 + b"),
    ),
    _template(
        "boxes_and_sale",
        "{A} has {k} {boxes} with {a} {things} each and sells {b} {things}. How many are left?",
        Line("At first there are {step} {things}.", "k * a"),
        Line("Then {step} are left.", "r1 - b"),
    ),
    _template(
        "change",
        "{A} has {c} dollars and buys {k} {things} for {a} dollars each. "
        "How many dollars are left?",
        Line("The {things} cost {step} dollars.", "k * a"),
        Line("There are {step} dollars left.", "c - r1"),
    ),
    _template(
        "three_ages",
        "{A} is {a} years old. {B} is {b} years older than {A}. {C} is {c} years younger "
        "than {B}. How old is {C}?",
        Line("{B} is {step} years old.", "a + b", compares=True),
        Line("{C} is {step} years old.", "r1 - c", compares=True),
    ),
    _template(
        "two_drives",
        "{A} drives {a} miles on Monday and {k} times as many on Tuesday. "
        "How many miles does {A} drive on both days?",
        Line("On Tuesday {A} drives {step} miles.", "a * k", compares=True),
        Line("On both days {A} drives {step} miles.", "a + r1"),
    ),
    _template(
        "wages",
        "{A} works {k} hours a day for {m} days and earns {a} dollars an hour. "
        "How many dollars does {A} earn?",
        Line("{A} works {step} hours.", "k * m"),
        Line("{A} earns {step} dollars.", "r1 * a"),
    ),
    # Three steps.
    _template(
        "chain",
        "{A} has {a} {things}. {B} has {b} more than {A}. {C} has {k} times as many as {B}. "
        "How many more {things} does {C} have than {A}?",
        Line("{B} has {step} {things}.", "a + b", compares=True),
        Line("{C} has {step} {things}.", "r1 * k", compares=True),
        Line("{C} has {step} more than {A}.", "r2 - a", compares=True),
    ),
    _template(
        "shop",
        "{A} buys {k} {things} for {a} dollars each and {m} {boxes} for {b} dollars each. "
        "How many dollars does {A} pay?",
        Line("The {things} cost {step} dollars.", "k * a"),
        Line("The {boxes} cost {step} dollars.", "m * b"),
        Line("{A} pays {step} dollars.", "r1 + r2"),
    ),
    _template(
        "shop_and_change",
        "{A} has {w} dollars. {A} buys {k} {things} for {a} dollars each and a {item} for {b} "
        "dollars. How many dollars are left?",
        Line("The {things} cost {step} dollars.", "k * a"),
        Line("With the {item} {A} pays {step} dollars.", "r1 + b"),
        Line("There are {step} dollars left.", "w - r2"),
    ),
    _template(
        "baking",
        "{A} bakes {k} trays of {a} cookies. {B} eats {b} of them. {A} puts the rest in {boxes} "
        "of {m}. How many {boxes} are there?",
        Line("{A} bakes {step} cookies.", "k * a"),
        Line("Then {step} cookies are left.", "r1 - b"),
        Line("There are {step} {boxes}.", "r2 / m"),
    ),
    _template(
        "saving",
        "{A} saves {a} dollars a week for {k} weeks. Then {A} buys a {item} for {b} dollars and "
        "gets {c} dollars from {B}. How many dollars does {A} have now?",
        Line("{A} saves {step} dollars.", "k * a"),
        Line("With the {item} {step} dollars are left.", "r1 - b"),
        Line("{A} now has {step} dollars.", "r2 + c"),
    ),
    _template(
        "runners",
        "{A} runs {a} miles a day for {k} days. {B} runs {b} miles a day for {m} days. "
        "How many more miles does {A} run than {B}?",
        Line("{A} runs {step} miles.", "k * a"),
        Line("{B} runs {step} miles.", "m * b"),
        Line("{A} runs {step} more miles.", "r1 - r2", compares=True),
    ),
    _template(
        "bus",
        "{A} drives a bus with {w} people. At the first stop {a} people get off and {b} get on. "
        "At the next stop {c} get off. How many people are on the bus now?",
        Line("At first {step} people stay.", "w - a"),
        Line("Then there are {step} people.", "r1 + b"),
        Line("Now there are {step} people.", "r2 - c"),
    ),
    _template(
        "twice_and_sharing",
        "{A} finds {a} {things} and {B} finds twice as many. They share all of them equally "
        "among {k} friends. How many {things} does each get?",
        Line("{B} finds {step} {things}.", "a * 2", compares=True),
        Line("Together they have {step} {things}.", "a + r1"),
        Line("Each friend gets {step} {things}.", "r2 / k"),
    ),
    _template(
        "two_ages",
        "{A} is {a} years old. {B} is twice as old as {A}. {C} is {b} years older than {B}. "
        "How old are {B} and {C} together?",
        Line("{B} is {step} years old.", "a * 2", compares=True),
        Line("{C} is {step} years old.", "r1 + b", compares=True),
        Line("Together they are {step} years old.", "r1 + r2"),
    ),
    # Four steps.
    _template(
        "chain_together",
        "{A} has {a} {things}. {B} has {b} more than {A}. {C} has {k} times as many as {B}. "
        "How many do all three have together?",
        Line("{B} has {step} {things}.", "a + b", compares=True),
        Line("{C} has {step} {things}.", "r1 * k", compares=True),
        Line("{A} and {B} have {step} {things}.", "a + r1"),
        Line("Together they have {step} {things}.", "r3 + r2"),
    ),
    _template(
        "big_shop",
        "{A} has {y} dollars. {A} buys {k} {things} for {a} dollars each and {m} {boxes} for {b} "
        "dollars each. How many dollars are left?",
        Line("The {things} cost {step} dollars.", "k * a"),
        Line("The {boxes} cost {step} dollars.", "m * b"),
        Line("{A} pays {step} dollars.", "r1 + r2"),
        Line("There are {step} dollars left.", "y - r3"),
    ),
    _template(
        "garden",
        "{A} plants {k} rows of {a} flowers and {m} rows of {b} flowers. Then {B} picks {c} of "
        "them. How many flowers are left?",
        Line("The first rows have {step} flowers.", "k * a"),
        Line("The other rows have {step} flowers.", "m * b"),
        Line("In all there are {step} flowers.", "r1 + r2"),
        Line("Then {step} flowers are left.", "r3 - c"),
    ),
    _template(
        "wages_and_sharing",
        "{A} works {k} hours a day for {m} days and earns {a} dollars an hour. {A} pays {w} "
        "dollars for a {item} and shares the rest equally with {B}. How many dollars does {B} get?",
        Line("{A} works {step} hours.", "k * m"),
        Line("{A} earns {step} dollars.", "r1 * a"),
        Line("Then {step} dollars are left.", "r2 - w"),
        Line("{B} gets {step} dollars.", "r3 / 2"),
    ),
    _template(
        "trip",
        "{A} drives {a} miles an hour for {k} hours and then {b} miles an hour for {m} hours. "
        "The whole trip is {y} miles. How many miles are left?",
        Line("At first {A} drives {step} miles.", "k * a"),
        Line("Then {A} drives {step} miles.", "m * b"),
        Line("In all {A} drives {step} miles.", "r1 + r2"),
        Line("There are {step} miles left.", "y - r3"),
    ),
    _template(
        "future_ages",
        "{A} is {a} years old. {B} is {b} years older than {A}. How old are they together in "
        "{c} years?",
        Line("{B} is {step} years old.", "a + b", compares=True),
        Line("Now they are {step} years old together.", "a + r1"),
        Line("By then they get {step} years older.", "c * 2"),
        Line("Together they are then {step} years old.", "r2 + r3"),
    ),
    _template(
        "shelves",
        "{A} has {w} books and gets {k} {boxes} with {a} books each. {B} takes {b} of the books. "
        "{A} puts the rest on {m} shelves equally. How many books are on each shelf?",
        Line("The {boxes} hold {step} books.", "k * a"),
        Line("In all there are {step} books.", "w + r1"),
        Line("Then {step} books are left.", "r2 - b"),
        Line("On each shelf there are {step} books.", "r3 / m"),
    ),
)
"""Templates of all splits."""

HELD_OUT = (
    _template(
        "two_walks",
        "{A} walks {a} miles on Monday and {b} miles on Tuesday. "
        "How many miles does {A} walk on both days?",
        Line("On both days {A} walks {step} miles.", "a + b"),
    ),
    _template(
        "half",
        "{A} has {a} {things}. {B} has half as many. How many {things} does {B} have?",
        Line("{B} has {step} {things}.", "a / 2", compares=True),
    ),
    _template(
        "reading",
        "{A} has a book with {w} pages. {A} reads {a} pages on Monday and the rest equally in "
        "{k} days. How many pages does {A} read on each of these days?",
        Line("After Monday {step} pages are left.", "w - a"),
        Line("On each day {A} reads {step} pages.", "r1 / k"),
    ),
    _template(
        "half_away",
        "{A} has {w} {things}. {A} gives half of them to {B}, loses {a} and then finds {b}. "
        "How many {things} does {A} have now?",
        Line("After the gift {A} has {step} {things}.", "w / 2"),
        Line("Then {step} are left.", "r1 - a"),
        Line("{A} now has {step} {things}.", "r2 + b"),
    ),
    _template(
        "points",
        "{A} gets {a} points in each of {k} games. {B} gets {b} points fewer in each of {m} "
        "games. How many points do they get together?",
        Line("{A} gets {step} points.", "k * a"),
        Line("In each game {B} gets {step} points.", "a - b", compares=True),
        Line("{B} gets {step} points.", "m * r2"),
        Line("Together they get {step} points.", "r1 + r3"),
    ),
    _template(
        "market",
        "{A} sells {k} {things} for {a} dollars each, pays {b} dollars for a table and shares the "
        "rest equally with {B}. {B} had {c} dollars. How many dollars does {B} have now?",
        Line("{A} gets {step} dollars.", "k * a"),
        Line("Then {step} dollars are left.", "r1 - b"),
        Line("Each gets {step} dollars.", "r2 / 2"),
        Line("{B} now has {step} dollars.", "r3 + c"),
    ),
)
"""Templates of the test split alone."""
