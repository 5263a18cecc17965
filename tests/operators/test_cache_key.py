"""Results are found again if and only if the operator's fields and code are what they were."""

import hashlib
import json
import sys
from itertools import count
from types import ModuleType
from typing import ClassVar

import pytest

from rejuice.operators import (
    Filter,
    MathVerifyMapper,
    PolicyRolloutMapper,
    ResumableOperator,
    build,
    cache_key,
    get,
    installed,
    registry,
)
from rejuice.operators.cache_key import cache_key_json, code_digest, code_version
from rejuice.operators.registry import load_file

MINE = """
from rejuice.operators import Filter, MathVerifyMapper, drop
from helper import limit
from parts.near import near
import shelf.deep.far

class MineFilter(Filter):
    depends_on = ()

    def decide(self, table):
        return drop({"low": [False] * table.num_rows})
"""
ALONE = """
from rejuice.operators import Filter

class AloneFilter(Filter):
    def decide(self, table): ...
"""
PAID = """
from rejuice.operators import Change, ResumableOperator
from helper import limit

class PaidMapper(ResumableOperator):
    depends_on = ()

    def apply(self, table):
        return Change()

    def process_rows(self, table, rows):
        return ((row, Change()) for row in rows)
"""
EXTENDED = """
from rejuice.operators import PolicyRolloutMapper
from helper import limit

class ExtendedMapper(PolicyRolloutMapper):
    greeting: str = ""
"""
TOOL = """
from rejuice.operators.agents import Tool
from helper import limit

class MineTool(Tool):
    async def call(self, word: str) -> str:
        return word
"""
FILES = {
    "helper.py": "def limit():\n    from late import X\n    return X\n",
    "late.py": "X = 1\n",
    "parts/__init__.py": "",
    "parts/near.py": "from .other import near\n",
    "parts/other.py": "near = 1\n",
    "parts/unused.py": "X = 1\n",
    "shelf/__init__.py": "X = 1\n",
    "shelf/deep/far.py": "X = 1\n",
    "unused.py": "X = 1\n",
    "rejuice/operators/__init__.py": "X = 1\n",
}
SHELF = ("shelf", "shelf.deep", "shelf.deep.far")


def forget():
    """As a new process: versions are computed once in each."""
    cache_key.code_version.cache_clear()
    cache_key._package_digest.cache_clear()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    # Data-Juicer, where another test has loaded it, must not learn of a class that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    forget()
    yield
    forget()


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def version_of(tmp_path, monkeypatch):
    """A function that gives the version of the class in a file, with others beside it."""
    numbers = count()

    def find(source, name="mine.py", **edited):
        folder = tmp_path / str(next(numbers))
        write(folder, {**FILES, **edited, name: source})
        forget()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            ((_, kind),) = registry._defined_in(folder / name)
        for module in ("helper", "parts", "parts.near", "parts.other", *SHELF):
            sys.modules.pop(module, None)
        return code_version(kind)

    return find


@pytest.mark.parametrize(
    ("edited", "same"),
    [
        ({}, True),
        ({"name": "renamed.py"}, True),
        ({"source": MINE.replace("\nclass", "\n# Mine.\nclass").replace("{", "{ ")}, True),
        ({"helper.py": "# Its own.\n" + FILES["helper.py"]}, True),
        ({"unused.py": "X = 2\n"}, True),
        ({"parts/unused.py": "X = 2\n"}, True),
        ({"parts/__init__.py": "X = 2\n"}, True),  # Nothing is imported from it by name.
        ({"rejuice/operators/__init__.py": "X = 2\n"}, True),
        ({"source": MINE.replace("low", "high")}, False),
        ({"helper.py": FILES["helper.py"].replace("return X", "return -X")}, False),
        ({"late.py": "X = 2\n"}, False),
        ({"parts/near.py": "from .other import near\nX = 1\n"}, False),
        ({"parts/other.py": "near = 2\n"}, False),
        ({"shelf/__init__.py": "X = 2\n"}, False),
        ({"shelf/deep/far.py": "X = 2\n"}, False),
        ({"late.py": "X = (1\n"}, False),  # It cannot be parsed: its bytes count.
        ({"source": MINE.replace("()", "('numpy',)", 1)}, False),
    ],
)
def test_what_counts_of_a_users_files(version_of, edited, same):
    assert (version_of(**{"source": MINE, **edited}) == version_of(MINE)) == same


@pytest.mark.parametrize("source", [PAID, EXTENDED, TOOL])
def test_what_was_paid_for_has_the_code_of_the_user_and_no_file_of_rejuice(
    version_of, monkeypatch, source
):
    first, other = version_of(source), version_of(MINE)
    assert version_of(source + "X = 1\n") != first
    assert version_of(source, **{"late.py": "X = 2\n"}) != first
    monkeypatch.setattr(cache_key, "_package_digest", cache_key.cache(lambda name: "edited"))
    assert version_of(source) == first
    assert version_of(MINE) != other


def test_the_version_that_a_built_in_states_counts_in_a_subclass(version_of, monkeypatch):
    first = version_of(EXTENDED)
    assert first != PolicyRolloutMapper.code
    monkeypatch.setattr(PolicyRolloutMapper, "code", "2")
    assert version_of(EXTENDED) != first


