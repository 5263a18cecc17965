"""Attention over packed sequences, each prompt once, is attention over each row by itself."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_policy import save_policy
from transformers.models.qwen2.modeling_qwen2 import eager_attention_forward

from rejuice.operators.sampling.engines import EMBEDDED

pytestmark = pytest.mark.slow

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)
HEADS = st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1)])
SEEDS = st.integers(0, 1000)
workers = None  # Loaded by a fixture, as it loads verl, which has to know its platform before.


@pytest.fixture(autouse=True)
def few_at_once(verl, monkeypatch):
    """So that a few responses are several pieces."""
    from rejuice.trainer.cpu import workers

    monkeypatch.setitem(globals(), "workers", workers)
    monkeypatch.setattr(workers, "_AT_ONCE", 3)
    yield
    workers.use_layout(None)


# --------------------------------------------------------------------------- the function


def packed(lengths, heads, keys, seed, size=8):
    """Query, key, value, float[1, H, T, D], with gradients, and the positions, int64[1, T]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    made = [torch.randn(1, h, tokens, size, generator=generator) for h in (heads, keys, keys)]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    return [each.requires_grad_() for each in made], positions


def one_by_one(module, inputs, lengths, scaling):
    """transformers' own eager attention, sequence by sequence: float[1, T, H, D]."""
    out = []
    for q, k, v in zip(*(x.split(lengths, dim=2) for x in inputs), strict=True):
        mask = torch.full((q.shape[2],) * 2, float("-inf")).triu(1)[None, None]
        out.append(eager_attention_forward(module, q, k, v, mask, scaling=scaling)[0])
    return torch.cat(out, dim=1)


def padded_sdpa(module, inputs, lengths, scaling):
    """torch's attention over sequences that are padded with what must not matter."""
    longest = max(lengths)
    q, k, v = (
        torch.cat(
            [
                torch.nn.functional.pad(part, (0, 0, 0, longest - part.shape[2]), value=7.0)
                for part in each.split(lengths, dim=2)
            ]
        )
        for each in inputs
    )
    k, v = (each.repeat_interleave(module.num_key_value_groups, 1) for each in (k, v))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
    rows = [found[row, :, :length].transpose(0, 1) for row, length in enumerate(lengths)]
    return torch.cat(rows)[None]


