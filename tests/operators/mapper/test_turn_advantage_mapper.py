"""Credit of turns: by hand, and its expected gradient by enumerating what a policy may do."""

import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from tool_turns import policy, tool

from rejuice.operators import DataError, RecipeError, Scope, build
from rejuice.operators.agents.trajectory import Turn
from rejuice.operators.check import check_operator
from rejuice.operators.columns import TURNS
from rejuice.operators.mapper.turn_advantage_mapper import TurnAdvantageMapper


def turns(*observations):
    """A trajectory with a turn of the policy before and after each observation."""
    calls = [turn for seen in observations for turn in (policy("?"), tool(seen))]
    return [*calls, policy("!")]


def table(groups, **columns):
    """Groups of trajectories, each a list of turns or None."""
    rows = [(f"p{g}", each) for g, group in enumerate(groups) for each in group]
    cells = [None if each is None else [turn._asdict() for turn in each] for _, each in rows]
    kinds = {"reward": pa.float64(), "advantage": pa.float64(), "paid": pa.list_(pa.float64())}
    return pa.table(
        {
            "prompt_id": pa.array([prompt for prompt, _ in rows], pa.string()),
            "turns": pa.array(cells, TURNS),
            **{name: pa.array(each, kinds.get(name)) for name, each in columns.items()},
        }
    )


def change(rows, **fields):
    return check_operator(TurnAdvantageMapper(**fields), rows)


def advantages(rows, **fields):
    return change(rows, **fields).columns["turn_advantage"].to_pylist()


ONE, TWO, THREE = turns(), turns("a"), turns("a", "b")


def test_an_outcome_is_discounted_towards_the_first_turn():
    rows = table([[THREE, ONE], [TWO, None, []]], advantage=[8, -2, None, 1, 1])
    assert advantages(rows, gamma=0.5) == [[2, 4, 8], [-2], None, None, None]
    assert advantages(rows) == [[8, 8, 8], [-2], None, None, None]


def test_returns_and_the_mean_of_the_others():
    # Returns: 1 + 2 + 6 = 9, 8, 6; 3 + 4 = 7, 4; 5. The others of turn 0: (7 + 5) / 2 = 6, 7 and
    # 8; of turn 1: 4 and 8. No other has turn 2.
    rows = table([[THREE, TWO, ONE]], paid=[[1, 2, 5], [3, 3], [4]], reward=[1, 1, 1])
    found = advantages(rows, style="returns", turn_rewards="paid")
    assert found == [[3, 4, 6], [0, -4], [-3]]


def test_returns_are_discounted():
    # 1 + (2 + 4 / 2) / 2 = 3, 4, 4, and 5 of the other: 3 - 5, 5 - 3.
    rows = table([[THREE, ONE]], paid=[[1, 2, 4], [5]])
    found = advantages(rows, style="returns", turn_rewards="paid", outcome=None, gamma=0.5)
    assert found == [[-2, 4, 4], [2]]


def test_without_rewards_of_turns_the_outcome_is_that_of_the_last():
    rows = table([[TWO, ONE]], reward=[1, 0])
    assert advantages(rows, style="returns", gamma=0.5) == [[0.5, 1], [-0.5]]


def test_equal_returns_have_no_advantage_at_all():
    rows = table([[TWO] * 3], reward=[0.1] * 3)
    assert advantages(rows, style="returns") == [[0.0, 0.0]] * 3
    rows = rows.append_column("advantage", pa.array([0.0] * 3))
    assert advantages(rows, style="states") == [[0.0, 0.0]] * 3


def test_a_turn_without_a_reward_leaves_its_trajectory_out():
    rows = table(
        [[TWO, TWO, ONE, ONE], [ONE, ONE], [ONE, None]],
        paid=[[1, None], [1, 3], [2], None, [1], None, None, []],
        reward=[0] * 8,
    )
    found = change(rows, style="returns", turn_rewards="paid")
    assert found.columns["turn_advantage"].to_pylist() == [None, [2, 3], [-2], *[None] * 5]
    reasons = [*[None] * 4, *["group_of_one"] * 2, *["no_turn_rewards"] * 2]
    assert found.reasons.to_pylist() == reasons


def test_gigpo_by_hand():
    # The first turns are in one state; the second ones are, where the same was observed. Returns
    # with gamma 1/2: 1, 2 | 0, 0 | 0.5, 1 | 1. First turns: mean 0.625. Of `a`: mean 1.
    rows = table([[TWO, TWO, turns("c"), ONE]], reward=[2, 0, 1, 1], advantage=[1, -1, 0, 0.5])
    found = advantages(rows, style="states", gamma=0.5, step_weight=2)
    assert found == [
        [1 + 2 * (1 - 0.625), 1 + 2 * (2 - 1)],
        [-1 + 2 * (0 - 0.625), -1 + 2 * (0 - 1)],
        [0 + 2 * (0.5 - 0.625), 0],  # Alone in its state.
        [0.5 + 2 * (1 - 0.625)],
    ]


