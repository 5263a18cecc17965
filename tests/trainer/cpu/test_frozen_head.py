"""The function for output layers that are not trained, against verl's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow  # verl is imported.

SIZES = st.integers(1, 9)


@pytest.fixture(scope="module")
def functions(verl):
    """Ours and verl's."""
    from rejuice.trainer.cpu.workers import FrozenHeadFunction

    # Not by its name: a test that trains in this process may have put ours there.
    theirs = FrozenHeadFunction.__base__
    assert theirs.__module__ == "verl.utils.experimental.torch_functional"
    return FrozenHeadFunction.apply, theirs.apply


def inputs(tokens, vocabulary, seed, frozen):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(1, tokens, 5, generator=generator)
    weights = 3 * torch.randn(vocabulary, 5, generator=generator)
    labels = torch.randint(vocabulary, (1, tokens), generator=generator)
    return hidden.requires_grad_(), weights.requires_grad_(not frozen), labels


@given(
    tokens=SIZES, vocabulary=SIZES, at_once=st.integers(1, 10), seed=st.integers(0, 99),
    temperature=st.sampled_from([1.0, 0.5]), entropy=st.sampled_from([0.0, 0.3]), frozen=st.booleans(),
)  # fmt: skip
@settings(deadline=None)
def test_values_and_gradients_are_those_of_verl(
    functions, tokens, vocabulary, at_once, seed, temperature, entropy, frozen
):
    found = []
    for function in functions:
        hidden, weights, labels = inputs(tokens, vocabulary, seed, frozen)
        log_probs, entropies = function(hidden, weights, labels, temperature, at_once)
        assert log_probs.shape == entropies.shape == labels.shape
        up = torch.randn(labels.shape, generator=torch.Generator().manual_seed(seed))
        loss = (log_probs * up).sum()
        if entropy:  # Without it, no gradient of entropies is asked for.
            loss = loss + entropy * entropies.sum()
        loss.backward()
        found.append((log_probs, entropies, hidden.grad, weights.grad))
    for ours, theirs in zip(*found, strict=True):
        if theirs is None:
            assert ours is None
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_large_logits_do_not_overflow(functions):
    ours, _ = functions
    weights = torch.tensor([[400.0], [-400.0], [399.0]])
    log_probs, entropies = ours(torch.ones(2, 1), weights, torch.tensor([0, 1]))
    total = 1 + torch.tensor(-1.0).exp()
    expected = torch.stack([-total.log(), -800 - total.log()])
    torch.testing.assert_close(log_probs, expected)
    torch.testing.assert_close(entropies, (total.log() + (-1.0 - total.log()).exp()).expand(2))


def test_an_entropy_term_of_0_computes_no_logits_again(functions, monkeypatch):
    """As in verl's loss, which subtracts `entropy_coeff` times the entropy wherever it is known."""
    from rejuice.trainer.cpu import workers

    ours, theirs = functions
    found = []
    for function in (theirs, ours):
        hidden, weights, labels = inputs(4, 6, 0, frozen=True)
        log_probs, entropies = function(hidden, weights, labels)
        (log_probs.sum() - 0.0 * entropies.sum()).backward()
        found.append(hidden.grad)
        monkeypatch.setattr(workers, "_fused_linear_for_ppo_bwd", None)
    torch.testing.assert_close(*found)


def test_without_gradients_none_is_computed(functions):
    ours, theirs = functions
    hidden, weights, labels = inputs(4, 6, 0, frozen=True)
    with torch.no_grad():
        found, expected = (each(hidden, weights, labels) for each in (ours, theirs))
    torch.testing.assert_close(found, expected)
    assert not any(each.requires_grad for each in found)


def test_verl_computes_with_it(functions, monkeypatch):
    """The class that verl's models use takes the function by the name that is replaced."""
    from verl.utils.experimental import torch_functional

    from rejuice.trainer.cpu import workers

    monkeypatch.setattr(torch_functional, "FusedLinearForPPOFunction", None)
    workers.use()
    hidden, weights, labels = inputs(4, 6, 0, frozen=True)
    log_probs, _ = torch_functional.FusedLinearForPPO()(hidden, weights, labels)
    assert log_probs.grad_fn.name().startswith("FrozenHeadFunction")
