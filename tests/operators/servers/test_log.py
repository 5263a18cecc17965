"""Whatever is damaged is found and counts as absent; what is not damaged is there."""

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.servers import answer_cache
from rejuice.operators.servers.answer_cache import (
    HEADER_BYTES,
    LogReader,
    LogWriter,
    Record,
    encoded,
    read_record,
)

keys = st.binary(min_size=32, max_size=32)
records = st.builds(
    Record, keys, st.integers(0, 2**64 - 1), st.integers(0, 255), st.text().map(str.encode)
)


def found_in(path, reader=None):
    """The records that a reader finds in a file, and that are not damaged."""
    reader = reader or LogReader(path)
    file = os.open(path, os.O_RDONLY)
    found = [read_record(file, at) for _, at in list(reader.new(path.stat().st_size))]
    os.close(file)
    return [each for each in found if each is not None]


def record_of(number, text="an answer"):
    return Record(bytes([number]) * 32, number, 0, f"{text} {number} é".encode())


@given(st.lists(records, max_size=8))
def test_what_was_written_is_read(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("logs") / "a.log"
    path.write_bytes(b"".join(map(encoded, written)))
    assert found_in(path) == written


def test_a_reader_finds_what_is_appended_later(tmp_path):
    path = tmp_path / "a.log"
    writer, reader = LogWriter(path), LogReader(path)
    for number in range(3):
        writer.append(record_of(number))
        assert found_in(path, reader) == [record_of(number)]
    assert found_in(path, reader) == []
    writer.close()


@pytest.mark.parametrize("block", [64, 100, 1 << 20])
def test_a_flipped_bit_loses_one_record_at_most_wherever_it_is(tmp_path, monkeypatch, block):
    monkeypatch.setattr(answer_cache, "_BLOCK", block)
    path, written = tmp_path / "a.log", [record_of(number) for number in range(4)]
    data = b"".join(map(encoded, written))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        hit = at // len(encoded(written[0]))
        assert found_in(path) == [each for each in written if each.time_ns != hit], at


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_damage_never_makes_a_record(tmp_path_factory, data):
    """Zeroed pieces, pieces of another file, and pieces that are missing."""
    path = tmp_path_factory.mktemp("logs") / "a.log"
    written = [record_of(number, "x" * data.draw(st.integers(0, 300))) for number in range(5)]
    content = b"".join(map(encoded, written))
    start = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 400))
    piece = data.draw(st.sampled_from([b"", bytes(length), content[length : 2 * length]]))
    path.write_bytes(content[:start] + piece + content[start + length :])
    found = found_in(path)
    assert set(found) <= set(written)
    whole = [each for each in written if encoded(each) in path.read_bytes()]
    assert set(whole) <= set(found)


def test_a_header_without_its_payload_hides_no_record(tmp_path):
    """Also where what follows has as many bytes as the payload that is missing."""
    path, hidden, last = tmp_path / "a.log", record_of(1), record_of(2)
    lost = encoded(Record(bytes(32), 0, 0, b"x" * len(encoded(hidden))))
    path.write_bytes(lost[:HEADER_BYTES] + encoded(hidden) + encoded(last))
    assert found_in(path) == [hidden, last]


def test_a_torn_end_is_no_record_and_the_rest_is_there(tmp_path):
    path, written = tmp_path / "a.log", [record_of(number) for number in range(3)]
    data = b"".join(map(encoded, written))
    size = len(encoded(written[0]))
    for end in range(len(data)):
        path.write_bytes(data[:end])
        assert found_in(path) == written[: end // size]


def test_a_record_that_is_being_written_is_found_once_it_is_there(tmp_path):
    path, data = tmp_path / "a.log", encoded(record_of(1))
    reader = LogReader(path)
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        assert found_in(path, reader) == []
    path.write_bytes(data)
    assert found_in(path, reader) == [record_of(1)]


def test_a_hole_at_the_end_is_read_again(tmp_path):
    """On a network file system a file may grow before its content is there."""
    path, data = tmp_path / "a.log", encoded(record_of(1)) + encoded(record_of(2))
    reader = LogReader(path)
    path.write_bytes(bytes(len(data)))
    assert found_in(path, reader) == []
    path.write_bytes(data + encoded(record_of(3)))
    assert found_in(path, reader) == [record_of(number) for number in (1, 2, 3)]


def test_a_full_disk_leaves_nothing_of_a_record(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    writer, write = LogWriter(path), os.write
    writer.append(record_of(1))
    written = []

    def full(file, data):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(write(file, data[:70]))
        return written[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device"):
        writer.append(record_of(2))
    monkeypatch.undo()
    writer.append(record_of(3))
    writer.close()
    assert found_in(path) == [record_of(1), record_of(3)]


def test_a_log_is_on_the_disk_a_second_later_and_when_it_is_closed(tmp_path, monkeypatch):
    synced, now = [], [0.0]
    monkeypatch.setattr(os, "fsync", synced.append)
    writer = LogWriter(tmp_path / "a.log", lambda: now[0])
    assert len(synced) == 1  # the folder
    for now[0] in (0.1, 0.9, 1.0, 1.5, 2.0, 2.1):
        writer.append(record_of(1))
    assert len(synced) == 3
    writer.close()
    assert len(synced) == 4


def test_a_log_that_exists_is_not_written(tmp_path):
    (tmp_path / "a.log").touch()
    with pytest.raises(FileExistsError):
        LogWriter(tmp_path / "a.log")
