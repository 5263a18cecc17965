"""`on:`: steps that exist only offline, or only in training."""

import pyarrow as pa
import pytest
import yaml
from command import runner

from rejuice.operators import FormatRewardMapper, LengthFilter, RecipeError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.recipe.recipe import load, load_without_code
from rejuice.pipelines.recipe.steps import stored_operator
from rejuice.trainer.split import split_recipe

RESPONSE = "<think>a</think><answer>1</answer>"
ROWS = [{"prompt_id": "p", "response": RESPONSE, "source": "a"}]
PROCESS = [
    {"length_filter": {"min": 10**6, "unit": "characters", "on": "train"}},
    {"format_reward_mapper": {"where": {"source": "a"}}},
    {"format_reward_mapper": {"right": 7.0, "on": "run"}},
]


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def test_a_run_has_no_step_of_training(recipe_file):
    recipe = load(recipe_file(PROCESS, ROWS))
    result = run(recipe)
    assert [line.step for line in result.report.steps] == [
        "format_reward_mapper",
        "format_reward_mapper_2",
    ]
    assert result.table["reward_format"].to_pylist() == [7.0]


def test_the_others_are_counted_anew_and_keep_their_lines(recipe_file):
    recipe = load(recipe_file(PROCESS, ROWS))
    offline, training = recipe.offline(), recipe.in_training()
    assert [(s.number, s.name) for s in offline.steps] == [
        (1, "format_reward_mapper"),
        (2, "format_reward_mapper_2"),
    ]
    assert [s.name for s in training.steps] == ["length_filter", "format_reward_mapper"]
    for of_place in (offline, training):
        for step in of_place.steps:
            (same,) = (each for each in recipe.steps if each.name == step.name)
            assert of_place.line_of(step) == recipe.line_of(same)
    plain = Recipe([FormatRewardMapper()], pa.Table.from_pylist(ROWS))
    assert plain.offline() is plain is plain.in_training()


def test_a_recipe_of_training_steps_alone_is_no_recipe_of_a_run():
    recipe = Recipe([LengthFilter(min=1, on="train")], pa.Table.from_pylist(ROWS))
    with pytest.raises(RecipeError, match="every step is `on: train`; leave `on` out of one"):
        run(recipe)


def test_it_says_where_steps_are(rejuice, recipe_file):
    path = recipe_file(PROCESS, ROWS)
    code, out, err = rejuice("check", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [
        "step 1 length_filter is only in training: an offline run skips it.",
        "step 3 format_reward_mapper_2 is only offline: training skips it.",
    ]
    _, out, _ = rejuice("explain", path)
    assert "1. length_filter (row)\n   only    in training: an offline run skips it\n" in out
    assert "2. format_reward_mapper (row)\n   rows    source is a\n" in out
    assert "3. format_reward_mapper_2 (row)\n   only    offline: training skips it\n" in out
    assert "reads   response, source" in out


def test_columns_of_both_places_are_checked(rejuice, recipe_file):
    sums = {"reward_sum_mapper": {"weights": {"format": 1.0}}}
    for place in ("run", "train"):
        path = recipe_file([{"format_reward_mapper": {"on": place}}, sums], ROWS)
        code, _, err = rejuice("check", path)
        assert code == 2
        assert "reward_sum_mapper: column 'reward_format' is missing" in err
    both = [{"format_reward_mapper": {"on": "run"}}, {"format_reward_mapper": {"on": "train"}}]
    assert rejuice("check", recipe_file([*both, sums], ROWS))[0] == 0


def test_two_operators_of_two_places_may_write_a_column(recipe_file):
    process = [
        {"recorded_rollout_mapper": {"columns": ["answers"], "on": "run"}},
        {"policy_rollout_mapper": {"model": "embedded", "on": "train"}},
    ]
    rows = [{"prompt_id": "p", "prompt": "1 + 1?", "answers": ["2", "3"]}]
    assert run(load(recipe_file(process, rows))).table["response"].to_pylist() == ["2", "3"]


def test_training_has_no_step_of_a_run(recipe_file):
    process = [
        {"prompt_template_mapper": {"on": "run", "template": "Say {question}"}},
        {"prompt_template_mapper": {"on": "train"}},
        {"recorded_rollout_mapper": {"columns": ["answers"], "on": "run"}},
        {"policy_rollout_mapper": {"model": "embedded", "on": "train"}},
        {"math_verify_mapper": None},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
        {"exact_deduplicator": {"on": "run"}},
    ]
    recipe = load(recipe_file(process, ROWS))
    parts = split_recipe(recipe)
    assert [step.name for step in parts.before] == ["prompt_template_mapper_2"]
    assert [step.name for step in parts.after] == ["math_verify_mapper", "reward_sum_mapper"]
    # Messages name a step as it is in the file.
    assert [step.number for step in parts.after] == [5, 6]


def test_a_bare_on_is_the_field_and_not_the_value_true(recipe_file, tmp_path):
    path = recipe_file(PROCESS, ROWS)
    path.write_text(path.read_text().replace("'on'", "on"))
    assert True in yaml.safe_load(path.read_text())["process"][0]["length_filter"]
    recipe = load(path)
    assert [step.operator.on for step in recipe.steps] == ["train", None, "run"]
    again = tmp_path / "again.yaml"
    again.write_text(recipe.to_yaml())
    assert [s.operator for s in load(again).steps] == [s.operator for s in recipe.steps]


def test_what_is_no_place_is_refused(recipe_file):
    path = recipe_file([{"format_reward_mapper": {"on": "gpu"}}], ROWS)
    with pytest.raises(RecipeError, match="field 'on' is 'gpu'; input should be 'run' or 'train'"):
        load(path)


def test_a_step_whose_code_is_gone_keeps_both():
    stored = stored_operator("my_mapper", {"where": {"a": 1}, "on": "run", "own": 2})
    again = stored.with_written(["x"], {})
    assert (again.where, again.on, again.model_extra) == ({"a": 1}, "run", {"own": 2})


def test_the_recipe_of_a_run_is_read_without_code(recipe_file, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rejuice.operators import Mapper\n"
        "class MineMapper(Mapper):\n"
        "    def map(self, table):\n"
        "        return {}\n"
    )
    step = {"mine_mapper": {"where": {"source": ["a", "b"]}}}
    path = recipe_file([step], ROWS, custom_operator_paths=[str(tmp_path / "mine.py")])
    run(load(path))
    kept = load_without_code(tmp_path / "out" / "curated.run" / "recipe.yaml")
    assert kept.steps[0].operator.where == {"source": ("a", "b")}
