"""Results are found again if and only if the operator's fields and code are what they were."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from rejuice.operators import Filter, build, get, installed
from rejuice.operators.cache_key import cache_key_json, code_version
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


def test_a_class_without_a_source_file_is_never_found_again():
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
# has the modules loaded but has read no source.
IN_A_COPY = """
import json, os, sys
from pathlib import Path
from rejuice.operators import get, installed
from rejuice.operators.cache_key import code_version
from rejuice.pipelines.engine import local as engine
from rejuice.pipelines.recipe.read import load

def state():
    ours, theirs = os.pipe()
    if os.fork() == 0:
        try:
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
