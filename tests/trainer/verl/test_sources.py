"""The figures of training by `data_source`, and what steps with a condition count."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from rejuice.operators import Mapper, MathVerifyMapper, RewardSumMapper
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.pipelines.engine.conditional_step import unmatched_lines
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.verl.curation import Curation, continued, curate, missing_figures, values_table
from rejuice.trainer.verl.figures import response_figures, source_figures

A, B = {"data_source": "a"}, {"data_source": "b"}
STEPS = number_steps(
    [
        MathVerifyMapper(where=A),
        MathVerifyMapper(where=B, right=3.0),
        FormatRewardMapper(where={"data_source": "c"}),
        RewardSumMapper(weights={"accuracy": 1.0, "format": 1.0}, on_missing="drop_row"),
    ]
)
RIGHT, WRONG, NONE = r"\boxed{2}", r"\boxed{3}", None
ROWS = [
    ("p", "a", RIGHT), ("p", "a", WRONG), ("q", "b", RIGHT), ("q", "b", NONE), ("r", "c", RIGHT),
]  # fmt: skip


def rollouts(rows=ROWS):
    return pa.table(
        {
            "prompt_id": [prompt for prompt, _, _ in rows],
            "response_id": [str(number) for number in range(len(rows))],
            "data_source": pa.array([source for _, source, _ in rows], pa.string()),
            "response": pa.array([text for _, _, text in rows], pa.string()),
            "reference": ["2"] * len(rows),
            "response_token_ids": [[1]] * len(rows),
        }
    )


def figures_of(curated, rows, steps):
    return response_figures(curated, rows, values_table(rows, steps, curated.written), steps)


def test_each_source_has_its_figures():
    curated = curate(STEPS, rollouts())
    found = figures_of(curated, rollouts(), STEPS)
    assert {name: n for name, n in found.items() if name.startswith("source/")} == {
        "source/a/pass_rate": 0.5,
        "source/a/reward": 0.5,
        "source/b/pass_rate": 1.0,
        "source/b/reward": 3.0,
        "source/c/reward": pytest.approx(-0.1),
    }
    # Two steps write verdicts, and each of them counts once.
    assert curated.verdicts == {"correct": 2, "wrong_answer": 1, None: 1}
    assert found["pass_rate"] == 2 / 3


def test_what_is_not_applicable_is_not_missing():
    curated = curate(STEPS, rollouts())
    found = missing_figures(values_table(rollouts(), STEPS, curated.written))
    assert found == {"missing/accuracy/no_response": 1.0}
    assert curated.decisions["reason"].to_pylist() == ["missing_component"]


def test_figures_are_of_the_columns_of_steps_and_not_of_the_names_of_steps():
    steps = number_steps(
        [
            MathVerifyMapper(),
            RewardSumMapper(weights={"accuracy": 1.0}, on_missing="drop_row", where=A),
            RewardSumMapper(weights={"accuracy": 0.5}, on_missing="drop_row", where=B),
        ]
    )
    rows = rollouts()
    figures = figures_of(curate(steps, rows), rows, steps)
    named = {name for name in figures if name.startswith("reward")}
    assert named == {"reward", "reward_accuracy"}
    assert figures["reward"] == pytest.approx((1.0 + 0.0 + 0.5) / 3)


class RoundRewardMapper(Mapper):
    """A component of true and false."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("reward_round", "reward_round_missing")

    def map(self, table):
        right = [True, False, None, None, True]
        return {
            "reward_round": pa.array(right[: table.num_rows]),
            "reward_round_missing": pa.nulls(table.num_rows, pa.string()),
        }


def test_the_mean_of_true_and_false_is_a_share():
    rows, steps = rollouts(), number_steps([RoundRewardMapper()])
    figures = figures_of(curate(steps, rows), rows, steps)
    assert figures["reward_round"] == pytest.approx(2 / 3)


def test_the_share_of_right_answers_that_are_not_worked_out_is_over_all_groups():
    formula = [("f", "a", "That is 1 + 1."), ("f", "a", RIGHT)]
    rows = rollouts([*formula, *[("p", "a", RIGHT)] * 2])
    steps = number_steps([MathVerifyMapper(worked_out=False)])
    with ThreadPoolExecutor(1) as pool:
        curation = Curation(steps, pool)
        for at in (0, 2):
            curation.add(rows.slice(at, 2))
        curated = curation.close(pa.array(["f", "p"]))
    assert figures_of(curated, rows, steps)["not_worked_out"] == 1 / 4


def unmatched(curated):
    return [*unmatched_lines((name, each.why_none()) for name, each in curated.matches.items())]


def test_a_condition_that_matches_no_row_is_named():
    steps = number_steps([MathVerifyMapper(where={"data_source": "aa"})])
    (line,) = unmatched(curate(steps, rollouts()))
    assert line == (
        "math_verify_mapper: `where` matches none of 5 rows: data_source is aa in no row, but "
        "a 2, b 2, c 1; did you mean 'a'?"
    )
    assert unmatched(curate(STEPS, rollouts())) == []
    both = continued(curate(steps, rollouts()), STEPS[2:3])
    assert unmatched(both) == [line]


@pytest.mark.parametrize("sources", [["a"] * 3, [None] * 3, [str(n) for n in range(21)]])
def test_without_some_few_sources_there_are_no_figures(sources):
    rows = rollouts([(f"p{n}", source, RIGHT) for n, source in enumerate(sources)])
    curated = curate(STEPS[:1], rows)
    values = values_table(rows, STEPS[:1], curated.written)
    assert source_figures(rows, values) == {}
    without = rows.drop_columns(["data_source"])
    assert source_figures(without, values) == {}
