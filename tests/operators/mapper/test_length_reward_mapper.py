import math

import pyarrow as pa
import pytest

from rejuice.operators import DataError, RecipeError, Scope, build
from rejuice.operators.check import check_operator
from rejuice.operators.columns import right_and_wrong
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.length_reward_mapper import LengthRewardMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper

RIGHT, WRONG = "correct", "wrong_answer"


def table(*groups):
    """Groups of (tokens, verdict); None tokens: there are no ids."""
    rows = [(f"p{g}", *row) for g, group in enumerate(groups) for row in group]
    ids = [None if n is None else [1] * n for _, n, _ in rows]
    return pa.table(
        {
            "prompt_id": pa.array([row[0] for row in rows], pa.string()),
            "response": pa.array([None if n is None else "é" * 2 * n for _, n, _ in rows]),
            "response_token_ids": pa.array(ids, pa.list_(pa.int32())),
            "verdict": pa.array([row[2] for row in rows], pa.string()),
        }
    )


def rewards(rows, **fields):
    columns = check_operator(LengthRewardMapper(**fields), rows).columns
    return [column.to_pylist() for column in columns.values()]


def lengths(*sizes, verdict=RIGHT):
    return table([(size, verdict) for size in sizes])


def test_soft_overlong_by_hand():
    found = rewards(
        lengths(0, 80, 85, 90, 100, 101, 500, None),
        style="soft_overlong",
        max_length=100,
        buffer=20,
    )
    assert found[0] == [0, 0, -0.25, -0.5, -1, -1, -1, None]
    assert found[1][-1] == "no_length"


def test_cosine_by_hand():
    fields = {"style": "cosine", "max_length": 100}
    # Half a cosine: at a half its middle, at a quarter (1 + cos(pi / 4)) / 2 of the way back.
    quarter = 0.5 + 0.5 * (1 + math.cos(math.pi / 4)) / 2
    assert rewards(lengths(0, 25, 50, 100), **fields)[0] == pytest.approx([1, quarter, 0.75, 0.5])
    wrong = rewards(lengths(0, 50, 100, verdict=WRONG), **fields)[0]
    assert wrong == pytest.approx([-1, -0.75, -0.5])
    # open-r1's would rise again, to that of an empty response at 200.
    assert rewards(lengths(150, 200), **fields)[0] == [0.5, 0.5]
    assert rewards(lengths(0, 100), right=(3, 2), **fields)[0] == [3, 2]


def test_shorter_compares_right_responses_only():
    rows = table(
        [(10, RIGHT), (30, RIGHT), (20, RIGHT), (1, WRONG), (99, "no_answer")],
        [(5, RIGHT), (1, WRONG)],
        [(5, WRONG), (1, WRONG)],
        [(7, RIGHT), (7, RIGHT)],
    )
    assert rewards(rows, style="shorter")[0] == [1, 0, 0.5, 0, 0] + [0] * 6


def test_a_bonus_for_being_short_does_not_hide_that_all_responses_are_right():
    rows = table([(10, RIGHT), (30, RIGHT)], [(1, WRONG), (2, WRONG)])
    right_N, _ = right_and_wrong(rows["verdict"])
    for name, column in LengthRewardMapper(style="shorter").apply(rows).columns.items():
        rows = rows.append_column(name, column)
    rows = rows.append_column("reward_accuracy", pa.array(right_N.astype(float)))
    operator = RewardSumMapper(weights={"accuracy": 1.0, "length": 0.1})
    rows = rows.append_column("reward", operator.apply(rows).columns["reward"])
    advantage = GrpoAdvantageMapper(normalise="none").apply(rows).columns["advantage"].to_pylist()
    assert advantage[0] > 0 > advantage[1]
    assert advantage[2:] == [0, 0]  # Failing fast gains nothing.
    assert rows["reward_accuracy"].to_pylist() == [1, 1, 0, 0]


@pytest.mark.parametrize("style", ["cosine", "shorter"])
def test_without_a_verdict_it_is_missing(style):
    rows = table([(10, RIGHT), (2, None), (3, "timeout"), (None, RIGHT), (20, RIGHT)])
    fields = {"max_length": 100} if style == "cosine" else {}
    values, reasons = rewards(rows, style=style, **fields)
    assert reasons == [None, "not_graded", "not_graded", "no_length", None]
    assert [value is None for value in values] == [False, True, True, True, False]
    if style == "shorter":
        assert [values[0], values[4]] == [1, 0]


def test_characters_are_counted_if_asked_for():
    fields = {"style": "soft_overlong", "max_length": 100, "buffer": 20}
    assert rewards(lengths(45), unit="characters", **fields)[0] == [-0.5]
    rows = lengths(45).drop_columns(["response_token_ids"])
    assert rewards(rows, unit="characters", **fields)[0] == [-0.5]


def test_only_shorter_needs_the_group():
    assert LengthRewardMapper(style="shorter").scope is Scope.GROUP
    assert LengthRewardMapper(style="cosine", max_length=9).scope is Scope.ROW


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"style": "cosine"}, r"^style cosine needs max_length$"),
        ({"style": "soft_overlong", "max_length": 9}, r"^style soft_overlong needs buffer$"),
        ({"style": "shorter", "max_length": 9}, r"^style shorter has no max_length$"),
        ({"style": "cosine", "max_length": 9, "buffer": 2}, r"^style cosine has no buffer$"),
        (
            {"style": "soft_overlong", "max_length": 9, "buffer": 10},
            r"^buffer 10 is above max_length 9$",
        ),
        ({"style": "shorter", "right": [2, 1]}, r"^style shorter has no right and wrong$"),
    ],
)
def test_fields_of_another_style_are_refused(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(LengthRewardMapper, fields)


def test_columns_of_another_type_are_errors():
    operator = LengthRewardMapper(style="soft_overlong", max_length=9, buffer=1)
    with pytest.raises(DataError, match=r"^column 'response_token_ids' is string, not a list"):
        operator.apply(pa.table({"response_token_ids": ["1 2"]}))
    operator = operator.model_copy(update={"unit": "characters"})
    with pytest.raises(DataError, match=r"^column 'response' is int64, not text"):
        operator.apply(pa.table({"response": [1]}))


@pytest.mark.slow
def test_soft_overlong_is_trls():
    from trl.rewards import get_soft_overlong_punishment

    theirs = get_soft_overlong_punishment(max_completion_len=50, soft_punish_cache=30)
    rows = lengths(*range(70))
    ours = rewards(rows, style="soft_overlong", max_length=50, buffer=30)[0]
    assert ours == pytest.approx(theirs(rows["response_token_ids"].to_pylist()), abs=1e-12)
