"""Log-probabilities of a policy whose output layer is not trained, as with LoRA.

verl's function multiplies by the weights of the output layer four times for each token: for the
logits, for the logits again in the backward pass, and for the gradients of its input and of its
weights. With weights that stay as they are twice is enough: the gradient of a log-probability does
not depend on what follows, so it is computed beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# private: verl==0.9.1, tests/trainer/cpu/test_frozen_head.py::test_verl_computes_with_it
from verl.utils.experimental import torch_functional
from verl.utils.experimental.torch_functional import (
    FusedLinearForPPOFunction,
    _fused_linear_for_ppo_bwd,
)


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
        """Log-probability and entropy of each token.

        Args:
            ctx: of the backward pass.
            hidden_states: float32[.., D].
            vocab_weights: float32[V, D].
            input_ids: int64[..], the token whose log-probability is asked for.
            temperature: by which logits are divided.
            chunk_size: tokens at a time.

        Returns:
            float32[..] each.
        """
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
        """The gradient of `hidden_states`; none of the weights, where they are frozen."""
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
    """Let verl compute with it in this process."""
    torch_functional.FusedLinearForPPOFunction = FrozenHeadFunction
