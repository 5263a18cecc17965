"""The figures of training by `data_source`, and what steps with a condition count."""

import pyarrow as pa
import pytest

from rejuice.operators import MathVerifyMapper, RewardSumMapper
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.pipelines.engine.match_log import unmatched_lines
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.verl.curation import continued, curate, values_table
from rejuice.trainer.verl.figures import missing_figures, response_figures, source_figures

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


def test_each_source_has_its_figures():
    curated = curate(STEPS, rollouts())
    found = response_figures(curated, rollouts(), STEPS)
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
    found = missing_figures(rollouts(), STEPS, curated.written)
    assert found == {"missing/accuracy/no_response": 1.0}
    assert curated.decisions["reason"].to_pylist() == ["missing_component"]


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
