"""Checksums at the end of files, and names of temporary ones."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.disk import CHECKSUM_BYTES, checksum, ends_with_checksum, temporary_path


@given(st.binary())
def test_a_checksum_is_of_the_bytes_wherever_they_are(content):
    assert checksum(content) == checksum(pa.py_buffer(content))
    assert len(checksum(content)) == CHECKSUM_BYTES
    assert ends_with_checksum(content + checksum(content))


@given(st.binary(min_size=1), st.data())
def test_any_flipped_bit_changes_it(content, data):
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    other = bytearray(content)
    other[bit // 8] ^= 1 << bit % 8
    assert checksum(bytes(other)) != checksum(content)


def test_two_writers_have_two_temporary_files(tmp_path):
    path = tmp_path / "rows.arrow"
    assert temporary_path(path) != temporary_path(path)
    assert temporary_path(path).parent == path.parent
