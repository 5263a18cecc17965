"""A damaged file of the cache counts as missing."""

import os

import pytest

from rejuice.pipelines.engine import runner as engine
from rejuice.pipelines.engine.damage import undamaged
from rejuice.pipelines.filesystem import checked
from rejuice.pipelines.filesystem.checked import DamagedError
from rejuice.pipelines.recipe.read import load

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
    checked._verified.clear()


def test_every_damaged_file_of_a_cache_is_computed_again(recipe_file, rollouts, tmp_path):
    recipe = load(recipe_file(PROCESS, rollouts(30).to_pylist()))
    run = {"chunk_rows": 40}
    engine.run(recipe, **run)
    export = recipe.head.export_path
    right = export.read_bytes()
    cache = export.parent / ".rejuice"
    files = sorted(path for path in cache.rglob("*.arrow") if path.is_file())
    assert len(files) > 12
    warned = []
    for path in files:
        flip(path)
        export.unlink()
        engine.run(recipe, warn=warned.append, **run)
        assert export.read_bytes() == right
        wanted = f"{path} is damaged: it was removed, and what was in it is computed again"
        assert wanted in warned, path
        checked.read_checked(path)


def test_what_was_computed_before_a_damage_counts_as_computed(recipe_file, rollouts, monkeypatch):
    recipe = load(recipe_file(PROCESS, rollouts(30).to_pylist()))
    cache, write, damaged = recipe.head.export_path.parent / ".rejuice", engine.write_export, []

    def damage_first(*arguments):
        if not damaged:
            damaged.append(sorted(cache.glob("grpo_*/*.arrow"))[0])
            flip(damaged[0])
        return write(*arguments)

    monkeypatch.setattr(engine, "write_export", damage_first)
    warned = []
    report = engine.run(recipe, chunk_rows=40, warn=warned.append)
    assert any(line.startswith(f"{damaged[0]} is damaged") for line in warned)
    assert [step.cached for step in report.steps] == [False] * 3


def test_a_file_that_is_damaged_again_ends_the_run(tmp_path):
    path = tmp_path / "000000.arrow"

    def work():
        path.write_bytes(b"x")
        return checked.read_checked(path)

    with pytest.raises(DamagedError, match="is damaged; remove it and run again"):
        undamaged(work, work, print)
    assert os.path.exists(path)
