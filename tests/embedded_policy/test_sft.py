"""The warm start: it learns, and leaves the caller's torch as it was."""

import math

import pytest
import torch

from tools.embedded_policy.batches import batches
from tools.embedded_policy.model import build_model
from tools.embedded_policy.problems import Curriculum, build_tokenizer
from tools.embedded_policy.sft import SCHEDULE, _gradient, _loss, _rate, train, warm_start

pytestmark = pytest.mark.slow

SMALL = Curriculum(steps=4, batch=4, window=2)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def alone(gradient):
    """Nobody to average with."""


def test_the_loss_falls(tokenizer):
    model = build_model(tokenizer, 0)
    shown = batches(tokenizer, 0, Curriculum(steps=12, batch=4), 0)
    losses = list(train(model, shown, 12, SCHEDULE, alone))
    assert losses[0] == pytest.approx(math.log(800), abs=0.3)
    assert losses[-1] < losses[0] - 2
    assert not model.training


def test_gradients_are_one_vector(tokenizer):
    model = build_model(tokenizer, 0)
    (batch, *_) = batches(tokenizer, 0, SMALL, 0)
    _loss(model, batch).backward()
    parts = [each.grad.flatten() for each in model.parameters()]
    vector = _gradient(model)
    assert not vector.any()
    _loss(model, batch).backward()
    assert torch.equal(vector, torch.cat(parts))


def test_what_is_averaged_is_what_counts(tokenizer):
    def weights(average):
        model = build_model(tokenizer, 0)
        list(train(model, batches(tokenizer, 0, SMALL, 0), 4, SCHEDULE, average))
        return torch.cat([each.detach().flatten() for each in model.parameters()])

    def reverse(gradient):
        gradient[:] = -gradient

    assert torch.equal(weights(alone), weights(alone))
    assert not torch.equal(weights(alone), weights(reverse))


def test_the_rate_goes_up_and_down():
    rates = [_rate(step, 100, SCHEDULE._replace(warmup=20)) for step in range(100)]
    assert rates[0] == 1 / 20
    assert rates[19] == rates[20] == 1
    assert rates[60] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0, abs=1e-3)


def test_a_fresh_model_leaves_the_global_generator_alone(tokenizer):
    before = torch.random.get_rng_state()
    build_model(tokenizer, 1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_another_seed_gives_other_weights_and_torch_is_left_as_it_was():
    def weights(seed):
        counts = []
        model, _ = warm_start(seed, curriculum=SMALL, advance=counts.append)
        assert counts == [4] * 4
        return torch.cat([each.detach().flatten() for each in model.parameters()])

    threads, generator = torch.get_num_threads(), torch.random.get_rng_state()
    assert not torch.equal(weights(3), weights(4))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), generator)
