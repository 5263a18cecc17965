"""What training would get, on the shared tiny run by hand."""

from io import StringIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_run import AFTER, PROCESS, run_tiny, write_tiny
from typer.testing import CliRunner

from rejuice.operators import ColumnRangeFilter, DataError, Mapper
from rejuice.pipelines.analysis.preview import preview, show_preview, trained
from rejuice.pipelines.analysis.replay import SetSamples
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.console import Console
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.steps import number_steps


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return run_tiny(tmp_path_factory.mktemp("tiny"))


def previewed(recipe, **changes):
    (one,) = open_stored(recipe.path).sets
    return preview(SetSamples.of(one), one.fit(load(recipe.path, changes)))


def test_tiny_by_hand(tiny):
    """Rewards of A: 1.1, 0.9, 0.1, -0.1; of C: 1.1 and three of -0.1; B is too easy."""
    found = previewed(tiny)
    figures = found.figures
    assert (figures.rows, found.prompts, figures.kept, figures.groups) == (12, 3, 8, 2)
    assert found.without_signal == 0
    groups = np.array([[1.1, 0.9, 0.1, -0.1], [1.1, -0.1, -0.1, -0.1]])
    distance = groups - groups.mean(1, keepdims=True)
    expected = {
        "GRPO": distance / (groups.std(1, ddof=1, keepdims=True) + 1e-6),
        "without std": distance,
        "leave-one-out": distance * 4 / 3,
    }
    for name, advantages in expected.items():
        sizes = (np.abs(advantages).mean(), advantages.max(), advantages.min())
        assert found.advantages[name] == pytest.approx(sizes), name
    assert sum(each.mass for each in figures.shares.values()) == pytest.approx(1)
    assert figures.shares["accuracy"].mass == pytest.approx(0.93, abs=0.005)
    assert sum(found.length_mass) == pytest.approx(1)
    assert found.refill == pytest.approx((1.5, 1.066, 4.82), abs=0.005)  # Wilson, of 2 of 3
    assert figures.unit == "characters"


def test_groups_without_signal_are_counted(tiny):
    found = previewed(
        tiny, **{"pass_rate_filter.max": "1.0", "reward_sum_mapper.weights.format": "0"}
    )
    assert (found.figures.groups, found.without_signal) == (3, 1)
    assert found.refill[0] == 1


def test_rows_that_a_step_adds_are_no_responses(tmp_path):
    recipe = run_tiny(tmp_path, [*PROCESS, {"self_verification_mapper": {}}])
    assert pq.read_table(tmp_path / "curated.parquet").num_rows > 8
    found = previewed(recipe)
    figures = found.figures
    assert (figures.rows, found.prompts, figures.kept, figures.groups) == (12, 3, 8, 2)
    assert (found.without_signal, found.refill[0]) == (0, 1.5)


def test_only_kept_rows_count(tiny):
    (one,) = open_stored(tiny.path).sets
    operators = [step.operator for step in one.steps]
    operators.append(ColumnRangeFilter(column="advantage", min=0.0))
    found = preview(SetSamples.of(one), number_steps(operators))
    assert found.figures.kept == 3
    mean, largest, smallest = found.advantages["GRPO"]
    assert mean == pytest.approx(found.figures.advantage)
    assert found.advantages["without std"] == pytest.approx((1.9 / 3, 0.9, 0.4))
    assert 0 < smallest < mean < largest


class RankAdvantageMapper(Mapper):
    """Another advantage than a distance of rewards."""

    def reads(self):
        return ("reward",)

    def writes(self):
        return ("advantage",)

    def map(self, table):
        return {"advantage": pa.array([float(k % 3 - 1) for k in range(table.num_rows)])}


def test_an_advantage_of_ones_own_has_no_parts_by_component(tiny):
    (one,) = open_stored(tiny.path).sets
    operators = [*(step.operator for step in one.steps[:-1]), RankAdvantageMapper()]
    found = preview(SetSamples.of(one), number_steps(operators))
    assert [*found.advantages] == ["rank_advantage_mapper"]
    assert found.advantages["rank_advantage_mapper"] == (pytest.approx(5 / 8), 1.0, -1.0)
    assert np.isnan([each.mass for each in found.figures.shares.values()]).all()
    console = Console(file=StringIO(), width=200)
    show_preview("tiny", found, console)
    assert "not known by component" in console.file.getvalue()


