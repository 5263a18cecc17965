"""Damages as a disk, a copy or a power failure leaves them, each at a random place of a file."""

import os
import random
from pathlib import Path

PAGE = 4096


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file or a link in one way; gives which. Its size and its time may stay as they were.

    Whatever trusts a time or a size is deceived: a disk that loses a bit changes neither.
    """
    if path.is_symlink():
        return _damage_link(path, rng)
    before, times = path.read_bytes(), path.stat()
    after, kind = before, ""
    while after == before:  # A page of zeros may have been one before.
        kind = rng.choice(list(_DAMAGES) if before else ["garbage at the end"])
        after = _DAMAGES[kind](before, rng)
    # In place: an inode stays, too.
    with path.open("r+b") as file:
        file.write(after)
        file.truncate()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return kind


def _damage_link(path: Path, rng: random.Random) -> str:
    kind = rng.choice(["link to nothing", "link became a file"])
    path.unlink()
    if kind == "link to nothing":
        path.symlink_to("nothing.arrow")
    else:
        path.write_bytes(rng.randbytes(rng.randrange(100)))
    return kind


def _flip(content: bytes, rng: random.Random) -> bytes:
    bit = rng.randrange(8 * len(content))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def _truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _zero_page(content: bytes, rng: random.Random) -> bytes:
    at = PAGE * rng.randrange(-(-len(content) // PAGE))
    return content[:at] + bytes(len(content[at : at + PAGE])) + content[at + PAGE :]


def _empty(_content: bytes, _rng: random.Random) -> bytes:
    return b""


def _append(content: bytes, rng: random.Random) -> bytes:
    return content + rng.randbytes(rng.randrange(1, 2 * PAGE))


_DAMAGES = {
    "flipped bit": _flip,
    "truncated": _truncate,
    "zeroed page": _zero_page,
    "emptied": _empty,
    "garbage at the end": _append,
}
