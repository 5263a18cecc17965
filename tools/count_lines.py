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
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("operators", "pipelines", "trainer")
BESIDE = ("recipes", "tests", "tools", "benchmarks")
COLUMNS = ("files", "lines", "code", "field_docs", "docstrings", "comments", "blank")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count(text: str) -> Counter[str]:
    """The lines of a Python file, by `COLUMNS`."""
    nodes = list(ast.walk(ast.parse(text)))
    first = {node.body[0] for node in nodes if isinstance(node, DOCUMENTED) and node.body}
    docs, field_docs = set[int](), set[int]()
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                of = docs if node in first else field_docs
                of.update(range(node.lineno, (node.end_lineno or 0) + 1))
    rest = [line.strip() for at, line in enumerate(text.splitlines(), 1) if at not in docs]
    blank, comments = rest.count(""), sum(line.startswith("#") for line in rest)
    code = len(rest) - blank - comments
    numbers = (1, len(rest) + len(docs), code, len(field_docs), len(docs), comments, blank)
    return Counter(dict(zip(COLUMNS, numbers, strict=True)))


def texts(ref: str | None = None) -> Iterator[tuple[PurePosixPath, str]]:
    """Path and text of each file that counts, of the checkout or of a commit."""
    folders = (*PRODUCT, *BESIDE)
    if ref is None:
        names = _git("ls-files", "--cached", "--others", "--exclude-standard", *folders)
        for path in map(PurePosixPath, sorted(names.decode().splitlines())):
            if _counts(path) and (ROOT / path).is_file():
                yield path, (ROOT / path).read_text("utf-8")
        return
    with tarfile.open(fileobj=io.BytesIO(_git("archive", ref, *folders))) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if _counts(path) and (content := archive.extractfile(member)):
                yield path, content.read().decode("utf-8")


def packages(ref: str | None = None) -> dict[str, Counter[str]]:
    """The Python of each package; of tests and others all of it; and the product's other files."""
    found = defaultdict[str, Counter[str]](Counter)
    for path, text in texts(ref):
        folder = path.parts[0]
        if path.suffix == ".py":
            depth = 2 if folder in PRODUCT else 1
            found["/".join(path.parent.parts[:depth])].update(count(text))
        elif folder in (*PRODUCT, "recipes"):
            counts = {"files": 1, "lines": len(text.splitlines())}
            found[f"{path.suffix[1:]} of product, recipes"].update(counts)
    return dict(sorted(found.items()))


def in_product(package: str) -> bool:
    """Whether a package is one of the product's."""
    return package.split("/")[0] in PRODUCT


def _counts(path: PurePosixPath) -> bool:
    return path.suffix in (".py", ".yaml", ".json", ".js", ".css")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ref", help="a commit; by default the checkout")
    parser.add_argument("--markdown", action="store_true", help="as a table of Markdown")
    given = parser.parse_args()
    counts = packages(given.ref)
    rows = {name: each for name, each in counts.items() if in_product(name)}
    rows["product"] = sum(rows.values(), Counter())
    rows |= {name: each for name, each in counts.items() if not in_product(name)}
    print(_row(("package", *COLUMNS), given.markdown))
    if given.markdown:
        print("|---" * (1 + len(COLUMNS)) + "|")
    for name, each in rows.items():
        cells = (f"{each[column]:,}" if each[column] else "" for column in COLUMNS)
        print(_row((name, *cells), given.markdown))


def _row(cells: tuple[str, ...], markdown: bool) -> str:
    if markdown:
        return f"| {' | '.join(cells)} |"
    return f"{cells[0]:24}" + "".join(f"{cell:>11}" for cell in cells[1:])


if __name__ == "__main__":
    main()
