"""Results are found again if and only if the operator's fields and code are what they were."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from rejuice.operators import (
    Filter,
    Mapper,
    PolicyRolloutMapper,
    ResumableOperator,
    build,
    cache_key,
    get,
    installed,
)
from rejuice.operators.cache_key import (
    cache_key_json,
    code_version,
    former_code_version,
    modules_of,
)
from rejuice.operators.registry import load_file
from rejuice.pipelines.engine.plan import kept_folder

ROOT = Path(__file__).resolve().parents[2]
OPENAI = {"engine": "openai", "model": "m", "openai": {"base_url": "http://a/v1"}}


@pytest.mark.parametrize(
    ("fields", "folder"),
    [
        ({**OPENAI, "n": 4, "seed": 7}, "kept-policy_rollout_mapper-68991f6158a742db"),
        ({**OPENAI, "task": "verify"}, "kept-policy_rollout_mapper-ca7358c1006b4693"),
    ],
)
def test_samples_of_earlier_versions_are_found(fields, folder):
    """Version 0.4.0 named these folders so; other names would lose samples that were paid for."""
    operator = build(get("policy_rollout_mapper"), fields)
    assert kept_folder(Path("cache"), operator) == Path("cache") / folder


def test_the_fields_are_canonical_json():
    operator = build(get("group_size_filter"), {"min": 2})
    assert cache_key_json(operator) == '{"group_size_filter": {"max": null, "min": 2}}'


class StatedFilter(Filter):
    """Has a version of its own."""

    code: ClassVar = "7"

    def decide(self, table):
        raise NotImplementedError


class WithDependency(StatedFilter):
    code: ClassVar = None
    depends_on: ClassVar = ("pydantic", "not-installed-at-all")


class WithoutDependency(StatedFilter):
    code: ClassVar = None


def test_a_stated_version_counts_instead_of_the_code():
    assert code_version(StatedFilter) == "7"


@pytest.mark.slow
def test_the_version_of_a_dependency_counts(monkeypatch):
    found = code_version(WithDependency)
    assert found != code_version(WithoutDependency)
    monkeypatch.setattr("rejuice.operators.cache_key.version", lambda name: "0")
    code_version.cache_clear()
    assert code_version(WithDependency) != found
    code_version.cache_clear()


def test_a_class_without_a_source_file_is_never_found_again(monkeypatch):
    # Data-Juicer, where another test has loaded it, could not pickle such a class.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    classes = []
    for _ in range(2):
        scope = {"__name__": "a_notebook", "Filter": Filter}
        exec("class CellFilter(Filter):\n    def decide(self, table): ...", scope)
        classes.append(scope["CellFilter"])
    first, second = map(code_version, classes)
    assert first != second
    assert code_version(classes[0]) == first


HELPER = "def limit():\n    return 1\n"
CUSTOM = '''
from rejuice.operators import Filter, drop
from helper import limit

class MineFilter(Filter):
    """Mine."""

    def decide(self, table):
        return drop({"low": [False] * table.num_rows})
'''


def version_of(file):
    """The version of the operator in a file, in a process that has not read it before."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            sys.path.insert(0, str(file.parent))
            (found,) = load_file(file).values()
            os.write(theirs, code_version(found).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours) as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    assert found
    return found


@pytest.mark.slow
def test_an_operator_on_disk_and_what_it_imports_from_its_folder(tmp_path):
    mine, helper = tmp_path / "mine.py", tmp_path / "helper.py"
    mine.write_text(CUSTOM)
    helper.write_text(HELPER)
    first = version_of(mine)
    mine.write_text(CUSTOM.replace("Mine.", "Mine, and mine alone.") + "# The end.\n")
    assert version_of(mine) == first
    assert version_of(mine.rename(tmp_path / "renamed.py")) == first
    (tmp_path / "renamed.py").write_text(CUSTOM.replace('"low"', '"high"'))
    assert version_of(tmp_path / "renamed.py") != first
    (tmp_path / "renamed.py").write_text(CUSTOM)
    helper.write_text(HELPER.replace("1", "2"))
    assert version_of(tmp_path / "renamed.py") != first


