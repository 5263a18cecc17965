import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rejuice.operators import EngineError
from rejuice.operators.servers.answer_cache import AnswerCache, folder_of, has_answers

SECOND = 10**9


def key(number):
    return hashlib.sha256(str(number).encode()).digest()


A, B = key("a"), key("b")


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def opened(path, **options):
    return AnswerCache(path, "scores", "use another path", **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "scores.answers"


def logs(path):
    return sorted(folder_of(path).glob("*.log"))


def test_what_was_put_is_there_for_whoever_opens_the_cache(path):
    one, other = opened(path, clock=Clock()), opened(path, clock=Clock())
    assert one.get(A) is None
    one.put(A, "x\n{} é")
    assert (one.get(A), other.get(A), other.get(B)) == ("x\n{} é", "x\n{} é", None)
    other.put(A, "y")
    assert other.get(A) == "y"
    one.close()
    other.close()
    again = opened(path)
    assert again.get(A) == "y"
    assert len(logs(path)) == 2
    again.close()


def test_nothing_is_written_before_there_is_something_to_store(path):
    cache = opened(path)
    assert cache.get(A) is None
    cache.close()
    assert logs(path) == []
    reading = opened(path.with_name("other.answers"), writes=False)
    assert reading.get(A) is None
    assert not has_answers(path.with_name("other.answers"))


def test_a_failure_stands_beside_an_answer(path):
    cache = opened(path)
    cache.put_failure(A, "malformed", "no\0 é")
    assert (cache.get(A), cache.failure(A)) == (None, ("malformed", "no\0 é"))
    cache.put_failure(A, "timeout", "late")
    cache.put(A, "x")
    assert (cache.get(A), cache.failure(A)) == ("x", ("timeout", "late"))
    cache.close()


def test_many_threads_open_read_and_write(path):
    def work(number):
        cache = opened(path)
        for step in range(30):
            cache.put(key(step % 7), str(step % 7))
            assert cache.get(key(step % 7)) == str(step % 7)
            assert cache.get(key(number)) in (None, str(number))
        cache.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(7)))


def test_threads_share_a_cache(path):
    cache = opened(path)

    def work(number):
        for step in range(100):
            cache.put(key((number, step)), f"{number} {step}")
            assert cache.get(key((number, step))) == f"{number} {step}"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(logs(path)) == 1
    again = opened(path)
    assert again.count() == 800
    assert all(again.get(key((n, s))) == f"{n} {s}" for n in range(8) for s in range(100))
    cache.close()


def test_a_slow_folder_is_looked_through_less_often(path):
    clock = Clock()
    one, other = opened(path), opened(path, clock=clock)
    look = other._look

    def slow():
        look()
        other._looked_at, other._look_s = clock.now, 0.5

    other._look = slow
    assert other.get(A) is None
    one.put(A, "x")
    clock.now = 9.9
    assert other.get(A) is None
    clock.now = 10.0
    assert other.get(A) == "x"
    one.close()


def test_a_later_answer_replaces_an_earlier_one_though_the_clock_was_set_back(path, monkeypatch):
    cache = opened(path)
    monkeypatch.setattr("time.time_ns", lambda: 5 * SECOND)
    cache.put(A, "x")
    monkeypatch.setattr("time.time_ns", lambda: 2 * SECOND)
    cache.put(A, "y")
    assert cache.get(A) == "y"
    cache.close()
    assert opened(path).get(A) == "y"


def test_keys_with_the_same_beginning_are_distinguished_by_their_rest(path):
    cache = opened(path)
    one, other = b"x" * 8 + b"a" * 24, b"x" * 8 + b"b" * 24
    cache.put(one, "one")
    assert cache.get(other) is None
    cache.put(other, "other")
    assert (cache.get(one), cache.get(other)) == ("one", "other")


def test_a_damaged_answer_counts_as_absent_and_can_be_stored_again(path):
    cache = opened(path)
    cache.put(A, "the answer")
    cache.put(B, "another")
    cache.close()
    (log,) = logs(path)
    log.write_bytes(log.read_bytes().replace(b"the answer", b"the Answer"))
    cache = opened(path)
    assert (cache.get(A), cache.get(B)) == (None, "another")
    cache.put(A, "the answer")
    cache.close()
    assert opened(path).get(A) == "the answer"


