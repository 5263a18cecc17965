"""Engine and rollouts on a CPU, registered with verl when this file is imported.

verl imports this as `actor_rollout_ref.model.external_lib`, in each process that has a model.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import NonTensorStack
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AttentionInterface
from verl.utils import tensordict_utils as tu

# private: verl==0.9.1, tests/trainer/cpu/test_frozen_head.py::test_verl_computes_with_it
from verl.utils.experimental import torch_functional
from verl.utils.experimental.torch_functional import (
    FusedLinearForPPOFunction,
    _fused_linear_for_ppo_bwd,
)
from verl.workers.engine import EngineRegistry

# private: verl==0.9.1, tests/trainer/cpu/test_passes.py::test_verl_divides_by_them
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, prepare_micro_batches

# private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_the_engine_and_the_rollouts_are_found
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from ..verl import workers as _workers  # noqa: F401  # What those of any hardware have.

# --- Attention ------------------------------------------------------------------------
# Attention on a CPU over prompts that are stored once and responses that follow one another.
#
# A batch of GRPO has each prompt n times and is padded to its longest row. verl removes padding
# only if flash attention can keep rows apart, and still repeats the prompts. Here every layer but
# attention runs on the tokens alone, each prompt once:
#
#     rows       p1 p2 p3 r1 r2     p1 p2 p3 s1 s2 s3
#     tokens     p1 p2 | p3 r1 | p3 s1 s2
#     to predict         r1 r2   s1 s2 s3
#
# A response begins with the last token of its prompt, from which its first token is predicted, and
# leaves out its own last token, which predicts none.

NAME = "rejuice_training"
"""For `attn_implementation`; the sampler has its own attention, by another name."""
_AT_ONCE = 64  # responses; they are sorted by length, so that little is padded


class Layout(NamedTuple):
    """Tokens of G prompts, all but their last, followed by those of R responses, by length."""

    prompt_sizes_G: Tensor  # int64, tokens of each prompt but the last; may be 0
    response_sizes_R: Tensor  # int64, tokens of each response
    group_R: Tensor  # int64, the prompt of each response

    @property
    def tokens(self) -> int:
        """T: of all prompts and responses."""
        return int(self.prompt_sizes_G.sum() + self.response_sizes_R.sum())


class Shared(NamedTuple):
    """A batch with each prompt once."""

    layout: Layout  # where its tokens lie
    token_ids: Tensor  # int64[1, T]
    position_ids: Tensor  # int64[1, T]
    labels: Tensor  # int64[1, T], the target of each token of a response; 0 for prompts
    # int64[S], the position of each response's predictions among the tokens of all rows
    row_positions: Tensor
    tokens: int  # number of tokens of all rows, prompts repeated

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

    float[1, T, H, D], and None for the weights.
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


# --- Passes ---------------------------------------------------------------------------
# verl divides a batch into micro-batches of equal length, and so the rows of a prompt among all of
# them: each would compute the prompt again.


def passes(prompts: Sequence[Tensor], responses: Sequence[Tensor], most: int) -> list[list[int]]:
    """Divide rows into passes of at most so many tokens; rows of one prompt follow each other.

    A longer row has its own. A prompt counts once, and for each further response a sixteenth:
    attention keeps its keys and values for each.
    """
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_of.setdefault(tuple(prompt.tolist()), []).append(row)
    found, room = list[list[int]](), 0
    for prompt, rows in rows_of.items():
        is_here = False
        for row in rows:
            needed = len(responses[row]) + -(-len(prompt) // (16 if is_here else 1))
            if not found or needed > room:
                found.append([])
                needed, room = len(responses[row]) + len(prompt), most
            found[-1].append(row)
            room -= needed
            is_here = True
    return found


def micro_batches(data: Any, *rest: Any, **more: Any) -> tuple[list[Any], list[list[int]] | None]:
    """verl's `prepare_micro_batches`; its own where several processes need as many passes each."""
    dynamic = tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True)
    if not dynamic or torch.distributed.get_world_size() > 1:
        theirs: tuple[list[Any], list[list[int]] | None] = prepare_micro_batches(
            data, *rest, **more
        )
        return theirs
    rows = (data["prompts"].unbind(), data["responses"].unbind())
    found = passes(*rows, data["max_token_len_per_gpu"])
    return [tu.index_select_tensor_dict(data, each) for each in found], found


