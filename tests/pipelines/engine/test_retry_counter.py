"""How often a step was retried is known whatever is damaged."""

import pytest

from rejuice.pipelines.engine.retry_counter import count_retry, is_retry_counter, retry_count


def test_retries_are_counted(tmp_path):
    assert retry_count(tmp_path) == 0
    for number in range(1, 12):
        count_retry(tmp_path)
        assert retry_count(tmp_path) == number


@pytest.mark.parametrize("content", ["3", "0"])
def test_the_counter_of_an_earlier_version_goes_on(tmp_path, content):
    (tmp_path / "generation").write_text(content)
    assert retry_count(tmp_path) == int(content)
    count_retry(tmp_path)
    assert retry_count(tmp_path) == int(content) + 1


@pytest.mark.parametrize("content", [b"", b"\xff", b"x", b"\0\0"])
def test_a_damaged_counter_is_a_number_that_no_run_had(tmp_path, content):
    (tmp_path / "generation").write_bytes(content)
    assert retry_count(tmp_path) == 1_000_000
    count_retry(tmp_path)
    assert retry_count(tmp_path) == 1_000_001


def test_whatever_is_in_the_files_of_the_counter_it_is_right(tmp_path):
    count_retry(tmp_path)
    count_retry(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    assert retry_count(tmp_path) == 2
    assert all(map(is_retry_counter, tmp_path.iterdir()))
