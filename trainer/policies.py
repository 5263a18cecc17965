"""Policies by name: where they are, and which tokens end what they say."""

from __future__ import annotations

from ..operators.sampling.engines import EMBEDDED


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
