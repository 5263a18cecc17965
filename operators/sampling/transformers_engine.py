"""The embedded engine: samples from a policy in the Hugging Face format, in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..errors import EngineError, first_line
from ..groups import Array, mix
from .protocol import Failure, Group, Prompt, Sample, Settings, token_listener
from .tokenizer import NO_KWARGS, chat_encoder, decoded, fitting_ids

_BLOCKS = 4
"""Prompts are put in order of length in blocks of so many times what is decoded at a time."""


class TransformersEngine:
    """Samples from any model that AutoModelForCausalLM of transformers loads, on a CPU or a GPU.

    In float32 the tokens of a sample depend on (seed, prompt, weights) alone; in other types, they
    occasionally depend on what else is in the batch. Log-probabilities are those of the policy
    itself, before temperature and top_p.

    `rows` responses are decoded at a time, but at least those to one prompt. Each needs memory for
    the keys and values of its own tokens; a prompt's are stored once for up to 8 responses.
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

        They are a policy, or a `.safetensors` file with new weights for the loaded one, which is
        fast; of weights that are tied it has one or all.
        """
        if str(path).endswith(".safetensors"):
            self._replace_weights(path, version)
            return
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=self._dtype)
        except (OSError, ValueError, SafetensorError) as error:
            raise EngineError(f"cannot load the policy '{path}'", first_line(error)) from error
        try:
            self._model = model.to(self._device).eval().requires_grad_(False)
        except (AssertionError, RuntimeError) as error:  # Torch has no specific error.
            raise EngineError(f"cannot use device '{self._device}'", first_line(error)) from error
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
            raise EngineError(error, first_line(cause)) from cause
        self._version = version

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        numbered, failures = enumerate(prompts), deque[tuple[int, Failure]]()
        groups, exhausted = self._groups(settings), False

        def block() -> list[SamplingRequest]:
            """The next requests; none also where the next prompts cannot be sampled from."""
            nonlocal exhausted
            size = _BLOCKS * groups - len(failures)  # So that no more than `capacity` are taken.
            taken = list(islice(numbered, size))
            exhausted = len(taken) < size
            requests = list[SamplingRequest]()
            for index, prompt in taken:
                request = self._request(index, prompt, settings)
                if isinstance(request, Failure):
                    failures.append((index, request))
                else:
                    requests.append(request)
            return requests

        while not exhausted:
            first = block()
            # Memory is reserved for all groups: fewer where there are no more.
            most = max(1, min(len(first), groups)) if exhausted else groups
            store = self._store(self._model, settings.n, most)
            for request, responses in decode(
                self._model, store, first, block, settings, self._ends
            ):
                yield request.prompt_index, self._group(request, responses)
                while failures:
                    yield failures.popleft()
            while failures:
                yield failures.popleft()

    def capacity(self, settings: Settings) -> int:
        return (1 + _BLOCKS) * self._groups(settings)

    def close(self) -> None:
        self._model = None

    def _request(self, index: int, prompt: Prompt, settings: Settings) -> SamplingRequest | Failure:
        context = getattr(self._model.config, "max_position_embeddings", None) or 1 << 30
        ids = fitting_ids(prompt, self._encode, context)
        if isinstance(ids, Failure):
            return ids
        max_tokens = min(settings.of(prompt).max_tokens, context - len(ids))
        return SamplingRequest(index, tuple(ids), prompt.seed, max_tokens)

    def _groups(self, settings: Settings) -> int:
        return max(1, self._rows // settings.n)

    def _group(self, request: SamplingRequest, responses: Iterable[SampledResponse]) -> Group:
        samples = tuple(self._sample(response) for response in responses)
        ids = tuple(request.prompt_ids)
        return Group(self.policy, self._version, request.seed, ids, samples)

    def _sample(self, response: SampledResponse) -> Sample:
        ids, logprobs, stopped = response
        text = decoded(self._tokenizer, ids[:-1] if stopped else ids)
        return Sample(text, ids, logprobs, "stop" if stopped else "length")


# --- Decoding, by our own loop around the model's forward -----------------------------
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
    prompt_index: int  # index of the prompt in the call to `sample`
    prompt_ids: Sequence[int]  # its token ids
    seed: int  # of its samples
    max_tokens: int  # longest response


class SampledResponse(NamedTuple):
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
    """The responses to each prompt, as groups finish.

    `next_block` gives further prompts, each time that none waits; it may give none.
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
        self, model: Any, store: Store, settings: Settings, stop_ids: Sequence[int]
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
        return len(self._group_R)

    def admit(self, new: list[SamplingRequest]) -> None:
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


