"""What users import has a docstring; what they do not needs one only where its name is not enough."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "operators",
    "operators.agents",
    "operators.sampling",
    "operators.verifier",
    "pipelines",
)
IMPORTED = re.compile(r"^ *from (rejuice[\w.]*) import (\([\w,\s]+\)|[\w, ]+)", re.MULTILINE)


def public() -> Iterator[tuple[str, str]]:
    """Module and name of what a package lists in `__all__` or a page of the documentation imports."""
    for package in PACKAGES:
        module = import_module(f"rejuice.{package}")
        yield from ((module.__name__, name) for name in module.__all__)
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for module, names in IMPORTED.findall(page.read_text("utf-8")):
            yield from ((module, name) for name in re.findall(r"\w+", names))


def without_docstring(found: object, name: str) -> Iterator[str]:
    """What has no docstring: a class, function or bound method; public methods of a class."""
    if (inspect.isclass(found) or inspect.isroutine(found)) and not inspect.getdoc(found):
        yield name
    if inspect.isclass(found):
        for member, value in vars(found).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            own = not member.startswith("_") and inspect.isfunction(function)
            if own and not inspect.getdoc(getattr(found, member)):
                yield f"{name}.{member}"


@pytest.mark.parametrize(("module", "name"), sorted(set(public())))
def test_what_users_import_has_a_docstring(module, name):
    if module.startswith("rejuice.trainer.trl"):
        pytest.importorskip("datasets")
    assert list(without_docstring(getattr(import_module(module), name), name)) == []
