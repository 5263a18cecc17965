"""The JSON Schema accepts what `load` accepts, and refuses what it refuses."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from each import check_each
from typer.testing import CliRunner

from rejuice.operators import RecipeError, installed
from rejuice.pipelines.analysis.reference import recipe_schema
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.recipe.head import Head
from rejuice.pipelines.recipe.recipe import load

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("**/*.yaml"))
GOOD = {"dataset_path": "a", "export_path": "b.jsonl", "process": [{"length_filter": {"min": 1}}]}


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(json.dumps(recipe_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


class Yaml12(yaml.SafeLoader):
    """YAML as editors read it: `on` is a text."""


Yaml12.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.mark.slow
def test_every_recipe_is_valid(validator):
    def check(path):
        validator.validate(yaml.load(path.read_text("utf-8"), Yaml12))

    check_each(RECIPES, check)


@pytest.mark.slow
@pytest.mark.parametrize(
    "process",
    [["exact_deduplicator"], [{"exact_deduplicator": None}], [{"text_length_filter": {"any": 1}}]],
)
def test_every_way_to_write_a_step(validator, process):
    validator.validate({**GOOD, "process": process, "skip_op_error": False, "np": 2})


def changed(**values):
    return {**copy.deepcopy(GOOD), **values}


def test_what_load_refuses_is_refused(validator, tmp_path):
    cases = [
        changed(dataset_paht="x"),
        changed(np=0),
        changed(np="two"),
        changed(process=[]),
        changed(process="length_filter"),
        changed(process=["no_such_filter"]),
        changed(process=[{"length_filter": {"mim": 1}}]),
        changed(process=[{"length_filter": {"min": "one"}}]),
        changed(process=[{"length_filter": {"unit": "miles"}}]),
        changed(process=[{"length_filter": {}, "exact_deduplicator": {}}]),
        changed(process=[{"recorded_rollout_mapper": {}}]),
        changed(process=[3]),
        changed(train={"stps": 3}),
        changed(train={"steps": 0}),
        changed(train={"gpu": {"gpu": 2}}),
        changed(train={"verification": {"every": 0}}),
        changed(train=[]),
        {key: value for key, value in GOOD.items() if key != "export_path"},
        {key: value for key, value in GOOD.items() if key != "process"},
        [],
    ]

    def check(wrong):
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(wrong))
        with pytest.raises(RecipeError):
            load(path)
        assert not validator.is_valid(wrong)

    check_each(cases, check)


MINE = """from rejuice.operators import Filter
class MineFilter(Filter):
    'Keep short ones.'
    most: int
    'Most characters.'
    def decide(self, table): return None
"""


def test_operators_of_files_are_in_the_schema_that_is_printed_for_them(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    printed = CliRunner().invoke(app, ["ops", "--schema", "--custom", str(tmp_path / "mine.py")])
    validator = jsonschema.Draft202012Validator(json.loads(printed.stdout))
    validator.validate(changed(process=[{"mine_filter": {"most": 3}}, "exact_deduplicator"]))
    for wrong in ({"most": "x"}, {}, {"most": 3, "mst": 3}):
        assert not validator.is_valid(changed(process=[{"mine_filter": wrong}]))
    fields = validator.schema["$defs"]["mine_filter"]
    assert fields["description"] == "Keep short ones."
    assert fields["properties"]["most"]["description"] == "Most characters."


def test_every_operator_and_field_is_described_for_the_editor():
    schema = recipe_schema()
    for name in installed():
        fields = schema["$defs"][name]
        assert fields["description"]
        assert fields["additionalProperties"] is False
        described = [
            schema["$defs"][field["$ref"].rsplit("/", 1)[-1]] if set(field) == {"$ref"} else field
            for field in fields["properties"].values()
        ]
        assert all(field["description"] for field in described), name
    for name in Head.model_fields:
        assert name == "project_name" or schema["properties"][name]["description"]
    for section in ("Train", "Gpu", "Verification"):
        assert schema["$defs"][section]["additionalProperties"] is False
        assert all(f["description"] for f in schema["$defs"][section]["properties"].values())
