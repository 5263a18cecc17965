"""Any file of a run may be damaged at any place: no row is lost, none is there twice.

`benchmarks/bench_damage.py --count 10000` does the same at length, and prints tables.
"""

import os
from collections import Counter

import pytest
from damaged_runs import RIGHT, SAME, DamagedRuns

DAMAGES = int(os.environ.get("REJUICE_DAMAGES", "220"))
ONCE = {
    "commit", "decision", "decisions", "digest", "export", "judge's cache: Parquet",
    "judge's cache: SQLite", "kept rows: Parquet", "kept rows: SQLite", "manifest of the source",
    "name of an export", "run folder: manifest.json", "run folder: recipe.yaml",
    "run folder: report.json", "source chunk", "tag of the cache",
}  # fmt: skip

READ = {"commit", "decision", "digest", "manifest of the source", "source chunk"}


@pytest.mark.slow
def test_each_damage_is_found_and_computed_again_or_named(folder_in_memory):
    attempts = attempted(folder_in_memory, DAMAGES, seed=1, at_once=3)
    kinds = Counter(each.file for attempt in attempts for each in attempt.damaged)
    assert kinds.keys() >= {*ONCE, "lock", "retry counter"}
    # What a damaged file held was sampled again, or this test damages nothing that matters.
    assert sum(attempt.sampled for attempt in attempts) > 0


@pytest.mark.slow
@pytest.mark.smoke
def test_a_hundred_damages_in_few_runs_are_found_and_computed_again_or_named(folder_in_memory):
    attempted(folder_in_memory, 100, seed=2, at_once=6)


@pytest.mark.slow
def test_one_flipped_bit_in_each_kind_of_file_is_found(folder_in_memory):
    attempts = list(DamagedRuns(folder_in_memory).flips(1, seed=3))
    assert {each.file for attempt in attempts for each in attempt.damaged} >= ONCE
    for attempt in attempts:
        assert attempt.outcome in RIGHT, attempt
        if attempt.state != "retried":  # There are results of before, which nothing reads.
            assert attempt.outcome != SAME or attempt.damaged[0].file not in READ, attempt


def attempted(folder, damages, seed, at_once):
    """Attempts with so many damages in all, each with a right outcome."""
    attempts = list(DamagedRuns(folder).attempts(damages, seed, at_once=at_once))
    assert sum(len(attempt.damaged) for attempt in attempts) >= damages
    for attempt in attempts:
        assert attempt.outcome in RIGHT, attempt
    return attempts
