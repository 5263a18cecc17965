"""Policies: where they are by their names, and how they are sampled."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..operators.sampling.engines import EMBEDDED


class Policy(NamedTuple):
    """What is known of the policy that samples.

    Attributes:
        name: for the column `policy`.
        tokenizer: to read responses.
        ends: token ids that end a response.
    """

    name: str
    tokenizer: Any
    ends: frozenset[int]


class Sampling(NamedTuple):
    """How responses are sampled, for the column `sampling`."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int


def located(policy: str) -> str:
    """The folder or hub name of a policy, of which `embedded` is one."""
    return str(EMBEDDED) if policy == "embedded" else policy


def end_tokens(policy: str) -> frozenset[int]:
    """Ids of the tokens that end a response."""
    from transformers import AutoTokenizer, GenerationConfig

    path = located(policy)
    ends = {AutoTokenizer.from_pretrained(path).eos_token_id}
    try:
        said = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        said = None  # Not every policy has the file.
    ends |= set(said if isinstance(said, list) else [said])
    return frozenset(ends - {None})
