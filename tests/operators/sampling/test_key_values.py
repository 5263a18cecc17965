"""Stores: whatever the order of prompts, tokens and departures, logits are those of a full pass."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
)

from rejuice.operators.sampling import transformers_engine
from rejuice.operators.sampling.transformers_engine import (
    Compaction,
    OneGroup,
    Recomputed,
    SharedPrompts,
    store_for,
)

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}


def model(config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def qwen():
    return model(Qwen2Config(**TINY))


@pytest.fixture(scope="module")
def mamba():
    return model(MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, state_size=4))


def check_against_full_passes(model, kind, n, waves, seed):
    """Admit groups by waves, append random tokens, let random rows leave; compare all logits."""
    rng = np.random.default_rng(seed)
    store = kind(model, n, max(1, max(waves)) if kind is SharedPrompts else 1)
    groups, rows = [], []  # a group is its prompt; a row is [group, sample, tokens]

    def expect(logits, expected_rows):
        for mine, (group, _, tokens) in zip(logits, expected_rows, strict=True):
            whole = model(torch.tensor([[*groups[group], *tokens]])).logits[0, -1]
            # Of 4,500 comparisons the worst was 5.6e-6 of the largest logit, without AVX.
            assert (mine - whole).abs().max() < 1e-5 * whole.abs().max()

    with torch.inference_mode():
        for wave in waves:
            room = store.groups - len(groups)
            new = [rng.integers(6, 60, rng.integers(1, 9)).tolist() for _ in range(min(wave, room))]
            if new:
                logits = store.admit(new)
                rows += [[len(groups) + g, i, []] for g in range(len(new)) for i in range(n)]
                groups += new
                expect(logits, [[len(groups) - len(new) + g, 0, []] for g in range(len(new))])
            for _ in range(3):
                if not rows:
                    break
                tokens = rng.integers(6, 60, len(rows))
                steps = np.array([len(row[2]) for row in rows])
                for row, token in zip(rows, tokens.tolist(), strict=True):
                    row[2].append(token)
                group_R, sample_R = np.array([row[:2] for row in rows]).T
                expect(store.forward(tokens, group_R, sample_R, steps), rows)
                open_R = rng.random(len(rows)) < 0.7
                rows = [row for row, stays in zip(rows, open_R, strict=True) if stays]
                used = sorted({row[0] for row in rows})
                gaps = [g for g in range(len(used)) if g not in used]
                movers = [g for g in used if g >= len(used)]
                if kind is not SharedPrompts and not rows:
                    groups.clear()
                    break
                store.compact(
                    open_R, Compaction(np.array(gaps, int), np.array(movers, int), len(used))
                )
                place = {g: g for g in used} | dict(zip(movers, gaps, strict=True))
                rows = [[place[g], i, tokens] for g, i, tokens in rows]
                groups[:] = [p for _, p in sorted((place[g], groups[g]) for g in used)]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([1, 3, 8, 9, 20]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(0, 1 << 30),
)
def test_shared_prompts_are_full_passes(qwen, n, waves, seed):
    assert store_for(qwen) is SharedPrompts
    check_against_full_passes(qwen, SharedPrompts, n, waves, seed)


@pytest.mark.parametrize("kind", [OneGroup, Recomputed])
@pytest.mark.parametrize("seed", range(3))
def test_one_prompt_at_a_time_is_full_passes(qwen, kind, seed):
    check_against_full_passes(qwen, kind, 5, [1, 1, 1], seed)


def test_a_model_with_state_is_computed_from_scratch(mamba):
    assert store_for(mamba) is Recomputed
    check_against_full_passes(mamba, Recomputed, 3, [1, 1], 0)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (Qwen2Config(**TINY), SharedPrompts),
        (Qwen2Config(**TINY, attention_dropout=0.5), SharedPrompts),
        (GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=2, n_positions=64), SharedPrompts),
        (MistralConfig(**TINY, sliding_window=4), OneGroup),
        (Qwen2Config(**TINY, use_sliding_window=True, sliding_window=4, max_window_layers=1), None),
    ],
)
def test_store_by_architecture(config, kind):
    assert store_for(model(config)) is (kind or OneGroup)


def test_store_that_miscalculates_is_not_taken(monkeypatch):
    """The probe compares numbers, and ignores what a model claims to support."""
    qwen = model(Qwen2Config(**TINY))
    right = transformers_engine.sdpa_attention_forward

    def wrong(module, query, key, value, mask, **kwargs):
        mixed, _ = right(module, query, key, value, mask, **kwargs)
        return mixed * 1.01, None

    monkeypatch.setattr(transformers_engine, "sdpa_attention_forward", wrong)
    assert store_for(qwen) is OneGroup
    monkeypatch.undo()
    monkeypatch.setattr(OneGroup, "forward", lambda *_: torch.full((2, 60), torch.nan))
    monkeypatch.setattr(SharedPrompts, "forward", lambda *_: torch.full((4, 60), torch.nan))
    assert store_for(qwen) is Recomputed
    assert qwen.config._attn_implementation == "sdpa"  # as it was


def test_prompt_is_kept_once_for_eight_responses(qwen):
    with torch.inference_mode():
        for n, sequences in ((1, 1), (8, 1), (9, 2), (20, 3)):
            store = SharedPrompts(qwen, n, 1)
            store.admit([[7] * 30])
            assert {len(x) for layer in store._layers for x in layer.tensors} == {sequences}


def test_attention_reads_keys_and_values_where_they_lie(qwen, monkeypatch):
    """Repeated for each query head, they would be copied in every layer at every step."""
    assert store_for(qwen) is SharedPrompts
    read, attend = [], transformers_engine.scaled_dot_product_attention

    def watched(query, key, value, **kwargs):
        read.extend((key, value))
        return attend(query, key, value, **kwargs)

    with torch.inference_mode():
        store = SharedPrompts(qwen, 4, 2)
        store.admit([[7] * 10, [8] * 10])
        monkeypatch.setattr(transformers_engine, "scaled_dot_product_attention", watched)
        rows = np.arange(8), *np.divmod(np.arange(8), 4)
        store.forward(*rows, np.zeros(8, int))
        stored = [x.data_ptr() for layer in store._layers for x in layer.tensors]
    assert [x.data_ptr() for x in read] == stored
    assert {x.shape[1] for x in read} == {TINY["num_key_value_heads"]}


def test_tokens_of_a_sequence_take_no_more_columns_than_there_are(qwen):
    assert store_for(qwen) is SharedPrompts  # It gives the model the attention that this needs.
    with torch.inference_mode():
        store = SharedPrompts(qwen, 4, 1)
        store.admit([[7] * 10])
        rows = np.arange(3), np.zeros(3, int), np.array([0, 1, 3])
        for step in range(5):
            store.forward(*rows, np.full(3, step))
    assert store._used_S.tolist() == [10 + 5 * 3]