@pytest.mark.parametrize(("source", "counts"), [(PAID, False), (MINE, True)])
def test_the_version_of_what_an_imported_operator_depends_on(
    version_of, monkeypatch, source, counts
):
    first = version_of(source)
    assert "math-verify" in MathVerifyMapper.depends_on
    monkeypatch.setattr(cache_key, "version", lambda name: "0")
    assert (version_of(source) != first) == counts
    assert version_of(source.replace("()", "('numpy',)", 1)) != version_of(source)


def test_an_edit_of_rejuice_changes_what_states_no_version_and_nothing_that_was_paid_for(
    monkeypatch, tmp_path
):
    def versions():
        forget()
        return {name: code_version(get(name)) for name in installed()}

    before = versions()
    edited = ModuleType("rejuice.operators")
    edited.__file__ = str(tmp_path / "__init__.py")
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setitem(sys.modules, "rejuice.operators", edited)
    after = versions()
    stated = {name for name in before if vars(get(name)).get("code") is not None}
    assert {name for name in before if before[name] == after[name]} == stated
    paid = {name for name in installed() if issubclass(get(name), ResumableOperator)}
    assert len(paid) == 5
    assert paid <= stated
    (tmp_path / "mapper").mkdir()
    (tmp_path / "mapper" / "new.py").write_text("X = 1")
    assert set(versions().items()) & set(after.items()) == {(name, after[name]) for name in stated}


class StatedFilter(Filter):
    """Has a version of its own."""

    code: ClassVar = "7"

    def decide(self, table):
        raise NotImplementedError


def test_a_stated_version_counts_instead_of_the_code_and_is_not_inherited():
    class Inherited(StatedFilter):
        pass

    assert code_version(StatedFilter) == "7"
    assert code_version(Inherited) != "7"


def test_a_class_without_a_source_file_is_never_found_again():
    classes = []
    for _ in range(2):
        scope = {"__name__": "a_notebook", "Filter": Filter}
        exec("class CellFilter(Filter):\n    def decide(self, table): ...", scope)
        classes.append(scope["CellFilter"])
    first, second = map(code_version, classes)
    assert first != second
    assert code_version(classes[0]) == first


def test_a_class_whose_file_was_edited_since_is_never_found_again(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(ALONE)
    (kind,) = load_file(file).values()
    first = code_version(kind)
    file.write_text(f"{ALONE}# edited\n")
    forget()
    stale = code_version(kind)
    forget()
    assert len({first, stale, code_version(kind)}) == 3
    (again,) = load_file(file).values()
    assert code_version(again) == first
    file.unlink()
    forget()
    assert code_version(again) != first


ACME = {
    "__init__.py": "from .other import Other\n",
    "ops.py": "from . import names\nfrom acme.near import distance\nfrom .. import outside\n"
    "from acme.deep.one import *\ndef scorer():\n    import acme.late.tool\n",
    "other.py": "class Other: ...\n",
    "names.py": "X = 1\n",
    "near/__init__.py": "from .far import distance\n",
    "near/far.py": "from ..names import X\ndistance = 1\n",
    "deep/one.py": "from . import two\nfrom .. import ops\n",
    "deep/two.py": "X = 1\n",
    "late/__init__.py": "",
    "late/tool.py": "X = 1\n",
}


@pytest.mark.parametrize("edited", [*ACME, "unused.py", "../outside.py"])
def test_what_counts_of_a_package(tmp_path, edited):
    more = {edited: ACME.get(edited, "") + "Y = 2\n"}
    for folder, files in {"before": ACME, "after": {**ACME, **more}}.items():
        write(tmp_path / folder / "acme", files)
    before, after = (
        code_digest(tmp_path / folder / "acme" / "ops.py", "acme") for folder in ("before", "after")
    )
    assert (before != after) == (edited in ACME)


def test_an_installed_module_of_one_file_stands_alone(tmp_path):
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "mine.py").write_text("import beside")
    (site / "beside.py").write_text("X = 1")
    first = code_digest(site / "mine.py")
    (site / "beside.py").write_text("X = 2")
    assert code_digest(site / "mine.py") == first
    (site / "mine.py").write_text("import beside\nX = 1")
    assert code_digest(site / "mine.py") != first


@pytest.mark.parametrize("text", ["X = " + "1 + " * 3_000 + "1", "X = " + "(" * 300 + ")" * 300])
def test_a_file_that_is_nested_deeply_counts_as_it_is(tmp_path, text):
    file = tmp_path / "mine.py"
    file.write_text(text)
    first = code_digest(file)
    file.write_text(text.replace("X", "Y"))
    assert code_digest(file) != first


def test_the_fields_are_canonical_json():
    operator = build(get("group_size_filter"), {"min": 2})
    assert cache_key_json(operator) == '{"group_size_filter": {"max": null, "min": 2}}'


@pytest.mark.parametrize(
    ("name", "code", "asked"),
    [
        ("llm_quality_reward_mapper", "4", "eb8c5bd6e188c216"),
        ("llm_verify_mapper", "3", "bd272f7a61649918"),
    ],
)
def test_a_judge_asks_the_same_as_long_as_its_version_is_the_same(name, code, asked):
    judge = build(get(name), {"model": "m"})
    request = json.dumps(judge._own_fields(("one", "two", "three")), sort_keys=True)
    assert judge.code == code
    assert hashlib.sha256(request.encode()).hexdigest()[:16] == asked
