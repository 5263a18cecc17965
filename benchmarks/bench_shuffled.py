"""Rows that are kept, found again where the dataset was shuffled: each chunk has rows of all others.

CPU time of a row at several numbers of chunks, and over that at the first of them: 1.0 would be
linear.

    python benchmarks/bench_shuffled.py [chunks ...]
"""

import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from rejuice.operators import Change
from rejuice.pipelines.engine import paid_rows_format
from rejuice.pipelines.engine.paid_rows import KeptRows, chunk_path
from rejuice.pipelines.engine.steps import StepResult

ROWS, RESPONSES, CHARACTERS = 500, 8, 400
"""Prompts of a chunk, responses to each, characters of each."""


def seconds(folder: Path, chunks: int) -> float:
    """CPU time of finding all rows of so many chunks, in chunks of another order."""
    draw, kept = random.Random(0), KeptRows(folder)
    keys = [f"{draw.getrandbits(128):032x}" for _ in range(chunks * ROWS)]
    texts = pa.array(["x" * CHARACTERS] * (ROWS * RESPONSES))
    change = Change({"response": texts}, parents=np.repeat(np.arange(ROWS), RESPONSES))
    for at in range(0, len(keys), ROWS):
        own = keys[at : at + ROWS]
        paid_rows_format.save(chunk_path(folder, own), StepResult(change, ROWS, 0.0, {}), own)
        kept.add(chunk_path(folder, own), own)
    draw.shuffle(keys)
    start, found = time.process_time(), 0
    for at in range(0, len(keys), ROWS):
        own = keys[at : at + ROWS]
        found += len(kept.find(chunk_path(folder, own), own, range(ROWS)))
    assert found == len(keys)
    return time.process_time() - start


if __name__ == "__main__":
    first = None
    for count in map(int, sys.argv[1:] or (10, 20, 40)):
        with tempfile.TemporaryDirectory() as place:
            each = seconds(Path(place), count) / (count * ROWS)
        first = first or each
        print(f"{count:4} chunks: {each * 1e6:6.0f} us a row, {each / first:.2f} times the first")
