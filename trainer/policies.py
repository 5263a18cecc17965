"""Policies: where they are stored, and how they are sampled."""

from __future__ import annotations

from typing import Any, NamedTuple

from typing_extensions import Self

from ..operators.sampling.engines import policy_path as policy_path


class Policy(NamedTuple):
    """The policy that samples.

    Attributes:
        name: for the column `policy`.
        tokenizer: decodes responses.
        end_token_ids: token ids that end a response.
    """

    name: str
    tokenizer: Any
    end_token_ids: frozenset[int]

    @classmethod
    def load(cls, name: str) -> Self:
        """The policy of a folder, a hub name or `embedded`."""
        from transformers import AutoTokenizer

        path = policy_path(name)
        tokenizer = AutoTokenizer.from_pretrained(path)
        ends = {tokenizer.eos_token_id, *_configured_end_ids(path)}
        return cls(name, tokenizer, frozenset(ends - {None}))


class Sampling(NamedTuple):
    """How responses are sampled, for the column `sampling`.

    Attributes:
        temperature: 1 samples from the policy itself.
        top_p: 1 truncates nothing.
        max_tokens: longest response.
        seed: of the run; None: requests have no seeds, and samples cannot be repeated.
    """

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None


def _configured_end_ids(path: str) -> list[int | None]:
    """The end tokens in the policy's generation config."""
    from transformers import GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        return []  # Not every policy has the file.
    return found if isinstance(found, list) else [found]
