"""What commands that look at a run print with `--json`: the figures of their tables, unrounded."""

import json
import os
from pathlib import Path

import pytest
from command import runner
from tiny_run import run_tiny

from rejuice.pipelines.console import as_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder)
    return folder


@pytest.fixture
def found(monkeypatch, capsys, folder):
    rejuice = runner(monkeypatch, capsys, folder)

    def found(*words):
        code, out, err = rejuice(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return found


def test_report(found):
    report = found("report", "curated.parquet")
    assert (report["rows_out"], report["steps"][5]["dropped"]) == (8, {"too_easy": 4})


def test_reports_of_several_runs_are_one_list(found):
    assert found("report", "curated.parquet", "curated.run") == [found("report", "curated.run")] * 2


def test_whatif(found):
    changed = found("whatif", "curated.parquet", "--pass_rate_filter.max", "1.0")
    assert changed["changed"] == ["pass_rate_filter.max 0.9 -> 1.0"]
    assert (changed["rows"], changed["kept_in_both"], changed["counts"]["gained"]) == (12, 8, 4)
    assert changed["reasons"]["gained"] == {"too_easy": 4}
    before, after = (side["reward"] for side in changed["figures"])
    assert (before, after) == pytest.approx((0.35, 0.55))


def test_each_step(found):
    parts = found("whatif", "curated.parquet", "--each")
    assert parts["pass_rate_filter"]["figures"][1]["kept"] == 12
    assert parts["weight accuracy"]["counts"]["flipped"] == 2
    assert "reward_sum_mapper" in parts["format_reward_mapper"]["needed_by"]


def test_diff(found):
    both = found("diff", "curated.parquet", "curated.run")
    assert both["recipe"] == []
    (one,) = both["sets"]
    assert one["common"]["kept_in_both"] == 8
    assert sum(one["components"][name]["added"][0] for name in ("accuracy", "format")) == (
        pytest.approx(one["figures"][0]["reward"])
    )


def test_explain(found):
    rows = found("explain", "curated.parquet", "row 1")
    assert [row["fate"] for row in rows] == ["kept"] * 4
    assert rows[1]["advantage"] == pytest.approx(0.679365, abs=1e-6)
    assert any("math_verify_mapper: kept" in line for line in rows[1]["history"])
    step = found("explain", "tiny.yaml")["pass_rate_filter"]
    assert (step["scope"], step["fields"]["max"], step["writes"]) == ("group", 0.9, [])
    assert (step["reads"], step["optional_reads"]) == (
        ["prompt_id", "verdict"],
        {"pass_rate": "verdict"},
    )
    assert {"too_easy", "too_hard"} <= step["drops"].keys()


def test_fields_do_not_change_what_a_run_has_done(monkeypatch, capsys, folder):
    rejuice = runner(monkeypatch, capsys, folder)
    words = ("explain", "curated.parquet", "row 1", "--pass_rate_filter.max", "1.0")
    status, out, err = rejuice(*words)
    assert (status, out, "--pass_rate_filter.max" in err) == (2, "", True)


@pytest.mark.recommended("pipelines/cli/analysis.py", "--against is an option of --curves")
@pytest.mark.recommended("pipelines/cli/analysis.py", "add --curves")
@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--against", "tokens"), "add --curves"),
        (("--curves", "a.txt"), "end it in .png, .svg or .pdf"),
        (("--curves", "a.png"), "curated.parquet holds no training run"),
    ],
)
def test_curves_are_refused_before_the_report(monkeypatch, capsys, folder, words, fact):
    pytest.importorskip("matplotlib")
    status, out, err = runner(monkeypatch, capsys, folder)("report", "curated.parquet", *words)
    assert (status, out, fact in err) == (2, "", True)


def test_preview(found):
    (one,) = found("preview", "curated.parquet")["sets"]
    assert (one["prompts"], one["figures"]["kept"]) == (3, 8)
    assert one["advantages"].keys() == {"GRPO", "without std", "leave-one-out"}


def test_a_preview_of_nothing_has_its_figures(monkeypatch, capsys, folder):
    rejuice = runner(monkeypatch, capsys, folder)
    none = ["--pass_rate_filter.min", "0.9", "--pass_rate_filter.max", "0.9"]
    code, out, err = rejuice("preview", "curated.parquet", *none, "--json")
    assert (code, "no row is left of 12 responses" in err) == (1, True), err
    assert json.loads(out)["sets"][0]["figures"]["kept"] == 0


def test_audit(found, folder):
    audit = found("audit", "curated.parquet", "--overwrite")
    assert audit["verdicts"]["graded"]["rows"] == 12
    assert audit["verdicts"]["errors"] is None
    (one,) = [sign for sign in audit["signs"] if sign["name"] == "length pays"]
    assert (one["p"], one["alarm"]) == (None, False)


def test_a_path_that_is_no_text_is_escaped():
    assert json.loads(as_json(Path(os.fsdecode(b"a\xff")))) == r"a\udcff"