def test_an_undamaged_copy_takes_the_place_of_a_damaged_one(path):
    one, other = opened(path), opened(path)
    one.put(A, "x")
    other.put(A, "newer")
    other.close()
    newest = other_log = next(log for log in logs(path) if b"newer" in log.read_bytes())
    newest.write_bytes(other_log.read_bytes().replace(b"newer", b"Newer"))
    assert opened(path).get(A) == "x"


def test_a_log_that_was_removed_has_no_answers_and_is_written_again(path):
    one, other = opened(path), opened(path)
    one.put(A, "x")
    assert other.get(A) == "x"
    other.close()  # Otherwise it reads the file that is no longer in the folder.
    for log in logs(path):
        log.unlink()
    folder_of(path).rmdir()
    assert other.get(A) is None
    one.put(B, "y")
    one.close()
    again = opened(path)
    assert (again.get(A), again.get(B)) == (None, "y")


@pytest.mark.slow
def test_a_process_that_is_forked_writes_to_its_own_log(path):
    cache = opened(path)
    cache.put(A, "x")
    child = os.fork()
    if child == 0:
        try:
            cache.put(B, "y")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    cache.put(key("c"), "z")
    cache.close()
    again = opened(path)
    assert [again.get(each) for each in (A, B, key("c"))] == ["x", "y", "z"]
    assert len(logs(path)) == 2


def test_a_path_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EngineError) as error:
        opened(tmp_path / "file" / "scores")
    assert str(error.value) == (
        f"the cache of scores {tmp_path}/file/scores cannot be used: [Errno 20] Not a directory: "
        f"'{tmp_path}/file/scores.answers'; use another path"
    )


def test_a_folder_that_cannot_be_written(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # As root, the tests may write anywhere.
    with pytest.raises(
        EngineError, match=r"cannot be used: \[Errno 13\] Permission denied: .*; use"
    ):
        opened(path)
    opened(path, writes=False)


def test_a_full_disk_is_an_engine_error(path, monkeypatch):
    cache = opened(path)
    cache.put(A, "x")
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(EngineError, match=r"cannot be used: \[Errno 28\] No space left; use"):
        cache.put(B, "y")
    monkeypatch.undo()
    cache.put(B, "y")
    cache.close()
    assert opened(path).get(B) == "y"


# ---------------------------------------------------------------- files of earlier versions


def sqlite_file(path, version=1, **tables):
    with sqlite3.connect(path, isolation_level=None) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(f"PRAGMA user_version = {version}")
        for name, rows in tables.items():
            columns = "key BLOB PRIMARY KEY, answer TEXT NOT NULL"
            if name == "failures":
                columns = "key BLOB PRIMARY KEY, reason TEXT NOT NULL, answer TEXT NOT NULL"
            file.execute(f"CREATE TABLE {name} ({columns}) WITHOUT ROWID")
            file.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * (len(columns.split(','))))})", rows
            )
    file.close()


@pytest.mark.parametrize("named", ["scores.sqlite", "scores.answers"])
def test_answers_of_an_earlier_version_are_found(tmp_path, named):
    file = tmp_path / "scores.sqlite"
    sqlite_file(file, answers=[(A, "x"), (B, "y")], failures=[(B, "malformed", "no")])
    before = file.read_bytes()
    assert has_answers(tmp_path / named)
    cache = opened(tmp_path / named)
    assert (cache.get(A), cache.get(B), cache.failure(B)) == ("x", "y", ("malformed", "no"))
    cache.put(A, "newer")
    assert cache.get(A) == "newer"
    cache.close()
    assert file.read_bytes() == before
    again = opened(tmp_path / named)
    assert (again.get(A), again.get(B), again.failure(A)) == ("newer", "y", None)


def test_a_file_without_failures_is_of_version_0_4_0(tmp_path):
    sqlite_file(tmp_path / "scores.sqlite", answers=[(A, "x")])
    cache = opened(tmp_path / "scores.sqlite")
    assert (cache.get(A), cache.failure(A)) == ("x", None)


def test_an_earlier_version_may_write_at_the_same_time(tmp_path):
    sqlite_file(tmp_path / "scores.sqlite", answers=[(A, "x")])
    cache = opened(tmp_path / "scores.sqlite")
    with sqlite3.connect(tmp_path / "scores.sqlite", isolation_level=None) as file:
        file.execute("INSERT INTO answers VALUES (?, ?)", (B, "y"))
        assert (cache.get(A), cache.get(B)) == ("x", "y")
    file.close()


