"""How often failures of a step were computed again; the keys of later steps depend on it.

It is in the name of a file, where no damage to its content can change it: `generation-2`. Version
0.4 wrote it into a file `generation`.
"""

from __future__ import annotations

from ..dataset.files import write_file
from ..dataset.remote import AnyPath

_COUNTER = "generation"
_AFTER_DAMAGE = 1_000_000
"""Where the file of version 0.4 is damaged: a number that no run has counted to, so that later
steps get keys that no run had."""


def retry_count(folder: AnyPath) -> int:
    """How often results of the step of a folder were retried."""
    counts = [int(file.name.rpartition("-")[2]) for file in folder.glob(f"{_COUNTER}-*")]
    old = folder / _COUNTER
    if old.exists():
        text = old.read_bytes().decode("ascii", "replace")
        counts.append(int(text) if text.isdecimal() else _AFTER_DAMAGE)
    return max(counts, default=0)


def count_retry(folder: AnyPath) -> None:
    """Count one more retry, so that later steps get other keys."""
    set_retry_count(folder, retry_count(folder) + 1)


def set_retry_count(folder: AnyPath, number: int) -> None:
    """Have a step counted as retried so often, at least."""
    write_file(folder / f"{_COUNTER}-{number}", f"{number}\n")


def is_retry_counter(file: AnyPath) -> bool:
    """Whether a file in the folder of a step is its counter."""
    return file.name == _COUNTER or file.name.startswith(f"{_COUNTER}-")
