"""Rows that were paid for: what was put is found, what is damaged is not, whoever writes."""

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from rejuice.operators.kept_rows import SHARED_FOLDERS, has_kept_rows, is_local, open_kept_rows

ROWS = {number.to_bytes(16, "little"): b"%d " % number * 90 for number in range(1, 60)}


@pytest.fixture(params=["local", "shared"])
def folder(request, tmp_path, monkeypatch):
    folder = tmp_path / "kept-x"
    if request.param == "shared":
        monkeypatch.setenv(SHARED_FOLDERS, f"/elsewhere:{tmp_path}")
    assert is_local(folder) == (request.param == "local")
    return folder


def put(folder, rows):
    kept = open_kept_rows(folder)
    for key, payload in rows.items():
        kept.put(key, payload)
    kept.close()


def found(folder, keys=ROWS, **options):
    kept = open_kept_rows(folder, **options)
    try:
        return kept.get(keys)
    finally:
        kept.close()


def test_what_was_put_is_found_and_the_last_payload_counts(folder):
    assert not has_kept_rows(folder)
    put(folder, dict.fromkeys(ROWS, b"before"))
    put(folder, ROWS)
    put(folder, {})
    assert has_kept_rows(folder)
    assert found(folder, [*ROWS, bytes(16)]) == found(folder, writes=False) == ROWS
    assert len(open_kept_rows(folder)) == len(ROWS)


def test_what_is_not_closed_is_found_by_the_one_that_put_it(folder):
    kept = open_kept_rows(folder)
    for key, payload in ROWS.items():
        kept.put(key, payload)
        assert kept.get([key]) == {key: payload}
    assert kept.get(ROWS) == ROWS
    kept.close()


def test_rows_of_another_folder_are_absent(folder):
    put(folder, ROWS)
    other = folder.rename(folder.with_name("kept-y"))
    assert found(other) == {}
    assert found(other.rename(folder)) == ROWS


@pytest.mark.parametrize("draw", range(3))
def test_a_flipped_bit_costs_rows_and_changes_none(folder, draw):
    rng = random.Random(draw)
    put(folder, ROWS)
    (file,) = folder.iterdir()
    right, lost = file.read_bytes(), 0
    for _ in range(60):
        content, bit = bytearray(right), rng.randrange(8 * len(right))
        content[bit // 8] ^= 1 << bit % 8
        for path in folder.iterdir():
            path.unlink()
        file.write_bytes(content)
        rows = found(folder)
        assert rows.items() <= ROWS.items()
        lost += len(rows) < len(ROWS)
        put(folder, ROWS)
        assert found(folder) == ROWS, "what is computed again is kept"
    assert lost > 5


def test_a_folder_that_is_no_longer_local_keeps_its_rows(tmp_path, monkeypatch):
    put(tmp_path / "kept-x", ROWS)
    monkeypatch.setenv(SHARED_FOLDERS, str(tmp_path))
    more = {bytes(16): b"of another machine"}
    put(tmp_path / "kept-x", more)
    assert found(tmp_path / "kept-x", [*ROWS, *more]) == {**ROWS, **more}
    monkeypatch.delenv(SHARED_FOLDERS)
    assert found(tmp_path / "kept-x", [*ROWS, *more]) == {**ROWS, **more}


@pytest.mark.parametrize("kind", ["a folder", "a link", "a FIFO"])
def test_what_is_no_file_of_ours_is_named(tmp_path, kind):
    folder, elsewhere = tmp_path / "kept-x", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_bytes(b"another's")
    path = folder / "rows.sqlite"
    if kind == "a link":
        path.symlink_to(elsewhere)
    else:
        path.mkdir() if kind == "a folder" else os.mkfifo(path)
    with pytest.raises(OSError, match=f"{kind} is where rejuice keeps a file") as caught:
        put(folder, ROWS)
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(path))
    assert elsewhere.read_bytes() == b"another's"


WRITER = """
import os, pathlib, signal, sys, time
from rejuice.operators.kept_rows import open_kept_rows
kept, first = open_kept_rows(pathlib.Path(sys.argv[1])), int(sys.argv[2])
for number in range(first, first + 200):
    kept.put(number.to_bytes(16, "little"), b"%d" % number)
    time.sleep(0.005)
if sys.argv[3] == "closes":
    kept.close()
else:
    time.sleep(float(sys.argv[3]))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["closes", "killed"])
def test_several_processes_write_and_all_is_found(folder, end):
    local = is_local(folder)
    how = "closes" if end == "closes" else "0" if local else "1.5"
    starts = (1, 101, 1001)  # The first two write some keys both.
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(first), how])
        for first in starts
    ]
    status = 0 if end == "closes" else -signal.SIGKILL
    assert [writer.wait() for writer in writers] == [status] * 3
    numbers = {number for first in starts for number in range(first, first + 200)}
    wanted = {number.to_bytes(16, "little"): b"%d" % number for number in numbers}
    assert found(folder, wanted) == wanted
    assert len(open_kept_rows(folder)) == len(wanted)


def test_a_file_that_another_process_has_renewed_is_opened_again(tmp_path):
    folder = tmp_path / "kept-x"
    first = open_kept_rows(folder)
    first.put(b"a" * 16, b"1")
    (folder / "rows.sqlite").rename(folder / "aside")
    put(folder, {b"b" * 16: b"2"})
    first.put(b"c" * 16, b"3")
    first.close()
    assert found(folder, [b"b" * 16, b"c" * 16]) == {b"b" * 16: b"2", b"c" * 16: b"3"}


def test_a_process_that_makes_the_same_file_is_waited_for(tmp_path):
    folder = tmp_path / "kept-x"
    folder.mkdir()
    path = folder / "rows.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE made (key)")
        timer = threading.Timer(0.1, other.execute, ["COMMIT"])
        timer.start()
        put(folder, {b"a" * 16: b"1"})
        timer.join()
    assert found(folder, [b"a" * 16]) == {b"a" * 16: b"1"}


def test_two_damaged_pages_cost_what_is_on_them(tmp_path):
    folder = tmp_path / "kept-x"
    rows = {random.Random(n).randbytes(16): b"%d " % n * 90 for n in range(4_000)}
    put(folder, rows)
    content = bytearray((folder / "rows.sqlite").read_bytes())
    for page in (len(content) // 4096 // 3, len(content) // 4096 * 2 // 3):
        content[page * 4096 : page * 4096 + 4096] = bytes(4096)
    (folder / "rows.sqlite").write_bytes(content)
    there = found(folder, rows)
    assert there.items() <= rows.items()
    assert len(there) > 3_900
    put(folder, rows)
    assert found(folder, rows) == rows


def test_a_log_of_sqlite_is_taken_over_too(tmp_path, monkeypatch):
    kept = open_kept_rows(tmp_path / "kept-x")
    for key, payload in ROWS.items():
        kept.put(key, payload)
    shutil.copytree(tmp_path / "kept-x", tmp_path / "moved" / "kept-x")  # It was not closed.
    kept.close()
    monkeypatch.setenv(SHARED_FOLDERS, str(tmp_path))
    assert found(tmp_path / "moved" / "kept-x") == ROWS
    names = [path.suffix for path in (tmp_path / "moved" / "kept-x").iterdir()]
    assert names == [".parquet"]


def test_a_file_of_somebody_else_is_neither_read_nor_removed(folder):
    put(folder, ROWS)
    (folder / "notes.parquet").write_text("mine")
    (folder / "2024-05.parquet").write_text("mine")
    assert found(folder) == ROWS
    assert (folder / "notes.parquet").read_text() == "mine"
