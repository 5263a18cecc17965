"""Evidence in a page: of which rows it is, and that it is that of the steps."""

from pathlib import Path

import numpy as np
import page_fixture
import pytest
import tiny_run
from fake_judge import FakeJudge, verdict

from rejuice.pipelines.analysis.evidence import evidence, seen_by
from rejuice.pipelines.analysis.page import rows as module
from rejuice.pipelines.analysis.page.build import build_page
from rejuice.pipelines.analysis.page.rows import COLUMN, evidence_of, page_of
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.written import WrittenValues
from rejuice.pipelines.engine.steps import iterate_steps

AFTER = [
    {"minhash_deduplicator": {"within": "all", "threshold": 0.3, "keep_different_numbers": False}},
    {"diversity_reward_mapper": {}},
]
PROCESS = [*tiny_run.PROCESS[:3], *AFTER, *tiny_run.PROCESS[3:]]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    tiny_run.run_tiny(folder, PROCESS)
    return folder / "curated.parquet"


def replayed(export):
    (one,) = open_stored(export).sets
    return [
        list(iterate_steps(one.steps, one.base(at), one.results(at))) for at in range(one.parts)
    ]


@pytest.mark.slow
def test_evidence_is_that_of_each_step(export, tmp_path):
    """Also across parts: the response that stayed instead is that of another prompt."""
    build_page(page_of([(export, open_stored(export))]), tmp_path / "p.html")
    shown = {row["response_id"]: row for row in page_fixture.Page(tmp_path / "p.html").rows()}
    assert len(shown) == 12
    parts = replayed(export)
    for part in parts:
        for each in part[:1] + part[2:3]:  # Those that look at a group at most.
            table = seen_by(each, np.arange(each.before.num_rows))
            columns = evidence(each.step, table, None)
            for at, name in enumerate(table["response_id"].to_pylist()):
                found = {
                    entry["name"]: entry["text"]
                    for entry in shown[name][COLUMN]
                    if entry["step"] == each.step.number
                }
                expected = {key: column[at].as_py() for key, column in columns.items()}
                assert found == {
                    key: f"{value:.3f}" if isinstance(value, float) else value
                    for key, value in expected.items()
                    if value is not None
                }
    repeats = {
        name: entry["text"]
        for name, row in shown.items()
        for entry in row[COLUMN]
        if entry["name"] == "repeats"
    }
    (dropped,) = repeats
    assert shown[dropped]["response"] == "That is 2."
    assert shown[repeats[dropped]]["response"] == "It is 2."


def test_a_large_run_has_none(export, monkeypatch):
    monkeypatch.setattr(module, "MOST_DETAILED", 11)
    (one,) = page_of([(export, open_stored(export))]).sets
    assert COLUMN not in one.row_texts.column_names
    assert "runs of up to 11 responses; of a row: rejuice explain" in one.banner


@pytest.mark.slow
def test_a_judges_words_are_in_the_page(tmp_path):
    raw = "No.\n<script>window.hit=1</script>\u202e"
    with FakeJudge(says={11: [raw], 12: [verdict([5, 5, 5, 5])]}) as judge:
        server = {"base_url": judge.url, "back_off_s": 0.002, "patience_s": 0.1, "attempts": 2}
        cache = str(tmp_path / "scores.sqlite")
        quality = {"llm_quality_reward_mapper": {"model": "m", "server": server, "cache": cache}}
        tiny_run.run_tiny(tmp_path, [*tiny_run.PROCESS[:2], quality])
    build_page(
        page_of([(tmp_path / "tiny.yaml", open_stored(tmp_path / "tiny.yaml"))]),
        tmp_path / "p.html",
    )
    page = page_fixture.Page(tmp_path / "p.html")
    found = {row["response"]: row[COLUMN] for row in page.rows()}
    assert found["It is 11."] == [{"step": 3, "name": "raw_failure", "text": raw}]
    assert found["12"] == [{"step": 3, "name": "raw_answer", "text": verdict([5, 5, 5, 5])}]
    assert "<script>window.hit" not in page.text


def test_without_the_steps_there_is_none(export):
    """A page of rows alone has no evidence, and no empty column of it."""
    recipe = Path(export).with_name("tiny.yaml")
    (one,) = open_stored(recipe).sets
    none = [list(iterate_steps((), one.base(at), one.results(at))) for at in range(one.parts)]
    values = [WrittenValues(one.base(at)) for at in range(one.parts)]
    assert evidence_of(none, values).null_count == 12