def test_a_recipe_without_advantages_is_refused(tiny, tmp_path):
    other = tiny.replace(steps=tiny.steps[:-1])
    with pytest.raises(DataError, match="no step writes the advantage; add grpo_advantage_mapper"):
        trained(open_stored(tiny.path), other)


def test_the_command(tiny):
    run = CliRunner().invoke(app, ["preview", str(tiny.path)])
    assert run.exit_code == 0, run.output
    lines = [line.split() for line in run.output.splitlines()]
    assert ["mean", "|advantage|", "0.800", "0.475", "0.633"] in lines
    assert ["refill", "1.50", "prompts"] in [line[:3] for line in lines]


@pytest.mark.slow
def test_where_nothing_was_run_some_prompts_are(tmp_path, monkeypatch):
    path = write_tiny(tmp_path, train={"steps": 5, "prompts_per_step": 8, "validation_path": "v"})
    command = ["preview", str(path), "--prompts", "2"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    first = run.output.splitlines()[0]
    export = tmp_path / "preview" / "curated" / "curated.parquet"
    assert first == f"{export}: 8 responses to 2 prompts; sampled for this preview."
    assert export.exists()
    assert not (tmp_path / "curated.parquet").exists()
    questions = pq.read_table(export)["question"].to_pylist()
    again = CliRunner().invoke(app, command)
    nothing, *lines = again.output.splitlines()
    assert nothing == f"nothing to do: {export} is up to date"
    assert lines[:5] == run.output.splitlines()[:5]
    assert pq.read_table(export)["question"].to_pylist() == questions
    # The recipe's own run counts as soon as there is one.
    run_tiny(tmp_path)
    whole = CliRunner().invoke(app, ["preview", str(path)])
    assert "12 responses to 3 prompts; nothing is sampled or judged" in whole.output


@pytest.mark.slow
def test_files_that_no_preview_wrote_stay(tmp_path):
    path = write_tiny(tmp_path)
    file = tmp_path / "preview" / "curated" / "curated.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("precious")
    run = CliRunner().invoke(app, ["preview", str(path)])
    assert f"{file} exists" in str(run.exception)
    assert file.read_text() == "precious"
    file.rename(tmp_path / "away")
    assert CliRunner().invoke(app, ["preview", str(path)]).exit_code == 0
    fewer = CliRunner().invoke(app, ["preview", str(path), "--prompts", "2"])
    assert fewer.exit_code == 0, "it may replace its own"


@pytest.mark.slow
def test_a_preview_that_was_stopped_is_no_obstacle(tmp_path):
    path = write_tiny(tmp_path)
    command = ["preview", str(path), "--prompts", "2"]
    assert CliRunner().invoke(app, command).exit_code == 0
    folder = tmp_path / "preview" / "curated"
    for each in list(folder.iterdir()):
        if each.name != "curated.run":
            each.unlink()
    (folder / "curated.run" / "report.json").unlink()
    assert CliRunner().invoke(app, command).exit_code == 0


def test_a_recipe_that_samples_nothing_is_not_run_for_a_preview(tmp_path):
    path = write_tiny(tmp_path, AFTER)
    run = CliRunner().invoke(app, ["preview", str(path)])
    assert str(run.exception) == "no step of the recipe samples responses; run the recipe"


@pytest.mark.recommended("pipelines/cli/analysis.py", "or accept it with --allow_empty")
def test_nothing_left_exits_1(tiny):
    nothing = ["preview", str(tiny.path), "--pass_rate_filter.min", "0.9"]
    run = CliRunner().invoke(app, nothing)
    assert run.exit_code == 1
    assert "no row is left of 12 responses; change the filters" in str(run.exception or run.output)
    assert CliRunner().invoke(app, [*nothing, "--allow_empty"]).exit_code == 0
