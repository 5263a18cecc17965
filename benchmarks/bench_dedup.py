"""Cost and correctness of the deduplicators on planted duplicates.

    python benchmarks/bench_dedup.py [--rows 200000] [--exact-rows 10000000] [--data-juicer 5000]

The corpus is generated: texts of about 255 characters, four fifths of them unrelated, one fifth a
copy of an earlier one with about 3% of its words replaced, and some problems that are copied
with other numbers. The truth is the exact Jaccard similarity of token 3-grams.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from rejuice.operators.deduplicator.exact_deduplicator import ExactDeduplicator
from rejuice.operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from rejuice.operators.operator import Operator

WORDS = 20_000


def corpus(n: int, seed: int = 0) -> tuple[list[str], np.ndarray[Any, Any]]:
    """n texts, and int64[n]: the row each is a noisy copy of, or -1."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(97, 123, (WORDS, 8), dtype=np.uint8)
    sizes = rng.integers(2, 9, WORDS)
    words = [bytes(row[:k]).decode() for row, k in zip(letters, sizes, strict=True)]
    ids = rng.integers(0, WORDS, (n, 43))
    source = np.full(n, -1)
    copies = rng.choice(np.arange(n // 2, n), n // 5, replace=False)
    source[copies] = rng.integers(0, n // 2, len(copies))
    ids[copies] = ids[source[copies]]
    noisy = rng.random(ids.shape) < 0.03
    noisy[source < 0] = False
    ids[noisy] = rng.integers(0, WORDS, int(noisy.sum()))
    return [" ".join([words[i] for i in row]) for row in ids.tolist()], source


def grams(text: str) -> set[tuple[str, ...]]:
    """Token 3-grams of a text without punctuation."""
    words = text.lower().split()
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the CPU seconds it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def through(operator: Operator, table: pa.Table, chunk: int = 100_000) -> np.ndarray[Any, Any]:
    """Dropped rows, bool[N], by digesting chunk after chunk as a runner does."""
    digests = [
        operator.digest(table.slice(start, chunk)) for start in range(0, table.num_rows, chunk)
    ]
    reasons = operator.apply(pa.concat_tables(digests)).reasons
    return np.asarray(reasons.is_valid())


def table_of(texts: list[str]) -> pa.Table:
    """One response per prompt."""
    return pa.table({"prompt_id": [str(i) for i in range(len(texts))], "response": texts})


def report(name: str, dropped: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> None:
    """Print recall and precision of the dropped rows."""
    hit = (dropped & truth).sum()
    recall, precision = hit / max(truth.sum(), 1), hit / max(dropped.sum(), 1)
    print(f"  {name}: recall {recall:.3f}, precision {precision:.3f}, dropped {dropped.sum()}")


def bench_near(n: int) -> None:
    """MinHash on n texts, against the exact similarity of each planted pair."""
    texts, source = corpus(n)
    similarity = np.zeros(n)
    for row in np.flatnonzero(source >= 0).tolist():
        one, other = grams(texts[row]), grams(texts[source[row]])
        similarity[row] = len(one & other) / len(one | other)
    table = table_of(texts)
    for threshold in (0.7, 0.8):
        operator = MinhashDeduplicator(within="all", threshold=threshold)
        dropped, seconds = timed(lambda operator=operator: through(operator, table))
        print(f"minhash_deduplicator {threshold}: {n / seconds:,.0f} texts per CPU-s")
        report(
            f"against planted pairs with Jaccard >= {threshold}", dropped, similarity >= threshold
        )
        report("against all planted pairs", dropped, source >= 0)


def bench_brute_force(n: int = 3000) -> None:
    """MinHash against all pairs, compared one by one."""
    texts, _ = corpus(n, seed=1)
    sets = [grams(text) for text in texts]
    posting: dict[tuple[str, ...], list[int]] = {}
    truth = np.zeros(n, bool)
    for row, own in enumerate(sets):
        candidates = {other for gram in own for other in posting.get(gram, ())}
        truth[row] = any(
            len(own & sets[other]) / len(own | sets[other]) >= 0.7
            for other in candidates
            if not truth[other]
        )
        for gram in own:
            posting.setdefault(gram, []).append(row)
    dropped = through(MinhashDeduplicator(within="all"), table_of(texts))
    print(f"against brute force on {n} texts:")
    report("keep-first at Jaccard 0.7", dropped, truth)


def bench_numbers() -> None:
    """Real problems copied with other numbers must all stay."""
    rng = np.random.default_rng(2)
    frame = (
        "Ann has {} apples in a basket and her neighbour, who has an orchard behind the house, "
        "gives her {} more, which she carries home in the same basket before it begins to rain. "
        "How many apples are there in the basket of Ann in the end, when she is at home again?"
    )
    texts = [frame.format(*rng.integers(2, 10**4, 2)) for _ in range(1000)]
    for guard in (True, False):
        operator = MinhashDeduplicator(within="all", threshold=0.5, keep_different_numbers=guard)
        dropped = through(operator, table_of(texts))
        print(f"1000 problems that differ in their numbers, guard {guard}: {dropped.sum()} dropped")


def bench_exact(n: int) -> None:
    """Exact on n rows in groups of 8; a tenth repeats a row of its group."""
    chunk = 200_000
    operator = ExactDeduplicator()
    rng = np.random.default_rng(0)
    pool = np.array(
        [f"So the answer of number {i} is {i * 7919 % 10007}. " * 5 for i in range(50_000)]
    )
    digests, seconds = [], 0.0
    for start in range(0, n, chunk):
        rows = np.arange(start, min(start + chunk, n))
        texts = np.char.add(pool[rows % len(pool)], "")
        repeated = np.flatnonzero((rng.random(len(rows)) < 0.1) & (rows % 8 > 0))
        texts[repeated] = texts[repeated - 1]
        table = pa.table(
            {"prompt_id": [f"{r:032x}" for r in rows // 8], "response": texts.tolist()}
        )
        digest, cost = timed(lambda table=table: operator.digest(table))
        seconds += cost
        digests.append(digest)
    whole = pa.concat_tables(digests)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    change, last = timed(lambda: operator.apply(whole))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"exact_deduplicator: {n / (seconds + last):,.0f} rows per CPU-s "
        f"(digest {seconds:.1f} s, decide {last:.1f} s), digests {whole.nbytes / n:.1f} bytes per "
        f"row, peak {before >> 10} MiB before deciding and {peak >> 10} MiB after; "
        f"dropped {len(change.reasons) - change.reasons.null_count}"
    )


def bench_data_juicer(n: int) -> None:
    """Data-Juicer's operator on the same texts."""
    os.environ |= {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops.deduplicator.document_minhash_deduplicator import (
        DocumentMinhashDeduplicator,
    )

    texts, source = corpus(n)
    theirs = DocumentMinhashDeduplicator(window_size=3, jaccard_threshold=0.7)

    def work() -> set[int]:
        rows = NestedDataset.from_dict({"text": texts, "row": list(range(n))})
        kept, _ = theirs.process(rows.map(theirs.compute_hash))
        return set(kept["row"])

    kept, seconds = timed(work)
    dropped = np.array([row not in kept for row in range(n)])
    print(f"Data-Juicer document_minhash_deduplicator: {n / seconds:,.0f} texts per CPU-s")
    report("against all planted pairs", dropped, source >= 0)
    ours = MinhashDeduplicator(within="all")
    dropped, seconds = timed(lambda: through(ours, table_of(texts)))
    print(f"minhash_deduplicator on the same {n}: {n / seconds:,.0f} texts per CPU-s")
    report("against all planted pairs", dropped, source >= 0)


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--exact-rows", type=int, default=10_000_000)
    parser.add_argument("--data-juicer", type=int, default=5_000)
    options = parser.parse_args()
    bench_exact(options.exact_rows)
    bench_near(options.rows)
    bench_brute_force()
    bench_numbers()
    bench_data_juicer(options.data_juicer)


if __name__ == "__main__":
    main()
