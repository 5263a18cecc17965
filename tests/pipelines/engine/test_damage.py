"""A damaged file of the cache counts as missing."""

import os
import sqlite3
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from rejuice.pipelines.dataset import files
from rejuice.pipelines.dataset.files import DamagedError
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

PROCESS = [
    {"pass_rate_filter": {"min": 0.1}},
    {"exact_deduplicator": {}},
    {"grpo_advantage_mapper": {}},
]


def flip(path):
    """Flip a bit in the middle of a file; what this process knew of the file is forgotten."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    files._verified.clear()


@pytest.mark.slow
def test_every_damaged_file_of_a_cache_is_computed_again(recipe_file, rollouts, tmp_path):
    recipe = load(recipe_file(PROCESS, rollouts(30).to_pylist()))
    run = {"chunk_rows": 40}
    engine.run(recipe, **run)
    export = recipe.head.export_path
    right = export.read_bytes()
    cache = export.parent / ".rejuice"
    written = sorted(path for path in cache.rglob("*.arrow") if path.is_file())
    assert len(written) > 12
    warned = []
    for path in written:
        flip(path)
        export.unlink()
        engine.run(recipe, warn=warned.append, **run)
        assert export.read_bytes() == right
        wanted = f"{path} is damaged: it was removed, and what was in it is computed again"
        assert wanted in warned, path
        files.read_checked(path)


def test_what_was_computed_before_a_damage_counts_as_computed(recipe_file, rollouts, monkeypatch):
    recipe = load(recipe_file(PROCESS, rollouts(30).to_pylist()))
    cache, write, damaged = recipe.head.export_path.parent / ".rejuice", engine.write_parts, []

    def damage_first(*arguments):
        if not damaged:
            damaged.append(sorted(cache.glob("grpo_*/*.arrow"))[0])
            flip(damaged[0])
        return write(*arguments)

    monkeypatch.setattr(engine, "write_parts", damage_first)
    warned = []
    report = engine.run(recipe, chunk_rows=40, warn=warned.append)
    assert any(line.startswith(f"{damaged[0]} is damaged") for line in warned)
    assert [step.cached for step in report.steps] == [False] * 3


def test_a_file_that_is_damaged_again_ends_the_run(recipe_file, rollouts, monkeypatch):
    recipe, damaged = load(recipe_file(PROCESS, rollouts(30).to_pylist())), []
    cache, write = recipe.head.export_path.parent / ".rejuice", engine.write_parts

    def damage_first(*arguments):
        damaged.append(sorted(cache.glob("grpo_*/*.arrow"))[0])
        flip(damaged[-1])
        return write(*arguments)

    monkeypatch.setattr(engine, "write_parts", damage_first)
    with pytest.raises(DamagedError, match="is damaged; remove it and run again"):
        engine.run(recipe, chunk_rows=40)
    assert damaged == [damaged[0]] * 2
    assert os.path.exists(damaged[0])


DRAWS = """
import pathlib
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator

class DrawMapper(ResumableOperator):
    log: str
    def reads(self): return ("response_id",)
    def writes(self): return ("sample",)
    def apply(self, table): return Change({"sample": pa.array([], pa.string())})
    def process_rows(self, table, rows):
        ids, log = table["response_id"].to_pylist(), pathlib.Path(self.log)
        draws = log.read_text().splitlines() if log.exists() else []
        for row in rows:
            draw = draws.count(ids[row])
            with log.open("a") as file:
                file.write(f"{ids[row]}\\n")
            yield row, Change({"sample": pa.array([f"{ids[row]} draw {draw}"])})
"""
GRADES = """
from rejuice.operators import Change, Operator

class GradeMapper(Operator):
    def reads(self): return ("sample",)
    def writes(self): return ("graded",)
    def apply(self, table): return Change({"graded": table["sample"]})
"""


def test_what_is_sampled_again_after_a_damage_is_graded_again(recipe_file, rollouts, tmp_path):
    """A server may give other samples than those that are lost."""
    for name, text in {"draw.py": DRAWS, "grade.py": GRADES}.items():
        (tmp_path / name).write_text(text)
    path = recipe_file(
        [{"draw_mapper": {"log": str(tmp_path / "log")}}, {"grade_mapper": {}}],
        rollouts(30).to_pylist(),
        custom_operator_paths=[str(tmp_path / name) for name in ("draw.py", "grade.py")],
    )
    recipe = load(path)
    engine.run(recipe, chunk_rows=40)
    cache, export = recipe.head.export_path.parent / ".rejuice", recipe.head.export_path
    (kept,) = cache.glob("kept-draw_mapper-*/rows.sqlite")
    with closing(sqlite3.connect(kept)) as file, file:
        file.execute("UPDATE rows SET payload = x'00' WHERE id % 2 = 0")
    for commit in cache.glob("draw_mapper-*/*.arrow"):
        commit.unlink()
    export.unlink()
    engine.run(recipe, chunk_rows=40)
    rows = pq.read_table(export)
    assert rows["graded"].equals(rows["sample"])
    assert {text.rpartition(" ")[2] for text in rows["sample"].to_pylist()} == {"0", "1"}
