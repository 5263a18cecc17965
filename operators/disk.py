"""Files that rejuice keeps: what may be in their place, and when the disk has them."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def in_user_cache(name: str) -> Path:
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
    """Something else is where a file of rejuice should be: to open it could wait forever, or read
    and write a file elsewhere."""


def kind_of(path: Path) -> str | None:
    """What is at a path, itself and not what it links to: `a file`, `a link`, ..."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def wrong_kind(path: Path, right: str) -> str | None:
    kind = kind_of(path)
    return None if kind in (None, right) else kind


def check_is_file(path: Path) -> None:
    """A path may have a file of rejuice, or nothing; not a link, a FIFO, a device or a folder."""
    if kind := wrong_kind(path, "a file"):
        found = f"{kind} is where rejuice keeps a file: remove it"
        raise NotAFileError(errno.EINVAL, found, str(path))


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    check_is_file(path)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def read_file(path: Path) -> bytes:
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


def left_by_killed(path: Path) -> list[Path]:
    """The files of `temporary_path`, of processes that were killed while they wrote them."""
    return list(path.parent.glob(f".{path.name}.[0-9]*.{'[0-9a-f]' * 8}"))