# --- Log-probabilities of a policy whose output layer is not trained, as with LoRA ----
# verl's function multiplies by the weights of the output layer four times for each token: for the
# logits, for the logits again in the backward pass, and for the gradients of its input and of its
# weights. With weights that stay as they are twice is enough: the gradient of a log-probability
# does not depend on what follows, so it is computed beside it.


class FrozenHeadFunction(FusedLinearForPPOFunction):  # type: ignore[misc]
    """verl's function, with another way for weights that require no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        vocab_weights: Tensor,
        input_ids: Tensor,
        temperature: float = 1.0,
        chunk_size: int = 512,
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of each token, float32 each."""
        ctx.frozen = not vocab_weights.requires_grad
        if not ctx.frozen:
            found: tuple[Tensor, Tensor] = FusedLinearForPPOFunction.forward(
                ctx, hidden_states, vocab_weights, input_ids, temperature, chunk_size
            )
            return found
        ctx.set_materialize_grads(False)
        hidden_TD, label_T = hidden_states.flatten(0, -2), input_ids.flatten()
        log_prob_T, entropy_T = hidden_TD.new_empty(2, len(label_T))
        slope_TD = torch.empty_like(hidden_TD) if ctx.needs_input_grad[0] else None
        for at in range(0, len(label_T), chunk_size):
            part = slice(at, at + chunk_size)
            logits = (hidden_TD[part] @ vocab_weights.t()).div_(temperature)
            logits -= logits.amax(1, keepdim=True)
            weights = logits.exp()  # Softmax, but for its sum.
            total = weights.sum(1)
            log_total = total.log()
            log_prob_T[part] = logits.gather(1, label_T[part, None])[:, 0] - log_total
            entropy_T[part] = log_total - torch.linalg.vecdot(weights, logits) / total
            if slope_TD is not None:
                mean = weights @ vocab_weights / total[:, None]
                slope_TD[part] = (vocab_weights[label_T[part]] - mean) / temperature
        ctx.save_for_backward(slope_TD, hidden_states, vocab_weights, input_ids)
        ctx.temperature, ctx.chunk_size = temperature, chunk_size
        return log_prob_T.view_as(input_ids), entropy_T.view_as(input_ids)

    @staticmethod
    def backward(ctx: Any, dlog_probs: Tensor | None, dentropy: Tensor | None) -> Any:
        if not ctx.frozen:
            return FusedLinearForPPOFunction.backward(ctx, dlog_probs, dentropy)
        slope_TD, hidden_states, vocab_weights, input_ids = ctx.saved_tensors
        gradient_TD = torch.zeros_like(slope_TD)
        if dlog_probs is not None:
            gradient_TD += dlog_probs.reshape(-1, 1) * slope_TD
        # A loss with an entropy term: what verl computes. Its own loss always has one, mostly of 0.
        if dentropy is not None and dentropy.any():
            pieces = zip(
                gradient_TD.split(ctx.chunk_size),
                dentropy.flatten().split(ctx.chunk_size),
                hidden_states.flatten(0, -2).split(ctx.chunk_size),
                input_ids.flatten().split(ctx.chunk_size),
                strict=True,
            )
            for gradient, slope, hidden, labels in pieces:
                gradient += _fused_linear_for_ppo_bwd(
                    None, slope, hidden, vocab_weights, labels, ctx.temperature
                )[0]
        return gradient_TD.view_as(hidden_states), None, None, None, None


def use() -> None:
    torch_functional.FusedLinearForPPOFunction = FrozenHeadFunction
    transformer_impl.prepare_micro_batches = micro_batches


# --- A policy with a LoRA adapter, as the weights of a whole model --------------------

_PREFIX = "base_model.model."  # of PEFT
_BASE = ".base_layer."


