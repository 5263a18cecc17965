"""Recipes: what YAML means, what the command line overrides, and one line for every mistake."""

from pathlib import Path

import pytest
import yaml
from each import check_each

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.recipe import Recipe, load
from rejuice.pipelines.recipe.steps import step_names

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))
HEAD = "dataset_path: a.jsonl\nexport_path: b.parquet\n"


def operators_of(recipe):
    return [(step.number, step.name, step.operator) for step in recipe.steps]


def write(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path


def message(path, overrides=None):
    with pytest.raises(RecipeError) as caught:
        load(path, overrides)
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(f"{path.parent}/", "")


def fields(path, overrides=None):
    steps = load(path, overrides).steps
    return {step.name: step.operator.model_dump(exclude_unset=True) for step in steps}


def test_every_way_to_write_a_step(tmp_path):
    path = write(tmp_path, HEAD + "process:\n- exact_deduplicator\n- exact_deduplicator:\n- exact_deduplicator: {}\n- exact_deduplicator: {column: answer}\n")  # fmt: skip
    recipe = load(path)
    assert [step.name for step in recipe.steps] == ["exact_deduplicator", "exact_deduplicator_2", "exact_deduplicator_3", "exact_deduplicator_4"]  # fmt: skip
    assert recipe.steps[3].label == "04_exact_deduplicator_4"
    assert fields(path)["exact_deduplicator_4"] == {"column": "answer"}


def test_names_of_repeated_steps():
    assert step_names(["a", "b", "a", "a", "b"]) == ["a", "b", "a_2", "a_3", "b_2"]
    assert step_names([]) == []


def test_a_program_of_a_policy_that_cannot_be_run_is_wrong(tmp_path):
    """A recorded one says nothing about the policy; a missing reward would be one to learn from."""

    def resolved(sampling, **fields):
        recipe = Recipe([*sampling, {"unit_test_mapper": fields}], "a.jsonl", export_path="b.jsonl")
        return recipe.steps[-1].operator.on_unrunnable

    sampled = [{"policy_rollout_mapper": {"engine": "transformers", "model": "embedded"}}]
    assert resolved([{"recorded_rollout_mapper": {"columns": ["a"]}}]) is None
    assert resolved(sampled) == "wrong"
    assert resolved(sampled, on_unrunnable="missing") == "missing"


def test_anchors_and_merges_are_yaml_too(tmp_path):
    text = (
        HEAD + "process:\n- length_filter: &f {min: 1, max: 5}\n- length_filter: {<<: *f, max: 9}\n"
    )
    assert fields(write(tmp_path, text))["length_filter_2"] == {"min": 1, "max": 9}


OVERRIDES = HEAD + "process:\n- length_filter: {min: 1}\n- length_filter: {min: 2}\n- recorded_rollout_mapper: {columns: [r]}\n- reward_sum_mapper: {weights: {a: 1}}\n"  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "step", "found"),
    [
        ("length_filter.max", "7", "length_filter", {"min": 1, "max": 7}),
        ("length_filter_2.min", "null", "length_filter_2", None),
        ("length_filter_2.unit", "words", "length_filter_2", {"min": 2, "unit": "words"}),
        ("recorded_rollout_mapper.columns", "[a, 'b c']", "recorded_rollout_mapper", {"columns": ("a", "b c")}),
        ("reward_sum_mapper.weights", "{a: 0.5, b: -1}", "reward_sum_mapper", {"weights": {"a": 0.5, "b": -1.0}}),
        ("length_filter.column", "''", "length_filter", {"min": 1, "column": ""}),
    ],
)  # fmt: skip
def test_overrides_are_yaml_values(tmp_path, key, text, step, found):
    path = write(tmp_path, OVERRIDES)
    if found is None:
        assert message(path, {key: text}) == (
            "recipe.yaml, line 5, step 2 length_filter: neither min nor max is given"
        )
    else:
        assert fields(path, {key: text})[step] == found


