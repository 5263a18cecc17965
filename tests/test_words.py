"""The project's old private vocabulary is gone from code, messages and documents.

A reader who knows verl, TRL and datatrove must meet no word that needs explaining. The words that
are used instead are in the glossary, `docs/glossary.md`.
"""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("*.py", "*.md", "*.yaml", "*.cfg", "*.ipynb", "Makefile")


class Old(NamedTuple):
    """What is searched for.

    Attributes:
        text: in lower case. In any case it is a hit, alone or as a part of a name like `is_told`.
        instead: what to use.
        pattern: a regular expression where not every occurrence of `text` is a hit.
    """

    text: str
    instead: str
    pattern: str = ""

    def matches(self, text):
        words = self.text.replace(" ", r"\s+")
        return re.finditer(self.pattern or rf"(?<![A-Za-z])(?i:{words})(?![A-Za-z])", text)


TABLE = (
    Old("told", "reported, logged"),
    Old("said", "reported, logged"),
    Old("book", "audit log, run report"),
    Old("books", "audit log, run report"),
    Old("dear", "expensive, persisted per row, resumable operator"),
    Old("nursery", "fork server"),
    Old("rooms", "packages, layers"),
    Old("the house", "package, layer"),
    Old("cut", "SplitRecipe", r"\bCut(?=[(\[.,:)\]|]| =|\n)"),
    Old("behind", "after", r"(?<=[._])behind\b|\bbehind(?=_|\(|\[| = )"),
    Old("steps behind", "steps after"),
    Old("held", "PendingGroups", r"\bHeld\b(?!-out)|\bheld(?= = |\[|\.\w)"),
    Old("asked", "advantage_operator, EngineSpec", r"\b[Aa]sked\("),
    Old("own_faults", "attribute_operator_errors"),
    Old("heads", "GroupStarts", r"\bHeads\b"),
    Old("that_fit", "drop_overlong_prompts"),
    Old("together(", "group_rows_by_prompt", r"\btogether\("),
    Old("without(", "drop_rows", r"\bwithout\("),
    Old("why(", "format_drop_counts", r"\bwhy\("),
    Old("surplus", "excess groups", r"(?i:surplus)(?!_group\b)"),
    Old("by lot", "seeded random"),
    Old("seat", "slot"),
    Old("seats", "slots"),
    Old("close ranks", "compaction"),
    Old("closes ranks", "compaction"),
    Old("beyond doubt", "unambiguous"),
    Old("beyond all doubt", "unambiguous"),
    Old("slack", "tie margin", r"(?<![A-Za-z])SLACK(?![A-Za-z])"),
    Old("blame", "retry class", r"\b_?Blame\b"),
    Old("_longest_knock_s", "longest recovery poll interval"),
    Old("dealt like", "round-robin shards"),
    Old("like cards", "round-robin shards"),
    *(Old(text, "fix") for text in ("mend", "mends", "mended", "mending")),
    Old("identity(", "cache-key fields", r"\bidentity\("),
    Old("incidental", "excluded from the cache key"),
    Old("_cross", "run_dataset_step", r"\b_cross\b"),
    Old("_as_before", "restore_on_error", r"\b_as_before\b"),
    Old("_share_out", "set_mini_batch_size", r"\b_share_out\b"),
    Old("answers that wait", "queued answers"),
    Old('"""less ', "drop rows that ..., as a sentence", '"""Less '),
    Old('"""of ', "the learning rate of AdamW, as a sentence", '"""Of '),
)


class Allowed(NamedTuple):
    """Lines of a file that contain a text and may use a word of the table, and the reason."""

    file: str
    text: str
    reason: str


ALLOWED = (
    Allowed("tests/test_words.py", "", "it has the table"),
    Allowed("pipelines/demo/arithmetic.yaml", "book", "books are counted in arithmetic problems"),
    Allowed("benchmarks/bench_dedup.py", "the house", "a sample prompt"),
    Allowed("tests/operators/mapper/test_format_reward_mapper.py", "as said", "a sample response"),
    Allowed("tests/operators/verifier/test_last_number.py", "He said", "a sample response"),
)


def sources():
    """Paths of all code and documents, relative to the root."""
    folders = (
        "benchmarks",
        "docs",
        "operators",
        "pipelines",
        "recipes",
        "tests",
        "tools",
        "trainer",
    )
    paths = [*ROOT.iterdir(), *(path for name in folders for path in (ROOT / name).rglob("*"))]
    found = [path.relative_to(ROOT).as_posix() for path in paths]
    return [
        name
        for name in sorted(set(found))
        if any(fnmatch(Path(name).name, each) for each in NAMES) and (ROOT / name).is_file()
    ]


def found_in(name, text):
    """For each old word of a text: where it is, the word, and what to use instead."""
    lower = " ".join(text.lower().split())
    for old in TABLE:
        if old.text not in lower:
            continue  # This is quick; a regular expression is not.
        for match in old.matches(text):
            lines_before = text.count("\n", 0, match.start())
            line = text.split("\n", lines_before + 1)[lines_before]
            if not any(name == each.file and each.text in line for each in ALLOWED):
                yield f"{name}:{lines_before + 1}: {match[0]!r}: use {old.instead}"


def test_the_old_vocabulary_is_gone():
    names = sources()
    assert len(names) > 200, "the sources were not found"
    found = [hit for name in names for hit in found_in(name, (ROOT / name).read_text("utf-8"))]
    assert not found, "\n" + "\n".join(found)


def test_an_allowed_line_is_there():
    for each in ALLOWED:
        lines = (ROOT / each.file).read_text("utf-8").split("\n")
        assert any(each.text in line and [*found_in("", line)] for line in lines), each


@pytest.mark.parametrize(
    ("text", "old", "instead"),
    [
        ("a()\nis_said = 1", "said", "reported, logged"),
        ("\nThe books are kept.", "books", "audit log, run report"),
        ("x\nrow.behind + 1", "behind", "after"),
        ("\ndef cut(self) -> Cut:", "Cut", "SplitRecipe"),
        ("\nheld = {}", "held", "PendingGroups"),
        ("\n# chosen by lot", "by lot", "seeded random"),
        ("\n_SLACK = 1", "SLACK", "tie margin"),
        ("\nclass _Blame:", "_Blame", "retry class"),
        ('\n"""Of AdamW."""', '"""Of ', "the learning rate of AdamW, as a sentence"),
    ],
)  # fmt: skip
def test_an_old_word_is_reported_with_its_line_and_what_to_use(text, old, instead):
    assert list(found_in("a.py", text)) == [f"a.py:2: {old!r}: use {instead}"]


@pytest.mark.parametrize(
    "text",
    [
        "Held-out prompts are held in memory.",
        "a server behind a proxy",
        'reason = "surplus_group"',
        "Cut the table at its groups.",
        "asked for the notebooks",
        "the macro \\SLACKness",
    ],
)
def test_other_uses_are_left_alone(text):
    assert list(found_in("a.py", text)) == []
