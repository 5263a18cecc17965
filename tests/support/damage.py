"""Damages as a disk, a copy or a power failure leaves them, each at a random place of a file."""

import os
import random
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

PAGE = 4096


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file in one way; gives which. Its size and its time may stay as they were.

    Whatever trusts a time or a size is deceived: a disk that loses a bit changes neither.
    """
    before, after, kind = path.read_bytes(), path.read_bytes(), ""
    while after == before:  # A page of zeros may have been one before.
        kind = rng.choice(list(_DAMAGES) if before else ["garbage at the end"])
        after = _DAMAGES[kind](before, rng)
    _write(path, after)
    return kind


def flip(path: Path, rng: random.Random) -> None:
    """Flip one bit of a file that is not empty."""
    _write(path, _flip(path.read_bytes(), rng))


def _write(path: Path, content: bytes) -> None:
    """Write a file in place: its inode and its time stay."""
    times = path.stat()
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def displace(
    path: Path, others: Sequence[Path], elsewhere: Path, rng: random.Random
) -> tuple[str, list[Path]]:
    """Put something else in the place of a file.

    Args:
        path: of the file.
        others: files that may come into its place.
        elsewhere: a file that must stay as it is.
        rng: decides.

    Returns:
        What was done, and the files that are no longer what they were.
    """
    other = rng.choice(others)
    kinds = ["copy of another", "swapped", "renamed", "link", "link to another", "FIFO", "folder"]
    kind = rng.choice([*kinds, "device"] if os.geteuid() == 0 else kinds)
    if kind == "copy of another":
        shutil.copyfile(other, path)
        return kind, [path]
    if kind == "swapped":
        aside = path.with_name("aside")
        path.rename(aside)
        other.rename(path)
        aside.rename(other)
        return kind, [path, other]
    if kind == "renamed":
        path.rename(other)
        return kind, [path, other]
    path.unlink()
    if kind.startswith("link"):
        path.symlink_to(elsewhere if kind == "link" else other)
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    return kind, [path]


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
