"""Muon in float32: torch's own, but for the rounding of bfloat16."""

import pytest
import torch

from tools.embedded_policy.muon import Muon, orthogonalised

pytestmark = pytest.mark.slow

SHAPES = [(128, 128), (384, 128), (128, 384)]


def seeded(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_become_about_one(shape):
    found = orthogonalised(seeded(*shape))
    assert found.shape == shape
    assert found.dtype == torch.float32
    left, values, right = torch.linalg.svd(seeded(*shape), full_matrices=False)
    kept = values > 0.02 * values.max()  # Five iterations do not lift what is tiny.
    ours = torch.diag(left.T @ found @ right.T)[kept]
    assert 0.6 < ours.min() < ours.max() < 1.25
    # The directions stay: off the diagonal there is only rounding.
    spread = left.T @ found @ right.T
    assert (spread - torch.diag(torch.diag(spread))).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_are_those_of_torch_in_bfloat16(shape):
    ours, theirs = (torch.nn.Parameter(seeded(*shape)) for _ in range(2))
    optimizers = [
        Muon([ours], lr=0.01, weight_decay=0.1),
        torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for step in range(3):
        for matrix, optimizer in zip((ours, theirs), optimizers, strict=True):
            matrix.grad = seeded(*shape).roll(step, 0)
            optimizer.step()
    moved = (theirs - seeded(*shape)).norm()
    assert (ours - theirs).norm() < 0.02 * moved  # bfloat16 has 8 bits: 0.4 % each time.
