"""How often failures of a step were computed again: the keys of later steps depend on it.

It is in the name of a file in the step's folder, where no damage to its content can change it.
"""

from __future__ import annotations

from ...operators.disk import NotAFileError, read_file
from ..dataset.files import write_file
from ..dataset.remote import AnyPath, RemotePath

_COUNTER = "generation"
_AFTER_DAMAGE = 1_000_000
"""A number of retries that no earlier run has counted to."""


def retry_count(folder: AnyPath) -> int:
    """How often failures of the step with this folder were computed again.

    Version 0.4 wrote it into a file: where that is damaged, later steps get keys that no run had
    before.
    """
    numbers = (file.name.rpartition("-")[2] for file in folder.glob(f"{_COUNTER}-*"))
    counts = [int(number) for number in numbers if number.isdecimal()]
    old = folder / _COUNTER
    if old.exists():
        try:
            content = old.read_bytes() if isinstance(old, RemotePath) else read_file(old)
        except NotAFileError:
            content = b""
        text = content.decode("ascii", "replace")
        counts.append(int(text) if text.isdecimal() else _AFTER_DAMAGE)
    return max(counts, default=0)


def count_retry(folder: AnyPath) -> None:
    """Count one more retry of a step, so that later steps get other keys."""
    write_retry_count(folder, retry_count(folder) + 1)


def write_retry_count(folder: AnyPath, number: int) -> None:
    """Keep how often failures of a step were computed again."""
    write_file(counter_of(folder, number), f"{number}\n")


def counter_of(folder: AnyPath, number: int) -> AnyPath:
    """The file that keeps so many retries of a step."""
    return folder / f"{_COUNTER}-{number}"


def counts_retries(file: AnyPath) -> bool:
    """Whether a file of the folder of a step keeps how often its results were retried."""
    return file.name.partition("-")[0] == _COUNTER
