"""Decoding of policies in the Hugging Face format, by our own loop around the model's forward.

A prompt is computed once for its n responses; a finished response leaves the batch at once, and
waiting prompts take the places of finished groups. Prompts go in by length.

A sample is decided by (seed of the prompt, index of the sample, step) and the weights. What else
is in the batch changes logits in their last bits; `choose` knows when that could matter, and such
a token is decided by one computation of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..groups import mix
from .key_values import Array, Moves, Store
from .protocol import Settings

SLACK = 1e-3
"""Twice of what two computations of a logit in float32 never differ by."""
_PREFILL = 4096  # tokens of prompts computed at once
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as a signed integer
_SCALE = 2.0**-31 * (1 - 2.0**-24)


class Ask(NamedTuple):
    """A prompt in tokens, its place among the prompts, and how long a response may be."""

    place: int
    ids: Sequence[int]
    seed: int
    limit: int


class Answer(NamedTuple):
    """A response in tokens, their log-probabilities, and whether it ended by itself."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool


def response_keys(seed_R: Array, sample_R: Array) -> Array:
    """Of responses, uint64[R]: each belongs to a prompt with a seed, and is the i-th sample."""
    return mix(mix(seed_R) + _stride(sample_R))


def token_keys(response_R: Array, step_R: Array) -> Array:
    """Of the tokens of responses at a step, uint64[R]; they decide the noise."""
    return mix(response_R + _stride(step_R))


