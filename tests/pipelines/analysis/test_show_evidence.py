"""The evidence of a row as lines of `rejuice explain`."""

import pyarrow as pa
import pyarrow.parquet as pq
import tiny_run

from rejuice.pipelines import Recipe, run
from rejuice.pipelines.analysis.explain import evidence_lines
from rejuice.pipelines.analysis.stored import open_stored

PROCESS = [
    *tiny_run.PROCESS[:3],
    {"minhash_deduplicator": {"within": "all", "threshold": 0.3, "keep_different_numbers": False}},
    {"diversity_reward_mapper": {}},
]


def lines_of(folder, at, row, part=1, **options):
    (one,) = open_stored(folder / "curated.parquet").sets
    return evidence_lines(list(one.applied(part))[at], row, **options)


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


def test_the_question_of_an_evaluation_set(tmp_path):
    question = "Tom has three apples and buys two more of them. How many has he?"
    pq.write_table(pa.table({"question": [question]}), tmp_path / "set.parquet")
    process = [
        {"prompt_template_mapper": {"reference": None}},
        {"ngram_decontamination_filter": {"against": {"fruit": str(tmp_path / "set.parquet")}}},
    ]
    rows = pa.table({"question": [f"Listen: {question.upper()}", "What is 2 + 2?"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    export = tmp_path / "curated.parquet"
    run(Recipe(process, tmp_path / "rows.parquet", export_path=export))
    assert lines_of(tmp_path, 1, 0, part=0) == [f"   question: fruit row 0: {question}"]
    assert lines_of(tmp_path, 1, 1, part=0) == []
