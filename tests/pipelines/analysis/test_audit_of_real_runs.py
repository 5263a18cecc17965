"""The audit of real responses: GSM8K's by a small model, and 2,640 with published labels."""

from pathlib import Path

import numpy as np
import pytest
from labelled import label, lines_of
from real_responses import RECIPE, overrides
from typer.testing import CliRunner

from rejuice.pipelines.analysis.audit import (
    STRATA,
    draw,
    labelled_errors,
    read_labels,
    sample_lines,
    strata,
    write_lines,
)
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.verdicts import agreement, graded_rows, rechecked
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SOLUTIONS = ROOT / "recipes" / "gsm8k_solutions.yaml"
PAGE = ROOT / "docs" / "audit.md"


@pytest.fixture(scope="module")
def small_model(shared_data, tmp_path_factory):
    """The export of the shipped recipe over the recorded responses."""
    folder = tmp_path_factory.mktemp("real")
    recipe = load(RECIPE, overrides(shared_data / "gsm8k" / "test.jsonl", folder))
    return Path(run(recipe).export_path)


def test_responses_of_a_small_model(small_model, tmp_path):
    """Where math-verify decides otherwise is what tests/pipelines/test_real_responses.py lists."""
    output = tmp_path / "audit.jsonl"
    ran = CliRunner().invoke(app, ["audit", str(small_model), "--output", str(output)])
    assert ran.exit_code == 0, ran.output
    shown = ran.output.replace(str(small_model), "curated.parquet")
    assert shown.replace(str(output), "curated.run/audit.jsonl") in PAGE.read_text("utf-8")
    sample = [line for line in lines_of(output) if line["kind"] == "sample"]
    assert len(sample) == 200
    counts = {name: sum(line["stratum"] == name for line in sample) for name in STRATA}
    assert counts["wrong, recheck right"] == 9
    assert sum({line["stratum"]: line["stratum_rows"] for line in sample}.values()) == 1600


def test_the_error_rate_of_math_verify_is_covered(small_model, tmp_path):
    """As the first verifier it is wrong on 9 of these: docs/results.md says that they were read."""
    graded = graded_rows(open_stored(small_model))
    again = [each for some in rechecked(graded) for each in some]
    ours = graded.rows["verdict"].to_pylist()
    theirs = [each if each in ("correct", "wrong_answer") else own
              for each, own in zip(again, ours, strict=True)]  # fmt: skip
    at = graded.rows.column_names.index("verdict")
    swapped = graded._replace(rows=graded.rows.set_column(at, "verdict", [theirs]))
    labels = np.array([each == "correct" for each in ours])
    right_N = np.array([each == "correct" for each in theirs])
    wrong_N = labels != right_N
    assert wrong_N.sum() == 9
    found = labelled(swapped, ours, labels, tmp_path / "audit.jsonl", 0)
    truths = (wrong_N.mean(), wrong_N[right_N].mean(), wrong_N[~right_N].mean())
    for rate, truth in zip(found[3:], truths, strict=True):
        assert rate.rate == pytest.approx(truth)  # All disagreements are drawn.
        assert rate.interval.low <= truth <= rate.interval.high


@pytest.fixture(scope="module")
def published(shared_data, tmp_path_factory):
    """The graded rows, what math-verify makes of them, and the published label of each."""
    export = tmp_path_factory.mktemp("solutions") / "all.parquet"
    data = str(shared_data / "gsm8k" / "model_solutions.jsonl")
    recipe = load(SOLUTIONS, {"dataset_path": data, "export_path": str(export)})
    run(recipe.replace(steps=recipe.steps[:3]))
    stored = open_stored(export)
    graded = graded_rows(stored)
    labels = np.array(stored.sets[0].final()["published_is_correct"].to_pylist(), bool)
    assert graded.rows.num_rows == len(labels) == 2640
    return graded, [each for some in rechecked(graded) for each in some], labels


def labelled(graded, recheck_N, labels, path, seed):
    strata_N = strata(graded, recheck_N)
    rows = draw(graded, strata_N, 200, seed)
    write_lines(path, sample_lines(graded, recheck_N, strata_N, rows))
    label(path, lambda line: "right" if labels[line["row"]] else "wrong")
    return labelled_errors(read_labels(path, graded), graded, strata_N)


def test_published_labels(published, tmp_path):
    """The verdicts are the labels, of which no sample shows an error."""
    graded, recheck_N, labels = published
    both = agreement(graded, recheck_N)
    assert (both.both, both.agree, both.undecided) == (2636, 2636, 4)
    found = labelled(graded, recheck_N, labels, tmp_path / "audit.jsonl", 0)
    assert found.labelled == 200
    for each in (found.errors, found.false_right, found.false_wrong):
        assert each.rate == each.interval.low == 0
        assert 0 < each.interval.high < 0.05


def test_planted_errors_are_covered(published, tmp_path):
    """One verdict in 30 is turned round, seen by math-verify or not."""
    graded, recheck_N, labels = published
    draws = np.random.default_rng(3)
    covered = np.zeros(3)
    at = graded.rows.column_names.index("verdict")
    for seed in range(100):
        wrong_N = draws.random(len(labels)) < 1 / 30
        right_N = labels != wrong_N
        verdicts = np.where(right_N, "correct", "wrong_answer").tolist()
        # Half of the errors are math-verify's, too.
        alike_N = wrong_N & (draws.random(len(labels)) < 0.5)
        recheck = [verdicts[row] if alike_N[row] else each for row, each in enumerate(recheck_N)]
        turned = graded._replace(rows=graded.rows.set_column(at, "verdict", [verdicts]))
        found = labelled(turned, recheck, labels, tmp_path / "audit.jsonl", seed)
        truths = (wrong_N.mean(), wrong_N[right_N].mean(), wrong_N[~right_N].mean())
        rates = (found.errors, found.false_right, found.false_wrong)
        for place, (rate, truth) in enumerate(zip(rates, truths, strict=True)):
            covered[place] += rate.interval.low <= truth <= rate.interval.high
    assert covered.min() >= 93
