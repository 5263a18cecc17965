"""Private APIs of other libraries: each use names its version and the test that fails if it changes.

# private: library==version, tests/file.py::test_name
value = model._attribute
"""

import ast
import re
from pathlib import Path

from each import check_each

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("operators", "pipelines", "tools", "trainer")
COMMENT = re.compile(r"# private: ([\w.-]+)==(\S+), (tests/\S+\.py)::(test_\w+)")
REACH = 4
"""A comment holds for so many lines below it."""
OURS = {"_replace", "_asdict", "_fields", "_make"}
"""Names of NamedTuple, which are public in spite of their underscore."""
FRIENDS = {"_shown", "_request", "_step"}
"""Those of ours: what judges use, as a public method would be part of the keys under which their scores
are found, and what an operator sets in a copy of itself."""
DUNDERS = {"__self__", "__wrapped__", "__closure__", "__ray_metadata__"}
PUBLIC = {("os", "_exit")}
"""Documented functions whose names begin with an underscore."""


def files():
    return [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]


def comments():
    """(file:line, line) of each comment about a private API, well formed or not."""
    return [
        (f"{path.relative_to(ROOT)}:{number}", line.strip())
        for path in files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"#\s*private\b", line)
    ]


def is_private(name):
    return name in DUNDERS or (name.startswith("_") and not name.startswith("__"))


def accesses(tree):
    """(line, name) of each private name that is taken from an object or a library."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and node.attr not in OURS | FRIENDS
        ):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
                of = node.value.func.id
            if of not in ("self", "cls", "super") and (of, node.attr) not in PUBLIC:
                yield node.lineno, node.attr
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from ((node.lineno, name) for name in names if is_private(name))


def uncovered(source):
    """The private names of a source file that no comment above them covers."""
    lines = source.splitlines()
    return [
        (line, name)
        for line, name in accesses(ast.parse(source))
        if not any(COMMENT.search(above) for above in lines[max(0, line - 1 - REACH) : line - 1])
    ]


def test_there_are_private_apis_to_look_after():
    libraries = {COMMENT.fullmatch(line)[1] for _, line in comments()}
    assert {"verl", "transformers", "datasets"} <= libraries


def test_each_names_a_pinned_version_and_a_test_that_exists():
    def check(where, line):
        match = COMMENT.fullmatch(line)
        assert match, (
            f"{where} is not of the form `# private: library==version, tests/x.py::test_y`"
        )
        library, version, file, test = match.groups()
        pins = dict(
            pin.lower().split("==")
            for pin in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
            if "==" in pin
        )
        assert pins.get(library.lower()) == version, f"{where}: constraints.txt has another version"
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    check_each(comments(), check)


def test_no_private_api_is_used_without_a_comment():
    def check(path):
        assert uncovered(path.read_text("utf-8")) == []

    check_each(files(), check)


def test_what_counts_as_a_private_api():
    source = "\n".join(
        [
            "from lib import _name",
            "from lib._inner import name",
            "from ._version import __version__",
            "x._name",
            "f()._name",
            "bound.__self__",
            "self._own, cls._own, point._replace, os._exit, x.__name__",
        ]
    )
    found = [(1, "_name"), (2, "_inner"), (4, "_name"), (5, "_name"), (6, "__self__")]
    assert sorted(uncovered(source)) == found
    comment = "# private: lib==1, tests/a.py::test_b\n"
    assert uncovered(f"{comment}x._name\n") == []
    assert uncovered(comment + "\n" * REACH + "x._name\n") == [(REACH + 2, "_name")]
