"""Any file of a run may be damaged at any place: no row is lost, none is there twice.

`benchmarks/bench_damage.py --count 10000` does the same at length, and prints tables.
"""

import os
from collections import Counter

import pytest
from damaged_runs import RIGHT, DamagedRuns

DAMAGES = int(os.environ.get("REJUICE_DAMAGES", "150"))
KINDS = {
    "commit", "decisions", "digest", "export", "judge's cache", "kept chunk", "kept: generation",
    "kept: journal", "kept: keys", "link to a kept chunk", "lock", "manifest of the source",
    "run folder: manifest.json", "run folder: recipe.yaml", "run folder: report.json",
    "source chunk",
}  # fmt: skip


@pytest.mark.slow
def test_each_damage_is_found_and_computed_again_or_named(folder_in_memory):
    attempts = list(DamagedRuns(folder_in_memory).attempts(DAMAGES, seed=1, at_once=3))
    assert sum(len(attempt.damaged) for attempt in attempts) == DAMAGES
    for attempt in attempts:
        assert attempt.outcome in RIGHT, attempt
    kinds = Counter(each.file for attempt in attempts for each in attempt.damaged)
    assert kinds.keys() >= KINDS
    # What a damaged file held was sampled again, or this test damages nothing that matters.
    assert sum(attempt.sampled for attempt in attempts) > 0
