import os

from rejuice.operators.servers import answer_cache
from rejuice.operators.servers.answer_cache import OpenFiles


def test_the_file_that_was_used_least_recently_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_cache, "_MOST_OPEN", 2)
    files = OpenFiles()
    for number in range(3):
        (tmp_path / str(number)).write_text(str(number))
        assert files.add(tmp_path / str(number)) == number
    descriptors = [files.open(0), files.open(1)]
    assert files.open(0) == descriptors[0]
    files.open(2)
    assert files.open(0) == descriptors[0]
    assert len(files._open) == 2
    assert [os.pread(files.open(number), 9, 0) for number in (2, 1, 0)] == [b"2", b"1", b"0"]
    files.close()
    assert not files._open
