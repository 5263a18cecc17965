"""The cache of answers against the SQLite file of earlier versions: puts, gets, opening, memory.

python benchmarks/bench_answer_cache.py [answers] [bytes of each]: both on the disk of the folder
for temporary files, in turns, three rounds; the ratio is that of the medians. SQLite is as it was:
write-ahead log, synchronous NORMAL, one transaction for each answer. Then an index of so many
answers alone, in a process of its own, for its memory.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rejuice.operators.servers.answer_cache import AnswerCache

ROUNDS = 3
INDEX = """
import resource, sys, time
import numpy as np
from rejuice.operators.servers.answer_cache import AnswerIndex
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count, index = int(sys.argv[1]), AnswerIndex()
keys = np.random.default_rng(0).bytes(32 * count)
made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
for at in range(count):
    index.add(keys[32 * at : 32 * at + 32], at)
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = index._prefixes_N.nbytes + index._places_N.nbytes
print(f"index of {count:,}: {kept / count:.1f} bytes kept, {(peak - made) * 1024 / count:.0f} at the "
      f"peak of building, {seconds / count * 1e6:.2f} us of CPU each")
"""


def sqlite_cache(path: Path) -> tuple[Callable[..., object], Callable[..., object]]:
    """Put and get of a cache of an earlier version."""
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    file.execute(
        "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT NOT NULL)"
        " WITHOUT ROWID"
    )

    def put(key: bytes, answer: str) -> None:
        file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))

    def get(key: bytes) -> object:
        return file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()

    return put, get


def log_cache(path: Path) -> tuple[Callable[..., object], Callable[..., object]]:
    """Put and get of the cache."""
    cache = AnswerCache(path, "answers", "")
    return cache.put, cache.get


def measured(kind: Callable[..., tuple[Callable[..., object], Callable[..., object]]], count: int,
             text: str) -> dict[str, float]:  # fmt: skip
    """CPU seconds of `count` puts, gets, gets of what is not there, and of opening it again."""
    keys = [hashlib.sha256(str(number).encode()).digest() for number in range(2 * count)]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        put, get = kind(Path(folder) / "cache")
        start = time.process_time()
        for key in keys[:count]:
            put(key, text)
        found["put"] = time.process_time() - start
        start = time.process_time()
        put, get = kind(Path(folder) / "cache")
        get(keys[0])
        found["open"] = time.process_time() - start
        for name, some in (("get", keys[:count]), ("miss", keys[count:])):
            start = time.process_time()
            for key in some:
                get(key)
            found[name] = time.process_time() - start
        size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
        found["bytes"] = size
    return found


def main(count: int = 20_000, size: int = 600) -> None:
    """Print the table."""
    text = "x" * size
    rounds = [(measured(log_cache, count, text), measured(sqlite_cache, count, text))
              for _ in range(ROUNDS)]  # fmt: skip
    print(f"{count:,} answers of {size} bytes, load {os.getloadavg()[0]:.1f}")
    for name in ("put", "get", "miss", "open", "bytes"):
        ours = statistics.median(one[name] for one, _ in rounds)
        theirs = statistics.median(other[name] for _, other in rounds)
        unit = 1 if name == "open" else count
        print(f"{name:6} logs {ours / unit * 1e6:12.1f}  sqlite {theirs / unit * 1e6:12.1f}  "
              f"ratio {ours / theirs:.2f}")  # fmt: skip
    print("(microseconds of CPU each; `open` once; `bytes` in millionths)")
    for each in (1_000_000, 10_000_000):
        subprocess.run([sys.executable, "-c", INDEX, str(each)], check=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
