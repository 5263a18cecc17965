"""Deduplication by meaning: planted rewordings beside MinHash, and a million stored embeddings.

    python benchmarks/bench_semantic_dedup.py [--model FOLDER_OR_NAME] [--rows 1000000]

A pair is a question and a rewording of it. Beside them stand questions in nearly the same words that
ask for something else. Recall is the share of the rewordings that are dropped, precision the share
of what is dropped that is a rewording. The million are vectors of 384 around 1,000 directions, of
which each tenth is near another one.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import pyarrow as pa

from rejuice.operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from rejuice.operators.deduplicator.semantic_deduplicator import SemanticDeduplicator
from rejuice.operators.operator import Filter

REWORDED = (
    ("How many apples are left if Tom has twelve and eats five?", "Tom owns twelve apples. After eating five of them, how many remain?"),
    ("A train covers 180 km in 3 hours. What is its average speed?", "What speed does a train average that needs 3 hours for 180 km?"),
    ("What is the area of a rectangle that is 4 m wide and 7 m long?", "A rectangle measures 4 m by 7 m. Find its area."),
    ("Sara saves 15 dollars a week. How much does she have after 8 weeks?", "If Sara puts aside 15 dollars each week, how much money has she saved in 8 weeks?"),
    ("Find the sum of the first ten positive integers.", "What do you get when you add up the whole numbers from 1 to 10?"),
    ("A shirt costs 40 dollars and is reduced by 25 percent. What is the new price?", "There is a 25 percent discount on a 40 dollar shirt. How much does it cost now?"),
    ("How many minutes are there in three and a half hours?", "Convert three and a half hours into minutes."),
    ("Two numbers add up to 20 and differ by 4. What are they?", "The sum of two numbers is 20, their difference is 4. Find both numbers."),
    ("What is the probability of rolling an even number with a fair die?", "A fair die is thrown. How likely is it to show an even number?"),
    ("Anna is twice as old as Ben, and together they are 27. How old is Ben?", "The ages of Anna and Ben add up to 27. Anna's age is double Ben's. Find Ben's age."),
    ("Solve 3x + 5 = 20 for x.", "Find the value of x for which 3x + 5 equals 20."),
    ("How many diagonals does a hexagon have?", "Count the diagonals of a polygon with six sides."),
    ("A recipe for 4 people needs 300 g of flour. How much is needed for 10 people?", "300 g of flour are enough for 4 people. What amount do 10 people need?"),
    ("What is the circumference of a circle with radius 5?", "A circle has a radius of 5. How long is the line around it?"),
    ("Write a function that returns the largest element of a list.", "Implement a method which finds the maximum value in a list."),
    ("Write a program that checks whether a word is a palindrome.", "Given a word, decide in code if it reads the same backwards."),
    ("A farmer has 17 cows and sells 9. He then buys 4. How many cows does he have?", "After selling 9 of his 17 cows, a farmer buys another 4. How many does he own in the end?"),
    ("How long does it take to fill a tank of 240 litres at 8 litres a minute?", "Water flows into a 240 litre tank at 8 litres per minute. When is it full?"),
    ("What is the next number in the sequence 2, 6, 18, 54?", "Continue the series 2, 6, 18, 54 by one term."),
    ("In how many ways can five plants be arranged on a shelf?", "Count the orders in which five plants can stand on a shelf."),
)  # fmt: skip
"""Questions and rewordings of them."""
OTHERS = (
    ("How many apples are left if Tom has twelve and eats five?", "How many apples are eaten if Tom has twelve and five are left?"),
    ("A train covers 180 km in 3 hours. What is its average speed?", "A train covers 180 km at 60 km an hour. How long does it take?"),
    ("What is the area of a rectangle that is 4 m wide and 7 m long?", "What is the perimeter of a rectangle that is 4 m wide and 7 m long?"),
    ("A shirt costs 40 dollars and is reduced by 25 percent. What is the new price?", "A shirt costs 40 dollars after it was reduced by 25 percent. What was the old price?"),
    ("Find the sum of the first ten positive integers.", "Find the product of the first ten positive integers."),
    ("Anna is twice as old as Ben, and together they are 27. How old is Ben?", "Anna is twice as old as Ben, and together they are 27. How old is Anna?"),
    ("Write a function that returns the largest element of a list.", "Write a function that returns the smallest element of a list."),
    ("What is the circumference of a circle with radius 5?", "What is the area of a circle with radius 5?"),
    ("In how many ways can five plants be arranged on a shelf?", "In how many ways can two of five plants be chosen from a shelf?"),
    ("What is the probability of rolling an even number with a fair die?", "What is the probability of rolling two even numbers with a fair die?"),
)  # fmt: skip
"""Questions, and others in nearly the same words."""


def found(step: Filter) -> tuple[int, int]:
    """How many rewordings a step drops, and how many others."""

    def dropped(pairs: tuple[tuple[str, str], ...]) -> int:
        # Each pair is a dataset of its own: what is planted is the pair.
        count = 0
        for first, second in pairs:
            table = pa.table({"response": [first, second], "prompt_id": ["a", "b"]})
            count += int(step.apply(step.digest(table)).reasons.is_valid().to_pylist()[1])
        return count

    return dropped(REWORDED), dropped(OTHERS)


def found_by_data_juicer(threshold: float) -> tuple[int, int]:
    """The same by Data-Juicer's MinHash, with shingles of single words."""
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops.deduplicator.document_minhash_deduplicator import (
        DocumentMinhashDeduplicator,
    )

    step = DocumentMinhashDeduplicator(window_size=1, jaccard_threshold=threshold)

    def dropped(pairs: tuple[tuple[str, str], ...]) -> int:
        count = 0
        for pair in pairs:
            dataset = NestedDataset.from_list([{"text": text} for text in pair])
            kept, _ = step.process(dataset.map(step.compute_hash))
            count += len(pair) - len(kept)
        return count

    return dropped(REWORDED), dropped(OTHERS)


