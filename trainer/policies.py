"""Policies: where they are stored, and how they are sampled."""

from __future__ import annotations

from typing import Any, NamedTuple

from typing_extensions import Self

from ..operators.sampling.engines import policy_path as policy_path


class Policy(NamedTuple):
    """The policy that samples."""

    name: str  # for the column `policy`
    tokenizer: Any  # decodes responses
    end_token_ids: frozenset[int]  # token ids that end a response

    @classmethod
    def load(cls, name: str) -> Self:
        """The policy of a folder, a hub name or `embedded`."""
        from transformers import AutoTokenizer

        path = policy_path(name)
        tokenizer = AutoTokenizer.from_pretrained(path)
        ends = {tokenizer.eos_token_id, *_configured_end_ids(path)}
        return cls(name, tokenizer, frozenset(ends - {None}))


class Sampling(NamedTuple):
    """How responses are sampled, for the column `sampling`."""

    temperature: float  # 1 samples from the policy itself
    top_p: float  # 1 truncates nothing
    max_tokens: int  # longest response
    seed: int | None  # of the run; None: requests have no seeds, and samples cannot be repeated


def _configured_end_ids(path: str) -> list[int | None]:
    """The end tokens in the policy's generation config."""
    from transformers import GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        return []  # Not every policy has the file.
    return found if isinstance(found, list) else [found]
