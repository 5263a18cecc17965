"""What the embedded policy can do before any reinforcement learning.

    python benchmarks/bench_policy.py [PATH] [--prompts 400]

By default of the shipped one; `python -m tools.embedded_policy PATH` makes another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.extend(str(Path(__file__).parents[1] / each) for each in (".", "tests/support"))

from plain_sampling import EMBEDDED, load
from policy_figures import judging, solving


def show(title: str, figures: dict[str, Any]) -> None:
    """Print a table."""
    print(title)
    for name, value in figures.items():
        print(f"  {name:28} {value:.3f}" if isinstance(value, float) else f"  {name:28} {value}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, default=EMBEDDED)
    parser.add_argument("--prompts", type=int, default=400)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    model, tokenizer = load(given.path)
    weights = sum(file.stat().st_size for file in given.path.glob("*.safetensors"))
    size = {"parameters": sum(p.numel() for p in model.parameters()), "bytes of weights": weights}
    show("Size", {**size, "tokens in the vocabulary": len(tokenizer)})
    show("Solving, validation", solving(model, tokenizer, given.prompts))
    show("Solving, test (new templates too)", solving(model, tokenizer, given.prompts, "test"))
    show("Judging, validation", judging(model, tokenizer, given.prompts))


if __name__ == "__main__":
    main()