def test_overrides_of_the_head(tmp_path):
    head = load(write(tmp_path, OVERRIDES), {"np": "3", "text_keys": "[q, r]", "export_path": "c.jsonl"}).head  # fmt: skip
    assert (head.np, head.text_keys, head.text_key) == (3, ("q", "r"), "q")
    assert head.export_path == Path("c.jsonl")
    assert load(write(tmp_path, OVERRIDES)).head.text_key == "text"


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("length_filter.min", "[", "--length_filter.min: '[' is not YAML; quote the value"),
        ("length_filter.min", "a: b: c", "--length_filter.min: 'a: b: c' is not YAML; quote the value"),
        ("np", "0", "--np: 'np' is 0; input should be greater than or equal to 1"),
        ("nn", "1", "recipe.yaml: unknown key 'nn'"),
        ("length_filter.mim", "1", "recipe.yaml, line 4, step 1 length_filter: unknown field 'mim'; did you mean 'min'?"),
        ("length_filer.min", "1", "--length_filer.min: no step 'length_filer' in the recipe; did you mean 'length_filter'?"),
        ("dataset_path", "null", "--dataset_path, dataset_path: a path is empty; give a path"),
    ],
)  # fmt: skip
def test_wrong_overrides(tmp_path, key, text, line):
    assert message(write(tmp_path, OVERRIDES), {key: text}) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dataset_path: {{ path }}\n", "recipe.yaml, line 1: not YAML (a key is a list or a mapping); fix the line"),
        ("? [a]\n: 1\n", "recipe.yaml, line 1: not YAML (a key is a list or a mapping); fix the line"),
        ("a: \x00\n", "recipe.yaml: not YAML (unacceptable character #x0000: special characters are not allowed); fix the line"),
        (f"{HEAD}1: x\nprocess: [length_filter]\n", "recipe.yaml, line 3: '1' is 1; keys should be strings"),
        (f"{HEAD}process: [1]\n", "recipe.yaml, line 3, step 1: a step is one operator and its fields; write `- name: {…}`"),
        (f"{HEAD}process: [length_filter: 3]\n", "recipe.yaml, line 3, step 1: length_filter has 3 for fields; write `field: value`"),
        (f"{HEAD}process: [length_filter: {{min: 1, min: 2}}]\n", "recipe.yaml, line 3: not YAML (key 'min' is given twice); fix the line"),
        (f"{HEAD}process: length_filter\n", "recipe.yaml, line 3: 'process' is 'length_filter'; make it a list of operators"),
        (f"{HEAD}process: [recorded_rollout_mapper]\n", "recipe.yaml, line 3, step 1 recorded_rollout_mapper: field 'columns' is missing; it has no default"),
        ("export_path: x\nprocess: [exact_deduplicator]\n", "recipe.yaml: 'dataset_path' is missing; add `dataset_path: …`"),
    ],
)  # fmt: skip
def test_wrong_recipes(tmp_path, text, line):
    assert message(write(tmp_path, text)) == line


def test_a_recipe_that_cannot_be_read(tmp_path):
    assert message(tmp_path / "no.yaml") == "no.yaml does not exist; give the path of a recipe"
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert "bytes.yaml cannot be read" in message(tmp_path / "bytes.yaml")
    (tmp_path / "folder.yaml").mkdir()
    assert "folder.yaml cannot be read" in message(tmp_path / "folder.yaml")


def test_keys_of_data_juicer_are_let_through_and_no_others(tmp_path):
    path = write(tmp_path, HEAD + "skip_op_error: false\nop_fusion: true\nprocess: [exact_deduplicator]\n")  # fmt: skip
    resolved = load(path).resolved()
    assert (resolved["skip_op_error"], resolved["op_fusion"]) == (False, True)


def test_a_resolved_recipe_is_a_recipe_and_resolves_to_itself(tmp_path):
    path = write(tmp_path, OVERRIDES + "np: 2\nproject_name: x\n")
    recipe = load(path, {"length_filter.max": "8"})
    again = write(tmp_path, yaml.safe_dump(recipe.resolved(), sort_keys=False))
    assert load(again).resolved() == recipe.resolved()
    assert operators_of(load(again)) == operators_of(recipe)
    assert recipe.resolved()["process"][0] == {"length_filter": {"column": "response", "unit": "characters", "min": 1, "max": 8}}  # fmt: skip