def test_states_of_other_prompts_are_other_states():
    rows = table([[TWO, ONE], [TWO, ONE]], reward=[1, 0, 5, 5], advantage=[0.0] * 4)
    assert advantages(rows, style="states") == [[0.5, 0], [-0.5], [0, 0], [0]]


def test_what_was_observed_is_all_since_the_turn_before_and_in_order():
    def after(*seen):
        return [policy("?"), *seen, policy("!")]

    frozen = Turn("planner", "a")
    rows = table(
        [
            [
                after(tool("a"), tool("b")),
                after(tool("b"), tool("a")),
                after(tool("a"), tool("b")),
                after(frozen, tool("b")),
                [*after(tool("a"), tool("b")), tool("ignored")],
            ]
        ],
        reward=[1, 2, 3, 5, 9],
        advantage=[0.0] * 5,
    )
    # The first, the third, the fourth, whose planner wrote `a`, and the last have seen the same.
    found = [each[1] for each in advantages(rows, style="states")]
    assert found == [1 - 4.5, 0, 3 - 4.5, 5 - 4.5, 9 - 4.5]


def test_states_may_be_named():
    rows = table([[TWO, ONE]], reward=[3, 1], advantage=[0.0] * 2, state=[["x", "y"], ["y"]])
    found = advantages(rows, style="states", states="state")
    assert found == [[0, 1], [-1]]


def gigpo(group, gamma, weight):
    """By loops, from (advantage, reward, observations) of each trajectory of a group."""
    turns_of_all = [
        (["", *seen][t], gamma ** (len(seen) - t) * reward)
        for _, reward, seen in group
        for t in range(len(seen) + 1)
    ]
    place, found = 0, []
    for advantage, _, seen in group:
        own = turns_of_all[place : place + len(seen) + 1]
        place += len(own)
        means = [np.mean([g for state, g in turns_of_all if state == name]) for name, _ in own]
        parts = [g - mean for (_, g), mean in zip(own, means, strict=True)]
        found.append([advantage + weight * part for part in parts])
    return found


def test_gigpo_is_that_of_a_loop():
    random = np.random.default_rng(0)
    groups = [
        [
            (
                random.normal(),
                random.normal(),
                list(random.choice(list("abc"), random.integers(0, 6))),
            )
            for _ in range(5)
        ]
        for _ in range(6)
    ]
    each = [row for group in groups for row in group]
    rows = table(
        [[turns(*seen) for _, _, seen in group] for group in groups],
        reward=[row[1] for row in each],
        advantage=[row[0] for row in each],
    )
    found = advantages(rows, style="states", gamma=0.95, step_weight=0.7)
    expected = [row for group in groups for row in gigpo(group, 0.95, 0.7)]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)


# --- The expected gradient of a policy that decides whether it goes on ----------------
# In each of at most three turns it stops with probability q = sigmoid(x), or goes on. A turn that
# goes on is paid; where it ends there is an outcome. All groups of two or three trajectories are
# enumerated, each with its probability.

X = 0.4
GO_ON = 1 / (1 + math.exp(X))
TRAJECTORIES = {  # turns: probability, d log p / dx of each turn, rewards of each turn
    1: (1 - GO_ON, [GO_ON], [0.5]),
    2: (GO_ON * (1 - GO_ON), [GO_ON - 1, GO_ON], [1.0, 2.0]),
    3: (GO_ON**2, [GO_ON - 1, GO_ON - 1, 0.0], [1.0, 3.0, -1.0]),
}


def expected_gradient(size, credit):
    """E of the mean over a group of sum_t (d log p_t / dx) A_t, over all groups of a size."""
    groups = list(product(TRAJECTORIES, repeat=size))
    found = iter(credit(groups))
    total = 0.0
    for group in groups:
        weight = math.prod(TRAJECTORIES[each][0] for each in group)
        for each in group:
            total += weight * np.dot(TRAJECTORIES[each][1], next(found)) / size
    return total


