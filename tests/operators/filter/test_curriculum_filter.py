"""What the current stage has."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from rejuice.operators.filter.curriculum_filter import CurriculumFilter
from rejuice.operators.training_step import StepContext

LEVELS = pa.table({"level": [1, 2, 3, None]})
STEP = CurriculumFilter(column="level", stages={0: 1, 0.3: [1, 2], 0.6: {"min": 2}})


@pytest.mark.parametrize(
    ("progress", "kept"), [(0.0, [0]), (0.29, [0]), (0.3, [0, 1]), (0.6, [1, 2]), (1.0, [1, 2])]
)
def test_a_step_keeps_what_is_due(progress, kept):
    step = STEP.at_step(StepContext(1, progress, 4, 0, pa.table({})))
    found = step.decide(LEVELS).to_pylist()
    assert [row for row, why in enumerate(found) if why is None] == kept


def test_offline_every_stage_counts():
    assert STEP.decide(LEVELS).to_pylist() == [None, None, None, "other_stage"]


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        ({0.5: 1}, "no stage begins at 0"),
        ({0: 1, 1.5: 2}, "less than or equal to 1"),
        ({0: {"min": 3, "max": 1}}, "stages.0. has a min above its max"),
    ],
)
def test_stages_that_are_none_are_refused(stages, found):
    with pytest.raises(ValidationError, match=found):
        CurriculumFilter(column="level", stages=stages)


def test_the_column_may_be_a_field():
    step = CurriculumFilter(column="extra_info.level", stages={0: 1})
    assert step.reads_of({"extra_info"}) == ["extra_info"]
    rows = pa.table({"extra_info": [{"level": 1}, {"level": 2}]})
    assert step.apply(rows).reasons.to_pylist() == [None, "other_stage"]
