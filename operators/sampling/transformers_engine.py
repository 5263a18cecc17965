"""The embedded engine: samples from a policy in the Hugging Face format, in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..chunk_results import Feed
from ..errors import EngineError
from ..groups import Array, mix
from .key_values import Compaction, Store
from .protocol import Failure, Group, Prompt, Sample, Settings, token_listener
from .tokenizer import NO_KWARGS, TemplateRefusedError, chat_encoder, decoded, prompt_ids

# --- Decode ---------------------------------------------------------------------------
# Decoding of policies in the Hugging Face format, by our own loop around the model's forward.
#
# A prompt is computed once for its n responses; a finished response leaves the batch at once, and
# waiting prompts take the places of finished groups. Prompts enter in blocks, each in order of
# length.
#
# A sample is a function of (seed of the prompt, index of the sample, step) and the weights. The
# rest of the batch changes the last bits of logits; `choose` detects when that could change a
# token, which is then computed on its own.

TIE_MARGIN = 1e-3
"""Twice a bound on how much two computations of the same logit differ in float32."""
_PREFILL = 4096  # prompt tokens computed at once
_LOGITS_AT_ONCE = 1 << 20  # of which a CPU draws tokens: what it computes stays in its cache
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as a signed integer
_SCALE = 2.0**-31 * (1 - 2.0**-24)


class SamplingRequest(NamedTuple):
    """A prompt to sample responses to."""

    prompt_index: int  # index of the prompt in the call to `sample`
    prompt_ids: Sequence[int]  # its token ids
    seed: int  # of its samples
    max_tokens: int  # longest response


class SampledResponse(NamedTuple):
    """Tokens of a response, their log-probabilities, and whether it ended with a stop token."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool


def response_keys(seed_R: Array, sample_R: Array) -> Array:
    """Keys of responses, uint64[R], from the prompt's seed and the index in the group."""
    return mix(mix(seed_R) + _stride(sample_R))


def token_keys(response_R: Array, step_R: Array) -> Array:
    """Keys of the tokens of responses at a step, uint64[R]; they determine the noise."""
    return mix(response_R + _stride(step_R))


