"""Attention on a CPU over prompts that are stored once and responses that follow one another.

A batch of GRPO has each prompt n times and is padded to its longest row. verl removes padding only
if flash attention can keep rows apart, and still repeats the prompts. Here every layer but
attention runs on the tokens alone, each prompt once:

    rows       p1 p2 p3 r1 r2     p1 p2 p3 s1 s2 s3
    tokens     p1 p2 | p3 r1 | p3 s1 s2
    to predict         r1 r2   s1 s2 s3

A response begins with the last token of its prompt, from which its first token is predicted, and
leaves out its own last token, which predicts none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface

NAME = "rejuice_training"
"""For `attn_implementation`; the sampler has its own attention, by another name."""
_AT_ONCE = 64  # responses; they are sorted by length, so that little is padded


class Layout(NamedTuple):
    """Tokens of G prompts, all but their last, followed by those of R responses, by length.

    Attributes:
        prompt_sizes_G: int64, tokens of each prompt but the last; may be 0.
        response_sizes_R: int64, tokens of each response.
        group_R: int64, the prompt of each response.
    """

    prompt_sizes_G: Tensor
    response_sizes_R: Tensor
    group_R: Tensor

    @property
    def tokens(self) -> int:
        """T: of all prompts and responses."""
        return int(self.prompt_sizes_G.sum() + self.response_sizes_R.sum())


class Shared(NamedTuple):
    """A batch with each prompt once.

    Attributes:
        layout: where its tokens lie.
        token_ids: int64[1, T].
        position_ids: int64[1, T].
        labels: int64[1, T], the target of each token of a response; 0 for prompts.
        row_positions: int64[S], the position of each response's predictions among the tokens of all
            rows.
        tokens: number of tokens of all rows, prompts repeated.
    """

    layout: Layout
    token_ids: Tensor
    position_ids: Tensor
    labels: Tensor
    row_positions: Tensor
    tokens: int

    @classmethod
    def of(cls, prompts: Sequence[Tensor], responses: Sequence[Tensor]) -> Shared:
        """From R rows of a prompt and a response, each of at least one token."""
        ends_R = torch.tensor([len(p) + len(r) for p, r in zip(prompts, responses, strict=True)])
        ends_R = ends_R.cumsum(0)
        order = sorted(range(len(responses)), key=lambda row: len(responses[row]))
        prompts, responses = ([rows[row] for row in order] for rows in (prompts, responses))
        index: dict[tuple[int, ...], int] = {}
        group_R = torch.tensor([index.setdefault(tuple(p.tolist()), len(index)) for p in prompts])
        bodies = [torch.tensor(p[:-1], dtype=torch.int64) for p in index]
        prompt_R = torch.tensor([len(p) for p in prompts])
        response_R = torch.tensor([len(r) for r in responses])
        inputs = [torch.cat((p[-1:], r[:-1])) for p, r in zip(prompts, responses, strict=True)]
        sizes_G = torch.tensor([len(body) for body in bodies])
        within = _within(response_R)
        starts = torch.repeat_interleave(prompt_R - 1, response_R)
        labels = torch.cat((torch.zeros(int(sizes_G.sum()), dtype=torch.int64), *responses))
        return cls(
            Layout(sizes_G, response_R, group_R),
            torch.cat((*bodies, *inputs))[None],
            torch.cat((_within(sizes_G), starts + within))[None],
            labels[None],
            torch.repeat_interleave(ends_R[order] - response_R - 1, response_R) + within,
            int(ends_R[-1]),
        )

    def to_rows(self, values: Tensor) -> Tensor:
        """Values of tokens, [1, T], as values of all rows, [1, tokens]; 0 within prompts."""
        predicted = values[:, -len(self.row_positions) :]
        rows = values.new_zeros((1, self.tokens))
        return rows.index_copy(1, self.row_positions, predicted)


_current: Layout | None = None


def use_layout(layout: Layout | None) -> None:
    """Set the layout of the next forward pass; None: sequences without shared prompts.

    It stays until the next call: gradient checkpointing computes the layers again in the backward
    pass.
    """
    global _current  # The model cannot pass it on to its attention.
    _current = layout


def shared_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    position_ids: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each prompt, and of each response to its prompt and itself.

    Args:
        module: the layer.
        query: float[1, H, T, D].
        key: float[1, K, T, D], with as many heads or fewer.
        value: float[1, K, T, D].
        attention_mask: must be None: there is no padding.
        position_ids: int64[1, T]; without a layout, 0 begins a sequence.
        scaling: of the scores.
        dropout: of the weights.

    Returns:
        float[1, T, H, D], and None for the weights.

    Raises:
        ValueError: there is padding, or the layout is that of other tokens.
    """
    if attention_mask is not None or len(position_ids) != 1:
        raise ValueError(f"{NAME} takes rows without padding: set use_remove_padding=True")
    layout = _current or _sequences(position_ids[0])
    if layout.tokens != query.shape[2]:
        raise ValueError(f"the layout has {layout.tokens} tokens, the pass {query.shape[2]}")
    inputs = [each[0].transpose(0, 1) for each in (query, key, value)]  # [T, H, D]
    how = {"dropout_p": dropout, "scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
    attend = partial(torch.nn.functional.scaled_dot_product_attention, **how)
    at = int(layout.prompt_sizes_G.sum())
    out, prompts = list[Tensor](), list[Tensor]()
    if at:
        prompts = [_padded(each[:at], layout.prompt_sizes_G) for each in inputs]
        out.append(_packed(attend(*prompts, is_causal=True), layout.prompt_sizes_G))
    for sizes, group in zip(
        layout.response_sizes_R.split(_AT_ONCE), layout.group_R.split(_AT_ONCE), strict=True
    ):
        end = at + int(sizes.sum())
        own = [_padded(each[at:end], sizes) for each in inputs]
        if prompts:
            seen = [
                torch.cat((prompt[group], response), 2)
                for prompt, response in zip(prompts[1:], own[1:], strict=True)
            ]
            mask = _mask(layout.prompt_sizes_G[group], prompts[1].shape[2], own[1].shape[2])
            out.append(_packed(attend(own[0], *seen, attn_mask=mask), sizes))
        else:
            out.append(_packed(attend(*own, is_causal=True), sizes))
        at = end
    return torch.cat(out)[None], None


def _sequences(position_ids: Tensor) -> Layout:
    starts = torch.nonzero(position_ids == 0)[:, 0]
    sizes = torch.diff(starts, append=starts.new_tensor([len(position_ids)]))
    none = sizes.new_zeros(1)
    return Layout(none, sizes, none.expand(len(sizes)))


def _within(sizes: Tensor) -> Tensor:
    """0, 1, .. within each piece."""
    starts = sizes.cumsum(0) - sizes
    return torch.arange(int(sizes.sum())) - torch.repeat_interleave(starts, sizes)


def _padded_positions(sizes: Tensor) -> Tensor:
    """The position of each token once all pieces are padded to equal length."""
    piece = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return piece * int(sizes.max()) + _within(sizes)


def _padded(packed: Tensor, sizes: Tensor) -> Tensor:
    """[T, H, D] as [B, H, longest, D]."""
    longest = int(sizes.max())
    zeros = packed.new_zeros((len(sizes) * longest, *packed.shape[1:]))
    filled = zeros.index_copy(0, _padded_positions(sizes), packed)
    return filled.view(len(sizes), longest, *packed.shape[1:]).transpose(1, 2)


def _packed(padded: Tensor, sizes: Tensor) -> Tensor:
    """[B, H, longest, D] as [T, H, D]."""
    return padded.transpose(1, 2).flatten(0, 1)[_padded_positions(sizes)]


def _mask(prompt_sizes_R: Tensor, prompt: int, response: int) -> Tensor:
    """What each response attends to, bool[R, 1, response, prompt + response]."""
    rows = len(prompt_sizes_R)
    inside = torch.arange(prompt) < prompt_sizes_R[:, None]
    before = torch.ones(response, response, dtype=torch.bool).tril()
    return torch.cat(
        (
            inside[:, None, None].expand(rows, 1, response, prompt),
            before.expand(rows, 1, response, response),
        ),
        -1,
    )


AttentionInterface.register(NAME, shared_attention)
