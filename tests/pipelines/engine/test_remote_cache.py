"""A run whose cache is in an object store: the bytes of one on disk, found again, and damaged."""

import shutil
from collections import Counter

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.cli.cache import _cache
from rejuice.pipelines.dataset.remote import RemotePath, to_path
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow

PROCESS = [
    {"pass_rate_filter": {"min": 0.1}},
    {"exact_deduplicator": {}},
    {"grpo_advantage_mapper": {}},
]


@pytest.fixture
def cache(store):
    return to_path(f"{store}/cache")


@pytest.fixture
def recipe(recipe_file, rollouts):
    return load(recipe_file(PROCESS, rollouts(30).to_pylist()))


def test_a_cache_in_a_store_gives_the_bytes_of_one_on_disk(recipe, cache):
    export = recipe.head.export_path
    engine.run(recipe, chunk_rows=40)
    right = export.read_bytes()
    shutil.rmtree(export.parent)
    assert not any(step.cached for step in engine.run(recipe, chunk_rows=40, cache=cache).steps)
    assert export.read_bytes() == right
    assert not (export.parent / ".rejuice").exists()
    shutil.rmtree(export.parent)
    # Another machine, which has nothing but the store.
    assert all(step.cached for step in engine.run(recipe, chunk_rows=40, cache=cache).steps)
    assert export.read_bytes() == right


def test_a_damaged_commit_in_a_store_is_computed_again(recipe, cache):
    export, warned = recipe.head.export_path, []
    engine.run(recipe, chunk_rows=40, cache=cache)
    right = export.read_bytes()
    (folder,) = cache.glob("grpo_advantage_mapper-*")
    commit = folder / "000000.arrow"
    whole = commit.read_bytes()
    commit.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
    shutil.rmtree(export.parent)
    engine.run(recipe, chunk_rows=40, cache=cache, warn=warned.append)
    assert export.read_bytes() == right
    assert f"{commit} is damaged: it was removed, and what was in it is computed again" in warned


def test_what_is_committed_is_asked_once_for_each_step(recipe, cache, monkeypatch):
    engine.run(recipe, chunk_rows=40, cache=cache)
    plan, listed, iterdir = Plan.open(recipe, cache, 40), [], RemotePath.iterdir
    chunks = frozenset(range(len(plan.source.rows)))
    assert len(chunks) > 1
    monkeypatch.setattr(RemotePath, "iterdir", lambda path: listed.append(path) or iterdir(path))
    monkeypatch.setattr(RemotePath, "exists", None)
    assert all(plan.is_done(step) for step in plan.steps)
    assert listed == [cache / key for key in plan.keys]
    plan.path(plan.steps[1], 1).unlink()
    assert plan.committed_chunks(plan.steps[1]) == chunks - {1}
    assert [plan.is_done(step) for step in plan.steps] == [True, False, True]


def test_each_digest_is_fetched_once(recipe, cache, monkeypatch):
    fetched, open_input = [], RemotePath.open_input
    monkeypatch.setattr(
        RemotePath, "open_input", lambda path: fetched.append(path.name) or open_input(path)
    )
    engine.run(recipe, chunk_rows=40, cache=cache)
    digests = [name for name in fetched if name.startswith("digest-")]
    assert len(digests) > 2
    assert set(Counter(digests).values()) == {1}


def test_its_folders_are_not_removed_under_a_run(cache):
    with pytest.raises(RecipeError) as error:
        _cache(None, cache)
    assert str(error.value) == (
        f"{cache} is in an object store, where no lock keeps runs from using it; "
        "remove its folders by the tools of the store"
    )