def pairs(model: str | None) -> None:
    """Print the table of planted pairs."""
    everywhere = {"within": "all"}
    steps: dict[str, Filter] = {
        f"`minhash_deduplicator`, threshold {each}, numbers may differ": MinhashDeduplicator(
            threshold=each, keep_different_numbers=False, **everywhere
        )
        for each in (0.7, 0.4)
    }
    for each in (0.95, 0.9, 0.85, 0.8, 0.7) if model else ():
        step = SemanticDeduplicator(
            threshold=each, backend="sentence_transformers", model=model, **everywhere
        )
        steps[f"`semantic_deduplicator`, threshold {each}"] = step
    print("| | recall | others dropped | precision |\n|---|---|---|---|")
    counts = {name: found(step) for name, step in steps.items()}
    for each in (0.7, 0.4):
        counts[f"Data-Juicer's MinHash, threshold {each}"] = found_by_data_juicer(each)
    for name, (right, wrong) in counts.items():
        precision = f"{right / (right + wrong):.3f}" if right + wrong else "none dropped"
        print(f"| {name} | {right / len(REWORDED):.2f} | {wrong} of {len(OTHERS)} | {precision} |")


def million(rows: int) -> None:
    """Print seconds and memory for stored vectors."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(1000, 384)).astype(np.float32)
    parts = []
    for at in range(0, rows, 50_000):
        n = min(50_000, rows - at)
        part = topics[rng.integers(1000, size=n)] + rng.normal(size=(n, 384)).astype(np.float32)
        near = np.arange(9, n, 10)
        part[near] = part[near - 1] + 0.1 * rng.normal(size=(len(near), 384)).astype(np.float32)
        parts.append(part.astype(np.float16))
    step = SemanticDeduplicator(vectors="vector", within="all", threshold=0.95)
    start, digests = time.perf_counter(), []
    for part in parts:
        values = pa.array(part.reshape(-1).astype(np.float32))
        vectors = pa.FixedSizeListArray.from_arrays(values, 384)
        table = pa.table({"response": ["text"] * len(part), "vector": vectors})
        digests.append(step.digest(table))
    del parts
    middle = time.perf_counter()
    reasons = step.apply(pa.concat_tables(digests)).reasons
    assert reasons is not None
    dropped = np.asarray(reasons.is_valid())
    planted = np.zeros(rows, bool)
    planted[9::10] = True
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n{rows:,} vectors: digests {middle - start:.0f} s, decisions {end - middle:.0f} s; recall "
        f"{dropped[planted].mean():.4f}, others dropped {int(dropped[~planted].sum())}; peak {peak:.2f} GiB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    pairs(given.model)
    if given.rows:
        million(given.rows)
