import pyarrow as pa
import pytest

from rejuice.operators import LossWeightMapper, RecipeError, build
from rejuice.operators.check import check_operator
from rejuice.pipelines.engine.steps import run_in_memory

ROWS = pa.table(
    {"prompt_id": ["p", "p", "q"], "finish_reason": ["stop", "length", None], "reward": [1.0, 0, 1]}
)


def test_every_row_has_the_weight():
    change = check_operator(LossWeightMapper(weight=0.25), ROWS)
    assert change.columns["loss_weight"].to_pylist() == [0.25] * 3
    assert change.columns["loss_weight"].type == pa.float64()


def test_overlong_filtering_masks_truncated_responses_alone():
    step = LossWeightMapper(where={"finish_reason": "length"})
    found = run_in_memory([step], ROWS)
    assert found["loss_weight"].to_pylist() == [None, 0.0, None]
    assert found["reward"].to_pylist() == ROWS["reward"].to_pylist()


def test_a_second_condition_leaves_the_weights_of_the_first():
    steps = [
        LossWeightMapper(where={"finish_reason": "length"}),
        LossWeightMapper(where={"finish_reason": "stop"}, weight=0.5),
    ]
    assert run_in_memory(steps, ROWS)["loss_weight"].to_pylist() == [0.5, 0.0, None]


@pytest.mark.parametrize("weight", [-0.1, 1.5, float("nan")])
def test_a_weight_is_from_0_to_1(weight):
    with pytest.raises(RecipeError, match="field 'weight'"):
        build(LossWeightMapper, {"weight": weight})
