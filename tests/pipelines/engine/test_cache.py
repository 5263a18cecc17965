"""`rejuice cache`: what can go is removed, what cost something stays, and nothing stale is found."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import runner
from fake_server import FakeServer

from rejuice.operators import RejuiceError
from rejuice.operators.servers.judge import open_cache, user_cache
from rejuice.pipelines.dataset.files import run_folder
from rejuice.pipelines.engine import cache as cache_module
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.cache import (
    Removal,
    cache_entries,
    remove,
    select_matching,
    select_unused,
    use_cache,
)
from rejuice.pipelines.recipe.recipe import load

PROMPTS = 7


@pytest.fixture
def server():
    with FakeServer() as policy:
        yield policy


@pytest.fixture
def path(recipe_file, server):
    options = {"api": "chat", "base_url": server.url, "back_off_s": 0.002, "timeout_s": 5}
    sampling = {"engine": "openai", "model": "m", "n": 2, "max_tokens": 9, "openai": options}
    return recipe_file(
        [{"prompt_template_mapper": {}}, {"policy_rollout_mapper": sampling}, {"length_filter": {"min": 1}}],
        [{"question": f"{k}?", "answer": str(k)} for k in range(PROMPTS)],
    )  # fmt: skip


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return runner(monkeypatch, capsys, tmp_path)


def ran(path, **overrides):
    recipe = load(path, overrides)
    engine.run(recipe)
    return recipe.head.export_path.parent / ".rejuice", recipe.head.export_path


def names(cache):
    return sorted(entry.path.name.rpartition("-")[0] for entry in cache)


EVERY = ["kept-policy_rollout_mapper", "length_filter", "policy_rollout_mapper",
         "prompt_template_mapper", "source"]  # fmt: skip


def samples_of(cache):
    """Bytes and times of all samples."""
    files = cache.glob("kept-*/rows.sqlite")
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def test_what_a_cache_holds(path):
    cache, export = ran(path)
    sizes = sum(p.stat().st_size for p in cache.rglob("*") if p.is_file() and p.parent != cache)
    records = sum(p.stat().st_size for p in (cache / "runs").iterdir())
    entries = cache_entries(cache)
    assert names(entries) == EVERY
    assert [entry.kind for entry in entries] == ["source", "step", "step", "step", "samples"]
    assert all(entry.exports == (export.resolve(),) for entry in entries)
    assert [entry.chunks for entry in entries] == [1] * 4 + [0]
    assert entries[-1].rows == PROMPTS
    assert sum(entry.size for entry in entries) == sizes - records
    assert all(abs(entry.used - time.time()) < 600 for entry in entries)


@pytest.mark.slow
def test_what_no_finished_run_uses_is_pruned_and_samples_stay(path, rejuice, server):
    cache, export = ran(path)
    ran(path, **{"length_filter.min": "2"})
    before, asked = samples_of(cache), server.attempts.copy()
    assert names(select_unused(cache, samples=True).removed) == ["length_filter"]
    code, out, _ = rejuice("cache", "prune", path, "--dry-run")
    assert (code, out.splitlines()[1].split()[0]) == (0, "length_filter")
    assert len(cache_entries(cache)) == 6, "a dry run removes nothing"
    code, out, _ = rejuice("cache", "prune", path)
    assert code == 0
    assert out.startswith("out/.rejuice: removed 1 folder, ")
    assert names(cache_entries(cache)) == EVERY
    assert rejuice("cache", "prune", export)[1] == "out/.rejuice: nothing to remove\n"

    (export.with_suffix(".run") / "report.json").unlink()
    for file in sorted(export.with_suffix(".run").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    export.with_suffix(".run").rmdir()
    rejuice("cache", "prune", "--cache_dir", cache)
    assert names(cache_entries(cache)) == ["kept-policy_rollout_mapper"]
    assert samples_of(cache) == before
    assert not list((cache / "runs").iterdir())
    export.unlink()
    ran(path)
    assert server.attempts == asked, "no prompt is sampled twice"
    rejuice("cache", "prune", "--cache_dir", cache, "--samples")
    assert names(cache_entries(cache)) == EVERY, "samples of a finished run stay"


def test_two_exports_share_a_cache_and_neither_loses_anything(path, tmp_path, rejuice):
    cache = tmp_path / "cache"
    for name in ("a/a.parquet", "b/b.parquet"):
        recipe = load(path, {"export_path": str(tmp_path / name), "length_filter.min": str(len(name))})  # fmt: skip
        engine.run(recipe, cache=cache)
    assert not select_unused(cache, samples=True).removed
    both = [entry for entry in cache_entries(cache) if len(entry.exports) == 2]
    assert names(both) == EVERY
    (tmp_path / "b" / "b.run" / "manifest.json").unlink()
    code, _, err = rejuice("cache", "prune", "--cache_dir", cache)
    assert (code, err) == (
        2,
        "rejuice: b/b.run does not say which results it uses: the run has "
        "not finished; run its recipe again, or remove b/b.run\n",
    )


@pytest.mark.parametrize("bit", [0, 7, 8 * 9 + 2])
def test_a_damaged_name_of_an_export_is_no_reason_to_prune_its_results(path, rejuice, bit):
    cache, export = ran(path)
    (record,) = (cache / "runs").iterdir()
    content = bytearray(record.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    record.write_bytes(content)
    # Versions that name no exports are found beside the cache: this one is elsewhere.
    moved = cache.rename(cache.parent.parent / "moved")
    code, _, err = rejuice("cache", "prune", "--cache_dir", "moved", "--samples")
    found = f"moved/runs/{record.name} is damaged: it does not say which export uses results of"
    right = "run its recipe again, or remove the file if that export is not needed"
    assert (code, err) == (2, f"rejuice: {found} moved; {right}\n")
    assert rejuice("cache", "ls", "--cache_dir", "moved")[0] == 0
    assert names(cache_entries(moved)) == EVERY
    moved.rename(cache)
    ran(path)
    assert record.read_text() == str(export.resolve())
    assert rejuice("cache", "prune", path) == (0, "out/.rejuice: nothing to remove\n", "")


@pytest.mark.parametrize("wanted", ["length_filter", "key"])
def test_the_results_of_a_step_are_removed_and_computed_again(path, rejuice, wanted):
    cache, export = ran(path)
    table = pq.read_table(export)
    (entry,) = select_matching(cache, "length_filter", samples=False).removed
    code, out, _ = rejuice("cache", "rm", entry.key[:9] if wanted == "key" else wanted, path)
    assert code == 0
    assert out.startswith("out/.rejuice: removed 1 folder, ")
    assert entry.path not in [each.path for each in cache_entries(cache)]
    report = engine.run(load(path))
    assert [step.cached for step in report.steps] == [True, True, False]
    assert pq.read_table(export).equals(table)


@pytest.mark.recommended("pipelines/engine/cache.py", "add --samples to remove it")
@pytest.mark.recommended("pipelines/cli/cache.py", "--samples removes it")
def test_samples_are_removed_only_where_that_is_asked_for(path, rejuice, server):
    cache, _ = ran(path)
    before, asked = samples_of(cache), sum(server.attempts.values())
    code, out, _ = rejuice("cache", "rm", "policy_rollout_mapper", path)
    (kept,) = cache.glob("kept-*")
    note = f"{kept.name} stays: samples and scores cost something; --samples removes it"
    assert (code, out.splitlines()[1]) == (0, note)
    assert samples_of(cache) == before
    code, _, err = rejuice("cache", "rm", kept.name, path)
    found = f"{kept.name} has samples or scores, which cost something"
    assert (code, err) == (2, f"rejuice: {found}; add --samples to remove it\n")
    assert rejuice("cache", "rm", kept.name, path, "--samples")[0] == 0
    assert not samples_of(cache)
    report = engine.run(load(path))
    assert sum(server.attempts.values()) == asked + PROMPTS
    # Another draw may differ: what was made of the first one is not found for it.
    assert [step.cached for step in report.steps] == [True, False, False]


def test_nothing_is_removed_under_a_running_run(path):
    cache, export = ran(path)
    with use_cache(cache, export), use_cache(cache, export):
        with pytest.raises(RejuiceError) as error:
            remove(cache, lambda: Removal(cache_entries(cache)), again=False)
        assert str(error.value) == f"a run is using {cache}; wait until it has ended"
    assert names(cache_entries(cache)) == EVERY
    assert not remove(cache, lambda: Removal([]), again=False).removed


@pytest.mark.parametrize("words", [("prune",), ("rm", "length_filter")])
def test_what_is_removed_is_decided_while_no_run_can_start(path, rejuice, monkeypatch, words):
    """A run that takes place just before the cache is held uses what no run used so far."""
    other = {"length_filter.min": "2"}
    ran(path, **other)
    cache, export = ran(path)
    (unused_so_far,) = select_unused(cache, samples=False).removed
    locked = cache_module._locked

    @contextmanager
    def alone_after_a_run(cache, kind):
        monkeypatch.setattr(cache_module, "_locked", locked)
        ran(path, **other, export_path=str(export.with_name("other.parquet")))
        with locked(cache, kind):
            yield

    monkeypatch.setattr(cache_module, "_locked", alone_after_a_run)
    code, out, err = rejuice("cache", words[0], *words[1:], path)
    assert code == 0, err
    if words == ("prune",):
        assert out == "out/.rejuice: nothing to remove\n"
        assert unused_so_far.path.is_dir()
    else:
        assert out.startswith("out/.rejuice: removed 2 folders, "), "whoever uses them"


def test_nothing_is_decided_while_a_run_is_going_on(path):
    cache, export = ran(path)
    with use_cache(cache, export), pytest.raises(RejuiceError, match="a run is using"):
        remove(cache, lambda: pytest.fail("decided without the lock"), again=False)


def test_an_export_that_is_a_folder_is_not_taken_for_a_cache(path, rejuice, tmp_path):
    recipe = load(path, {"export_path": "out/curated"})
    export = tmp_path / "out" / "curated"
    engine.run(recipe)
    (export.with_suffix(".run") / "report.json").unlink()
    before = sorted(export.iterdir())
    assert rejuice("cache", "ls", export)[0] == 0
    assert rejuice("cache", "prune", export, "--dry-run")[0] == 0
    rejuice("cache", "prune", export)
    assert sorted(export.iterdir()) == before
    assert names(cache_entries(export.parent / ".rejuice"))


def test_a_file_that_a_run_renames_meanwhile_is_not_listed(path, monkeypatch):
    cache, _ = ran(path)
    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda file: lstat(file.with_name(f"{file.name}.gone")))
    assert cache_entries(cache) == []
    monkeypatch.setattr(Path, "lstat", lstat)
    assert names(cache_entries(cache)) == EVERY


@pytest.mark.slow
def test_a_run_that_was_killed_lets_go_of_its_cache(tmp_path):
    code = (
        "import os, sys, pathlib, signal\n"
        "from rejuice.pipelines.engine.cache import use_cache\n"
        "with use_cache(pathlib.Path(sys.argv[1]), pathlib.Path('x.parquet')):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert not remove(tmp_path, lambda: Removal([]), again=False).removed


def test_only_what_rejuice_has_written_is_removed_file_by_file(path, rejuice):
    cache, _ = ran(path)
    (step,) = cache.glob("length_filter-*")
    mine = [step / "notes.txt", step / "folder" / "000000.arrow", cache / "photos" / "a.jpg"]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("precious")
    code, out, _ = rejuice("cache", "rm", "length_filter", path)
    assert (code, "removed 1 folder, " in out) == (0, True)
    assert [file.read_text() for file in mine] == ["precious"] * 3
    assert not list(step.glob("*.arrow"))


@pytest.mark.parametrize("words", [("prune",), ("rm", "thesis"), ("ls",)])
def test_the_report_of_a_stranger_names_no_folder_to_remove_from(path, rejuice, tmp_path, words):
    cache, export = ran(path)
    victim = tmp_path / "victim"
    files = [victim / "thesis-0123456789abcdef" / name for name in ("000000.arrow", "chapter.tex")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious")
    for name in ("report.json", "manifest.json"):
        file = run_folder(export) / name
        file.write_text(file.read_text().replace(str(cache), str(victim)))
    for place in (export, run_folder(export), path):
        rejuice("cache", *words, place)
    code, _, err = rejuice("cache", *words, "--cache_dir", victim)
    assert (code, "is no cache of rejuice" in err) == (2, True)
    assert [file.read_text() for file in files] == ["precious"] * 2


ERRORS = {
    ("ls",): "no cache is given; give a recipe, an export or a cache folder",
    ("ls", "none"): "there is no cache in .rejuice; give the recipe of a run, or its cache folder",
    ("rm", "qqq", "recipe.yaml"): "nothing in the cache is called 'qqq'; it holds: length_filter, "
    "policy_rollout_mapper, prompt_template_mapper, source",
    ("rm", "", "recipe.yaml"): "nothing in the cache is called ''; it holds: length_filter, "
    "policy_rollout_mapper, prompt_template_mapper, source",
}


@pytest.mark.parametrize("words", ERRORS)
def test_errors_are_one_line(path, rejuice, words):
    ran(path)
    code, _, err = rejuice("cache", *words)
    assert (code, err) == (2, f"rejuice: {ERRORS[words]}\n")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["recipe.yaml", "out/curated.parquet", "out/curated.run", "out/.rejuice", "out"])  # fmt: skip
def test_the_list_of_a_cache(path, rejuice, place, tmp_path):
    ran(path)
    scores = open_cache(user_cache())
    scores.put(bytes(32), "four words in all")
    scores.close()
    words = [place]
    if place == "out":
        os.rename(tmp_path / "out" / ".rejuice", tmp_path / "moved")
        words = ["--cache_dir", "moved"]
    code, out, _ = rejuice("cache", "ls", *words)
    assert code == 0
    lines = out.splitlines()
    operators = [
        "source", "length_filter", "policy_rollout_mapper", "prompt_template_mapper", "policy_rollout_mapper",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:6]] == operators
    rows = json.loads(rejuice("cache", "ls", *words, "--json")[1])
    assert [row["operator"] for row in rows] == operators
    assert all(type(row["size"]) is int and type(row["chunks"]) is int for row in rows)
    used_by = [] if place == "out" else ["out/curated.parquet"]
    assert all([os.path.relpath(each) for each in row["exports"]] == used_by for row in rows)
    assert lines[6].startswith("5 folders, ")
    (line,) = (line for line in lines[7:] if line.startswith("user/rejuice/scores.answers: "))
    assert line.endswith("kB, answers of judges, for all recipes")
