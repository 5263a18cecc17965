"""Open files, of which a process may have only so many."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from ..disk import open_file

_MOST_OPEN = 64


class OpenFiles:
    """Files by number, opened for reading where they are needed; not thread-safe."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._open: OrderedDict[int, int] = OrderedDict()  # the one used last at the end

    def add(self, path: Path) -> int:
        """The number of another file."""
        self._paths.append(path)
        return len(self._paths) - 1

    def open(self, number: int) -> int:
        """The descriptor of a file, until another one is opened.

        Raises:
            OSError: it cannot be opened.
        """
        if number not in self._open:
            self._open[number] = open_file(self._paths[number])
        self._open.move_to_end(number)
        if len(self._open) > _MOST_OPEN:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return self._open[number]

    def close(self) -> None:
        """Close all; they are opened again where they are needed."""
        while self._open:
            os.close(self._open.popitem()[1])
