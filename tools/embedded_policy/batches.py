"""Demonstrations in batches, as token ids, shared out between the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rejuice.pipelines.demo.problems import seeded

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2Tokenizer

RANKS = 2
"""Processes that share every batch; fixed, because another number gives another policy."""


class Demonstration(NamedTuple):
    """A prompt and some responses of the demonstrator."""

    prompt: str
    responses: list[str]


class Course(Protocol):
    """What a policy is trained on: its words, and demonstrations in an order."""

    @property
    def steps(self) -> int:
        """How many batches in all."""

    @property
    def batch(self) -> int:
        """Demonstrations in a batch."""

    @property
    def window(self) -> int:
        """Batches drawn at a time and sorted by length, so that little is padded."""

    def tokenizer(self) -> Qwen2Tokenizer:
        """Return the policy's tokenizer; the same in every process."""

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Demonstrations without end, the same for the same seed."""


class Batch(NamedTuple):
    """Prompts, each followed by all of its responses, as token ids."""

    ids: Tensor  # [rows, length]
    positions: Tensor  # of each token; every response continues from the end of the prompt
    # which token attends to which: the prompt, and earlier tokens of its own response, [rows, 1,
    # length, length]
    mask: Tensor
    inputs: Tensor  # flat indices from which a token of a response is predicted, [tokens]
    targets: Tensor  # these tokens, [tokens]


def batches(tokenizer: Qwen2Tokenizer, seed: int, course: Course, rank: int) -> Iterator[Batch]:
    """Yield one rank's share of every batch: rows whose length is similar on all ranks."""
    shown = islice(course.demonstrations(seed), rank, None, RANKS)
    share = course.batch // RANKS
    rng = seeded("order", seed)
    for _ in range(0, course.steps, course.window):
        rows = encode(tokenizer, list(islice(shown, share * course.window)))
        rows.sort(key=lambda row: sum(map(len, row)))
        starts = list(range(0, len(rows), share))
        while starts:
            start = starts.pop(int(rng.random() * len(starts)))
            yield pack(rows[start : start + share])


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
