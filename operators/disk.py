"""Files on disk: when the disk has them, names of temporary ones, and checksums at their ends."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pyarrow as pa
import xxhash

_MARK = b"rejuice\x01"
CHECKSUM_BYTES = 16 + len(_MARK)


def sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk now."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def temporary_path(path: Path) -> Path:
    """A name beside `path` that nobody else uses, nor another machine that shares the folder."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")


def checksum(content: bytes | pa.Buffer) -> bytes:
    """What is written after a content, to find out later whether it is as it was.

    Returns:
        `CHECKSUM_BYTES` bytes: xxh3_128 of the content, and a mark.
    """
    return bytes(xxhash.xxh3_128_digest(content)) + _MARK


def ends_with_checksum(data: bytes) -> bool:
    """Whether there is a checksum at the end; it may be wrong."""
    return data.endswith(_MARK)
