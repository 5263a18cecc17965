"""Files that rejuice keeps: what may be in their place, when the disk has them, their records."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import xxhash


def in_user_cache(name: str) -> Path:
    """Return a file in rejuice's folder in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "rejuice" / name


_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotAFileError(OSError):
    """A link, a FIFO, a device or a folder is where a file of rejuice should be.

    Opening one could wait forever, or read and write a file elsewhere.
    """


def kind_of(path: Path) -> str | None:
    """What is at a path, itself and not what it links to: `a file`, `a link`, ...; None: nothing.

    Example:
        >>> kind_of(Path("/"))
        'a folder'
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def wrong_kind(path: Path, right: str) -> str | None:
    """What is at a path in the place of `a file` or `a folder`; None: nothing else than that.

    Example:
        >>> wrong_kind(Path("/"), "a file")
        'a folder'
    """
    kind = kind_of(path)
    return None if kind in (None, right) else kind


def check_is_file(path: Path) -> None:
    """Check that a file, or nothing, is at a path.

    Raises:
        NotAFileError: it is something else.
    """
    if kind := wrong_kind(path, "a file"):
        found = f"{kind} is where rejuice keeps a file: remove it"
        raise NotAFileError(errno.EINVAL, found, str(path))


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that rejuice keeps; gives its descriptor.

    Raises:
        FileNotFoundError: there is none.
        NotAFileError: something else is there.
    """
    check_is_file(path)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def read_file(path: Path) -> bytes:
    """Return what a file holds that rejuice keeps.

    Raises:
        FileNotFoundError: there is none.
        NotAFileError: something else is there.
    """
    with open(open_file(path), "rb") as file:
        return file.read()


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


# --- Records: each with its size, its checksum, and whose it is -----------------------
#
#     header (64 bytes) | payload | header | payload | ...
#
#     0   4  magic, whose bytes are in no UTF-8 text
#     4   4  xxh32 of the rest of the header
#     8   8  number
#     16  1  kind of the payload
#     17  1  0
#     18  2  bytes of the payload, above 2**32
#     20  4  bytes of the payload, modulo 2**32
#     24 32  key
#     56  8  xxh3_64 of the payload
#
# The key says whose record it is: of which request an answer is, or of which file of which folder a
# commit. The number says which of those with this key: when an answer was written, or which part of
# a chunk this is. So a record that is copied, or renamed, into the place of another is not taken
# for it. One that is damaged counts as absent, and those after it are found again by the magic.
#
# Logs of answers, commits and chunks of datasets, digests, kept samples and journals are made of
# records.

KEY_BYTES = 32
MAGIC = b"\xffRJ\xfe"
_HEADER = Struct("<4sIQBBHI32sQ")
HEADER_BYTES = _HEADER.size
_BLOCK = 1 << 20


class Header(NamedTuple):
    """What stands before a payload."""

    key: bytes  # 32 bytes: whose the record is
    number: int  # which of the records with this key: below 2**64
    kind: int  # 0 to 255; what the payload means
    size: int  # bytes of the payload
    checksum: int  # xxh3_64 of the payload

    @classmethod
    def of(cls, key: bytes, kind: int, parts: Sequence[Any], number: int = 0) -> Header:
        """Return the header of a payload, which is given in parts."""
        assert len(key) == KEY_BYTES, "a key has 32 bytes"
        return cls(key, number, kind, sum(map(len, parts)), _checksum(parts))

    def packed(self) -> bytes:
        """Return the bytes of the header."""
        high, low = divmod(self.size, 1 << 32)
        header = _HEADER.pack(
            MAGIC, 0, self.number, self.kind, 0, high, low, self.key, self.checksum
        )
        return MAGIC + _header_checksum(header) + header[8:]

    def fits(self, payload: Any) -> bool:
        """Return whether a payload is as it was written."""
        return len(payload) == self.size and _checksum([payload]) == self.checksum


def key_of(*names: str) -> bytes:
    """Return the key of what is called by these names, such as a folder and a file in it."""
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()


def read_header(data: Any, at: int = 0) -> Header | None:
    """Return the header that begins at a place of some bytes; None: none does, or it is damaged."""
    header = bytes(data[at : at + HEADER_BYTES])
    if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
        return None
    if header[4:8] != _header_checksum(header):
        return None
    _, _, number, kind, _, high, low, key, checksum = _HEADER.unpack(header)
    return Header(key, number, kind, (high << 32) + low, checksum)


class FoundRecord(NamedTuple):
    """A record in some bytes."""

    header: Header  # of it
    payload: memoryview  # a view of the bytes, without a copy
    after_damage: bool  # whether bytes before it are of no record


def records_in(data: memoryview, *, trusted: bool = False) -> Iterator[FoundRecord]:
    """Yield the records in some bytes that are undamaged, in their order.

    What a process was writing when it was killed stands at the end, and is no record.
    """
    at, after_damage = 0, False
    while at < len(data):
        header = read_header(data, at)
        if header is not None:
            start = at + HEADER_BYTES
            payload = data[start : start + header.size]
            if (trusted and len(payload) == header.size) or header.fits(payload):
                yield FoundRecord(header, payload, after_damage)
                at, after_damage = start + header.size, False
                continue
        at, after_damage = _next_magic(data, at + 1), True


def _next_magic(data: memoryview, start: int) -> int:
    """Return the place of the first magic from here on; the end where there is none."""
    while start < len(data):
        found = bytes(data[start : start + _BLOCK]).find(MAGIC)
        if found >= 0:
            return start + found
        start += _BLOCK - len(MAGIC) + 1  # It may stand across the end of the block.
    return len(data)


def _checksum(parts: Sequence[Any]) -> int:
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return state.intdigest()


def _header_checksum(header: bytes) -> bytes:
    return xxhash.xxh32_intdigest(header[8:]).to_bytes(4, "little")
