"""Answers of judges and observations of tools, in the store of kept rows (test_kept_rows.py)."""

import hashlib
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rejuice.operators import EngineError
from rejuice.operators.servers.answer_cache import AnswerCache, folder_of, has_answers


def key(number):
    return hashlib.sha256(str(number).encode()).digest()


A, B = key("a"), key("b")


def opened(path, **options):
    return AnswerCache(path, "scores", "use another path", **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "scores.answers"


def test_what_was_put_is_there_for_whoever_opens_the_cache(path):
    one, other = opened(path), opened(path)
    assert one.get(A) is None
    one.put(A, "x\n{} é")
    assert (one.get(A), other.get(A), other.get(B)) == ("x\n{} é", "x\n{} é", None)
    other.put(A, "y")
    one.close()
    other.close()
    again = opened(path)
    assert again.get(A) == "y"
    again.close()


def test_a_failure_stands_beside_an_answer(path):
    cache = opened(path)
    cache.put_failure(A, "scorer_malformed", "no")
    assert (cache.get(A), cache.failure(A)) == (None, ("scorer_malformed", "no"))
    cache.put(A, "yes")
    assert (cache.get(A), cache.failure(A)) == ("yes", ("scorer_malformed", "no"))
    assert cache.failure(B) is None
    cache.close()


def test_threads_share_a_cache(path):
    cache = opened(path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: cache.put(key(n), f"answer {n}"), range(200)))
        assert list(pool.map(lambda n: cache.get(key(n)), range(200))) == [
            f"answer {n}" for n in range(200)
        ]
    cache.close()


def test_there_is_no_cache_before_something_was_opened_to_write(path):
    assert not has_answers(path)
    reader = opened(path, writes=False)
    assert reader.get(A) is None
    assert not path.exists()
    writer = opened(path)
    writer.put(A, "x")
    assert has_answers(path)
    assert opened(path, writes=False).get(A) == "x"
    writer.close()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder.write_text("a file"), "File exists"),
        (lambda folder: (folder / "rows.sqlite").mkdir(parents=True), "a folder is where rejuice"),
    ],
)
def test_a_path_that_cannot_be_used(path, make, reason):
    make(path)
    with pytest.raises(EngineError) as error:
        opened(path)
    assert all(each in str(error.value) for each in (str(path), reason, "use another path"))


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
    for name in ("scores.answers", "scores"):
        assert folder_of(Path("a") / name) == Path("a/scores.answers")
    assert folder_of(Path("judge-1.5")) == Path("judge-1.5.answers")