def gumbel(keys_R: Array, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard Gumbel noise, float32[R, size], from uint64[R] keys alone.

    Each key starts a stream of SplitMix64 (see `groups.mix`); 64 bits of it serve two tokens.
    """
    z = torch.from_numpy(keys_R.view(np.int64)).to(device)[:, None]
    z = z + torch.arange(1, size // 2 + 2, device=device) * _GOLDEN  # integers wrap around
    z ^= (z >> 30) & 0x3FFFFFFFF
    z *= -0x40A7B892E31B1A47
    z ^= (z >> 27) & 0x1FFFFFFFFF
    z *= -0x6B2FB644ECCEEE15
    z ^= (z >> 31) & 0x1FFFFFFFF
    # 31 bits, finest near 0, where the largest noise comes from; never exactly 0 or 1.
    uniform = z.view(torch.int32)[:, :size].float().abs_().add_(0.5).mul_(_SCALE)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def choose(
    logits: Tensor, noise: Tensor, settings: Settings, tie_margin: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sample by the Gumbel-max rule: int64[R] tokens, and bool[R] which of them are unambiguous.

    The token is the one with the largest logit + temperature * noise, among those for which more
    probable tokens have less than `top_p` of the mass. It is unambiguous if no change of the logits
    by less than `tie_margin` / 2 would select another token.
    """
    score = torch.add(logits, noise, alpha=settings.temperature)
    inside: Tensor | bool = True
    if settings.top_p < 1 and settings.temperature > 0:
        margin_p = tie_margin / settings.temperature
        p = (logits / settings.temperature).softmax(-1)
        sorted_p, order = p.sort(-1, descending=True)
        before = sorted_p.cumsum(-1) - sorted_p
        last = (before < settings.top_p + margin_p).sum(-1, keepdim=True) - 1
        least = logits.gather(-1, order.gather(-1, last)) - tie_margin
        score = score.masked_fill(logits < least, -torch.inf)
        best = score.argmax(-1, keepdim=True)
        rivals = (logits >= logits.gather(-1, best) - tie_margin).scatter(-1, best, False)
        inside = ~rivals.any(-1) | ((p * rivals).sum(-1) < settings.top_p - margin_p)
    first, token = score.max(-1)
    second = score.scatter(-1, token[:, None], -torch.inf).amax(-1)
    return token, (first - second > tie_margin) & inside


def decode(
    model: Any,
    store: Store,
    first: Sequence[SamplingRequest],
    next_block: Callable[[], Sequence[SamplingRequest]],
    settings: Settings,
    stop_ids: Sequence[int],
) -> Iterator[tuple[SamplingRequest, list[SampledResponse]]]:
    """Yield the responses to each prompt, as groups finish.

    Args:
        model: the policy, of transformers.
        store: its keys and values, see `key_values`.
        first: the first prompts.
        next_block: gives further prompts, each time that none waits; none if there are none, or
            none at present.
        settings: how to sample.
        stop_ids: tokens that end a response.
    """
    waiting = _by_length(first)
    batch = _DecodingBatch(model, store, settings, stop_ids)
    report = token_listener()
    while True:
        while len(batch.groups) < store.groups:
            waiting = waiting or _by_length(next_block())
            if not waiting:
                break
            free, new = store.groups - len(batch.groups), [waiting.popleft()]
            while waiting and len(new) < free:
                if (len(new) + 1) * len(waiting[0].prompt_ids) > _PREFILL:
                    break
                new.append(waiting.popleft())
            with torch.inference_mode():
                batch.admit(new)
        if not batch.groups:
            return
        unfinished = batch.rows
        with torch.inference_mode():
            finished = batch.step()
        report(unfinished)
        yield from finished


def _by_length(requests: Sequence[SamplingRequest]) -> deque[SamplingRequest]:
    return deque(sorted(requests, key=lambda request: len(request.prompt_ids)))


class _DecodingBatch:
    """The unfinished responses, one row R each, and all tokens sampled so far."""

    def __init__(
        self,
        model: Any,
        store: Store,
        settings: Settings,
        stop_ids: Sequence[int],
    ) -> None:
        self.groups = list[SamplingRequest]()
        self._model, self._store, self._settings = model, store, settings
        self._stop_ids = stop_ids
        self._tie_margin = TIE_MARGIN if model.dtype == torch.float32 else 0.0
        self._ids = np.zeros((store.groups, settings.n, settings.max_tokens), np.int64)
        self._logprobs = np.zeros(self._ids.shape, np.float32)
        self._size = np.zeros(self._ids.shape[:2], np.int64)
        self._group_R, self._sample_R, self._step_R = np.zeros((3, 0), np.int64)
        self._key_R = np.zeros(0, np.uint64)
        self._logits = torch.zeros(0, device=model.device)

    @property
    def rows(self) -> int:
        """Unfinished responses; a step samples one token for each."""
        return len(self._group_R)

    def admit(self, new: list[SamplingRequest]) -> None:
        """Compute prompts and start their responses."""
        n, start = self._settings.n, len(self.groups)
        logits = self._store.admit([request.prompt_ids for request in new]).repeat_interleave(n, 0)
        self._logits = torch.cat((self._logits, logits)) if len(self._group_R) else logits
        group_R = np.arange(start, start + len(new)).repeat(n)
        sample_R = np.tile(np.arange(n), len(new))
        seed_R = np.array([request.seed for request in new], np.uint64).repeat(n)
        self._key_R = np.append(self._key_R, response_keys(seed_R, sample_R))
        self._group_R = np.append(self._group_R, group_R)
        self._sample_R = np.append(self._sample_R, sample_R)
        self._step_R = np.append(self._step_R, np.zeros(len(group_R), np.int64))
        self.groups += new

    def step(self) -> list[tuple[SamplingRequest, list[SampledResponse]]]:
        """Sample a token for every row, and return the groups that this finishes."""
        tokens, logprobs = self._draw()
        self._ids[self._group_R, self._sample_R, self._step_R] = tokens
        self._logprobs[self._group_R, self._sample_R, self._step_R] = logprobs
        self._step_R += 1
        self._size[self._group_R, self._sample_R] = self._step_R
        limit_R = np.array([request.max_tokens for request in self.groups])[self._group_R]
        open_R = (self._step_R < limit_R) & ~np.isin(tokens, self._stop_ids)
        finished = [] if open_R.all() else self._remove_finished(open_R)
        if len(self._group_R):
            rows = self._group_R, self._sample_R, self._step_R - 1
            self._logits = self._store.forward(tokens[open_R], *rows)
        return finished

    def _draw(self) -> tuple[Array, Array]:
        """The next token of each row, and its log-probability."""
        rows, size = self._logits.shape
        on_cpu = self._logits.device.type == "cpu"
        some = max(1, _LOGITS_AT_ONCE // size) if on_cpu else rows
        blocks = (slice(start, start + some) for start in range(0, rows, some))
        token_R, logprob_R = zip(*(self._draw_rows(block) for block in blocks), strict=True)
        return torch.cat(token_R).cpu().numpy(), torch.cat(logprob_R).cpu().numpy()

    def _draw_rows(self, block: slice) -> tuple[Tensor, Tensor]:
        logits, rows = self._logits[block], range(self.rows)[block]
        keys_R = token_keys(self._key_R[block], self._step_R[block])
        noise = gumbel(keys_R, logits.shape[1], logits.device)
        token_R, unambiguous_R = choose(logits, noise, self._settings, self._tie_margin)
        for at in np.flatnonzero(~unambiguous_R.cpu().numpy()) if self._tie_margin else ():
            # A near tie, decided by a computation whose shape depends on this response alone.
            g, sample, step = (x[rows[at]] for x in (self._group_R, self._sample_R, self._step_R))
            tokens = [*self.groups[g].prompt_ids, *self._ids[g, sample, :step]]
            alone = self._model(torch.tensor([tokens], device=logits.device), logits_to_keep=1)
            token_R[at] = choose(alone.logits[:, -1], noise[at, None], self._settings)[0]
        return token_R, logits.log_softmax(-1).gather(1, token_R[:, None])[:, 0]

    def _remove_finished(
        self, open_R: Array
    ) -> list[tuple[SamplingRequest, list[SampledResponse]]]:
        """Remove finished rows; return the groups that are finished, and compact the others."""
        open_G = np.bincount(self._group_R[open_R], minlength=len(self.groups)) > 0
        finished = [(self.groups[g], self._responses(g)) for g in np.flatnonzero(~open_G).tolist()]
        remaining = int(open_G.sum())
        to = np.flatnonzero(~open_G[:remaining])
        source = np.flatnonzero(open_G[remaining:]) + remaining
        self._store.compact(open_R, Compaction(to, source, remaining))
        place_G = np.arange(len(open_G))
        place_G[source] = to
        self._group_R = place_G[self._group_R[open_R]]
        for new_place, old_place in zip(to, source, strict=True):
            self.groups[new_place] = self.groups[old_place]
        del self.groups[remaining:]
        for array in (self._ids, self._logprobs, self._size):
            array[to] = array[source]
        self._sample_R, self._step_R = self._sample_R[open_R], self._step_R[open_R]
        self._key_R = self._key_R[open_R]
        return finished

    def _responses(self, group: int) -> list[SampledResponse]:
        sampled = zip(self._ids[group], self._logprobs[group], self._size[group], strict=True)
        return [
            SampledResponse(
                token_ids=tuple(ids[:size].tolist()),
                logprobs=tuple(logprobs[:size].tolist()),
                stopped=ids[size - 1] in self._stop_ids,
            )
            for ids, logprobs, size in sampled
        ]


def _stride(index_R: Array) -> Array:
    return (index_R.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN % (1 << 64))


# --- Transformers engine --------------------------------------------------------------

_BLOCKS = 4
"""Prompts are put in order of length in blocks of so many times what is decoded at a time."""


class TransformersEngine:
    """Samples from any model that AutoModelForCausalLM of transformers loads, on a CPU or a GPU.

    In float32 the tokens of a sample depend on (seed, prompt, weights) alone; in other types, they
    occasionally depend on what else is in the batch. Log-probabilities are those of the policy
    itself, before temperature and top_p.

    Args:
        policy: folder or hub name, with a tokenizer that has a chat template.
        name: of the policy; None: `policy`.
        device: of torch, such as `cuda:0`.
        dtype: of weights and computation.
        rows: responses decoded at a time, but at least those to one prompt. Each needs memory for
            the keys and values of its own tokens; a prompt's are stored once for up to 8 responses.
        version: of the weights.
        chat_template_kwargs: further arguments of the chat template.

    Raises:
        EngineError: there is no such policy, or it has no chat template.
    """

    def __init__(
        self,
        policy: str | Path,
        *,
        name: str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        rows: int = 512,
        version: int = 0,
        chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> None:
        self.policy = name or str(policy)
        self._device, self._dtype, self._rows = device, dtype, rows
        self._tokenizer = str(policy)
        self._encode = chat_encoder(self._tokenizer, chat_template_kwargs)
        self.load_weights(policy, version)

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; the tokenizer stays.

        Args:
            path: a policy, or a `.safetensors` file with new weights for the loaded policy, which
                is fast; of weights that are tied it has one or all.
            version: of the weights.

        Raises:
            EngineError: there are no such weights, or they do not fit.
        """
        if str(path).endswith(".safetensors"):
            self._replace_weights(path, version)
            return
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        from .key_values import store_for

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=self._dtype)
        except (OSError, ValueError, SafetensorError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot load the policy '{path}'", reason) from error
        try:
            self._model = model.to(self._device).eval().requires_grad_(False)
        except (AssertionError, RuntimeError) as error:  # Torch has no specific error.
            reason = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot use device '{self._device}'", reason) from error
        self._store, self._version = store_for(self._model), version
        ends = self._model.generation_config.eos_token_id
        self._ends: list[int] = ends if isinstance(ends, list) else [] if ends is None else [ends]

    def _replace_weights(self, path: str | Path, version: int) -> None:
        from safetensors import SafetensorError, safe_open

        own = self._model.state_dict()
        error = f"cannot load the weights '{path}'"
        try:
            with safe_open(path, framework="pt") as file:
                found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
                there = {own[name].data_ptr() for name in found.keys() & own.keys()}
                wanted = {
                    name: tuple(tensor.shape)
                    for name, tensor in own.items()
                    if name in found or tensor.data_ptr() not in there  # Of tied ones, one will do.
                }
                if found != wanted:
                    raise EngineError(error, "they are those of another policy")
                # One by one: all of them at once would take as much memory again.
                for name in found:
                    own[name].copy_(file.get_tensor(name))
        except (OSError, SafetensorError) as cause:
            raise EngineError(error, str(cause).strip().partition("\n")[0]) from cause
        self._version = version

    def sample(
        self, prompts: Iterable[Prompt | None], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:

        feed, failures = Feed(prompts), deque[tuple[int, Failure]]()

        def failed() -> Iterator[tuple[int, Failure]]:
            while failures:
                feed.finish()
                yield failures.popleft()

        def block() -> list[SamplingRequest]:
            """The next requests; none if there are none at present, or none at all."""
            requests: list[SamplingRequest] = []
            for index, prompt in feed.take_up_to(_BLOCKS * self._groups(settings)):
                request = self._request(index, prompt, settings)
                if isinstance(request, Failure):
                    failures.append((index, request))
                else:
                    requests.append(request)
            return requests

        while not feed.exhausted:
            first = block()
            # Memory is reserved for all groups: fewer where there are no more.
            most = len(first) if feed.exhausted else self._groups(settings)
            store = self._store(self._model, settings.n, max(1, min(most, self._groups(settings))))
            for request, responses in decode(
                self._model, store, first, block, settings, self._ends
            ):
                feed.finish()
                yield request.prompt_index, self._group(request, responses)
                yield from failed()
            yield from failed()

    def capacity(self, settings: Settings) -> int:
        return (1 + _BLOCKS) * self._groups(settings)

    def close(self) -> None:
        self._model = None

    def _request(self, index: int, prompt: Prompt, settings: Settings) -> SamplingRequest | Failure:

        try:
            ids = prompt_ids(prompt, self._encode)
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        context = getattr(self._model.config, "max_position_embeddings", None) or 1 << 30
        if len(ids) >= context:
            detail = f"{len(ids)} tokens; the policy's context of {context} includes the response"
            return Failure("prompt_too_long", detail)
        max_tokens = min(settings.of(prompt).max_tokens, context - len(ids))
        return SamplingRequest(index, tuple(ids), prompt.seed, max_tokens)

    def _groups(self, settings: Settings) -> int:
        """How many groups are decoded at a time."""
        return max(1, self._rows // settings.n)

    def _group(self, request: SamplingRequest, responses: Iterable[SampledResponse]) -> Group:
        samples = tuple(self._sample(response) for response in responses)
        ids = tuple(request.prompt_ids)
        return Group(self.policy, self._version, request.seed, ids, samples)

    def _sample(self, response: SampledResponse) -> Sample:
        ids, logprobs, stopped = response
        text = decoded(self._tokenizer, ids[:-1] if stopped else ids)
        return Sample(text, ids, logprobs, "stop" if stopped else "length")