@given(lengths=LENGTHS, heads=HEADS, seed=SEEDS)
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("truth", [one_by_one, padded_sdpa])
def test_it_is_attention_within_each_sequence(truth, lengths, heads, seed):
    inputs, positions = packed(lengths, *heads, seed)
    module = SimpleNamespace(num_key_value_groups=heads[0] // heads[1], training=False)
    ours, weights = workers.shared_attention(
        module, *inputs, None, position_ids=positions, scaling=0.3
    )
    theirs = truth(module, inputs, lengths, 0.3)
    assert weights is None
    assert ours.shape == (1, sum(lengths), heads[0], 8)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    up = torch.randn(ours.shape, generator=torch.Generator().manual_seed(seed))
    pairs = zip(torch.autograd.grad(ours, inputs, up), torch.autograd.grad(theirs, inputs, up))  # noqa: B905
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_without_a_scale_it_is_that_of_torch():
    inputs, positions = packed([3, 2], 2, 2, 0)
    plain, _ = workers.shared_attention(None, *inputs, None, position_ids=positions)
    scaled, _ = workers.shared_attention(
        None, *inputs, None, position_ids=positions, scaling=8**-0.5
    )
    torch.testing.assert_close(plain, scaled)


@pytest.mark.parametrize(
    ("mask", "rows"), [(torch.zeros(1, 1, 3, 3), 1), (None, 2)], ids=["mask", "rows"]
)
def test_padding_is_refused(mask, rows):
    inputs, positions = packed([3], 2, 2, 0)
    with pytest.raises(ValueError, match="use_remove_padding=True"):
        workers.shared_attention(None, *inputs, mask, position_ids=positions.repeat(rows, 1))


def test_the_layout_of_other_tokens_is_refused():
    inputs, positions = packed([3], 2, 2, 0)
    shared = workers.Shared.of([torch.tensor([1, 2])], [torch.tensor([3])])
    workers.use_layout(shared.layout)
    with pytest.raises(ValueError, match="the layout has 2 tokens, the pass 3"):
        workers.shared_attention(None, *inputs, None, position_ids=positions)


# --------------------------------------------------------------------------- each prompt once

TOKENS = st.lists(st.integers(0, 250), min_size=1, max_size=12)
BATCHES = st.lists(
    st.tuples(TOKENS, st.lists(TOKENS, min_size=1, max_size=4)), min_size=1, max_size=4
)
"""Prompts, each with its responses."""


def rows_of(batch, seed):
    """Prompts and responses of all rows, in random order."""
    rows = [(prompt, response) for prompt, responses in batch for response in responses]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    return [tuple(torch.tensor(ids) for ids in rows[row]) for row in order]


def test_a_layout_by_hand():
    shared = workers.Shared.of(
        [torch.tensor(ids) for ids in ([1, 2, 3], [9], [1, 2, 3])],
        [torch.tensor(ids) for ids in ([4, 5, 6], [7], [8, 8])],
    )
    # Responses by length: 7 (of prompt 9, which is no longer than its last token), 8 8, 4 5 6.
    assert shared.token_ids.tolist() == [[1, 2, 9, 3, 8, 3, 4, 5]]
    assert shared.position_ids.tolist() == [[0, 1, 0, 2, 3, 2, 3, 4]]
    assert shared.labels.tolist() == [[0, 0, 7, 8, 8, 4, 5, 6]]
    assert shared.layout.group_R.tolist() == [0, 1, 1]
    assert shared.layout.prompt_sizes_G.tolist() == [0, 2]
    assert shared.layout.response_sizes_R.tolist() == [1, 2, 3]
    # Rows: 1 2 3 4 5 6 | 9 7 | 1 2 3 8 8; each prediction stands a token before what it predicts.
    assert shared.tokens == 13
    values = torch.tensor([[0.0, 0, 70, 80, 81, 40, 50, 60]])
    assert shared.to_rows(values).tolist() == [[0, 0, 40, 50, 60, 0, 70, 0, 0, 0, 80, 81, 0]]


@given(batch=BATCHES, seed=SEEDS)
@settings(deadline=None)
def test_every_prediction_has_its_place(batch, seed):
    rows = rows_of(batch, seed)
    shared = workers.Shared.of(*zip(*rows, strict=True))
    prompts = {tuple(prompt.tolist()) for prompt, _ in rows}
    spent = sum(len(prompt) - 1 for prompt in prompts) + sum(len(r) for _, r in rows)
    assert shared.token_ids.shape == shared.position_ids.shape == shared.labels.shape == (1, spent)
    # What is predicted, plus 1, back where it belongs; 0 where nothing is predicted.
    found = shared.to_rows(shared.labels + 1)[0]
    seen = shared.to_rows(shared.token_ids + 1)[0]
    at = 0
    for prompt, response in rows:
        both = torch.cat((prompt, response))
        want = torch.zeros(len(both), dtype=torch.int64)
        want[len(prompt) - 1 : -1] = response + 1
        assert torch.equal(found[at : at + len(both)], want)
        inputs = torch.where(want > 0, both + 1, 0)
        assert torch.equal(seen[at : at + len(both)], inputs)
        at += len(both)


@pytest.fixture(scope="module")
def policies(verl, tmp_path_factory):
    """The embedded policy, and a random one with fewer keys than queries; ours and theirs.

    In float64, so that what differs is more than rounding.
    """
    from transformers import AutoModelForCausalLM

    from rejuice.trainer.cpu.workers import NAME

    folder = tmp_path_factory.mktemp("policy")
    save_policy(folder, num_key_value_heads=2)
    return {
        name: [
            AutoModelForCausalLM.from_pretrained(path, dtype="float64", attn_implementation=how)
            for how in (NAME, "sdpa")  # Eager attention takes its softmax in float32.
        ]
        for name, path in (("embedded", EMBEDDED), ("grouped", folder))
    }


def close(ours, theirs):
    """Gradients are equal, next to the largest of them, but for norms, which are in float32."""
    scale = max(their.grad.abs().max() for their in theirs.parameters())
    far = {
        name: float((our.grad - their.grad).abs().max() / scale)
        for (name, our), their in zip(ours.named_parameters(), theirs.parameters(), strict=True)
    }
    ours.zero_grad()
    theirs.zero_grad()
    assert max(far.values()) < 2e-6, far


@given(batch=BATCHES, seed=SEEDS)
@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("name", ["embedded", "grouped"])
def test_a_policy_computes_the_same_with_each_prompt_once(policies, name, batch, seed):
    ours, theirs = policies[name]
    rows = rows_of(batch, seed)
    shared = workers.Shared.of(*zip(*rows, strict=True))
    workers.use_layout(shared.layout)
    logits = ours(shared.token_ids, position_ids=shared.position_ids, use_cache=False).logits
    workers.use_layout(None)
    every = logits.log_softmax(-1).gather(2, shared.labels[..., None])[..., 0]
    found = shared.to_rows(every)[0]
    true = []
    for prompt, response in rows:
        logits = theirs(torch.cat((prompt, response))[None], use_cache=False).logits[0, :-1]
        message = logits.log_softmax(-1).gather(1, torch.cat((prompt, response))[1:, None])[:, 0]
        none = message.new_zeros(len(prompt) - 1)
        true.append(torch.cat((none, message[len(prompt) - 1 :], message.new_zeros(1))))
    true = torch.cat(true)
    torch.testing.assert_close(found, true, rtol=0, atol=1e-9)
    weights = torch.randn(len(true), generator=torch.Generator().manual_seed(seed)).double()
    (found * weights).sum().backward()
    (true * weights).sum().backward()
    close(ours, theirs)


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=SEEDS)
@settings(deadline=None, max_examples=10)
def test_a_policy_computes_the_same_of_packed_sequences(policies, lengths, seed):
    ours, theirs = policies["embedded"]
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(250, (length,), generator=generator) for length in lengths]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    logits = ours(torch.cat(ids)[None], position_ids=positions, use_cache=False).logits[0]
    alone = torch.cat([theirs(each[None], use_cache=False).logits[0] for each in ids])
    torch.testing.assert_close(logits.log_softmax(-1), alone.log_softmax(-1), rtol=0, atol=1e-9)
    logits.log_softmax(-1)[:, 3].sum().backward()
    alone.log_softmax(-1)[:, 3].sum().backward()
    close(ours, theirs)
