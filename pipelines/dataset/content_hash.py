"""Hashes of the content of files, kept beside the results of runs: an unchanged file is not read.

A file counts as unchanged if its size and the time of its last change are the same. `rejuice run
--verify` reads it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import xxhash

from ...operators.disk import NotAFileError
from ...operators.json_text import parse_json
from .datafile import DataFile
from .files import read_file, write_file
from .remote import AnyPath

_NAME = "content-hashes.json"
_BLOCK = 16 << 20
_RECENT_NS = 2_000_000_000
"""A file may change twice within the resolution of its time: the hash of one so young is not
kept."""


class _Known(NamedTuple):
    """A file's hash, and the size and time of the file that had it."""

    size: int
    mtime_ns: int
    digest: str


def fingerprint(
    files: Sequence[DataFile], cache: AnyPath | None = None, *, verify: bool = False
) -> str:
    """Hash of the content of files and of their formats; their names and places do not matter.

    Args:
        files: of a dataset, in order.
        cache: the folder in which hashes are kept; None: each file is read.
        verify: read each file, whatever is kept.
    """
    kept = {} if cache is None else _kept(cache)
    found = dict[str, _Known]()
    digest = xxhash.xxh3_128()
    for file in files:
        name = str(file.path.absolute())
        known = None if verify else kept.get(name)
        if known is None or known[:2] != (file.size, file.mtime_ns):
            known = _Known(file.size, file.mtime_ns, _hash(file))
            if time.time_ns() - file.mtime_ns > _RECENT_NS:
                found[name] = known
        digest.update(f"{file.suffix} {known.digest}\n".encode())
    if cache is not None and found.items() - kept.items():
        cache.mkdir(parents=True, exist_ok=True)
        write_file(cache / _NAME, json.dumps({**kept, **found}, indent=0))
    return str(digest.hexdigest())


def _hash(file: DataFile) -> str:
    digest = xxhash.xxh3_128()
    with file.open() as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    file.check_unchanged()
    return str(digest.hexdigest())


def _kept(cache: AnyPath) -> dict[str, _Known]:
    """The hashes that are kept; none where their file is missing or damaged."""
    with suppress(FileNotFoundError, NotAFileError, ValueError, TypeError, AttributeError):
        kept = parse_json(read_file(cache / _NAME))
        return {str(name): _Known(*entry) for name, entry in kept.items()}
    return {}
