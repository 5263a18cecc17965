"""Which demonstrations the policy is trained on, in which order and batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...pipelines.demo.numbers import seeded
from ...pipelines.demo.problems import Problem, problem
from ...pipelines.demo.templates import NAMES
from .demonstrator import Demonstration, demonstrate, drill, judge

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2Tokenizer

LEVELS = (1, 2)
"""Levels of the problems that the policy learns to solve."""

RANKS = 2
"""Processes that share every batch; fixed, because another number gives another policy."""


class Curriculum(NamedTuple):
    """Which demonstrations are drawn, and how many.

    Attributes:
        steps: how many batches in all.
        batch: demonstrations in a batch.
        responses: responses to each prompt; the prompt is computed once for all of them.
        first_phase: share of the steps, from the beginning, with drills and careful responses.
        drilled: share of drills in the first phase.
        exercises: problems in a drill.
        judged: share of the other demonstrations that judge an answer.
        care: share of the other demonstrations that are careful, in the first phase.
        window: batches drawn at a time and sorted by length, so that little is padded.
    """

    steps: int = 1400
    batch: int = 16
    responses: int = 4
    first_phase: float = 0.75
    drilled: float = 0.3
    exercises: int = 5
    judged: float = 0.25
    care: float = 0.5
    window: int = 20


class Batch(NamedTuple):
    """Prompts, each followed by all of its responses, as token ids.

    Attributes:
        ids: [rows, length].
        positions: of each token; every response continues from the end of the prompt.
        mask: which token attends to which: the prompt, and earlier tokens of its own response,
            [rows, 1, length, length].
        inputs: flat indices from which a token of a response is predicted, [tokens].
        targets: these tokens, [tokens].
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    inputs: Tensor
    targets: Tensor


def batches(
    tokenizer: Qwen2Tokenizer, seed: int, curriculum: Curriculum, rank: int
) -> Iterator[Batch]:
    """One rank's share of every batch: rows whose length is similar on all ranks."""
    shown = islice(demonstrations(seed, curriculum), rank, None, RANKS)
    share = curriculum.batch // RANKS
    rng = seeded("order", seed)
    for _ in range(0, curriculum.steps, curriculum.window):
        rows = encode(tokenizer, list(islice(shown, share * curriculum.window)))
        rows.sort(key=lambda row: sum(map(len, row)))
        starts = list(range(0, len(rows), share))
        while starts:
            start = starts.pop(int(rng.random() * len(starts)))
            yield pack(rows[start : start + share])


def demonstrations(seed: int, curriculum: Curriculum) -> Iterator[Demonstration]:
    """The demonstrator's responses to problems of the train split, with names of all splits.

    A held-out problem stays unseen, because its template never has its numbers here. Names of all
    splits are in the policy's vocabulary, so it is trained on them; they give no answer away.
    """
    i = 0
    while True:
        rng = seeded("teacher", seed, i)  # Another word would give other demonstrations.
        first_phase = i < curriculum.first_phase * curriculum.steps * curriculum.batch
        if first_phase and rng.random() < curriculum.drilled:
            first = curriculum.exercises * i
            numbers = range(first, first + curriculum.exercises)
            yield drill(problem(seed + 1, "train", number, LEVELS) for number in numbers)
        else:
            shown = rename(problem(seed, "train", i, LEVELS), rng)
            teach = judge if rng.random() < curriculum.judged else demonstrate
            care = first_phase and rng.random() < curriculum.care
            yield teach(shown, rng, curriculum.responses, care=care)
        i += 1


def rename(original: Problem, rng: random.Random) -> Problem:
    """The problem with other people in it, from any split."""
    everybody = [name for names in NAMES.values() for name in names]
    others = {
        name: everybody.pop(int(rng.random() * len(everybody)))
        for name in NAMES["train"]
        if name in original.question
    }
    return original._replace(
        question=_renamed(original.question, others),
        steps=tuple(
            step._replace(sentence=_renamed(step.sentence, others)) for step in original.steps
        ),
    )


def _renamed(text: str, others: dict[str, str]) -> str:
    # Word by word: a new name may be one of the old ones.
    return " ".join(
        next((word.replace(name, new) for name, new in others.items() if name in word), word)
        for word in text.split(" ")
    )


def encode(tokenizer: Qwen2Tokenizer, shown: list[Demonstration]) -> list[list[list[int]]]:
    """For each demonstration, the token ids of the prompt and of every response."""
    prompts = tokenizer.apply_chat_template(
        [[{"role": "user", "content": each.prompt}] for each in shown],
        add_generation_prompt=True,
        return_dict=False,
    )
    texts = [text + tokenizer.eos_token for each in shown for text in each.responses]
    responses = iter(tokenizer(texts)["input_ids"])
    return [
        [prompt, *islice(responses, len(each.responses))]
        for prompt, each in zip(prompts, shown, strict=True)
    ]


def pack(rows: list[list[list[int]]]) -> Batch:
    """Put every prompt and its responses into one row."""
    import torch

    length = max(sum(map(len, row)) for row in rows)
    ids, positions, parts = [], [], []
    inputs, targets = list[int](), list[int]()
    for r, (prompt, *responses) in enumerate(rows):
        row, place, part = list(prompt), list(range(len(prompt))), [0] * len(prompt)
        for number, response in enumerate(responses, 1):
            at = r * length + len(row)
            inputs += [r * length + len(prompt) - 1, *range(at, at + len(response) - 1)]
            targets += response
            row += response
            place += range(len(prompt), len(prompt) + len(response))
            part += [number] * len(response)
        rest = length - len(row)
        ids.append(row + [0] * rest)
        positions.append(place + [0] * rest)
        parts.append(part + [-1] * rest)
    of = torch.tensor(parts)
    mask = (of[:, None, :] == 0) | (of[:, None, :] == of[:, :, None])
    mask &= torch.ones(length, length, dtype=torch.bool).tril()
    return Batch(
        torch.tensor(ids), torch.tensor(positions), mask[:, None],
        torch.tensor(inputs), torch.tensor(targets),
    )  # fmt: skip
