"""Files in sections: any range is read alone, and what is damaged is found."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.pipelines.dataset.files import DamagedError
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import commit
from rejuice.pipelines.engine.commit import Sections, write_sections

CONTENT = [b"one", b"", b"three" * 9]
METADATA = {b"a": b"b"}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.binary(max_size=50), max_size=9), data=st.data())
def test_any_range_is_read_as_it_was_written(tmp_path, content, data):
    path = tmp_path / "file"
    write_sections(path, content, METADATA)
    stop = data.draw(st.integers(0, len(content)))
    first = data.draw(st.integers(0, stop))
    opened = Sections.open(path)
    assert opened.metadata == METADATA
    assert list(map(bytes, opened.read(first, stop))) == content[first:stop]


@pytest.mark.slow
def test_an_index_that_is_longer_than_what_is_fetched_first(store, monkeypatch):
    path = to_path(store) / "file"
    content = [b"%d" % number for number in range(99)]
    write_sections(path, content, METADATA)
    monkeypatch.setattr(commit, "_TAIL_BYTES", 99)
    assert list(map(bytes, Sections.open(path).read(0, 99))) == content


def test_each_damaged_byte_and_each_end_is_found(tmp_path):
    path = tmp_path / "file"
    write_sections(path, CONTENT, METADATA)
    right = path.read_bytes()
    flipped = [right[:at] + bytes([right[at] ^ 4]) + right[at + 1 :] for at in range(len(right))]
    for wrong in [*flipped, *(right[:end] for end in range(len(right))), right + b"\0"]:
        path.write_bytes(wrong)
        with pytest.raises(DamagedError, match="is damaged; remove it and run again"):
            Sections.open(path).read(0, len(CONTENT))


def test_a_file_that_is_cut_off_after_it_was_opened(tmp_path):
    path = tmp_path / "file"
    write_sections(path, CONTENT, METADATA)
    opened, right = Sections.open(path), path.read_bytes()
    for size in range(opened.ends[-1]):
        path.write_bytes(right[:size])
        with pytest.raises(DamagedError, match="is damaged; remove it and run again"):
            opened.read(0, len(CONTENT))


def test_a_range_is_read_though_the_rest_is_damaged(tmp_path):
    path = tmp_path / "file"
    write_sections(path, CONTENT, METADATA)
    path.write_bytes(b"O" + path.read_bytes()[1:])
    assert list(map(bytes, Sections.open(path).read(1, 3))) == CONTENT[1:]


@pytest.mark.slow
def test_a_file_of_a_store_that_is_removed_after_it_was_opened(store):
    path = to_path(store) / "file"
    write_sections(path, CONTENT, METADATA)
    opened = Sections.open(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        opened.read(0, len(CONTENT))
    with pytest.raises(FileNotFoundError):
        Sections.open(path)


def test_a_file_on_disk_that_is_removed_after_it_was_opened(tmp_path):
    path = tmp_path / "file"
    write_sections(path, CONTENT, METADATA)
    opened = Sections.open(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opened.read(0, len(CONTENT))
