import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.rule_quality_reward_mapper import (
    RuleQualityRewardMapper,
    statistics,
)
from rejuice.operators.registry import build

GOOD = "<think>Tom has 12 + 5 = 17 apples. Then he eats 3 of them, so 17 - 3 = 14.</think>"


def table(*responses):
    return pa.table({"response": pa.array(responses, pa.string())})


def scores(response, **fields):
    return RuleQualityRewardMapper(**fields).map(table(response))["quality"][0].as_py()


def test_the_contract_of_operators():
    change = check_operator(RuleQualityRewardMapper(), table(GOOD, "", " \n", None, "no", GOOD * 9))
    assert change.columns["reward_quality_missing"].to_pylist() == [
        None, None, None, "no_response", None, None,
    ]  # fmt: skip
    assert change.columns["reward_quality"].to_pylist()[:4] == [0.5, -0.5, -0.5, None]
    assert set(change.columns["quality"][1].as_py().values()) == {1.0}
    assert change.columns["quality"][3].as_py() is None
    assert change.columns["quality_score"].to_pylist()[:4] == [1.0, 0.2, 0.2, None]


def test_a_hand_computed_reward():
    # 5 of 10 words: 3. No repetition: 5. 23 of 46 characters are special: 5. One true statement: 5.
    text = "<think>12 + 5 = 17</think><answer>17</answer>"
    found = RuleQualityRewardMapper().map(table(text, text.replace("= 17", "= 18")))
    assert found["quality"].to_pylist() == [
        {"length": 3.0, "repetition": 5.0, "special_characters": 5.0, "arithmetic": 5.0},
        {"length": 3.0, "repetition": 5.0, "special_characters": 5.0, "arithmetic": 1.0},
    ]
    assert found["quality_score"].to_pylist() == [0.9, 0.7]
    assert found["reward_quality"].to_pylist() == [0.375, 0.125]


@pytest.mark.parametrize(
    ("count", "score"),
    [(1, 2.0), (2, 3.0), (4, 5.0), (6, 5.0), (9, 3.0), (12, 1.0), (99, 1.0)],
)
def test_length(count, score):
    assert scores("word " * count, words=(4, 6), dimensions=["length"]) == {"length": score}


def test_the_dimensions_fall_in_a_straight_line():
    # Nine different n-grams and one that is there three times: 3 of 12.
    text = "aaabcdefghijkl"
    share = statistics(pa.array([text * 3], pa.large_string()), 3).repetition_N[0]
    assert 0.2 < share < 1
    fields = {"ngram": 3, "dimensions": ["repetition"]}
    for low, high in ((share, 1.0), (share / 2, share), (share - 0.1, share + 0.1)):
        expected = 1 + 4 * (high - share) / (high - low)
        found = scores(text * 3, repetition=(low, high), **fields)["repetition"]
        assert found == pytest.approx(expected)
    special = {"dimensions": ["special_characters"]}
    assert scores("ab12", special_characters=(0.25, 0.75), **special) == {"special_characters": 3.0}


@pytest.mark.parametrize(
    ("text", "score"),
    [("no numbers", 3.0), ("1 + 1 = 2", 5.0), ("1 + 1 = 3", 1.0), ("1 + 1 = 2, 2 + 2 = 5", 3.0)],
)
def test_arithmetic(text, score):
    assert scores(text, dimensions=["arithmetic"]) == {"arithmetic": score}


def test_bad_texts_score_less():
    def reward(text):
        return RuleQualityRewardMapper().map(table(text))["reward_quality"][0].as_py()

    good = reward(GOOD)
    assert reward(GOOD.replace("17 apples", "18 apples")) < good
    assert reward(GOOD + "so it is 14, " * 200) < good
    assert reward("14") < good
    assert reward(GOOD + "1 2 3 4 5 6 7 8 9 . ! ? " * 5) < good


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.none() | st.text(max_size=60) | st.just(GOOD), min_size=2, max_size=8), st.data()
)
def test_chunks_change_nothing_and_rewards_are_in_range(texts, data):
    operator, whole = RuleQualityRewardMapper(), table(*texts)
    at = data.draw(st.integers(0, len(texts)))
    found = operator.map(whole)
    parts = [operator.map(part) for part in (whole.slice(0, at), whole.slice(at))]
    for name, column in found.items():
        assert column.to_pylist() == [v for part in parts for v in part[name].to_pylist()]
    for reward, reason in zip(found["reward_quality"].to_pylist(), found["reward_quality_missing"].to_pylist(), strict=True):  # fmt: skip
        assert (reward is None) == (reason is not None)
        assert reward is None or -0.5 <= reward <= 0.5


def test_numbers_are_text_and_lists_are_not():
    assert (
        RuleQualityRewardMapper().map(pa.table({"response": [7]}))["reward_quality"].null_count == 0
    )
    with pytest.raises(DataError, match=r"^column 'response' is list<.*, not text; give strings$"):
        RuleQualityRewardMapper().map(pa.table({"response": [["a"]]}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"words": [9, 3]}, "words: 9 is more than 3"),
        ({"repetition": [0.5, 0.5]}, "repetition: 0.5 is not below 0.5"),
        ({"special_characters": [0.9, 0.5]}, "special_characters: 0.9 is not below 0.5"),
        ({"dimensions": []}, "dimensions: name at least one"),
        ({"dimensions": ["length", "length"]}, "a dimension is listed twice"),
    ],
)
def test_wrong_fields(fields, message):
    with pytest.raises(RecipeError) as error:
        build(RuleQualityRewardMapper, fields)
    assert str(error.value) == message
