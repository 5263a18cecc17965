"""How many recipes of Data-Juicer's repository `rejuice run` reads, and why it refuses the others.

    git clone https://github.com/datajuicer/data-juicer
    python benchmarks/bench_upstream_recipes.py data-juicer

The path may also be in DATA_JUICER_CHECKOUT; without either nothing is counted. A recipe is a YAML
file with a list of operators under `process`. It is only read: paths in it need not exist, nor
packages that its operators need.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from rejuice.operators import RejuiceError
from rejuice.pipelines import load

VARIABLE = "DATA_JUICER_CHECKOUT"


def recipes(root: Path) -> Iterator[Path]:
    """The recipes of a checkout, by name."""
    for path in sorted((*root.rglob("*.yaml"), *root.rglob("*.yml"))):
        if any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        try:
            document = yaml.safe_load(path.read_text("utf-8"))
        except yaml.YAMLError:
            continue  # Several documents, or templates of other tools.
        process = document.get("process") if isinstance(document, dict) else None
        if isinstance(process, list) and process:
            yield path


def main(root: Path) -> None:
    """Print a line for each recipe that is not read, and the counts."""
    counts = Counter[str]()
    for path in recipes(root):
        counts["recipes"] += 1
        try:
            load(path)
        except RejuiceError as error:
            counts["refused"] += 1
            print(str(error).replace(f"{root}{os.sep}", ""))
            continue
        counts["read"] += 1
    for name in ("recipes", "read", "refused"):
        print(f"{counts[name]:4} {name}")


if __name__ == "__main__":
    given = sys.argv[1] if sys.argv[1:] else os.environ.get(VARIABLE)
    if given is None:
        print(
            f"no recipes: give a checkout of github.com/datajuicer/data-juicer, or set {VARIABLE}"
        )
    else:
        main(Path(given).resolve())
