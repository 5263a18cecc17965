"""Cost of diversity rewards and of choosing diverse responses.

    python benchmarks/bench_diversity.py [--groups 10000] [--size 8] [--model FOLDER --texts 400]

CPU seconds, all threads together. Texts are generated, about 100 words each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from rejuice.operators.mapper import diversity_reward_mapper
from rejuice.operators.mapper.diversity_reward_mapper import DiversityRewardMapper
from rejuice.operators.selector.diverse_response_selector import (
    DiverseResponseSelector,
    farthest_points,
)
from rejuice.operators.text.embedding import EmbeddingFields, SentenceEmbedder, hashed_ngram


def timed(what: str, n: int, work: Callable[[], Any]) -> None:
    """Print the CPU seconds that `work` takes for n rows."""
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    print(f"{what}: {seconds:.3f} CPU-s, {n / seconds:,.0f} rows per CPU-s")


def texts_of(n: int) -> list[str]:
    """n texts of 100 words."""
    words = [f"{a}{b}{c}" for a in "bdfghjkl" for b in "aeiou" for c in "mnprst"]
    ids = np.random.default_rng(0).integers(0, len(words), (n, 100))
    return [" ".join([words[i] for i in row]) for row in ids.tolist()]


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--model")
    parser.add_argument("--texts", type=int, default=400)
    options = parser.parse_args()
    n = options.groups * options.size
    texts = texts_of(n)
    prompts = [str(row // options.size) for row in range(n)]
    table = pa.table({"prompt_id": prompts, "response": texts})

    timed("hashed_ngram", min(n, 8192), lambda: hashed_ngram(texts[:8192]))
    for measure in ("centroid", "pairwise", "vendi", "dra"):
        operator = DiversityRewardMapper(measure=measure)
        timed(f"diversity_reward_mapper {measure}", n, lambda op=operator: op.apply(table))
    timed("diverse_response_selector", n, lambda: DiverseResponseSelector(k=4).apply(table))

    vectors = np.random.default_rng(0).normal(size=(options.groups, options.size, 384))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    print("group arithmetic alone, 384 dimensions:")
    timed("  cosines", n, lambda: vectors @ vectors.transpose(0, 2, 1))
    grams = vectors @ vectors.transpose(0, 2, 1)
    for measure, function in diversity_reward_mapper._MEASURES.items():
        timed(f"  {measure}", n, lambda function=function: function(grams))
    timed("  farthest points", n, lambda: farthest_points(grams, 4))

    if options.model:
        for dtype in ("float32", "bfloat16"):
            model = {"backend": "sentence_transformers", "model": options.model, "device": "cpu"}
            embed = SentenceEmbedder(EmbeddingFields(**model, dtype=dtype))
            embed(texts[:32])
            timed(
                f"{options.model} {dtype}",
                options.texts,
                lambda e=embed: e(texts[-options.texts :]),
            )


if __name__ == "__main__":
    main()
