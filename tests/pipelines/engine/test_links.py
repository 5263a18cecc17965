"""Nothing outside the cache, the run folder and the export is read, written or removed."""

import os
import shutil

import pyarrow.parquet as pq
import pytest

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.cache import remove, select_matching
from rejuice.pipelines.recipe.recipe import load

PROCESS = [{"grpo_advantage_mapper": {}}, {"length_filter": {"min": 3}}]


@pytest.fixture
def world(recipe_file, rollouts, tmp_path):
    """A finished run, and a folder elsewhere with a copy of its cache."""
    path = recipe_file(PROCESS, rollouts(20).to_pylist())
    engine.run(load(path))
    out = load(path).head.export_path.parent
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(out / ".rejuice", elsewhere)
    return path, out, elsewhere


def state_of(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None
        for file in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("pattern", ["source-*", "length_filter-*", "grpo_advantage_mapper-*"])
def test_a_link_in_place_of_a_folder_of_the_cache_is_removed_alone(world, pattern):
    path, out, elsewhere = world
    right, before = pq.read_table(load(path).head.export_path), state_of(elsewhere)
    (folder,) = (out / ".rejuice").glob(pattern)
    shutil.rmtree(folder)
    shutil.rmtree(out / "curated.run", ignore_errors=True)
    for file in (elsewhere / folder.name).iterdir():
        file.write_bytes(b"another's")
    before = state_of(elsewhere)
    folder.symlink_to(elsewhere / folder.name)
    lines = []
    engine.run(load(path), overwrite=True, warn=lines.append)
    assert lines == [
        f"{folder} is a link, not a folder: it was removed, and what was in it is computed again"
    ]
    assert pq.read_table(load(path).head.export_path).equals(right)
    assert not folder.is_symlink()
    assert state_of(elsewhere) == before


@pytest.mark.parametrize("kind", ["link", "FIFO"])
@pytest.mark.parametrize("name", ["lock", "runs"])
def test_what_is_in_place_of_a_lock_or_of_the_list_of_runs_is_named(world, name, kind):
    path, out, elsewhere = world
    place, before = out / ".rejuice" / name, state_of(elsewhere)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    os.mkfifo(place) if kind == "FIFO" else place.symlink_to(elsewhere / name)
    with pytest.raises(RejuiceError, match=f"{name}.* a {kind}"):
        engine.run(load(path), retry_dropped=True)
    assert state_of(elsewhere) == before


def test_a_link_in_place_of_the_run_folder_is_named(world, tmp_path):
    path, *_ = world
    export = load(path).head.export_path
    folder, other = export.with_suffix(".run"), tmp_path / "other"
    folder.rename(other)
    before = state_of(other)
    folder.symlink_to(other)
    with pytest.raises(RejuiceError, match="run is a link, where rejuice keeps a folder"):
        engine.run(load(path), overwrite=True)
    assert state_of(other) == before


def test_a_link_is_no_entry_of_a_cache_and_nothing_is_removed_through_it(world):
    _, out, elsewhere = world
    cache, before = out / ".rejuice", state_of(elsewhere)
    (folder,) = cache.glob("length_filter-*")
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere / folder.name)
    (cache / ".removed-length_filter-1").symlink_to(elsewhere)
    with pytest.raises(RejuiceError, match="nothing in the cache is called 'length_filter'"):
        remove(cache, lambda: select_matching(cache, "length_filter", samples=False), again=False)
    remove(cache, lambda: select_matching(cache, "source", samples=False), again=False)
    assert state_of(elsewhere) == before