def to_go(rewards, gamma):
    return [
        sum(gamma ** (s - t) * rewards[s] for s in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


def without_baseline(groups, gamma):
    return [to_go(TRAJECTORIES[each][2], gamma) for group in groups for each in group]


def centred_by_turn(groups):
    """The natural construction: rewards minus the mean of the turn, and added up afterwards."""
    found = []
    for group in groups:
        rewards = [TRAJECTORIES[each][2] for each in group]
        for own in rewards:
            means = [np.mean([r[t] for r in rewards if len(r) > t]) for t in range(len(own))]
            found.append(to_go(list(np.subtract(own, means)), 1.0))
    return found


def by_operator(gamma):
    def credit(groups):
        made = {1: ONE, 2: TWO, 3: THREE}
        rows = table(
            [[made[each] for each in group] for group in groups],
            paid=[TRAJECTORIES[each][2] for group in groups for each in group],
        )
        fields = {"turn_rewards": "paid", "outcome": None, "gamma": gamma}
        operator = TurnAdvantageMapper(style="returns", **fields)
        return operator.apply(rows).columns["turn_advantage"].to_pylist()

    return credit


def test_the_gradient_of_the_return_is_what_the_sum_without_a_baseline_expects():
    def value(x):
        on = 1 / (1 + math.exp(x))
        chances = {1: 1 - on, 2: on * (1 - on), 3: on**2}
        return sum(chances[turns] * sum(TRAJECTORIES[turns][2]) for turns in TRAJECTORIES)

    slope = (value(X + 1e-5) - value(X - 1e-5)) / 2e-5
    assert expected_gradient(2, lambda groups: without_baseline(groups, 1.0)) == (
        pytest.approx(slope, abs=1e-8)
    )


@pytest.mark.parametrize("gamma", [1.0, 0.8])
@pytest.mark.parametrize("size", [2, 3])
def test_the_baseline_of_returns_is_unbiased(size, gamma):
    expected = expected_gradient(size, lambda groups: without_baseline(groups, gamma))
    assert expected_gradient(size, by_operator(gamma)) == pytest.approx(expected, abs=1e-12)


def test_centring_the_rewards_of_each_turn_is_biased():
    """Why it is not what `returns` does."""
    expected = expected_gradient(3, lambda groups: without_baseline(groups, 1.0))
    assert abs(expected_gradient(3, centred_by_turn) - expected) > 0.05


# --- Errors ---------------------------------------------------------------------------


def test_only_the_outcome_needs_no_group():
    assert TurnAdvantageMapper().scope is Scope.ROW
    assert TurnAdvantageMapper(style="returns").scope is Scope.GROUP
    assert not TurnAdvantageMapper().estimates
    assert TurnAdvantageMapper(style="states").estimates


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"turn_rewards": "paid"},
            r"^style outcome has no turn_rewards: choose returns or states$",
        ),
        (
            {"style": "returns", "outcome": None},
            r"^style returns needs turn_rewards, outcome or both$",
        ),
        (
            {"style": "returns", "step_weight": 2},
            r"^style returns has no states and no step_weight$",
        ),
    ],
)
def test_fields_of_another_style_are_refused(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(TurnAdvantageMapper, fields)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"paid": [[1.0], [1.0, 2.0]]}, r"^row 0 has 1 values in 'paid' and 2 turns of the policy"),
        ({"paid": [1.0, 2.0]}, r"^column 'paid' is double, not a list"),
        ({"paid": [["x", "y"], ["z"]]}, r"^column 'paid' has lists of string"),
        ({"turns": ["?", "!"]}, r"^column 'turns' is string, and no list of turns"),
    ],
)
def test_columns_of_another_kind_are_errors(columns, message):
    rows = table([[TWO, ONE]], reward=[1, 0])
    for name, values in columns.items():
        at = rows.column_names.index(name) if name in rows.column_names else rows.num_columns
        kept = rows.drop_columns([name] if name in rows.column_names else [])
        rows = kept.add_column(min(at, kept.num_columns), name, pa.array(values))
    if "paid" not in rows.column_names:
        rows = rows.append_column("paid", pa.array([[1.0, 1.0], [1.0]]))
    with pytest.raises(DataError, match=message):
        TurnAdvantageMapper(style="returns", turn_rewards="paid").apply(rows)


@pytest.mark.parametrize("style", ["outcome", "returns", "states"])
def test_turns_behind_a_null_are_none(style):
    rows = table([[TWO, ONE], [THREE, TWO]], advantage=[1, 2, 3, 4], reward=[1, 2, 3, 4])
    lists = rows["turns"].combine_chunks()
    mask = pa.array([False, False, True, False])
    hidden = pa.ListArray.from_arrays(lists.offsets, lists.values, mask=mask)
    other = rows.set_column(1, "turns", hidden)
    plain = rows.set_column(1, "turns", pa.array(hidden.to_pylist(), TURNS))
    both = [TurnAdvantageMapper(style=style).apply(each) for each in (other, plain)]
    assert (
        both[0].columns["turn_advantage"].to_pylist()
        == both[1].columns["turn_advantage"].to_pylist()
    )
