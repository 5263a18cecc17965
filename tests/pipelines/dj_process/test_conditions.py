"""`where:` and `on:` under `dj-process`: the rows of `rejuice run`."""

import pyarrow as pa
import pytest
from juicer_run import execute, exported, write_recipe
from two_runners import written

from rejuice.operators import RecipeError
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.pipelines.dj_process.plugin import _parameters
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow

RIGHT = "<think>a</think><answer>1</answer>"
ROWS = pa.table(
    {
        "prompt_id": ["p"] * 4 + ["q"] * 2,
        "source": ["a", "b", "a", "b", "b", "b"],
        "response": [RIGHT, RIGHT, "no", "no", RIGHT, RIGHT],
        "reward_accuracy": [1.0, 0.0, 0.0, 1.0, 1.0, 0.0],
    }
)
PROCESS = [
    {"format_reward_mapper": {"where": {"source": "a"}}},
    {"format_reward_mapper": {"where": {"source": ["b"]}, "right": 3.0}},
    {"exact_deduplicator": {"where": {"source": "b"}, "within": "all"}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    {"grpo_advantage_mapper": {"on": "train"}},
    {"grpo_advantage_mapper": {"normalise": "none", "on": "run"}},
]  # fmt: skip


def _both(tmp_path, process, rows=ROWS):
    theirs = execute(write_recipe(tmp_path, process, rows))
    recipe = load(tmp_path / "recipe.yaml", {"export_path": str(tmp_path / "ours" / "c.parquet")})
    run(recipe)
    (tmp_path / "ours" / "out").mkdir()
    (tmp_path / "ours" / "c.parquet").rename(tmp_path / "ours" / "out" / "curated.parquet")
    return theirs, exported(tmp_path / "ours")


def test_the_rows_are_those_of_rejuice_run(tmp_path):
    theirs, ours = _both(tmp_path, PROCESS)
    assert theirs.to_pylist() == ours.to_pylist()
    assert theirs["reward_format"].to_pylist() == [0.1, 3.0, -0.1, -0.1]
    # Rewards 1.1, 3.0, -0.1 and 0.9, and not divided by a deviation, as only training would.
    assert theirs["advantage"].to_pylist() == pytest.approx([-0.125, 1.775, -1.325, -0.325])


def test_a_step_of_training_alone_may_come_first(tmp_path):
    process = [
        {"length_filter": {"min": 10**6, "unit": "characters", "on": "train"}},
        {"format_reward_mapper": None},
    ]
    theirs, ours = _both(tmp_path, process)
    assert theirs.num_rows == ours.num_rows == ROWS.num_rows
    log = (tmp_path / "out" / "curated.run" / "report.json").read_text()
    assert "length_filter" not in log


def test_a_bare_on_is_the_field(tmp_path):
    path = write_recipe(tmp_path, PROCESS, ROWS)
    path.write_text(path.read_text().replace("'on'", "on"))
    assert execute(path).num_rows == 4


def test_operators_of_data_juicer_have_no_condition(tmp_path):
    process = [{"text_length_filter": {"where": {"source": "a"}}}, {"format_reward_mapper": None}]
    with pytest.raises(
        RecipeError, match="text_length_filter has `where`, which Data-Juicer's own"
    ):
        execute(written(tmp_path, process))


def test_own_fields_keep_their_places():
    assert _parameters(FormatRewardMapper)[:2] == ["style", "tags"]
    assert _parameters(FormatRewardMapper)[-2:] == ["where", "on"]
