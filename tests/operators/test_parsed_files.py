"""What was parsed is found again by other processes, as long as the file is the same."""

import os
import random

import pytest
from damage import damage

from rejuice.operators import cache_key
from rejuice.operators.cache_key import ParsedFiles


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_key, "_SETTLED_NS", 0)
    file = tmp_path / "mine.py"
    file.write_text("X = 1")
    return file


def found(file, parser=cache_key.__file__, name="mine"):
    """The entry in another process, and how often it was parsed there."""
    parsed = ParsedFiles(type(file)(parser))
    calls = []
    entry = parsed.find(name, file, lambda: calls.append(name) or [file.read_text()])
    parsed.save()
    return entry, len(calls)


def test_a_file_is_parsed_once(file):
    assert found(file) == (["X = 1"], 1)
    assert found(file) == (["X = 1"], 0)
    assert found(file, name="other") == (["X = 1"], 1)
    assert found(file) == (["X = 1"], 0), "entries of other processes stay"


def test_an_edited_file_is_parsed_again_even_with_its_old_size_and_time(file):
    found(file)
    before = file.stat()
    file.write_text("X = 2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(file) == (["X = 2"], 1)


def test_another_version_of_the_parser_parses_again(file, tmp_path):
    found(file)
    (tmp_path / "parser.py").write_text("another")
    assert found(file, tmp_path / "parser.py") == (["X = 1"], 1)


def test_a_file_that_was_just_written_is_not_kept(file, monkeypatch):
    monkeypatch.setattr(cache_key, "_SETTLED_NS", 10**18)
    found(file)
    assert found(file) == (["X = 1"], 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_cache_is_no_cache(file, tmp_path, seed):
    found(file)
    (cache,) = (tmp_path / "cache" / "rejuice").glob("code-*.parsed")
    kind = damage(cache, random.Random(seed))
    # Its record is whole where there is only more at the end.
    assert found(file) == (["X = 1"], 0 if kind == "garbage at the end" else 1)
    assert found(file) == (["X = 1"], 0)


def test_one_flipped_bit_does_not_change_what_was_found(file, tmp_path):
    found(file)
    (cache,) = (tmp_path / "cache" / "rejuice").glob("code-*.parsed")
    before = cache.read_bytes()
    for bit in range(0, 8 * len(before), 7):
        data = bytearray(before)
        data[bit // 8] ^= 1 << bit % 8
        cache.write_bytes(data)
        assert found(file) == (["X = 1"], 1), bit


def test_a_folder_that_cannot_be_written_to_costs_time_only(file, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert found(file) == (["X = 1"], 1)
    assert found(file) == (["X = 1"], 1)


def test_entries_that_nobody_uses_are_dropped_when_there_are_too_many(file, monkeypatch):
    found(file, name="old")
    monkeypatch.setattr(cache_key, "_MOST", 1)
    assert found(file, name="new")[1] == 1
    assert found(file, name="new")[1] == 0
    assert found(file, name="old")[1] == 1
