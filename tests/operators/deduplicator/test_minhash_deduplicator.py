import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from rejuice.operators.text import tokens as tokens_module
from rejuice.operators.text.minhash import jaccard, signatures
from rejuice.operators.text.tokens import blocks, tokens_of

STORY = (
    "Ann keeps hens behind the old house by the river and every morning she walks to the market "
    "with a basket of eggs, sells most of them to the baker, and gives the rest to her sister, "
    "who lives next to the mill and bakes bread for the whole village on the day before Sunday"
)


def table(*groups):
    return pa.table(
        {
            "prompt_id": pa.array([f"p{i}" for i, g in enumerate(groups) for _ in g], pa.string()),
            "response": pa.array([text for g in groups for text in g], pa.string()),
        }
    )


def dropped(operator, *groups):
    return check_operator(operator, table(*groups)).reasons.to_pylist()


def sign(*texts, **options):
    return signatures(
        pa.array(texts, pa.large_string()), **{"ngram": 3, "lowercase": True, **options}
    )


def words(n, seed):
    return random.Random(seed).choices(
        [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(600)], k=n
    )


def test_drops_what_differs_little_and_keeps_what_differs_much():
    near, far = STORY.replace("old", "green"), " ".join(reversed(STORY.split()))
    assert dropped(MinhashDeduplicator(), [STORY, near, far, None, None]) == [
        None, "near_duplicate", None, None, None,
    ]  # fmt: skip


def test_responses_to_other_prompts_count_only_with_within_all():
    assert dropped(MinhashDeduplicator(), [STORY], [STORY]) == [None, None]
    assert dropped(MinhashDeduplicator(within="all"), [STORY], [STORY]) == [None, "near_duplicate"]


def test_a_nearly_repeated_prompt_loses_its_whole_group():
    contents = [STORY, "How far is it?", STORY.replace("old", "green")]
    prompts = [[{"role": "user", "content": c}] for c in contents for _ in range(2)]
    rows = pa.table(
        {"prompt_id": ["a", "a", "b", "b", "c", "c"], "prompt": pa.array(prompts, MESSAGES)}
    )
    change = check_operator(MinhashDeduplicator(unit="prompt"), rows)
    assert change.reasons.to_pylist() == [None] * 4 + ["near_duplicate_prompt"] * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("has 12 apples", "has 13 apples"),
        ("has 1.5 apples", "has 15 apples"),
        ("has 1 and 2 apples", "has 2 and 1 apples"),
        ("has 1 and 2 apples", "has 12 and apples"),
        ("is -3 below", "is 3 below"),
        ("has 1,2 apples", "has 12 apples"),
        ("has two apples", "has three apples"),
        ("has Two apples", "has Three apples"),
        ("has half of it", "has all of it"),
    ],
)
def test_texts_with_other_numbers_are_never_near_duplicates(one, other):
    pair = [f"{STORY} {one}", f"{STORY} {other}"]
    assert dropped(MinhashDeduplicator(), pair) == [None, None]
    assert dropped(MinhashDeduplicator(lowercase=False), pair) == [None, None]
    loose = MinhashDeduplicator(keep_different_numbers=False)
    assert dropped(loose, pair) == [None, "near_duplicate"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pays 1,000 dollars", "pays 1000 dollars"),
        ("pays $5 today.", "pays 5 dollars today"),
        ("it is 7.", "it is 7"),
    ],
)
def test_the_same_numbers_written_differently_are_the_same(one, other):
    assert dropped(MinhashDeduplicator(), [f"{STORY} {one}", f"{STORY} {other}"])[1]


def test_short_texts_do_not_all_share_one_signature():
    texts = ["yes", "no", "", "x", "the end", "end the", "a+b", "a-b", "是", "不"]
    assert dropped(MinhashDeduplicator(ngram=5), texts) == [None] * len(texts)
    assert dropped(MinhashDeduplicator(ngram=5), ["yes", "no", "Yes"])[2] == "near_duplicate"


def test_estimates_agree_with_the_exact_jaccard():
    errors = []
    for seed in range(60):
        one = words(80, seed)
        other = [w if (i * 7 + seed) % 60 > seed % 20 else "zz" for i, w in enumerate(one)]
        sets = [{tuple(t[i : i + 3]) for i in range(len(t) - 2)} for t in (one, other)]
        signed, _ = sign(" ".join(one), " ".join(other))
        exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        errors.append(jaccard(signed[:1], signed[1:]).item() - exact)
    assert abs(np.mean(errors)) < 0.02  # no bias
    assert np.std(errors) < 0.06  # in theory at most 0.044


def test_finds_most_planted_duplicates_and_little_else():
    texts = [" ".join(words(45, seed)) for seed in range(400)]
    planted = []
    for i in range(0, 400, 4):
        copy = texts[i].split()
        copy[i % 45] = "zz"
        planted.append(" ".join(copy))
    reasons = dropped(MinhashDeduplicator(within="all"), *[[t] for t in texts + planted])
    assert reasons[:400] == [None] * 400
    assert sum(r is not None for r in reasons[400:]) >= 95


def test_thousands_of_one_text_cost_one_comparison():
    rows = table([STORY] * 20_000)
    operator = MinhashDeduplicator()
    reasons = operator.apply(operator.digest(rows)).reasons
    assert reasons.null_count == 1
    assert reasons[0].as_py() is None


texts = st.lists(
    st.one_of(st.none(), st.text(st.sampled_from("ab1,.- \n+é是🙂"), max_size=12)),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@given(texts, st.integers(1, 4))
@settings(max_examples=60)
def test_a_signature_depends_on_its_text_alone(texts, ngram):
    together = sign(*texts, ngram=ngram)
    for i, text in enumerate(texts):
        alone = sign(text, ngram=ngram)
        assert (together[0][i] == alone[0][0]).all()
        assert together[1][i] == alone[1][0]


@pytest.mark.slow
@given(texts)
@settings(max_examples=60)
def test_chunks_do_not_change_the_result(texts):
    operator = MinhashDeduplicator(within="all", threshold=0.5, ngram=1)
    rows = table(*[[t] for t in texts])
    parts = [operator.digest(rows.slice(i, 1)) for i in range(rows.num_rows)]
    one, other = operator.apply(operator.digest(rows)), operator.apply(pa.concat_tables(parts))
    assert one.reasons.to_pylist() == other.reasons.to_pylist()


def test_small_blocks_give_the_same_signatures(monkeypatch):
    texts = [STORY[i : i + 5 * i] for i in range(40)]
    whole = sign(*texts)
    monkeypatch.setattr(tokens_module, "BLOCK_BYTES", 64)
    cut = sign(*texts)
    assert (whole[0] == cut[0]).all()
    assert (whole[1] == cut[1]).all()


def test_tokens_are_words_marks_and_characters_beyond_ascii():
    (block,) = blocks(pa.array(["it's x2+1", "  ", "是不, é", None], pa.large_string()))
    assert np.diff(tokens_of(block).offsets_N1).tolist() == [6, 0, 4, 0]
