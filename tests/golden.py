"""Write the golden resolved copies of the recipes: `make docs` does it."""

from pathlib import Path

import yaml

from rejuice.pipelines.recipe import load

if __name__ == "__main__":
    recipes = Path(__file__).parents[1] / "recipes"
    (recipes / "golden").mkdir(exist_ok=True)
    for path in sorted(recipes.glob("*.yaml")):
        text = yaml.safe_dump(load(path).resolved(), sort_keys=False)
        (recipes / "golden" / path.name).write_text(text, encoding="utf-8")
