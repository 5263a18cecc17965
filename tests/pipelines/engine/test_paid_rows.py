"""What a user's own resumable operator computed is paid for once, whatever becomes of rejuice."""

import ast
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rejuice.operators.cache_key import code_version, former_code_version
from rejuice.pipelines.engine import plan
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import kept_folder
from rejuice.pipelines.recipe.recipe import load

ROOT = Path(__file__).resolve().parents[3]
PAID = '''
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator, component

class PaidMapper(ResumableOperator):
    """Each row that it computes is a line in a log."""
    log: str
    reasons = {"gone": "it ends in 1"}
    def reads(self): return ("response_id",)
    def writes(self): return ("bought",)
    def apply(self, table): return self._change(table["response_id"].to_pylist())
    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for row in rows:
            with open(self.log, "a") as log:
                log.write(ids[row] + "\\n")
            yield row, self._change(ids[row:row + 1])
    def _change(self, ids):
        gone = pa.array(["gone" if each.endswith("-1") else None for each in ids], pa.string())
        return Change({"bought": pa.array([f"{each}!" for each in ids], pa.string())}, gone)
'''


@pytest.fixture
def recipe(recipe_file, rollouts, tmp_path, monkeypatch):
    """A recipe with a resumable operator of a user."""
    # Data-Juicer, where another test has loaded it, must not learn of a class that will be gone.
    monkeypatch.setattr("rejuice.operators.operator.on_definition", [])
    (tmp_path / "paid.py").write_text(PAID)
    return recipe_file(
        [
            {"group_size_filter": {"min": 2}},
            {"paid_mapper": {"log": str(tmp_path / "log")}},
            {"length_filter": {"column": "bought", "min": 1}},
        ],
        rollouts(12).to_pylist(),
        custom_operator_paths=[str(tmp_path / "paid.py")],
    )


@pytest.fixture
def paid(tmp_path):
    """A function that gives the rows that were paid for since it was last called."""

    def read():
        log = tmp_path / "log"
        found = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    return read


@contextmanager
def as_in_0_4():
    """Keys are those of commit 22504f3 meanwhile."""

    def version(kind):
        return former_code_version(kind) or code_version(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "code_version", version)
        yield


def ran(path):
    """Which steps were found."""
    report = engine.run(load(path), overwrite=True, chunk_rows=7)
    return [step.cached for step in report.steps]


def folders(path, pattern="*"):
    cache = load(path).head.export_path.parent / ".rejuice"
    return {folder.name for folder in cache.glob(pattern) if folder.is_dir()}


def test_rows_of_the_earlier_version_are_found(recipe, rollouts, paid, tmp_path):
    with as_in_0_4():
        assert ran(recipe) == [False] * 3
    first, before = paid(), folders(recipe)
    assert len(first) == len(set(first)) == 30
    assert ran(recipe) == [True] * 3
    assert folders(recipe) == before
    # Where the commits of the steps are gone, as after an edit of the first, and with more rows.
    for name in before - folders(recipe, "kept-*") - folders(recipe, "source-*") - {"runs"}:
        shutil.rmtree(tmp_path / "out" / ".rejuice" / name)
    rows = "".join(json.dumps(row) + "\n" for row in rollouts(14).to_pylist())
    (tmp_path / "data.jsonl").write_text(rows)
    assert ran(recipe) == [False] * 3
    # Dropped rows are tried again among others.
    assert all(each.endswith("-1") for each in set(paid()) & set(first))
    assert folders(recipe, "kept-*") == {name for name in before if name.startswith("kept-")}


def test_the_former_folder_is_used_only_where_there_is_no_other(recipe, tmp_path):
    with as_in_0_4():
        ran(recipe)
    cache = tmp_path / "out" / ".rejuice"
    (former,) = folders(recipe, "kept-*")
    operator = load(recipe).steps[1].operator
    assert kept_folder(cache, operator).name == former
    present = kept_folder(tmp_path / "another", operator).name
    assert present != former
    (cache / present).mkdir()
    assert kept_folder(cache, operator).name == present


def test_an_edit_of_the_users_file_is_paid_for(recipe, paid, tmp_path):
    with as_in_0_4():
        ran(recipe)
    every = sorted(paid())
    (tmp_path / "paid.py").write_text(PAID.replace("}!", "}!!"))
    assert ran(recipe) == [True, False, False]
    assert sorted(paid()) == every
    values = pq.read_table(load(recipe).head.export_path)["bought"].to_pylist()
    assert all(value.endswith("!!") for value in values)
    (tmp_path / "paid.py").write_text(PAID)
    assert ran(recipe) == [True] * 3
    assert not paid()


MOVED = ("arrow_compute", "columns", "config", "errors", "operator", "registry")
"""The modules of rejuice that were in the key of every resumable operator of a user."""
RUN = """
import sys
from pathlib import Path
import rejuice.operators
from rejuice.operators.cache_key import code_version, former_code_version
from rejuice.pipelines.engine import plan, run
from rejuice.pipelines.recipe.recipe import load

assert Path(rejuice.operators.__file__).is_relative_to(Path.cwd())
if sys.argv[3:] == ["earlier"]:
    plan.code_version = lambda kind: former_code_version(kind) or code_version(kind)
recipe = load(Path(sys.argv[1]), {"export_path": sys.argv[2]})
cached = run.run(recipe, overwrite=True).steps[1].cached
print(cached, type(recipe.steps[1].operator).__base__.__module__)
"""


def move(package):
    """Edit these modules of a copy of rejuice, and give them other names."""
    for file in package.rglob("*.py"):
        lines = file.read_text("utf-8").splitlines(keepends=True)
        within = file.relative_to(package.parent).parts[:-1]
        for node in ast.walk(ast.parse("".join(lines))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            parts = within[: len(within) - node.level + 1] if node.level else ()
            *parent, name = (*parts, *node.module.split("."))
            if parent == ["rejuice", "operators"] and name in MOVED:
                at = node.lineno - 1
                lines[at] = lines[at].replace(f"{name} import", f"moved_{name} import")
        file.write_text("".join(lines), "utf-8")
    for name in MOVED:
        file = (package / "operators" / f"{name}.py").rename(
            package / "operators" / f"moved_{name}.py"
        )
        file.write_text(file.read_text("utf-8") + "\n\nEDITED = 1\n", "utf-8")


@pytest.mark.slow
def test_nothing_is_paid_again_after_modules_of_rejuice_were_edited_and_moved(
    recipe, paid, tmp_path
):
    copy = tmp_path / "copy"
    for name in ("operators", "pipelines"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / "rejuice" / name, ignore=skipped)

    def run(export, *words):
        command = [sys.executable, "-c", RUN, str(recipe), str(tmp_path / export), *words]
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for export, words in (("now/x.parquet", ()), ("then/x.parquet", ("earlier",))):
        assert run(export, *words) == "False rejuice.operators.operator\n"
        assert paid()
    move(copy / "rejuice")
    for export in ("now/x.parquet", "then/x.parquet"):
        assert run(export) == "True rejuice.operators.moved_operator\n"
        assert not paid()
        assert len(list((tmp_path / export).parent.glob(".rejuice/kept-*"))) == 1
