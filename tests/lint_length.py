"""Fails where a file has more than 800 lines or a function more than 60. Run by `make lint`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES, FUNCTION_LINES = 800, 60
FOLDERS = ("operators", "pipelines", "recipes", "tools", "trainer")
ROOT = Path(__file__).resolve().parents[1]


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


if __name__ == "__main__":
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    found = [line for file in files for line in too_long(file)]
    print("\n".join(found) or f"No file or function of {len(files)} files is too long.")
    sys.exit(bool(found))
