"""What a sentence-transformers model computes for responses, and what of it is padding and copies.

    python benchmarks/bench_embedding.py [--groups 96] [--size 8] [--longest 1024]
        [--model FOLDER] [--device cpu]

Lengths are those of `response_lengths`. Without a model the batches are planned and counted; with
one, responses of these lengths are embedded too, and the processor time is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from response_lengths import filled_up_to, response_lengths

from rejuice.operators.text.embedding import (
    Batching,
    EmbeddingFields,
    SentenceEmbedder,
    of_fixed_shape,
    of_similar_length,
)

Lengths = npt.NDArray[np.int64]


BATCHINGS: dict[str, Batching] = {
    "GPUs, before": filled_up_to(64),
    "GPUs": of_similar_length,
    "CPUs, before": filled_up_to(8),
    "CPUs": of_fixed_shape,
}


def count(what: str, batching: Batching, calls: Sequence[Lengths], longest: int) -> None:
    """Print how much of what the model computes is responses."""
    batches = [batch for lengths in calls for batch in batching(lengths, longest)]
    own = sum(int(lengths.sum()) for lengths in calls)
    computed = sum((len(each.rows) + each.copies) * each.length for each in batches)
    print(
        f"{what}: {own / computed:.3f} useful, {computed:,} tokens in {len(batches)} batches, "
        f"{computed / own:.2f} times the responses"
    )


def texts_of(lengths_GM: Lengths) -> list[list[str]]:
    """Texts of about so many tokens, all different."""
    words = ["so", "she", "has", "then", "and", "makes", "12", "plus", "7", "dollars", "left"]
    random = np.random.default_rng(0)
    return [[" ".join(random.choice(words, n)) for n in row] for row in lengths_GM]


def timed(what: str, embed: SentenceEmbedder, calls: Sequence[Sequence[str]]) -> None:
    """Print the processor time of these calls."""
    start = time.process_time()
    for texts in calls:
        embed(texts)
    seconds = time.process_time() - start
    words = sum(len(text.split()) for texts in calls for text in texts)
    print(f"{what}: {seconds:.2f} CPU-s, {words / seconds:,.0f} words of responses per CPU-s")


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=96)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    lengths_GM = response_lengths(options.groups, options.size, options.longest)
    for name, batching in BATCHINGS.items():
        count(f"{name}, all groups at once", batching, [lengths_GM.ravel()], options.longest)
        count(f"{name}, group by group", batching, list(lengths_GM), options.longest)
    if not options.model:
        return
    groups = texts_of(lengths_GM)
    everything = [text for group in groups for text in group]
    for name in list(BATCHINGS)[1:]:  # Filled up to 64 it takes an hour.
        embed = SentenceEmbedder(
            EmbeddingFields(
                backend="sentence_transformers", model=options.model, device=options.device
            )
        )
        embed.batching = BATCHINGS[name]
        embed(["a text before the clock starts"])
        embed.CACHE_BYTES = 0
        timed(f"{name}, all groups at once", embed, [everything])
        timed(f"{name}, group by group", embed, groups)


if __name__ == "__main__":
    main()