# In a copy of the checkout, where sources can be edited. Every state is looked at in a fork, which
# has the modules loaded but has read no source, and counts its classes as defined after the edit.
IN_A_COPY = """
import json, os, sys
from pathlib import Path
from rejuice.operators import get, installed
from rejuice.operators.cache_key import code_version
from rejuice.operators.operator import source_state, source_states
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

def state():
    ours, theirs = os.pipe()
    if os.fork() == 0:
        try:
            source_states.update({each: source_state(each) for each in source_states})
            report = engine.run(load(Path("recipe.yaml")), overwrite=True)
            cached = [step.cached for step in report.steps]
            versions = {name: code_version(get(name)) for name in installed()}
            os.write(theirs, json.dumps([cached, versions]).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours) as pipe:
        found = json.load(pipe)
    os.wait()
    return found

assert Path(sys.modules["rejuice.operators"].__file__).is_relative_to(Path.cwd())
for name in installed():
    get(name)
found = [state()]
for file, old, new in json.loads(sys.argv[1]):
    path = Path("rejuice/operators", file)
    before = path.read_text()
    assert old in before, (file, old)
    path.write_text(before.replace(old, new, 1))
    found.append(state())
    path.write_text(before)
print(json.dumps(found))
"""
RECIPE = """
dataset_path: data.jsonl
export_path: out/curated.jsonl
process:
  - length_filter: {min: 1}
  - group_size_filter: {min: 1}
  - exact_deduplicator:
"""
FREE = [  # Edits that change nothing of what runs, or nothing that the recipe uses.
    ("filter/length_filter.py", '"""', '"""So: '),
    ("groups.py", "import numpy as np", "import numpy as np  # Arrays."),
    ("operator.py", '"""', '"""So: '),
    ("__init__.py", '"Change",', '"Change", "Change",'),
    ("_version.py", "__version__ = ", "__version__ = 'later' + "),
    ("verifier/phrases.py", "import re\n", "import re\nX = 1\n"),
]
COSTLY = [
    ("groups.py", "import numpy as np", "import numpy as np\nX = 1"),
    ("filter/length_filter.py", "import pyarrow as pa", "import pyarrow as pa\nX = 1"),
]


@pytest.mark.slow
def test_an_edit_of_the_package_recomputes_what_uses_it(tmp_path, rollouts):
    for name in ("operators", "pipelines"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "rejuice" / name, ignore=skipped)
    rows = rollouts(4).to_pylist()
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    command = [sys.executable, "-c", IN_A_COPY, json.dumps([*FREE, *COSTLY])]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (cached, before), *after = json.loads(done.stdout.splitlines()[-1])
    assert cached == [False] * 3
    assert set(before) == set(installed())
    changed = [
        {name for name, version in versions.items() if version != before[name]}
        for _, versions in after
    ]
    assert [cached for cached, _ in after[: len(FREE)]] == [[True] * 3] * len(FREE)
    assert changed[: len(FREE) - 1] == [set()] * (len(FREE) - 1)
    # Two imports away: it uses the verifier, which uses verifier/phrases.py.
    assert changed[len(FREE) - 1] == {
        "math_verify_mapper", "unit_test_mapper", "verdict_recheck_mapper",
    }  # fmt: skip
    groups, length = after[len(FREE) :]
    assert groups[0] == [True, False, False]
    assert "column_range_filter" not in changed[-2]
    assert length[0] == [False] * 3
    assert changed[-1] == {"length_filter"}


LOADED = """
from rejuice.operators import Mapper
import pyarrow as pa

class PlusMapper(Mapper):
    def writes(self):
        return ("x",)

    def map(self, table):
        return {"x": pa.array([1] * table.num_rows)}
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A function that imports or reloads `edited_ops` with some source, and returns its version."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # Data-Juicer, where another test has loaded it, must not learn of a class that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    file, module = tmp_path / "edited_ops.py", None

    def load(source):
        nonlocal module
        file.write_text(source)
        importlib.invalidate_caches()
        module = importlib.reload(module) if module else importlib.import_module("edited_ops")
        return module.PlusMapper

    yield load
    sys.modules.pop("edited_ops", None)


def test_a_module_that_is_edited_and_reloaded_is_other_code(loaded):
    first = code_version(loaded(LOADED))
    second = code_version(loaded(LOADED.replace("[1]", "[100]")))
    assert first != second
    assert code_version(loaded(LOADED)) == first


def test_results_of_loaded_code_are_not_kept_as_those_of_the_edited_file(loaded, tmp_path):
    kind = loaded(LOADED)
    (tmp_path / "edited_ops.py").write_text(LOADED.replace("[1]", "[100]"))
    stale = code_version(kind)
    assert stale not in {
        code_version(loaded(LOADED)), code_version(loaded(LOADED.replace("[1]", "[100]")))
    }  # fmt: skip


def test_a_built_in_operator_that_is_used_by_another_counts(tmp_path):
    source = """
        from rejuice.operators import Mapper, MathVerifyMapper

        class GradingMapper(Mapper):
            def map(self, table):
                return MathVerifyMapper().map(table)
    """
    file = tmp_path / "grading.py"
    file.write_text(textwrap.dedent(source))
    (kind,) = load_file(file).values()
    modules = {kind.__module__, Mapper.__module__}
    reached = modules_of(modules)
    assert "rejuice.operators.mapper.math_verify_mapper" in reached
    assert "rejuice.operators.mapper.diversity_reward_mapper" not in reached
    assert "math-verify" in cache_key._dependencies(kind, modules)


def test_a_subclass_does_not_inherit_a_stated_version():
    class MyRolloutMapper(PolicyRolloutMapper):
        pass

    assert code_version(PolicyRolloutMapper) == "1"
    assert code_version(MyRolloutMapper) != "1"


# A user's own resumable operator: what it computes was paid for.

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

class ExtendedMapper(PolicyRolloutMapper):
    greeting: str = ""
"""
VERSIONS = [
    (
        PAID,
        "26b241f687b9ae617fbbf5ac788be37c9c4a0d63e1981ea7d0015de7fb14dbeb",
        "6938d79c5e941bcdad8780666db195b0bae1cee9d07d4c3948358f14281b1677",
    ),
    (
        EXTENDED,
        "e9de764978a7999f87920c78b4ce077d8e23b25432c19a662a16b6bab5308b2a",
        "28b3e55945ab3d60fcb35d9c5d9d5202673e563eb5a54e71f3f87c835df2b771",
    ),
]


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """A function that gives the present and the former version of a user's operator, by source."""
    # Data-Juicer, where another test has loaded it, must not learn of a class that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    numbers = count()

    def find(source, helper=HELPER):
        folder = tmp_path / str(next(numbers))
        folder.mkdir(exist_ok=True)
        (folder / "helper.py").write_text(helper)
        (folder / "own.py").write_text(source)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.delitem(sys.modules, "helper", raising=False)
            (kind,) = load_file(folder / "own.py").values()
            found = code_version(kind), former_code_version(kind)
            sys.modules.pop("helper", None)
        return found

    return find


