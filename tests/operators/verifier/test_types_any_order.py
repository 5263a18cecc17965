"""A verdict depends on its own response and reference, and on nothing that is graded with them."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.verifier import Verdict, verify, verify_batch
from rejuice.operators.verifier.typed import AnswerType, type_of

PAIRS = Path(__file__).resolve().parents[2] / "data" / "answers_by_type.jsonl"
EACH_TYPE = 4


@cache
def rows() -> dict[tuple[str, str], Verdict]:
    """Some pairs whose references have each type, with the verdict that each has alone."""
    read = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    by_type: dict[AnswerType, list[tuple[str, str]]] = {}
    for row in read:
        by_type.setdefault(type_of(row["reference"]), []).append(
            (row["response"], row["reference"])
        )
    assert by_type.keys() == set(AnswerType)
    chosen = [pair for pairs in by_type.values() for pair in pairs[:: -(-len(pairs) // EACH_TYPE)]]
    return {pair: verify(*pair) for pair in chosen}


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_order_chunks_and_workers(data: st.DataObject) -> None:
    pairs = data.draw(st.permutations([*rows()]))
    cuts = data.draw(st.sets(st.integers(1, len(pairs) - 1), max_size=4))
    chunks = [pairs[start:end] for start, end in pairwise([0, *sorted(cuts), len(pairs)])]
    found = list[Verdict]()
    for chunk in chunks:
        responses, references = zip(*chunk, strict=True)
        found += verify_batch(responses, references, workers=data.draw(st.sampled_from([1, 2])))
    assert dict(zip(pairs, found, strict=True)) == rows()
