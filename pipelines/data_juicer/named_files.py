"""Files and folders that the fields of an operator of Data-Juicer's name: they decide its result.

Data-Juicer's fields are texts, whatever they mean, so every text that names something on this disk
counts. A value that is no path and happens to be the name of a file costs at most a computation
that was not needed; a file that does not count would give old results after an edit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .fields import texts

WHOLE_BYTES = 64 * 2**20
"""Bytes of a file up to which its content counts; of a larger one, size and time of the last
change, as the weights of a model take longer to read than the step to run."""
_NOT_READ = re.compile(
    r"(^|_)(keys?|columns|save|output|export|visualization|temp|work)(_|$)"
    "|^(frame_dir|face_track_bbox_path|point_cloud_dir_for_metric)$"
)
"""Names of fields that name columns, or what the operator writes."""


def digests(fields: Mapping[str, Any]) -> dict[str, str]:
    """A digest of each file and folder that exists and is named by a field, by its path.

    Relative paths are those of the working directory, as in Data-Juicer.
    """
    named = {
        text
        for name, value in fields.items()
        if not _NOT_READ.search(name)
        for text in texts(value)
        if _exists(text)
    }
    return {text: _digest(Path(text)) for text in sorted(named)}


def _exists(text: str) -> bool:
    try:
        # No name: an empty text would be the working directory, and "/" may be a separator.
        return any(map(str.isalnum, text)) and Path(text).exists()
    except (OSError, ValueError):
        return False  # Too long for a path, such as a prompt, or with a null character.


def _digest(path: Path) -> str:
    if path.is_file():
        return _file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(path).as_posix()} {_file_digest(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _file_digest(file: Path) -> str:
    found = file.stat()
    return _state_digest(file.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _state_digest(file: Path, size: int, changed_ns: int) -> str:
    """Each state of a file is read once: keys are computed for every chunk."""
    if size > WHOLE_BYTES:
        return f"{size} bytes of {changed_ns}"
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
