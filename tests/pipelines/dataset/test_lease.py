"""A lease in an object store: one process at a time, whoever asks and whoever was killed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rejuice.pipelines.dataset import remote
from rejuice.pipelines.dataset.remote import RemotePath, leased, to_path

pytestmark = pytest.mark.slow


@pytest.fixture
def path(store, monkeypatch):
    monkeypatch.setattr(remote, "_BEAT_S", 0.1)
    return to_path(f"{store}/x[1].lock")  # No pattern.


class TakenError(Exception):
    """Raised where another one is seen at work."""


def refuse():
    raise TakenError


def claims(path):
    return sorted(each for each in path.parent.iterdir() if "lock-" in each.name)


def test_one_that_is_renewed_is_respected_and_given_back(path):
    with leased(path) as claim:
        assert claims(path) == [claim]
        for _ in range(2):
            with pytest.raises(TakenError), leased(path, refuse):
                pass
        assert claims(path) == [claim]
    assert claims(path) == []
    with leased(path, refuse):
        pass


@pytest.mark.parametrize("content", ["has 7", "asks 0", ""])
def test_that_of_a_killed_process_is_taken_after_a_while(path, monkeypatch, content):
    monkeypatch.setattr(remote, "_WAIT_S", 0.6)
    left = path.with_name("x[1].lock-left")
    left.write_text(content)
    with leased(path, refuse) as claim:
        assert claims(path) == [claim]


def test_one_that_is_given_back_is_free_at_once(path):
    left = path.with_name("x[1].lock-left")
    left.write_text("has 7")
    removal = threading.Timer(0.1, left.unlink)
    removal.start()
    with leased(path, refuse):
        removal.join()


def test_whoever_else_asks_is_not_at_work(path):
    """Its claim comes and goes; the lease is nobody's."""
    other, asked = path.with_name("x[1].lock-other"), iter(range(4))
    listing = RemotePath.listing

    def listing_while_another_asks(folder, **options):
        number = next(asked, None)
        if number is None:
            other.unlink(missing_ok=True)
        else:
            other.write_text(f"asks {number}")
        return listing(folder, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemotePath, "listing", listing_while_another_asks)
        with leased(path, refuse):
            assert next(asked, None) is None


def test_of_many_that_ask_at_once_one_has_it_at_a_time(path):
    inside, most, done = [], [], []
    start = threading.Barrier(4)

    def ask(number):
        start.wait()
        for _ in range(3):
            with leased(path):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
            done.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert set(most) == {1}
    assert len(done) == 12
    assert claims(path) == []


def test_one_that_is_lost_is_not_taken_back(path):
    claim = path.with_name("x[1].lock-own")
    remote._renew(claim, threading.Event())
    assert not claim.exists()
