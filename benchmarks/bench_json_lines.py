"""Reading JSON lines, against Arrow's parser alone: `bench_json_lines.py [GIGABYTES]`.

Both read the same file in blocks of the same size, one after the other in turns, each in a process of
its own, whose largest memory is noted. Arrow's parser alone is what rejuice used before; it moves
values of lists that begin with nulls and rounds large integers.
"""

import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.json as pj
import zstandard

from rejuice.pipelines.dataset import json_lines
from rejuice.pipelines.dataset.files import DataFile
from rejuice.pipelines.dataset.read import BLOCK

TURNS = 3
WAYS = ("arrow", "ours", "two_columns")


def rows(rng):
    """Wide and nested rows of about 2.5 kB."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    number = 0
    while True:
        number += 1
        question = " ".join(rng.choices(words, k=40))
        yield {
            "id": number,
            "question": question,
            "answer": str(number % 97),
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": 'It is "so".\n' * 40},
            ],
            "logprobs": [-rng.random() for _ in range(50)],
            "meta": {"source": f"s{number % 7}", "score": rng.random(), "tags": ["a", "b"]},
            **{f"f{at}": rng.random() for at in range(10)},
        }


def write(path, size):
    rng = random.Random(0)
    some = b"".join(orjson.dumps(row) + b"\n" for row in islice(rows(rng), 4000))
    opened = {".gz": gzip.open, ".zst": zstandard.open}.get(path.suffix, open)
    with opened(path, "wb") as file:
        for _ in range(-(-size // len(some))):
            file.write(some)


def by_arrow(file):
    """As rejuice read files before: texts are checked, and dates stay texts."""
    for _, block in json_lines._blocks(file, BLOCK):
        block.decode()
        options = pj.ReadOptions(block_size=len(block))
        table = pj.read_json(pa.BufferReader(block), read_options=options)
        assert not any(map(pa.types.is_timestamp, table.schema.types))
        yield table


def measure(way, path):
    """Processor seconds and the largest memory, in this process."""
    file = DataFile.of(path)
    start = time.process_time()
    if way == "arrow":
        tables = by_arrow(file)
    else:
        columns = ["question", "answer"] if way == "two_columns" else None
        tables = json_lines.batches(file, BLOCK, columns=columns)
    count = sum(table.num_rows for table in tables)
    seconds = time.process_time() - start
    print(json.dumps([count, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def main(gigabytes):
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", ".gz", ".zst"):
            path = Path(folder) / f"rows.jsonl{suffix}"
            write(path, int(gigabytes * 1e9))
            best, memory, counts = {}, {}, set()
            for _ in range(TURNS):
                for way in WAYS:
                    command = [sys.executable, __file__, "--measure", way, str(path)]
                    count, seconds, peak = json.loads(subprocess.check_output(command))
                    best[way] = min(seconds, best.get(way, seconds))
                    memory[way] = max(peak, memory.get(way, 0))
                    counts.add(count)
            assert len(counts) == 1, counts
            shown = ", ".join(
                f"{way} {best['arrow'] / best[way]:.2f} ({memory[way] / 1024:.0f} MiB)"
                for way in WAYS
            )
            print(f"{path.suffix}: {counts.pop():,} rows; speed next to Arrow's alone: {shown}")
            path.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if sys.argv[1:] else 1.0)
