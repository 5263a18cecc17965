"""Policies: where they are by their names, and how they are sampled."""

from __future__ import annotations

from typing import Any, NamedTuple

from typing_extensions import Self

from ..operators.sampling.engines import located as located


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

    @classmethod
    def load(cls, name: str) -> Self:
        """What is known of a folder, a hub name or `embedded`."""
        from transformers import AutoTokenizer

        path = located(name)
        tokenizer = AutoTokenizer.from_pretrained(path)
        ends = {tokenizer.eos_token_id, *_ends_said(path)}
        return cls(name, tokenizer, frozenset(ends - {None}))


class Sampling(NamedTuple):
    """How responses are sampled, for the column `sampling`."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int


def _ends_said(path: str) -> list[int | None]:
    """The ends of a response by the policy's settings of generation."""
    from transformers import GenerationConfig

    try:
        said = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        return []  # Not every policy has the file.
    return said if isinstance(said, list) else [said]
