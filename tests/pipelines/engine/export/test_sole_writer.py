"""Two runs do not write one export: a lock on disk, a lease in an object store."""

import threading
import time

import pytest

from rejuice.operators import DataError, RejuiceError
from rejuice.pipelines.engine.export import sole_writer as module
from rejuice.pipelines.engine.export.sole_writer import sole_writer
from rejuice.pipelines.filesystem.remote import RemotePath, to_path


@pytest.fixture
def export(store, monkeypatch):
    monkeypatch.setattr(module, "_BEAT_S", 0.1)
    monkeypatch.setattr(module, "_WAIT_S", 0.6)
    return to_path(f"{store}/curated.parquet")


def refused(export):
    with pytest.raises(RejuiceError) as error, sole_writer(export):
        pass
    return str(error.value) == (
        f"another run is writing {export}; wait for it, or give another --export_path"
    )


def test_a_lock_on_disk(tmp_path):
    export = tmp_path / "out" / "curated.parquet"
    with sole_writer(export):
        assert refused(export)
        assert refused(export.with_suffix(".jsonl")), "they would have one run folder"
    with sole_writer(export):
        pass


def test_a_lease_that_is_renewed_is_respected(export, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 60.0)  # A busy machine may renew it late.
    with sole_writer(export):
        assert refused(export)
        assert refused(export)
    assert list(export.parent.iterdir()) == [], "it is given back"
    with sole_writer(export):
        pass


def test_a_lease_of_a_killed_run_is_taken_after_a_while(export):
    lock = export.with_name(".curated.run.lock")
    lock.write_text("somebody 7")
    start = time.monotonic()
    with sole_writer(export):
        assert time.monotonic() - start >= module._WAIT_S
        assert not lock.read_text().startswith("somebody")


def test_a_lease_that_is_given_back_is_free_at_once(export, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 60.0)
    lock = export.with_name(".curated.run.lock")
    lock.write_text("somebody 7")
    removal = threading.Timer(0.1, lock.unlink)
    removal.start()
    with sole_writer(export):
        removal.join()


def test_a_lease_that_is_given_back_while_it_is_read_is_free(export, monkeypatch):
    lock = export.with_name(".curated.run.lock")
    lock.write_text("somebody 7")
    read = RemotePath.read_bytes

    def read_too_late(path):
        if path == lock and b"somebody" in read(path):
            path.unlink()  # What Arrow makes of a file that is gone once it knows its size.
            raise DataError(f"{path} cannot be read: Failed to flush response stream")
        return read(path)

    monkeypatch.setattr(RemotePath, "read_bytes", read_too_late)
    with sole_writer(export):
        assert b"somebody" not in read(lock)


def test_of_two_that_take_a_lease_at_once_the_last_one_has_it(export, monkeypatch):
    write = RemotePath.write_text

    def write_and_lose(path, text):
        write(path, text)
        write(path, "somebody 0")

    monkeypatch.setattr(RemotePath, "write_text", write_and_lose)
    assert refused(export)


def test_a_run_that_was_suspended_leaves_the_lease_of_another(export):
    lock = export.with_name(".curated.run.lock")
    with sole_writer(export) as hold:
        hold.check()
        while lock.read_text() != "somebody 3":  # It may be renewed once more at the same time.
            lock.write_text("somebody 3")
            time.sleep(0.5)
        with pytest.raises(RejuiceError) as error:
            hold.check()
        assert str(error.value) == (
            f"this run did not renew its lease, so that another may be writing {export}; "
            "when that has ended, run this recipe again: what was computed is kept"
        )
    assert lock.read_text() == "somebody 3"
