"""Groups without signal, and why components are missing, of a training step."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from tiny_run import run_tiny
from training_stage import PLAIN, summed

from rejuice.pipelines.analysis.figures import group_figures
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.report.stored import open_training
from rejuice.trainer.verl.curation import curate, missing_figures, values_table
from rejuice.trainer.verl.figures import signal_figures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """TINY's steps after sampling, and its rows as sampled."""
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder, chunk_rows=None)
    (one,) = open_stored(folder / "curated.parquet").sets
    return number_steps([step.operator for step in one.steps]), one.base(0).table()


def part_of(steps, rollouts, trains=True):
    curated = curate(steps, rollouts)
    return SimpleNamespace(rollouts=rollouts, curated=curated, recipe=steps, trains=trains)


def test_a_group_that_was_dropped_has_no_signal_and_what_does_not_train_has_no_figure(tiny):
    part = part_of(*tiny)
    assert signal_figures({"": part}) == {"rejuice/groups_without_signal": 1 - 2 / 3}
    parts = {"": part_of(*tiny, trains=False), "verify": part}
    assert signal_figures(parts) == {"rejuice/verify/groups_without_signal": 1 - 2 / 3}
    nothing = SimpleNamespace(rollouts=tiny[1].slice(0, 0), curated=part.curated, trains=True)
    assert signal_figures({"": nothing}) == {}


def test_reasons_are_counted_by_component_and_pieces_add_up(tiny):
    steps, rollouts = tiny
    assert missing_figures(values_table(rollouts, steps, curate(steps, rollouts).written)) == {}
    at = rollouts.column_names.index("response")
    texts = rollouts["response"].to_pylist()
    texts[0] = texts[5] = None
    rollouts = rollouts.set_column(at, "response", pa.array(texts, pa.string()))
    steps = steps[:2]
    pieces = [curate(steps, rollouts.slice(start, 4)) for start in (8, 0, 4)]
    written = [each for piece in pieces for each in piece.written]
    found = missing_figures(values_table(rollouts, steps, written))
    assert found == {"missing/accuracy/no_response": 2.0, "missing/format/no_response": 2.0}


def test_a_step_logs_both_and_they_are_those_of_the_stored_rows(stage):
    made = stage([PLAIN[0], summed("drop_row"), PLAIN[-1]])
    texts = {0: ["1", "0", "scorer_timeout"], 1: ["1", "1"], 2: ["scorer_busy", "scorer_timeout"]}
    made.answer(texts)
    _, figures = made.sample(1, 3)
    assert figures["rejuice/groups_without_signal"] == pytest.approx(2 / 3)
    assert {name: n for name, n in figures.items() if "/missing/" in name} == {
        "rejuice/missing/accuracy/scorer_timeout": 2.0,
        "rejuice/missing/accuracy/scorer_busy": 1.0,
    }
    made.buffer.files.wait()
    (one,) = open_training(made.run.folder).sets
    rows = stored_rows(one)
    groups = group_figures(rows)
    assert (groups.without_signal, groups.groups) == (2, 3)
    assert rows.table["reward_accuracy_missing"].null_count == 4
