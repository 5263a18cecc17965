"""Decontamination: what is found of planted questions, what by mistake, and how fast.

    python benchmarks/bench_decontamination.py GSM8K_FOLDER

GSM8K's test set is planted, question by question, in texts that were changed in one way, and the
training set is what should be kept: its questions are others, but for a few that are nearly equal.
open-r1's script and, where they are installed, datatrove's steps do the same: their own code, or as
much of it as does not download something.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from rejuice.operators.filter.ngram_decontamination_filter import NgramDecontaminationFilter

_PLANTED = 500
_ROUNDS = 3
_NAMES = ("Anouk", "Bilal", "Chidi", "Dagny", "Emre", "Farah")


def _renamed(text: str, rng: random.Random) -> str:
    """Other names: each word in capitals within a sentence is another one."""
    of: dict[str, str] = {}
    return re.sub(
        r"(?<=[a-z,] )[A-Z][a-z]+", lambda m: of.setdefault(m[0], rng.choice(_NAMES)), text
    )


def _every(n: int) -> Callable[[str, random.Random], str]:
    """Every nth word is replaced by another one."""

    def changed(text: str, rng: random.Random) -> str:
        words = text.split()
        for at in range(rng.randrange(n), len(words), n):
            words[at] = "something"
        return " ".join(words)

    return changed


def _shuffled(text: str, rng: random.Random) -> str:
    sentences = re.split(r"(?<=[.?!])\s+", text)
    rng.shuffle(sentences)
    return " ".join(sentences)


CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "within a longer text": lambda text, _: (
        f"Solve this step by step. {text} Give the number only."
    ),
    "other case, punctuation and spaces": lambda text, _: re.sub(r"[.,?!']", " - ", text.upper()),
    "sentences in another order": _shuffled,
    "other names": _renamed,
    "other numbers": lambda text, rng: re.sub(r"\d+", lambda _: str(rng.randrange(2, 99)), text),
    "every 12th word another": _every(12),
    "every 6th word another": _every(6),
    "the first half": lambda text, _: text[: len(text) // 2],
}
SETTINGS = {
    "n 8, one run": {"n": 8, "min_share": 0},
    "n 8, share 0.25 (default)": {},
    "n 8, share 0.5": {"n": 8, "min_share": 0.5},
    "n 8, share 0.25, numbers equal": {"n": 8, "min_share": 0.25, "numbers": "equal"},
    "n 13, one run": {"n": 13, "min_share": 0},
    "n 5, share 0.25": {"n": 5, "min_share": 0.25},
}


def open_r1(tests: list[str], texts: list[str], n: int = 8) -> list[bool]:
    """As its script does: lower case, words between spaces, and one common run is enough."""

    def runs(text: str) -> list[str]:
        words = " ".join(text.lower().strip().split()).split()
        return [" ".join(words[at : at + n]) for at in range(len(words) - n + 1)]

    known = {run for text in tests for run in runs(text)}
    return [any(run in known for run in runs(text)) for text in texts]


def datatrove(tests: list[str], texts: list[str], n: int) -> list[bool]:
    """Its indexer's and its filter's steps; the indexer itself asks a hub for its evaluations."""
    import numpy as np
    from datatrove.data import Document
    from datatrove.pipeline.decont.n_grams import (
        NGramsDecontConfig,
        NGramsDecontFilter,
        NGramsDecontIndexer,
    )

    # It asks for lighteval, by which it would download its evaluations.
    NGramsDecontIndexer._requires_dependencies = []
    config = NGramsDecontConfig(n_grams=n)
    indexer = NGramsDecontIndexer("/tmp", config=config)
    hashes = {each for text in tests for each in indexer.compute_hashes(text)}
    step = NGramsDecontFilter("/tmp", config=config)
    step._index_hashes = dict.fromkeys(np.array(list(hashes), "<u8").tolist(), "test")
    found = (step.filter(Document(text=text, id="0")) for text in texts)
    return [each is not True for each in found]


def main(folder: Path) -> None:
    """Print both tables."""
    tests, train = (
        [json.loads(line)["question"] for line in (folder / f"{name}.jsonl").open(encoding="utf-8")]
        for name in ("test", "train")
    )
    rng = random.Random(0)
    planted = {
        name: [change(text, rng) for text in rng.sample(tests, _PLANTED)]
        for name, change in CHANGES.items()
    }
    against = {"test": str(folder / "test.jsonl")}

    def ours(fields: dict[str, object]) -> Callable[[list[str]], list[bool]]:
        step = NgramDecontaminationFilter(against=against, column="text", **fields)  # type: ignore[arg-type]

        def find(texts: list[str]) -> list[bool]:
            reasons = step.apply(pa.table({"text": texts})).reasons
            assert reasons is not None
            return reasons.is_valid().to_pylist()

        return find

    ways = {name: ours(fields) for name, fields in SETTINGS.items()}
    ways["open-r1's script"] = lambda texts: open_r1(tests, texts)
    try:
        datatrove(tests[:1], train[:1], 12)
    except ImportError as error:
        print(f"without datatrove: {error}")
    else:
        ways["datatrove, n 12"] = lambda texts: datatrove(tests, texts, 12)
        ways["datatrove, n 8"] = lambda texts: datatrove(tests, texts, 8)
    print("| planted | " + " | ".join(ways) + " |\n|---" + "|---" * len(ways) + "|")
    for name, texts in planted.items():
        shares = (sum(find(texts)) / len(texts) for find in ways.values())
        print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True)
    counts = (sum(find(train)) for find in ways.values())
    print(f"| of {len(train)} training questions | " + " | ".join(map(str, counts)) + " |")
    print("\n| | seconds for the training questions, median | texts per second |\n|---|---|---|")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, find in ways.items():
            start = time.perf_counter()
            find(train)
            times[name].append(time.perf_counter() - start)
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"| {name} | {median:.2f} | {len(train) / median:,.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