@pytest.mark.parametrize(("source", "present", "former"), VERSIONS)
def test_versions_of_what_users_paid_for(versions, source, present, former):
    """Other versions lose rows: `former` is what commit 22504f3 gave, `present` what is given since."""
    assert versions(source) == (present, former)


@pytest.mark.parametrize("source", [PAID, EXTENDED])
def test_no_file_of_rejuice_counts_in_what_users_paid_for(versions, monkeypatch, source):
    paid, (other, _) = versions(source), versions(CUSTOM)
    read = cache_key._read

    def edited(module):
        code = read(module)
        is_read = module.name.startswith("rejuice.") and module.code is None
        return code._replace(digest=f"edited {code.digest}") if is_read else code

    monkeypatch.setattr(cache_key, "_read", edited)
    assert versions(source) == paid
    assert versions(CUSTOM)[0] != other


@pytest.mark.parametrize(
    ("source", "helper"),
    [
        (PAID + "X = 1", HELPER),
        (PAID, HELPER.replace("1", "2")),
        (PAID.replace("()", "('numpy',)", 1), HELPER),
    ],
)
def test_what_is_a_users_counts_in_what_was_paid_for(versions, source, helper):
    assert not set(versions(PAID)) & set(versions(source, helper))


def test_the_version_of_what_a_user_depends_on_counts_in_what_was_paid_for(versions, monkeypatch):
    source = PAID.replace("()", "('numpy',)", 1)
    first = versions(source)
    monkeypatch.setattr("rejuice.operators.cache_key.version", lambda name: "0")
    assert not set(first) & set(versions(source))


def test_the_version_that_a_built_in_states_counts_in_a_subclass(versions, monkeypatch):
    present, former = versions(EXTENDED)
    monkeypatch.setattr(PolicyRolloutMapper, "code", "2")
    changed = versions(EXTENDED)
    assert changed[0] != present
    assert changed[1] is None, "rows of other results are not found"
    assert former


def test_a_checkout_of_rejuice_beside_a_users_file_does_not_count(versions, tmp_path):
    expected = versions(PAID)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rejuice").symlink_to(ROOT)
    assert versions(PAID) == expected


def test_only_a_users_resumable_operator_without_a_version_of_its_own_has_a_former_one():
    class Stated(PolicyRolloutMapper):
        code: ClassVar = "3"

    for kind in (PolicyRolloutMapper, StatedFilter, WithoutDependency, Stated):
        assert former_code_version(kind) is None


def test_built_in_operators_that_cost_something_state_their_version():
    kinds = [kind for kind in map(get, installed()) if issubclass(kind, ResumableOperator)]
    assert len(kinds) == 5
    assert all(vars(kind).get("code") for kind in kinds)


@pytest.mark.parametrize(
    ("name", "code", "asked"),
    [
        ("llm_quality_reward_mapper", "2", "eb8c5bd6e188c216"),
        ("llm_verify_mapper", "2", "bd272f7a61649918"),
    ],
)
def test_a_judge_asks_the_same_as_long_as_its_version_is_the_same(name, code, asked):
    judge = build(get(name), {"model": "m"})
    request = json.dumps(judge._own_fields(("one", "two", "three")), sort_keys=True)
    assert judge.code == code
    assert hashlib.sha256(request.encode()).hexdigest()[:16] == asked


def test_the_old_name_of_cache_key_fields_is_refused():
    with pytest.raises(TypeError, match=r"OldMapper.identity\(\) is called cache_key_fields"):

        class OldMapper(Mapper):
            def identity(self):
                return {}
