"""What was found in source files, kept between processes: parsing them takes longer than a start.

JSON in the user's cache folder. An entry counts as long as its file has the same inode, size, time
of modification and time of change. The file is one record, see `operators/records.py`: one that is
damaged counts as absent. Nothing depends on it: entries that are lost, or a folder that cannot be
written to, cost the time of parsing the files once more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from .disk import read_file, temporary_path
from .records import Header, key_of, records_in
from .user_cache import in_user_cache

_MOST = 4_096
"""Entries; with more of them, those that were not used by this process are dropped."""
_SETTLED_NS = 2_000_000_000
"""A file that was written a moment ago may be written again within the same tick of its clock."""


class ParsedFiles:
    """Entries by a name, each of them of one file.

    Args:
        parser: the source file of what makes the entries: another version of it makes others.
    """

    def __init__(self, parser: Path) -> None:
        self._parser = parser
        self._entries: dict[str, Any] | None = None
        self._new: dict[str, Any] = {}
        self._used: set[str] = set()

    def find(self, name: str, file: Path, parse: Callable[[], Any]) -> Any:
        """The entry of a file, which `parse` makes where there is none: JSON values."""
        stat = file.stat()
        state = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        key = f"{name} {file}"
        self._used.add(key)
        if self._entries is None:
            self._entries = self._read()
        known = self._new.get(key) or self._entries.get(key)
        if known is not None and known[0] == state:
            return known[1]
        found = parse()
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
            self._new[key] = [state, found]
        return found

    def save(self) -> None:
        """Write what is new."""
        if not self._new:
            return
        entries = {**self._read(), **self._new}  # Another process may have written since.
        if len(entries) > _MOST:
            entries = {key: entry for key, entry in entries.items() if key in self._used}
        self._entries, self._new = entries, {}
        path = self._path()
        temporary = temporary_path(path)
        content = json.dumps(entries).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(Header.of(key_of(path.name), 0, [content]).packed() + content)
            temporary.replace(path)
        except OSError:  # A full disk, or a home that is not ours: files are parsed each time.
            with suppress(OSError):
                temporary.unlink()

    def _read(self) -> dict[str, Any]:
        path = self._path()
        try:
            data = read_file(path)
        except OSError:  # There is none yet.
            return {}
        for record in records_in(memoryview(data)):
            if record.header.key == key_of(path.name):
                entries: dict[str, Any] = json.loads(bytes(record.payload))
                return entries
        return {}

    def _path(self) -> Path:
        version = f"{sys.version_info[:2]} {xxhash.xxh3_64_hexdigest(self._parser.read_bytes())}"
        return in_user_cache(f"code-{xxhash.xxh3_64_hexdigest(version.encode())}.parsed")