def test_a_part_of_a_recipe_is_a_recipe(tmp_path):
    path = write(tmp_path, OVERRIDES + "text_keys: q\nnp: 3\nop_fusion: true\ntrain: {steps: 3}\n")
    recipe = load(path)
    head = {"dataset_path": "rows.parquet", "export_path": "part.parquet"}
    part = recipe.part(recipe.steps[1:3], head)
    assert part.keys() == {"dataset_path", "export_path", "text_keys", "custom_operator_paths", "process"}  # fmt: skip
    found = load(write(tmp_path, yaml.safe_dump(part, sort_keys=False)))
    assert [step.operator for step in found.steps] == [s.operator for s in recipe.steps[1:3]]
    assert (found.head.dataset_path, found.head.text_key) == (Path("rows.parquet"), "q")
    assert recipe.part((), {**head, "custom_operator_paths": ["x"]})["custom_operator_paths"] == ["x"]  # fmt: skip


@pytest.mark.slow
def test_recipes_resolve_to_their_golden_copies():
    def check(path):
        golden = path.parent / "golden" / path.name
        assert golden.exists(), "run `make docs`"
        found = yaml.safe_dump(load(path).resolved(), sort_keys=False)
        assert found == golden.read_text("utf-8"), "if this is meant, run `make docs`"
        assert operators_of(load(golden)) == operators_of(load(path))

    check_each(RECIPES, check)


SAMPLES = (
    HEAD
    + """process:
- policy_rollout_mapper:
    engine: openai
    model: m
    openai: &server {concurrency: 3, patience_s: 1}
- policy_rollout_mapper: {engine: openai, model: m, openai: *server}
"""
)


def test_fields_within_fields_can_be_set(tmp_path):
    path = write(tmp_path, SAMPLES)
    found = fields(path, {"policy_rollout_mapper.openai.concurrency": "7"})
    assert found["policy_rollout_mapper"]["openai"] == {"concurrency": 7, "patience_s": 1}
    # What the recipe shares by an anchor is set in one step alone.
    assert found["policy_rollout_mapper_2"]["openai"] == {"concurrency": 3, "patience_s": 1}
    found = fields(path, {"policy_rollout_mapper.vllm.dtype": "float32"})
    assert found["policy_rollout_mapper"]["vllm"] == {"dtype": "float32"}


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("openai.concurency", "unknown field 'openai.concurency'; did you mean 'concurrency'?"),
        ("openai.concurrency.x", "field 'openai.concurrency' is {'x': 1}; input should be a valid"),
        ("opnai.concurrency", "unknown field 'opnai'; did you mean 'openai'?"),
        ("openai.concurrency", "field 'openai.concurrency' is 0; input should be greater than 0"),
    ],
)
def test_fields_within_fields_that_are_wrong(tmp_path, key, line):
    path = write(tmp_path, SAMPLES)
    value = "0" if line.endswith("0") else "1"
    found = message(path, {f"policy_rollout_mapper.{key}": value})
    assert found.startswith(f"recipe.yaml, line 4, step 1 policy_rollout_mapper: {line}")


MINE = """from rejuice.operators import Filter
class MineFilter(Filter):
    'Keep all.'
    most: int = {most}
    'Unused.'
    def decide(self, table): return None
"""


def with_custom(folder, name):
    folder.mkdir(exist_ok=True)
    return write(folder, f"{HEAD}custom_operator_paths: [{name}]\nprocess: [mine_filter]\n")


def test_custom_operators_are_beside_the_recipe_or_else_in_the_working_directory(
    tmp_path, monkeypatch
):
    path = with_custom(tmp_path / "recipes", "mine.py")
    (tmp_path / "mine.py").write_text(MINE.format(most=1))
    monkeypatch.chdir(tmp_path)
    found = load(path)
    assert found.head.custom_operator_paths == (tmp_path / "mine.py",)
    assert found.steps[0].operator.most == 1
    (path.parent / "mine.py").write_text(MINE.format(most=2))
    found = load(Path("recipes/recipe.yaml"))
    assert found.head.custom_operator_paths == (path.parent / "mine.py",)
    assert found.steps[0].operator.most == 2


def test_a_resolved_recipe_finds_its_custom_operators_from_anywhere(tmp_path, monkeypatch):
    path = with_custom(tmp_path / "recipes", "mine.py")
    (path.parent / "mine.py").write_text(MINE.format(most=2))
    again = write(tmp_path, load(path).to_yaml())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(again).steps[0].operator.most == 2


def test_a_custom_operator_that_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = with_custom(tmp_path / "recipes", "mine.py")
    assert message(path) == (
        "custom_operator_paths: mine.py does not exist; give a .py file or a folder of them"
    )
