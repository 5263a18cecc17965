"""Fails where a file, a function or a package has too many lines. Run by `make lint`.

    python tests/lint_length.py [--write]

A file may have 800 lines, a function 60, and a package what its row of tests/budget.yaml says.
`--write` writes that file: what each package has now, and 1% more.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.count_lines import ROOT, in_product, packages

FILE_LINES, FUNCTION_LINES = 800, 60
FOLDERS = ("operators", "pipelines", "recipes", "tools", "trainer")
BUDGET = ROOT / "tests" / "budget.yaml"
HEAD = """\
# Lines of Python that each package may have: tests/lint_length.py, which also writes this file.
# Raise a row in a commit of its own that says what the lines buy.
"""


def too_long(file: Path) -> Iterator[str]:
    """A line for the file, and for each function in it, that is too long."""
    text, name = file.read_text("utf-8"), file.relative_to(ROOT)
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines, more than {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, more than {FUNCTION_LINES}"


def over_budget(lines: Mapping[str, int], budget: Mapping[str, int]) -> Iterator[str]:
    """A line for each package that has more lines than its row."""
    for name, count in lines.items():
        if count > (allowed := budget.get(name, 0)):
            yield (
                f"{name}: {count:,} lines, and its budget is {allowed:,}. Raise its row of "
                "tests/budget.yaml in a commit of its own that says what the lines buy."
            )


def main() -> None:
    counts = packages().items()
    lines = {name: each["lines"] for name, each in counts if in_product(name) or name == "tests"}
    if sys.argv[1:] == ["--write"]:
        budget = {name: ceil(count * 1.01) for name, count in lines.items()}
        BUDGET.write_text(HEAD + yaml.safe_dump(budget), "utf-8")
        return
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    found = [line for file in files for line in too_long(file)]
    found += over_budget(lines, yaml.safe_load(BUDGET.read_text("utf-8")))
    print("\n".join(found) or f"No package, file or function of {len(files)} files is too long.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
