"""The shipped recipes with recorded responses in the place of a policy: tests/data/recorded."""

from pathlib import Path

import yaml

from rejuice.pipelines.recipe.steps import step_names

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
TABLES = ROOT / "tests" / "data" / "recorded"
"""What the recipes read, by the names that `OVERRIDES` has."""
_SPECS = yaml.safe_load((TABLES / "recipes.yaml").read_text("utf-8"))
OVERRIDES = {name: fields for name, fields in _SPECS.items() if not name.startswith(".")}
"""Recipe -> what is set, as on the command line, so that it runs anywhere."""


def recipe_path(name):
    """The recipe that is shipped under a name."""
    return RECIPES / f"{name}.yaml"


def write_recipe(path, name, overrides):
    """The recipe as a file with its overrides written into it."""
    document = yaml.safe_load(recipe_path(name).read_text("utf-8"))
    process = document["process"]
    steps = dict(zip(step_names([next(iter(each)) for each in process]), process, strict=True))
    for key, text in overrides.items():
        step, *inner = key.split(".")
        if not inner:
            document[key] = text
            continue
        (fields,) = steps[step].values()
        for field in inner[:-1]:
            fields = fields.setdefault(field, {})
        fields[inner[-1]] = yaml.safe_load(text)
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