# --- Keys and values of a batch -------------------------------------------------------
# In `SharedPrompts` the responses to a prompt share one sequence: the prompt, then their tokens in
# the order in which they are sampled. A mask tells to which response a token belongs. Attention is
# then one product per sequence that reads the prompt's keys once, by the model's own attention.

_NAME = "rejuice_shared_prompts"
_SLOTS = 8  # responses in a sequence; each adds masked products to the others


class Compaction(NamedTuple):
    to: Array  # int64[K], the gaps
    source: Array  # int64[K], the groups that move there
    remaining: int  # how many groups remain; they come first afterwards


class OneGroup:
    """For any architecture: one prompt at a time, with the model's own cache and attention."""

    def __init__(self, model: Any, n: int, groups: int) -> None:
        self.groups = 1
        self._model, self._n = model, n

    def admit(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Compute a prompt: the logits of the next token, float32[1, V]."""
        self._begin()
        logits = self._run(torch.tensor([list(prompts[0])], device=self._model.device))
        self._keep(torch.zeros(self._n, dtype=torch.long))
        return logits

    def forward(self, token_R: Array, group_R: Array, sample_R: Array, step_R: Array) -> Tensor:
        """Append a token to each response: the logits of the next, float32[R, V]."""
        return self._run(torch.from_numpy(token_R)[:, None].to(self._model.device))

    def compact(self, open_R: Array, moves: Compaction) -> None:
        self._keep(torch.from_numpy(np.flatnonzero(open_R)))

    def _begin(self) -> None:
        self._cache = DynamicCache(config=self._model.config)

    def _keep(self, row_R: Tensor) -> None:
        self._cache.reorder_cache(row_R)

    def _run(self, ids: Tensor) -> Tensor:
        run = self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = run.logits[:, -1].float()
        return logits


class Recomputed(OneGroup):
    """For models whose state is not keys and values: all is recomputed at each step."""

    def _begin(self) -> None:
        self._ids_R = torch.zeros(1, 0, dtype=torch.long, device=self._model.device)

    def _keep(self, row_R: Tensor) -> None:
        self._ids_R = self._ids_R[row_R.to(self._model.device)]

    def _run(self, ids: Tensor) -> Tensor:
        self._ids_R = torch.cat((self._ids_R, ids), 1)
        logits: Tensor = self._model(self._ids_R, use_cache=False).logits[:, -1].float()
        return logits


class SharedPrompts:
    """Many prompts at a time, for models with standard attention in all layers."""

    def __init__(self, model: Any, n: int, groups: int) -> None:
        self.groups = groups
        self._model, self._used_groups = model, 0
        self._parts = -(-n // _SLOTS)  # sequences of each prompt
        self._slots = -(-n // self._parts)
        self._length_G = np.zeros(groups, np.int64)
        self._used_S = np.zeros(groups * self._parts, np.int64)
        shape = (len(self._used_S), 1, self._slots, 0)
        self._mask = torch.empty(shape, dtype=model.dtype, device=model.device)
        self._layers = [
            _SharedLayer(len(self._used_S)) for _ in DynamicCache(config=model.config).layers
        ]
        self._cache = Cache(layers=self._layers)

    def admit(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Compute these prompts: the logits of the next token, float32[G, V]."""
        lengths = np.array([len(ids) for ids in prompts])
        longest, device = int(lengths.max()), self._model.device
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[-len(prompt) :] = torch.tensor(prompt)
        place = torch.arange(longest) - torch.from_numpy(longest - lengths)[:, None]
        fresh = DynamicCache(config=self._model.config)
        run = self._model(
            ids.to(device),
            attention_mask=(place >= 0).to(device),
            position_ids=place.clamp(min=0).to(device),
            past_key_values=fresh,
            use_cache=True,
            logits_to_keep=1,
        )
        start, end = (
            g * self._parts for g in (self._used_groups, self._used_groups + len(prompts))
        )
        for mine, new in zip(self._layers, fresh.layers, strict=True):
            mine.write_prompts(
                start, *(x.repeat_interleave(self._parts, 0) for x in (new.keys, new.values))
            )
        self._mask = _grown(self._mask, 3, longest, -torch.inf)
        self._mask[start:end] = -torch.inf
        hidden = self._mask.new_zeros(place.shape).masked_fill_((place < 0).to(device), -torch.inf)
        self._mask[start:end, 0, :, :longest] = hidden.repeat_interleave(self._parts, 0)[:, None]
        self._used_S[start:end] = longest
        self._length_G[self._used_groups : self._used_groups + len(prompts)] = lengths
        self._used_groups += len(prompts)
        logits: Tensor = run.logits[:, -1].float()
        return logits

    def forward(self, token_R: Array, group_R: Array, sample_R: Array, step_R: Array) -> Tensor:
        """Append a token to each response: the logits of the next, float32[R, V]. Rows of a group
        are consecutive, in the order of their samples."""
        part_R, place_R = np.divmod(sample_R, self._slots)
        sequence_R = group_R * self._parts + part_R
        column_R = self._next_columns(sequence_R)
        used, extent = self._used_groups * self._parts, int(column_R.max()) + 1
        numbers = np.stack(
            (sequence_R, column_R, place_R, self._length_G[group_R] + step_R, token_R)
        )
        sequence, column, place, position, token = torch.from_numpy(numbers).to(self._model.device)
        self._mask = _grown(self._mask, 3, extent, -torch.inf)
        self._mask[sequence, 0, place, column] = 0
        for layer in self._layers:
            layer.prepare(sequence, column, used, extent)
        logits: Tensor = self._model(
            token[:, None],
            position_ids=position[:, None],
            attention_mask=self._mask[:used, :, :, :extent],
            past_key_values=self._cache,
            use_cache=True,
            slot_R=sequence * self._slots + place,
        ).logits
        return logits[:, -1].float()

    def compact(self, open_R: Array, moves: Compaction) -> None:
        self._used_groups = moves.remaining
        self._length_G[moves.to] = self._length_G[moves.source]
        for to, source in zip(moves.to * self._parts, moves.source * self._parts, strict=True):
            for part in range(self._parts):
                used = self._used_S[to + part] = self._used_S[source + part]
                self._mask[to + part] = self._mask[source + part]
                for x in (x for layer in self._layers for x in layer.tensors):
                    x[to + part, :, :used] = x[source + part, :, :used]

    def _next_columns(self, sequence_R: Array) -> Array:
        begins = np.flatnonzero(np.diff(sequence_R, prepend=-1))
        counts = np.diff(begins, append=len(sequence_R))
        offset_R = np.arange(len(sequence_R)) - begins.repeat(counts)
        column_R: Array = self._used_S[sequence_R] + offset_R
        self._used_S[sequence_R[begins]] += counts
        return column_R


class _SharedLayer:
    """Keys and values of one layer, each [S, H, columns, D].

    For transformers it is a layer of a cache; masks and positions are passed to the model.
    """

    is_sliding = False
    is_compileable = False

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        self.tensors: list[Tensor] = []

    def get_seq_length(self) -> int:
        """0: transformers derives no positions from it, as they are passed."""
        return 0

    def write_prompts(self, start: int, keys: Tensor, values: Tensor) -> None:
        self.tensors = [
            _grown(x, 2, keys.shape[2])
            for x in self.tensors
            or [new.new_zeros(self._sequences, *new[0, :, :0].shape) for new in (keys, values)]
        ]
        for mine, new in zip(self.tensors, (keys, values), strict=True):
            mine[start : start + len(new), :, : new.shape[2]] = new

    def prepare(self, sequence_R: Tensor, column_R: Tensor, used: int, extent: int) -> None:
        """Set where `update` writes, and over how many sequences and columns attention goes."""
        self._to = (sequence_R, slice(None), column_R)
        self._visible = (slice(used), slice(None), slice(extent))
        self.tensors = [_grown(x, 2, extent) for x in self.tensors]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        for mine, new in zip(self.tensors, (key_states, value_states), strict=True):
            mine[self._to] = new[:, :, 0]
        keys, values = (x[self._visible] for x in self.tensors)
        return keys, values


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    slot_R: Tensor | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Called by the model in each layer: torch's attention, of rows R in slots of sequences.

    The query heads that share a head of keys are rows of one product, so that keys and values are
    read where they lie: repeated for each query head, they would be copied in every layer.
    """
    if slot_R is None or attention_mask is None:
        mixed, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return mixed, None
    sequences, _, slots, _ = attention_mask.shape
    query_R = query[:, :, 0]  # [R, H, D]
    heads, shared = key.shape[1], query_R.shape[1] // key.shape[1]
    slotted = query_R.new_zeros(sequences * slots, *query_R.shape[1:]).index_copy_(
        0, slot_R, query_R
    )
    slotted = slotted.view(sequences, slots, heads, shared, -1).permute(0, 2, 3, 1, 4)
    mixed = scaled_dot_product_attention(
        slotted.reshape(sequences, heads, shared * slots, -1),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, shared, 1) if shared > 1 else attention_mask,
        scale=scaling,
    )
    mixed = mixed.view(sequences, heads, shared, slots, -1).permute(0, 3, 1, 2, 4)
    mixed = mixed.reshape(sequences * slots, *query_R.shape[1:])
    return mixed.index_select(0, slot_R)[:, None], None


AttentionInterface.register(_NAME, attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)


Store: TypeAlias = OneGroup | SharedPrompts


def store_for(model: Any) -> type[Store]:
    """The fastest store with which the model computes the same as without one."""
    with torch.inference_mode():
        expected = _probe(model, Recomputed)
        # private: transformers==5.10.4, tests/operators/sampling/test_key_values.py::test_store_by_architecture
        layers = [] if model._is_stateful else DynamicCache(config=model.config).layers
        if model._supports_attention_backend and layers:
            before = model.config._attn_implementation
            model.set_attn_implementation(_NAME)
            usual = all(type(layer) is DynamicLayer for layer in layers)
            if usual and _equal(_probe(model, SharedPrompts), expected, model.dtype):
                return SharedPrompts
            model.set_attn_implementation(before)
        if layers and _equal(_probe(model, OneGroup), expected, model.dtype):
            return OneGroup
    return Recomputed


def _probe(model: Any, kind: type[Store]) -> Tensor:
    """Logits after two prompts, and after one more token of their responses, float32[6, V]."""
    prompts, n = [[1, 2, 3], [3, 2, 1, 0, 2]], 2
    first, second = list[Tensor](), list[Tensor]()
    for batch in [prompts] if kind is SharedPrompts else [[prompt] for prompt in prompts]:
        store = kind(model, n, len(batch))
        group_R, sample_R = np.divmod(np.arange(n * len(batch)), n)
        first.append(store.admit(batch))
        second.append(store.forward(sample_R + 4, group_R, sample_R, np.zeros_like(sample_R)))
    return torch.cat(first + second)


def _equal(logits: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Whether logits are equal up to rounding; nan is not equal."""
    scale = expected.abs().max().clamp(1)
    return bool((logits - expected).abs().max() <= 100 * torch.finfo(dtype).eps * scale)


def _grown(x: Tensor, axis: int, length: int, fill: float = 0.0) -> Tensor:
    """`x` padded to at least `length` along `axis`; with a reserve, so that it rarely grows."""
    size = x.shape[axis]
    more = max(length, size * 3 // 2) - size
    return x if size >= length else pad(x, (0, 0) * (x.ndim - 1 - axis) + (0, more), value=fill)
