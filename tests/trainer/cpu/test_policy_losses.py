"""A step of verl's training worker on the embedded policy, with each loss of `train.loss`.

The reference is `hand_losses` through a forward pass of each row in float64.
"""

import copy

import numpy as np
import pytest
from hand_losses import Row, loss_of
from plain_policy import Plain, metrics_of
from rounding import SUMS

pytestmark = pytest.mark.slow

EXACT = ("vanilla", "gspo", "cispo", "sapo", "geo_mean")
"""Those whose gradient does not depend on how rows are split into micro-batches."""


@pytest.mark.parametrize("policy", [*EXACT, "clip_cov", "kl_cov"])
def test_a_step(worker, batch, policy):
    """The gradient is the formula's, and what has an advantage is more probable afterwards."""
    import torch

    tokens = int(batch["input_ids"].offsets()[-1])
    made = worker(loss={"policy": policy}, room=tokens // 3 + 64)
    plain, engine, ours = Plain(), made.actor.engine, {}
    names = ("prompts", "responses", "old_log_probs", "advantages")
    parts = list(zip(*(batch[name].unbind() for name in names), strict=True))
    news = [plain.log_probs(prompt, response)[0] for prompt, response, *_ in parts]
    step = engine.optimizer_step

    def spied():
        for name, weights in engine.module.named_parameters():
            ours[name] = weights.grad.full_tensor().double()
        return step()

    engine.optimizer_step = spied
    found = metrics_of(made.update_actor(copy.copy(batch)))
    assert np.isfinite(found["loss"])
    assert found["grad_norm"] > 0
    assert all(grad.isfinite().all() for grad in ours.values())

    if policy in EXACT:
        config = made.config.actor
        rows = [
            Row(new.detach().numpy(), old.double().numpy(), advantage.double().numpy())
            for new, (_, _, old, advantage) in zip(news, parts, strict=True)
        ]
        clip = (config.clip_ratio_low, config.clip_ratio_high)
        loss, slopes = loss_of(policy, clip, rows, len(rows))
        sum(
            (new * torch.from_numpy(slope)).sum() for new, slope in zip(news, slopes, strict=True)
        ).backward()
        norm = torch.nn.utils.get_total_norm([each.grad for each in plain.model.parameters()])
        for name, theirs in plain.model.named_parameters():
            assert (ours[name] - theirs.grad).abs().max() < SUMS * norm, name
        size = sum(np.abs(row.advantage).sum() for row in rows) / tokens
        assert found["loss"] == pytest.approx(loss, abs=10 * SUMS * size)

    with torch.no_grad():
        weights = dict(engine.get_per_tensor_param()[0])
        for name, each in plain.model.named_parameters():
            each.copy_(weights[name])
        risen = 0.0
        for new, (prompt, response, _, advantage) in zip(news, parts, strict=True):
            after = plain.log_probs(prompt, response)[0]
            risen += (advantage * (after - new)).sum().item()
    assert risen > 0
