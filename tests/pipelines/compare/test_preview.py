"""What training would get, on the shared tiny run by hand."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from tiny_run import PROCESS, run_tiny
from typer.testing import CliRunner

from rejuice.operators import DataError
from rejuice.pipelines.cli import app
from rejuice.pipelines.compare.preview import preview
from rejuice.pipelines.compare.replay import replay, whole
from rejuice.pipelines.recipe.read import load
from rejuice.pipelines.stored.open import open_stored


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return run_tiny(tmp_path_factory.mktemp("tiny"))


def previewed(recipe, **changes):
    (one,) = open_stored(recipe.path).sets
    return preview(replay(*whole(one), one.fit(load(recipe.path, changes))))


def test_tiny_by_hand(tiny):
    """Rewards of A: 1.1, 0.9, 0.1, -0.1; of C: 1.1 and three of -0.1; B is too easy."""
    found = previewed(tiny)
    assert (found.responses, found.prompts, found.kept, found.groups_left) == (12, 3, 8, 2)
    assert found.without_signal == 0
    groups = np.array([[1.1, 0.9, 0.1, -0.1], [1.1, -0.1, -0.1, -0.1]])
    distance = groups - groups.mean(1, keepdims=True)
    expected = {
        "std": distance / (groups.std(1, ddof=1, keepdims=True) + 1e-6),
        "none": distance,
        "leave_one_out": distance * 4 / 3,
    }
    for name, advantages in expected.items():
        figures = (np.abs(advantages).mean(), advantages.max(), advantages.min())
        assert found.advantages[name] == pytest.approx(figures), name
    assert sum(found.component_mass.values()) == pytest.approx(1)
    assert found.component_mass["accuracy"] == pytest.approx(0.93, abs=0.005)
    assert sum(found.length_mass) == pytest.approx(1)
    assert found.refill == pytest.approx((1.5, 1.066, 4.82), abs=0.005)  # Wilson, of 2 of 3
    assert (found.tokens, found.judge_calls) == (None, 0)


def test_groups_without_signal_are_counted(tiny):
    found = previewed(
        tiny, **{"pass_rate_filter.max": "1.0", "reward_sum_mapper.weights.format": "0"}
    )
    assert (found.groups_left, found.without_signal) == (3, 1)
    assert found.refill.factor == 1


def test_rows_that_a_step_adds_are_no_responses(tmp_path):
    recipe = run_tiny(tmp_path, [*PROCESS, {"self_verification_mapper": {}}])
    assert pq.read_table(tmp_path / "curated.parquet").num_rows > 8
    found = previewed(recipe)
    assert (found.responses, found.prompts, found.kept, found.groups_left) == (12, 3, 8, 2)
    assert (found.without_signal, found.refill.factor) == (0, 1.5)


def test_a_recipe_without_advantages_is_refused(tiny, tmp_path):
    (one,) = open_stored(tiny.path).sets
    with pytest.raises(DataError, match="has no grpo_advantage_mapper; add one as the last step"):
        preview(replay(*whole(one), one.steps[:-1]))


def test_the_command(tiny):
    run = CliRunner().invoke(app, ["preview", str(tiny.path)])
    assert run.exit_code == 0, run.output
    lines = [line.split() for line in run.output.splitlines()]
    assert ["mean", "|advantage|", "0.800", "0.475", "0.633"] in lines
    assert ["refill", "1.50", "prompts"] in [line[:3] for line in lines]


@pytest.mark.recommended("pipelines/commands/preview.py", "or accept it with --allow_empty")
def test_nothing_left_exits_1(tiny):
    nothing = ["preview", str(tiny.path), "--pass_rate_filter.min", "0.9"]
    run = CliRunner().invoke(app, nothing)
    assert run.exit_code == 1
    assert "no row is left of 12 responses; change the filters" in str(run.exception or run.output)
    assert CliRunner().invoke(app, [*nothing, "--allow_empty"]).exit_code == 0
