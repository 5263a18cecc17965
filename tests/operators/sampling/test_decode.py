"""The decode loop: noise, choices, near ties, and agreement with a full pass for each token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rejuice.operators.groups import mix
from rejuice.operators.sampling.protocol import Settings
from rejuice.operators.sampling.transformers_engine import choose, gumbel, response_keys, token_keys

pytestmark = pytest.mark.slow


def test_noise_is_gumbel_noise():
    noise = gumbel(mix(np.arange(50, dtype=np.uint64)), 2001).numpy()
    assert noise.shape == (50, 2001)
    assert stats.kstest(noise.ravel(), "gumbel_r").pvalue > 1e-3
    for shift in (1, 2):
        assert abs(np.corrcoef(noise[:, :-shift].ravel(), noise[:, shift:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.02
    assert len(np.unique(noise)) > 0.99 * noise.size


def test_noise_is_splitmix64():
    """Each 64-bit number of the key's stream gives two of 32 bits, the lower half first."""
    keys = mix(np.arange(3, dtype=np.uint64))
    golden = np.uint64(0x9E3779B97F4A7C15)
    stream = mix(keys[:, None] + np.arange(1, 6, dtype=np.uint64) * golden)
    halves = np.abs(stream.view(np.int32).astype(np.float64))
    expected = -np.log(-np.log1p(-(halves + 0.5) / 2**31))
    noise = gumbel(keys, 10).numpy()
    assert np.allclose(noise, expected, atol=1e-3)
    assert np.allclose(noise[noise > 0], expected[noise > 0], atol=2e-6)  # those that win


def test_noise_of_a_row_does_not_depend_on_others():
    keys = mix(np.arange(9, dtype=np.uint64))
    together = gumbel(keys, 31)
    for row, key in enumerate(keys):
        assert (gumbel(key[None], 31)[0] == together[row]).all()
    assert (gumbel(keys, 11) == together[:, :11]).all()


def test_noise_is_finite_at_both_ends():
    """Where the hash is 0 or -2**31, found by going the way back through SplitMix64."""
    mask = (1 << 64) - 1

    def unshift(z, by):
        found = z
        for _ in range(64 // by):
            found = z ^ (found >> by)
        return found

    for value in (0, 0x80000000, 0x7FFFFFFF):
        z = unshift(value, 31) * pow(0x94D049BB133111EB, -1, 1 << 64) & mask
        z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & mask
        key = (unshift(z, 30) - 0x9E3779B97F4A7C15) & mask
        noise = gumbel(np.array([key], np.uint64), 1).item()
        assert noise == pytest.approx(22.18, abs=0.01) if value == 0 else -3 < noise < -2.5


def test_keys_differ():
    seed, sample, step = (x.ravel() for x in np.mgrid[0:30, 0:30, 0:30])
    keys = token_keys(response_keys(seed.astype(np.uint64), sample), step)
    assert len(np.unique(keys)) == 30**3


def test_choice_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    noise = torch.tensor([[0.0, 0.6, 2.0, 5.0]])

    def chosen(**settings):
        return choose(logits, noise, Settings(**settings))[0].item()

    assert chosen() == 3  # ln 0.05 + 5 is the largest
    assert chosen(temperature=0.1) == 0  # ln 0.5 = -0.69 > ln 0.05 + 0.5 = -2.50
    assert chosen(temperature=0.0) == 0
    assert chosen(top_p=0.96) == 3  # before the last one lies 0.95
    assert chosen(top_p=0.94) == 2  # ln 0.15 + 2 is the largest of the others
    assert chosen(top_p=0.81) == 2
    assert chosen(top_p=0.79) == 1  # ln 0.3 + 0.6 > ln 0.5
    assert chosen(top_p=0.49) == 0
    assert chosen(top_p=1e-9) == 0
    # at half the temperature 0.685, 0.247, 0.062, 0.007: before the last one 0.993
    assert chosen(temperature=0.5, top_p=0.995) == 3
    assert chosen(temperature=0.5, top_p=0.99) == 0


def test_ambiguous_choices_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()

    def certain(*noise, **settings):
        return choose(logits, torch.tensor([noise]), Settings(**settings), 0.01)[1].item()

    tie = float(np.log(0.5 / 0.3))
    assert certain(0.0, 0.0, 0.0)
    assert not certain(0.0, tie, 0.0)
    assert not certain(0.0, tie + 0.009, 0.0)
    assert certain(0.0, tie + 0.011, 0.0)
    assert not certain(0.0, 0.0, 9.0, top_p=0.8)  # is the third one inside?
    assert not certain(0.0, 0.0, 9.0, top_p=0.795)
    assert certain(0.0, 0.0, 9.0, top_p=0.785)
    assert certain(0.0, 0.0, 9.0, top_p=0.815)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([0.0, 0.3, 1.0, 1.5]),
    st.sampled_from([0.1, 0.7, 0.95, 1.0]),
)
def test_an_unambiguous_token_survives_rounding(seed, temperature, top_p):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(64, 40, generator=generator)
    logits[:, 20:30] = logits[:, :10]  # as probable as each other
    noise = gumbel(np.arange(64, dtype=np.uint64) + np.uint64(seed), 40)
    wanted = Settings(temperature=temperature, top_p=top_p)
    token, certain = choose(logits, noise, wanted, 0.02)
    for _ in range(8):
        moved = logits + 0.0099 * (2 * torch.rand(logits.shape, generator=generator) - 1)
        assert (choose(moved, noise, wanted)[0] == token)[certain].all()
    # One row in three or so has two equal logits in front, which are always uncertain.
    assert temperature == 0 or certain.float().mean() > 0.3
