import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from rejuice.operators import EngineError
from rejuice.operators.answer_cache import AnswerCache


def opened(path):
    return AnswerCache(path, "scores", "use another path")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "scores.sqlite"


def test_what_was_put_is_there_for_whoever_opens_the_file(path):
    one, other = opened(path), opened(path)
    assert one.get(b"a") is None
    one.put(b"a", "x\n{}")
    assert (one.get(b"a"), other.get(b"a"), other.get(b"b")) == ("x\n{}", "x\n{}", None)
    other.put(b"a", "y")
    assert one.get(b"a") == "y"
    one.close()
    other.close()
    again = opened(path)
    assert again.get(b"a") == "y"
    again.close()


def test_many_threads_open_read_and_write(path):
    def work(number):
        cache = opened(path)
        for step in range(30):
            cache.put(f"{step % 7}".encode(), str(step % 7))
            assert cache.get(f"{step % 7}".encode()) == str(step % 7)
            assert cache.get(f"{number}".encode()) in (None, str(number))
        cache.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(7)))


def test_a_reader_does_not_wait_for_a_writer(path):
    cache = opened(path)
    cache.put(b"a", "x")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert cache.get(b"a") == "x"
    writer.execute("ROLLBACK")
    writer.close()
    cache.close()


def test_a_closed_file_is_an_engine_error(path):
    cache = opened(path)
    cache.close()
    with pytest.raises(
        EngineError, match=r"^the cache of scores .* cannot be used: Cannot operate"
    ):
        cache.get(b"a")
