"""Seconds of log-probabilities and their gradient, of an output layer that is not trained.

    python benchmarks/bench_output_layer.py [TOKENS] [HIDDEN] [VOCABULARY] [ROUNDS]

Ours and verl's function, in turns, forward and backward, for the sizes of Qwen2.5-0.5B.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from verl.utils.experimental.torch_functional import FusedLinearForPPOFunction

from rejuice.trainer.cpu.workers import FrozenHeadFunction


def seconds(function: Callable[..., Any], hidden: torch.Tensor, *rest: torch.Tensor) -> float:
    """How long a forward and backward pass takes."""
    hidden = hidden.detach().clone().requires_grad_()
    start = time.perf_counter()
    function(hidden, *rest)[0].sum().backward()
    return time.perf_counter() - start


def main() -> None:
    """Print both and their ratio."""
    given = [int(each) for each in sys.argv[1:]]
    tokens, size, vocabulary, rounds = given + [1024, 896, 151_936, 3][len(given) :]
    generator = torch.Generator().manual_seed(0)
    inputs = (
        torch.randn(tokens, size, generator=generator),
        torch.randn(vocabulary, size, generator=generator) / size**0.5,
        torch.randint(vocabulary, (tokens,), generator=generator),
    )
    functions = {"ours": FrozenHeadFunction.apply, "verl": FusedLinearForPPOFunction.apply}
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(seconds(function, *inputs))
    middle = {name: statistics.median(each) for name, each in found.items()}
    for name, each in middle.items():
        print(f"{name}: {each:.2f} s for {tokens:,} tokens")
    print(f"verl / ours: {middle['verl'] / middle['ours']:.2f}")


if __name__ == "__main__":
    main()
