"""Keys and values of a batch, with those of a prompt stored once for several responses.

In `SharedPrompts` the responses to a prompt share one sequence: the prompt, then their tokens in
the order in which they are sampled. A mask tells to which response a token belongs. Attention is
then one product per sequence that reads the prompt's keys once, by the model's own attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..groups import Array

_NAME = "rejuice_shared_prompts"
_SLOTS = 8  # responses in a sequence; each adds masked products to the others


class Compaction(NamedTuple):
    """Groups that move to fill the gaps of finished ones."""

    to: Array  # int64[K], the gaps
    source: Array  # int64[K], the groups that move there
    remaining: int  # how many groups remain; they come first afterwards


class OneGroup:
    """For any architecture: one prompt at a time, with the model's own cache and attention."""

    def __init__(self, model: Any, n: int, groups: int) -> None:
        self.groups = 1
        self._model, self._n = model, n

    def admit(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Compute a prompt; return the logits of the next token, float32[1, V]."""
        self._cache = DynamicCache(config=self._model.config)
        logits = self._run(torch.tensor([list(prompts[0])]))
        self._cache.reorder_cache(torch.zeros(self._n, dtype=torch.long))
        return logits

    def forward(self, token_R: Array, group_R: Array, sample_R: Array, step_R: Array) -> Tensor:
        """Append a token to each response; return the logits of the next, float32[R, V]."""
        return self._run(torch.from_numpy(token_R)[:, None])

    def compact(self, open_R: Array, moves: Compaction) -> None:
        """Keep only open rows, in their order."""
        self._cache.reorder_cache(torch.from_numpy(np.flatnonzero(open_R)))

    def _run(self, ids: Tensor) -> Tensor:
        ids = ids.to(self._model.device)
        run = self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = run.logits[:, -1].float()
        return logits


class Recomputed:
    """For models whose state is not keys and values: one prompt at a time, recomputed each step."""

    def __init__(self, model: Any, n: int, groups: int) -> None:
        self.groups = 1
        self._model, self._n = model, n

    def admit(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Compute a prompt; return the logits of the next token, float32[1, V]."""
        self._ids_R = torch.tensor([list(prompts[0])], device=self._model.device)
        logits = self._run()
        self._ids_R = self._ids_R.expand(self._n, -1)
        return logits

    def forward(self, token_R: Array, group_R: Array, sample_R: Array, step_R: Array) -> Tensor:
        """Append a token to each response; return the logits of the next, float32[R, V]."""
        token = torch.from_numpy(token_R)[:, None].to(self._model.device)
        self._ids_R = torch.cat((self._ids_R, token), 1)
        return self._run()

    def compact(self, open_R: Array, moves: Compaction) -> None:
        """Keep only open rows, in their order."""
        self._ids_R = self._ids_R[torch.from_numpy(open_R).to(self._model.device)]

    def _run(self) -> Tensor:
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
        """Compute these prompts; return the logits of the next token, float32[G, V]."""
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
        """Append a token to each response; return the logits of the next, float32[R, V].

        Rows of a group are consecutive, in the order of their samples.
        """
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
        """Keep only open rows, in their order, and move groups as `moves` describes."""
        self._used_groups = moves.remaining
        self._length_G[moves.to] = self._length_G[moves.source]
        for to, source in zip(moves.to * self._parts, moves.source * self._parts, strict=True):
            for part in range(self._parts):
                used = self._used_S[to + part] = self._used_S[source + part]
                self._mask[to + part] = self._mask[source + part]
                for x in (x for layer in self._layers for x in layer.tensors):
                    x[to + part, :, :used] = x[source + part, :, :used]

    def _next_columns(self, sequence_R: Array) -> Array:
        """The column of each row's next token: after all tokens of its sequence."""
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
        """Store the keys and values of prompts as the sequences from `start` on."""
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


Store: TypeAlias = OneGroup | Recomputed | SharedPrompts


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