@pytest.mark.slow
def test_what_a_killed_process_of_an_earlier_version_had_stored_is_found(tmp_path):
    """It is in the write-ahead log, which nobody has moved into the file."""
    code = """
        import os, sqlite3, sys
        file = sqlite3.connect(sys.argv[1], isolation_level=None)
        file.execute("INSERT INTO answers VALUES (?, ?)", (bytes.fromhex(sys.argv[2]), "y"))
        os.kill(os.getpid(), 9)
    """
    sqlite_file(tmp_path / "scores.sqlite", answers=[(A, "x")])
    arguments = [str(tmp_path / "scores.sqlite"), B.hex()]
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], check=False)
    assert (tmp_path / "scores.sqlite-wal").stat().st_size
    cache = opened(tmp_path / "scores.sqlite")
    assert (cache.get(A), cache.get(B)) == ("x", "y")


def test_a_file_is_read_where_sqlite_cannot_share_memory(tmp_path, monkeypatch):
    """As on a network file system: it is not to be written by anybody, so no lock is needed."""
    sqlite_file(tmp_path / "scores.sqlite", answers=[(A, "x")])
    connect = sqlite3.connect

    def without_shared_memory(name, **options):
        if "immutable" not in name:
            raise sqlite3.OperationalError("locking protocol")
        return connect(name, **options)

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    assert opened(tmp_path / "scores.sqlite").get(A) == "x"


def test_an_empty_file_was_left_by_a_process_that_was_killed(tmp_path):
    (tmp_path / "scores.sqlite").touch()
    cache = opened(tmp_path / "scores.sqlite")
    assert (cache.get(A), cache.failure(A)) == (None, None)


def test_a_file_of_another_program(tmp_path):
    file = tmp_path / "scores.sqlite"
    file.write_text("no database, but a text of some length")
    for make, reason in (
        (lambda: None, "file is not a database"),
        (lambda: sqlite_file(file, 77, answers=[]), "it belongs to another program or version"),
        (lambda: sqlite_file(file, 0, other=[]), "it belongs to another program or version"),
    ):
        if reason.startswith("it"):
            file.unlink()
        make()
        with pytest.raises(EngineError) as error:
            opened(file)
        assert str(error.value) == (
            f"the cache of scores {file} cannot be used: {reason}; use another path"
        )


# ---------------------------------------------------------------- processes

_WRITE = """
    import hashlib, sys
    from pathlib import Path
    from rejuice.operators.servers.answer_cache import AnswerCache
    path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    cache = AnswerCache(path, "scores", "use another path")
    for number in range(first, last):
        key = hashlib.sha256(str(number).encode()).digest()
        if cache.get(key) is None:
            cache.put(key, f"answer {number} " + "x" * (number % 900))
            print(number, flush=True)
    if sys.argv[4:]:
        cache.close()
"""


def writing(path, first, last, *more):
    arguments = [sys.executable, "-c", textwrap.dedent(_WRITE), str(path), str(first), str(last)]
    return subprocess.Popen([*arguments, *more], stdout=subprocess.PIPE, text=True)


def answer_of(number):
    return f"answer {number} " + "x" * (number % 900)


@pytest.mark.slow
def test_processes_share_a_folder(path):
    ranges = [(0, 1500), (1000, 2500), (500, 2000), (0, 2500)]
    for process in [writing(path, *each, "close") for each in ranges]:
        process.communicate()
        assert process.returncode == 0
    cache = opened(path)
    assert [cache.get(key(number)) for number in range(2500)] == list(map(answer_of, range(2500)))


@pytest.mark.slow
def test_what_a_killed_process_had_stored_is_there(path):
    """Killed at any time; what it has printed, it had stored."""
    printed = set()
    for first in range(0, 10_000, 1000):
        process = writing(path, first, first + 10**6)
        lines = [process.stdout.readline() for _ in range(first // 20 + 1)]
        process.send_signal(signal.SIGKILL)
        lines += process.communicate()[0].splitlines(keepends=True)
        printed |= {int(line) for line in lines if line.endswith("\n")}
    cache = opened(path)
    assert all(cache.get(key(number)) == answer_of(number) for number in printed)
    assert len(printed) > 1000


def test_the_folder_of_a_path():
    for name in ("scores.sqlite", "scores.answers", "scores"):
        assert folder_of(Path("a") / name) == Path("a/scores.answers")
    assert folder_of(Path("judge-1.5")) == Path("judge-1.5.answers")
