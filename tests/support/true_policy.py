"""What transformers says about samples, by full forward passes: the truth that engines meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class TruePolicy:
    """A policy by transformers, by default in float32, without any cache or batch."""

    def __init__(self, folder: Path, dtype: str = "float32") -> None:
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def rows(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Any:
        """float[T, V]: log-probabilities of all tokens at each position of the response."""
        import torch

        with torch.inference_mode():
            logits = self._model(torch.tensor([[*prompt_ids, *token_ids]])).logits[0]
        return logits[len(prompt_ids) - 1 : -1].log_softmax(-1)

    def logprobs(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """float[T]: of the tokens of a response."""
        rows = self.rows(prompt_ids, token_ids)
        return [float(row[token]) for row, token in zip(rows, token_ids, strict=True)]

    def p_value(self, groups: Iterable[Any]) -> float:
        """How likely samples as these are, by chi-square, if they are the policy's own.

        Where a token is drawn from probabilities p, a point drawn evenly from the token's own
        stretch of the cumulated p is uniform, at every position of every response. The most
        probable token comes first, so that the test sees a sharper distribution at once.
        """
        from scipy.stats import chisquare

        points, rng = list[float](), np.random.default_rng(0)
        for group in groups:
            for sample in group.samples:
                rows = self.rows(group.prompt_token_ids, sample.token_ids).exp().double()
                for row, token in zip(rows, sample.token_ids, strict=True):
                    if row.max() < 0.99:  # Else the points say more of the rng than of tokens.
                        before = row[row > row[token]].sum()
                        points.append(float(before + rng.random() * row[token]))
        return float(chisquare(np.histogram(points, bins=10, range=(0, 1))[0]).pvalue)
