"""The evidence of a row as lines of `rejuice explain`."""

import tiny_run

from rejuice.pipelines.analysis.explain import evidence_lines
from rejuice.pipelines.analysis.stored import open_stored

PROCESS = [
    *tiny_run.PROCESS[:3],
    {"minhash_deduplicator": {"within": "all", "threshold": 0.3, "keep_different_numbers": False}},
    {"diversity_reward_mapper": {}},
]


def lines_of(folder, at, row, **options):
    (one,) = open_stored(folder / "curated.parquet").sets
    return evidence_lines(list(one.applied(1))[at], row, **options)


def test_lines(tmp_path):
    tiny_run.run_tiny(tmp_path, PROCESS)
    assert lines_of(tmp_path, 0, 0) == ["   found_by: boxed", "   found_at: 7:8"]
    assert lines_of(tmp_path, 1, 0) == []
    (dropped,) = lines_of(tmp_path, 1, 3)
    assert dropped.startswith("   repeats: ")
    assert len(lines_of(tmp_path, 1, 3, most=4)[0]) < len(dropped)
    near = lines_of(tmp_path, 2, 1)
    assert [line.split(":")[0].strip() for line in near] == [
        "nearest_response_id",
        "nearest_cosine",
        "mean_cosine",
    ]
