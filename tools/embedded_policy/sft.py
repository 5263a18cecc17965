"""Supervised training of a fresh model on demonstrations, in minutes on two CPU cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .batches import Batch, Course, batches
from .data_parallel import Link, partner
from .model import SIZE, Size, build_model
from .problems import Curriculum

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer


class Schedule(NamedTuple):
    """How fast the model learns."""

    matrices: float = 3e-3  # learning rate of the layers' matrices
    others: float = 9e-3  # learning rate of embedding, norms and biases
    warmup: int = 20  # steps until these are reached; after that they fall along a cosine
    weight_decay: float = 0.1  # of the matrices


CURRICULUM, SCHEDULE = Curriculum(), Schedule()
"""The defaults, by which the weights of `embedded` were made."""


def _ignore(demonstrations: int) -> None: ...


def warm_start(
    seed: int,
    *,
    size: Size = SIZE,
    curriculum: Course = CURRICULUM,
    schedule: Schedule = SCHEDULE,
    advance: Callable[[int], None] = _ignore,
) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer]:
    """Return a policy in float32, and its tokenizer.

    Two processes train it, this one and another, with half of every batch and one thread each. The
    same arguments give the same bytes on the same machine with the same libraries. On another
    processor sums round otherwise, and the weights differ as between two seeds.

    Raises:
        RejuiceError: the other process died.
    """
    with partner(_learn, 1, seed, size, curriculum, schedule, _ignore) as link:
        return _learn(link, 0, seed, size, curriculum, schedule, advance)


def _learn(
    link: Link,
    rank: int,
    seed: int,
    size: Size,
    curriculum: Course,
    schedule: Schedule,
    advance: Callable[[int], None],
) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer]:
    import torch

    tokenizer = curriculum.tokenizer()
    model = build_model(tokenizer, seed, size)
    shown = batches(tokenizer, seed, curriculum, rank)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in train(model, shown, curriculum.steps, schedule, link.average):
            advance(curriculum.batch)
    finally:
        torch.set_num_threads(threads)
    return model, tokenizer


def train(
    model: Qwen2ForCausalLM,
    data: Iterable[Batch],
    steps: int,
    schedule: Schedule,
    average: Callable[[Tensor], None],
) -> Iterator[float]:
    """Minimise the cross-entropy of the responses; the loss of each step."""
    import torch
    from torch.optim.lr_scheduler import LambdaLR

    optimizers = _optimizers(model, schedule)
    rates = [LambdaLR(each, lambda step: _rate(step, steps, schedule)) for each in optimizers]
    gradient = _gradient(model)
    model.train()
    for batch in islice(data, steps):
        loss = _loss(model, batch)
        loss.backward()
        average(gradient)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in (*optimizers, *rates):
            each.step()
        gradient.zero_()
        yield loss.item()
    model.eval()


def _gradient(model: Qwen2ForCausalLM) -> Tensor:
    """All gradients as one vector: every parameter's is a part of it, and is added to in place."""
    import torch

    parameters = list(model.parameters())
    gradient = torch.zeros(sum(each.numel() for each in parameters))
    parts = gradient.split([each.numel() for each in parameters])
    for each, part in zip(parameters, parts, strict=True):
        each.grad = part.view_as(each)
    return gradient


def _optimizers(model: Qwen2ForCausalLM, schedule: Schedule) -> list[Optimizer]:
    """Muon for the matrices, which halves the steps they need, and Adam for the rest."""
    import torch

    from .muon import Muon

    inside = dict(model.model.layers.named_parameters())
    matrices = [each for each in inside.values() if each.ndim == 2]
    others = [each for each in inside.values() if each.ndim != 2]
    others += [model.model.embed_tokens.weight, model.model.norm.weight]
    return [
        Muon(matrices, lr=schedule.matrices, weight_decay=schedule.weight_decay),
        torch.optim.Adam(others, lr=schedule.others, betas=(0.9, 0.98)),
    ]


def _loss(model: Qwen2ForCausalLM, batch: Batch) -> Tensor:
    import torch

    hidden = model.model(
        batch.ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    ).last_hidden_state
    logits = model.lm_head(hidden.flatten(0, 1)[batch.inputs])
    return torch.nn.functional.cross_entropy(logits, batch.targets)


def _rate(step: int, steps: int, schedule: Schedule) -> float:
    """Up in a straight line, then down along a cosine."""
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    return 0.5 + 0.5 * math.cos(math.pi * (step - schedule.warmup) / (steps - schedule.warmup))