def gumbel(keys_R: Array, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard Gumbel noise, float32[R, size], from uint64[R] keys and nothing else.

    Each key begins a stream of SplitMix64 (see `groups.mix`), of which 64 bits serve two tokens.
    """
    z = torch.from_numpy(keys_R.view(np.int64)).to(device)[:, None]
    z = z + torch.arange(1, size // 2 + 2, device=device) * _GOLDEN  # integers wrap around
    z ^= (z >> 30) & 0x3FFFFFFFF
    z *= -0x40A7B892E31B1A47
    z ^= (z >> 27) & 0x1FFFFFFFFF
    z *= -0x6B2FB644ECCEEE15
    z ^= (z >> 31) & 0x1FFFFFFFF
    # Of 31 bits, finest near zero, where the winners are; never 0 nor 1.
    uniform = z.view(torch.int32)[:, :size].float().abs_().add_(0.5).mul_(_SCALE)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def choose(
    logits: Tensor, noise: Tensor, settings: Settings, slack: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sample by the Gumbel-max rule: int64[R] tokens, and bool[R] which of them are beyond doubt.

    The token is the one with the largest logit + temperature * noise, among those with less than
    `top_p` of mass on more probable tokens. Beyond doubt is one that no change of the logits by
    less than `slack` / 2 can displace.
    """
    score = torch.add(logits, noise, alpha=settings.temperature)
    inside: Tensor | bool = True
    if settings.top_p < 1 and settings.temperature > 0:
        slack_p = slack / settings.temperature
        p = (logits / settings.temperature).softmax(-1)
        sorted_p, order = p.sort(-1, descending=True)
        before = sorted_p.cumsum(-1) - sorted_p
        last = (before < settings.top_p + slack_p).sum(-1, keepdim=True) - 1
        least = logits.gather(-1, order.gather(-1, last)) - slack
        score = score.masked_fill(logits < least, -torch.inf)
        best = score.argmax(-1, keepdim=True)
        rivals = (logits >= logits.gather(-1, best) - slack).scatter(-1, best, False)
        inside = ~rivals.any(-1) | ((p * rivals).sum(-1) < settings.top_p - slack_p)
    first, token = score.max(-1)
    second = score.scatter(-1, token[:, None], -torch.inf).amax(-1)
    return token, (first - second > slack) & inside


def decode(
    model: Any,
    store: Store,
    asks: Sequence[Ask],
    settings: Settings,
    ends: Sequence[int],
) -> Iterator[tuple[Ask, list[Answer]]]:
    """Prompts and their answers, as groups finish."""
    waiting = deque(sorted(asks, key=lambda ask: len(ask.ids)))
    batch = _Batch(model, store, settings, ends, max((ask.limit for ask in asks), default=0))
    while waiting or batch.groups:
        while waiting and len(batch.groups) < store.groups:
            free, new = store.groups - len(batch.groups), [waiting.popleft()]
            while waiting and len(new) < free and (len(new) + 1) * len(waiting[0].ids) <= _PREFILL:
                new.append(waiting.popleft())
            with torch.inference_mode():
                batch.admit(new)
        with torch.inference_mode():
            finished = batch.step()
        yield from finished


class _Batch:
    """Responses at work. What groups say is kept by place; rows say which places are theirs."""

    def __init__(
        self,
        model: Any,
        store: Store,
        settings: Settings,
        ends: Sequence[int],
        longest: int,
    ) -> None:
        self.groups = list[Ask]()
        self._model, self._store, self._settings, self._ends = model, store, settings, ends
        self._slack = SLACK if model.dtype == torch.float32 else 0.0
        self._ids = np.zeros((store.groups, settings.n, longest), np.int64)
        self._logprobs = np.zeros(self._ids.shape, np.float32)
        self._size = np.zeros(self._ids.shape[:2], np.int64)
        self._group_R, self._sample_R, self._step_R = np.zeros((3, 0), np.int64)
        self._key_R = np.zeros(0, np.uint64)
        self._logits = torch.zeros(0, device=model.device)

    def admit(self, new: list[Ask]) -> None:
        """Compute prompts and begin their responses."""
        n, start = self._settings.n, len(self.groups)
        logits = self._store.admit([ask.ids for ask in new]).repeat_interleave(n, 0)
        self._logits = torch.cat((self._logits, logits)) if len(self._group_R) else logits
        group_R = np.arange(start, start + len(new)).repeat(n)
        sample_R = np.tile(np.arange(n), len(new))
        seed_R = np.array([ask.seed for ask in new], np.uint64).repeat(n)
        self._key_R = np.append(self._key_R, response_keys(seed_R, sample_R))
        self._group_R = np.append(self._group_R, group_R)
        self._sample_R = np.append(self._sample_R, sample_R)
        self._step_R = np.append(self._step_R, np.zeros(len(group_R), np.int64))
        self.groups += new

    def step(self) -> list[tuple[Ask, list[Answer]]]:
        """Sample a token for every row; groups that this finishes."""
        tokens, logprobs = self._draw()
        self._ids[self._group_R, self._sample_R, self._step_R] = tokens
        self._logprobs[self._group_R, self._sample_R, self._step_R] = logprobs
        self._step_R += 1
        self._size[self._group_R, self._sample_R] = self._step_R
        limit_R = np.array([ask.limit for ask in self.groups])[self._group_R]
        open_R = (self._step_R < limit_R) & ~np.isin(tokens, self._ends)
        finished = [] if open_R.all() else self._leave(open_R)
        if len(self._group_R):
            rows = self._group_R, self._sample_R, self._step_R - 1
            self._logits = self._store.forward(tokens[open_R], *rows)
        return finished

    def _draw(self) -> tuple[Array, Array]:
        logits = self._logits
        noise = gumbel(token_keys(self._key_R, self._step_R), logits.shape[1], logits.device)
        token_R, certain_R = choose(logits, noise, self._settings, self._slack)
        for row in np.flatnonzero(~certain_R.cpu().numpy()) if self._slack else ():
            # A near tie: decided by a computation whose shape depends on this response alone.
            g, sample = self._group_R[row], self._sample_R[row]
            path = [*self.groups[g].ids, *self._ids[g, sample, : self._step_R[row]]]
            alone = self._model(torch.tensor([path], device=logits.device), logits_to_keep=1)
            token_R[row] = choose(alone.logits[:, -1], noise[row, None], self._settings)[0]
        logprobs = logits.log_softmax(-1).gather(1, token_R[:, None])[:, 0]
        return token_R.cpu().numpy(), logprobs.cpu().numpy()

    def _leave(self, open_R: Array) -> list[tuple[Ask, list[Answer]]]:
        """Let finished rows go, and groups that have no others; return these."""
        open_G = np.bincount(self._group_R[open_R], minlength=len(self.groups)) > 0
        finished = [(self.groups[g], self._answers(g)) for g in np.flatnonzero(~open_G).tolist()]
        held = int(open_G.sum())
        to, source = np.flatnonzero(~open_G[:held]), np.flatnonzero(open_G[held:]) + held
        self._store.leave(open_R, Moves(to, source, held))
        place_G = np.arange(len(open_G))
        place_G[source] = to
        self._group_R = place_G[self._group_R[open_R]]
        for g, whence in zip(to, source, strict=True):
            self.groups[g] = self.groups[whence]
        del self.groups[held:]
        for said in (self._ids, self._logprobs, self._size):
            said[to] = said[source]
        self._sample_R, self._step_R = self._sample_R[open_R], self._step_R[open_R]
        self._key_R = self._key_R[open_R]
        return finished

    def _answers(self, group: int) -> list[Answer]:
        said = zip(self._ids[group], self._logprobs[group], self._size[group], strict=True)
        return [
            Answer(
                tuple(ids[:size].tolist()), tuple(p[:size].tolist()), ids[size - 1] in self._ends
            )
            for ids, p, size in said
        ]


def _stride(index_R: Array) -> Array:
    return (index_R.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN % (1 << 64))
