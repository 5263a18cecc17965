"""Write the golden resolved copies of the recipes, and the fields of training: `make docs`."""

from pathlib import Path

import yaml

from rejuice.pipelines.analysis.reference import table
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.train import Train

if __name__ == "__main__":
    recipes = Path(__file__).parents[1] / "recipes"
    (recipes / "golden").mkdir(exist_ok=True)
    for path in sorted(recipes.glob("*.yaml")):
        text = yaml.safe_dump(load(path).resolved(), sort_keys=False)
        (recipes / "golden" / path.name).write_text(text, encoding="utf-8")
    page = recipes.parent / "docs" / "train-fields.md"
    head, _, _ = page.read_text("utf-8").partition("| field |")
    page.write_text("\n".join([head.rstrip() + "\n", *table(Train), ""]), encoding="utf-8")
