"""The statistics are Data-Juicer's own, to the last bit."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.mapper.rule_quality_reward_mapper import ordinary_runs, statistics


def theirs(texts, n):
    from data_juicer.ops.filter.character_repetition_filter import CharacterRepetitionFilter
    from data_juicer.ops.filter.special_characters_filter import SpecialCharactersFilter
    from data_juicer.utils.constant import Fields, StatsKeys

    samples = {"text": texts, Fields.stats: [{} for _ in texts]}
    for one in (CharacterRepetitionFilter(rep_len=n), SpecialCharactersFilter()):
        samples = one.compute_stats_batched(samples)
    names = (StatsKeys.char_rep_ratio, StatsKeys.special_char_ratio)
    return [[stats[name] for stats in samples[Fields.stats]] for name in names]


def same(texts, n):
    found = statistics(pa.array(texts, pa.large_string()), n)
    expected = theirs(texts, n)
    assert found.repetition_N.tolist() == expected[0]
    assert found.special_N.tolist() == expected[1]
    words = [len([word for word in re.split("[ \t\n]", text) if word]) for text in texts]
    assert found.words_N.tolist() == words


texts = st.lists(st.text(alphabet=st.sampled_from("ab1 \n√é日🙂\x00"), max_size=40), max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(texts | st.lists(st.text(max_size=40), max_size=4), st.integers(1, 12))
def test_any_text(texts, n):
    same(texts, n)


@pytest.mark.slow
def test_real_text(shared_data):
    lines = (shared_data / "gsm8k" / "model_solutions.jsonl").read_text("utf-8").splitlines()
    solutions = [
        each["solution"]
        for line in lines[:150]
        for each in json.loads(line).values()
        if isinstance(each, dict)
    ]
    for n in (1, 3, 10):
        same(solutions, n)


@pytest.mark.slow
def test_long_texts_span_blocks():
    rng = np.random.default_rng(0)
    same(["".join(rng.choice(list("abcé "), size)) for size in (300_000, 3, 0, 90_000)], 4)


def test_a_null_is_an_empty_text():
    found = statistics(pa.array([None, "a b", None], pa.large_string()), 10)
    assert found.words_N.tolist() == [0, 2, 0]
    assert found.special_N.tolist() == [0.0, 1 / 3, 0.0]
    assert [len(each) for each in statistics(pa.nulls(0, pa.large_string()), 10)] == [0, 0, 0]


@pytest.mark.slow
def test_the_special_characters_are_data_juicers():
    from data_juicer.ops.common import SPECIAL_CHARACTERS

    expected = sorted(ord(character) for character in SPECIAL_CHARACTERS if len(character) == 1)
    every = (code for code in range(0x110000) if not ordinary_runs().fullmatch(chr(code)))
    assert list(every) == expected


@pytest.mark.parametrize("n", [1, 10])
def test_a_text_repeated_is_all_repetition(n):
    assert statistics(pa.array(["ab" * 500], pa.large_string()), n).repetition_N[0] > 0.49