def merged_weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield names and weights of the policy, the adapter added, as those of a model without one."""
    from peft.tuners.lora import LoraLayer

    layers = {name: each for name, each in module.named_modules() if isinstance(each, LoraLayer)}
    for name, value in module.state_dict().items():
        if ".lora_" in name:
            continue
        weight = _whole(value)
        adapted, _, kind = name.rpartition(_BASE)
        if kind == "weight":
            with torch.no_grad():
                for adapter in layers[adapted].active_adapters:
                    weight = weight + _whole(layers[adapted].get_delta_weight(adapter))
        yield name.removeprefix(_PREFIX).replace(_BASE, "."), weight


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


# --- Engine and rollouts on a CPU, registered with verl when this file is imported ----

ROLLOUT = "rejuice"
"""Name of the rollouts, for `actor_rollout_ref.rollout.name`."""


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's FSDP2 engine: the reference policy is not offloaded, each prompt is computed once."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        config, policy = self.engine_config, module.config
        tied = policy.tie_word_embeddings
        # A forward-only engine would offload to pinned memory, which needs CUDA.
        self.engine_config = dataclasses.replace(config, forward_only=False)
        # An output layer of its own would be sharded by itself, and verl's function, which takes
        # its weights and does not call it, would get a shard. Tied ones are the whole module's.
        policy.tie_word_embeddings = True
        try:
            # private: verl==0.9.1, tests/trainer/cpu/test_seams.py::test_a_forward_only_engine_is_built_like_any
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config, policy.tie_word_embeddings = config, tied

    def _build_lora_module(self, module: Any) -> Any:
        # The adapter begins at random, like the samples by the seed of the run.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            # private: verl==0.9.1, tests/trainer/cpu/test_lora.py::test_the_adapter_begins_by_the_seed
            return super()._build_lora_module(module)

    def get_per_tensor_param(self, **more: Any) -> tuple[Iterator[tuple[str, Tensor]], Any]:
        """verl would round merged weights to bfloat16."""
        if not hasattr(self.module, "peft_config"):
            found: tuple[Iterator[tuple[str, Tensor]], Any] = super().get_per_tensor_param(**more)
            return found
        return merged_weights(self.module), None

    def forward_backward_batch(self, data: Any, *rest: Any, **more: Any) -> Any:
        """verl's, without fields that are no tensors, which it would copy with each micro-batch."""
        untensored = [name for name in data.keys() if isinstance(data.get(name), NonTensorStack)]  # noqa: SIM118
        try:
            return super().forward_backward_batch(data.exclude(*untensored), *rest, **more)
        finally:
            use_layout(None)

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        inputs, outputs = super().prepare_model_inputs(micro_batch)
        rows = (micro_batch["prompts"].unbind(), micro_batch["responses"].unbind())
        shared = outputs["shared"] = Shared.of(*rows)
        inputs["input_ids"], inputs["position_ids"] = shared.token_ids, shared.position_ids
        inputs["shift_labels"] = shared.labels
        use_layout(shared.layout)
        return inputs, outputs

    def prepare_model_outputs(self, output: Any, output_args: Any, *rest: Any, **more: Any) -> Any:
        shared = output_args["shared"]
        output.log_probs = shared.to_rows(output.log_probs)
        output.entropy = shared.to_rows(output.entropy)
        return super().prepare_model_outputs(output, output_args, *rest, **more)


def _replica() -> Any:
    from .rollout import Replica

    return Replica


def _open_group() -> None:
    """Open the process group over gloo, before verl would request two backends for one device."""
    worker = os.environ.get("WG_BACKEND") == "ray" and "RANK" in os.environ
    if not worker or torch.distributed.is_initialized():
        return
    if os.environ.get("WORLD_SIZE") == "1":
        # Alone it needs no port: verl chose a free one seconds ago, which may be in use by now.
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    else:
        torch.distributed.init_process_group("gloo")


RolloutReplicaRegistry.register(ROLLOUT, _replica)
_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "rejuice.trainer.cpu.rollout.Adapter"
_open_group()
use()
