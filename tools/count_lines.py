"""How many lines each package has, and how many are code; `make lint` has a budget for them.

    python tools/count_lines.py [--ref COMMIT] [--markdown]

A line belongs to the docstring of a module, class or function, is blank, has a comment and nothing
else, or is code. What stands below a field is a string to Python, so it is code; `field_docs` says
how many lines of the code are such strings. A package is a folder in operators, pipelines or
trainer, with the folders in it, or one of the three without its folders. Counted is what git
tracks, and new files that it does not ignore; with `--ref`, a commit.
"""

import argparse
import ast
import io
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("operators", "pipelines", "trainer")
BESIDE = ("recipes", "tests", "tools", "benchmarks")
OTHER_SUFFIXES = (".yaml", ".json", ".js", ".css")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Count(NamedTuple):
    """Of one file, or the sum of several."""

    files: int = 0
    lines: int = 0
    code: int = 0
    field_docs: int = 0
    docstrings: int = 0
    comments: int = 0
    blank: int = 0

    def plus(self, other: "Count") -> "Count":
        """The two, added up."""
        return Count(*map(sum, zip(self, other, strict=True)))


def count(text: str) -> Count:
    """The lines of a Python file."""
    nodes = list(ast.walk(ast.parse(text)))
    strings = {
        node: range(node.lineno, (node.end_lineno or 0) + 1)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    }
    first = {node.body[0] for node in nodes if isinstance(node, DOCUMENTED) and node.body}
    docs = {line for node, lines in strings.items() if node in first for line in lines}
    field_docs = {line for node, lines in strings.items() if node not in first for line in lines}
    rest = [line.strip() for at, line in enumerate(text.splitlines(), 1) if at not in docs]
    blank, comments = rest.count(""), sum(line.startswith("#") for line in rest)
    code = len(rest) - blank - comments
    return Count(1, len(rest) + len(docs), code, len(field_docs), len(docs), comments, blank)


def texts(ref: str | None = None) -> Iterator[tuple[PurePosixPath, str]]:
    """Path and text of each file that may count, of the checkout or of a commit."""
    folders = (*PRODUCT, *BESIDE)
    if ref is None:
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders)
        for name in sorted(filter(None, listed.decode().split("\0"))):
            if _counts(name) and (ROOT / name).is_file():
                yield PurePosixPath(name), (ROOT / name).read_text("utf-8")
        return
    with tarfile.open(fileobj=io.BytesIO(_git("archive", ref, *folders))) as archive:
        for member in archive:
            content = archive.extractfile(member) if _counts(member.name) else None
            if content:
                yield PurePosixPath(member.name), content.read().decode("utf-8")


def packages(ref: str | None = None) -> dict[str, Count]:
    """The Python of each package, of which `operators` is its own files; tests and others whole."""
    found = defaultdict[str, Count](Count)
    for path, text in texts(ref):
        if path.suffix == ".py":
            depth = 2 if path.parts[0] in PRODUCT else 1
            package = "/".join(path.parent.parts[:depth])
            found[package] = found[package].plus(count(text))
    return dict(sorted(found.items()))


def others(ref: str | None = None) -> dict[str, Count]:
    """Files and lines of the product that are not Python, by their suffix."""
    found = defaultdict[str, Count](Count)
    for path, text in texts(ref):
        if path.suffix in OTHER_SUFFIXES and path.parts[0] in (*PRODUCT, "recipes"):
            lines = len(text.splitlines())
            found[path.suffix[1:]] = found[path.suffix[1:]].plus(Count(1, lines))
    return dict(sorted(found.items()))


def total(counts: dict[str, Count], *folders: str) -> Count:
    """The sum of all packages of some folders."""
    summed = Count()
    for package, each in counts.items():
        if package.split("/", 1)[0] in folders:
            summed = summed.plus(each)
    return summed


def rows(ref: str | None = None) -> Iterator[tuple[str, Count]]:
    """The lines of the table."""
    counts = packages(ref)
    yield from ((name, each) for name, each in counts.items() if name not in BESIDE)
    yield "product", total(counts, *PRODUCT)
    yield from ((name, total(counts, name)) for name in BESIDE)
    yield from ((f"{suffix} of product, recipes", each) for suffix, each in others(ref).items())


def _counts(name: str) -> bool:
    return PurePosixPath(name).suffix in (".py", *OTHER_SUFFIXES)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ref", help="a commit; by default the checkout")
    parser.add_argument("--markdown", action="store_true", help="as a table of Markdown")
    given = parser.parse_args()
    head = ("package", *Count._fields)
    table = [(name, *(f"{n:,}" if n else "" for n in each)) for name, each in rows(given.ref)]
    if given.markdown:
        lines = [head, ("---",) * len(head), *table]
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
        return
    for name, *numbers in (head, *table):
        print(f"{name:24}", *(f"{number:>10}" for number in numbers))


if __name__ == "__main__":
    main()
