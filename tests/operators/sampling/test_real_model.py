"""A real language model, named by `REJUICE_REAL_MODEL`: sampled as transformers computes it."""

import os
from functools import partial

import pytest
import torch
from rounding import LOG_PROBS
from true_policy import TruePolicy

from rejuice.operators.sampling.protocol import Prompt, Settings
from rejuice.operators.sampling.transformers_engine import TransformersEngine

FOLDER = os.environ.get("REJUICE_REAL_MODEL", "")
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="REJUICE_REAL_MODEL names no model"),
    pytest.mark.usefixtures("one_thread"),
]
QUESTIONS = (
    "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total?",
    "Ann has 3 boxes with 4 pens each. She gives 5 pens away. How many pens has she left?",
    "What is 17 + 25?",
)
PROMPTS = [Prompt((("user", question),), seed) for seed, question in enumerate(QUESTIONS)]
WANTED = Settings(n=4, max_tokens=24)


@pytest.fixture(scope="module")
def engine():
    return TransformersEngine(FOLDER)


@pytest.fixture(scope="module")
def groups(engine):
    return dict(engine.sample(PROMPTS, WANTED))


def test_logprobs_are_those_of_a_full_pass(groups):
    true = TruePolicy(FOLDER)
    for group in groups.values():
        for sample in group.samples:
            expected = true.logprobs(group.prompt_token_ids, sample.token_ids)
            assert sample.logprobs == pytest.approx(expected, abs=LOG_PROBS)


@pytest.mark.parametrize("rows", [4, 8])
def test_tokens_do_not_depend_on_the_batch(engine, groups, monkeypatch, rows):
    monkeypatch.setattr(engine, "_rows", rows)
    tokens = partial(map, lambda sample: sample.token_ids)
    for index, group in engine.sample(PROMPTS[::-1], WANTED):
        expected = groups[len(PROMPTS) - 1 - index]
        assert [*tokens(group.samples)] == [*tokens(expected.samples)]


def test_differences_between_batches_stay_below_the_tie_margin(engine, groups):
    """Logits of a response on its own, and beside others, differ by what `TIE_MARGIN` allows."""
    from rejuice.operators.sampling.transformers_engine import TIE_MARGIN

    paths = [
        [*group.prompt_token_ids, *sample.token_ids]
        for group in groups.values()
        for sample in group.samples
    ]
    shortest = min(map(len, paths))
    with torch.inference_mode():
        together = engine._model(torch.tensor([path[:shortest] for path in paths])).logits[:, -1]
        for path, logits in zip(paths, together, strict=True):
            alone = engine._model(torch.tensor([path[:shortest]])).logits[0, -1]
            assert (alone - logits).abs().max() < TIE_MARGIN / 2
