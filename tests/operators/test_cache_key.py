"""Results are found again if and only if the operator's fields and code are what they were."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import ClassVar

import pytest

from rejuice.operators import Filter, Mapper, PolicyRolloutMapper, build, cache_key, get, installed
from rejuice.operators.cache_key import cache_key_json, code_version
from rejuice.operators.code_digest import modules_of
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
from rejuice.pipelines.engine import runner as engine
from rejuice.pipelines.recipe.read import load

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
    ("text/special_characters.py", "import numpy as np", "import numpy as np\nX = 1"),
]
COSTLY = [
    ("groups.py", "import numpy as np", "import numpy as np\nX = 1"),
    ("filter/length_filter.py", "import pyarrow as pa", "import pyarrow as pa\nX = 1"),
]


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
    # Two imports away: it uses text/statistics.py, which uses text/special_characters.py.
    assert changed[len(FREE) - 1] == {"rule_quality_reward_mapper"}
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


def test_the_old_name_of_cache_key_fields_is_refused():
    with pytest.raises(TypeError, match=r"OldMapper.identity\(\) is called cache_key_fields"):

        class OldMapper(Mapper):
            def identity(self):
                return {}
