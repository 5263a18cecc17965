"""What would destroy a policy, or train nothing, is named at its step, and ends training."""

import math

import pytest
from training_stage import PLAIN, Trainer, summed

from rejuice.operators.errors import DataError
from rejuice.trainer.run import recorded_error

pytestmark = pytest.mark.slow  # Imports verl.


@pytest.mark.parametrize("name", ["actor/grad_norm", "actor/pg_loss"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_updates_that_are_no_numbers_save_nothing_and_end_training(stage, name, value):
    class Broken(Trainer):
        def __init__(self):
            super().__init__()
            self.found, self.saved = value, []

        def step(self, metrics, timing_raw):
            metrics[name] = self.found

        def _save_checkpoint(self):
            self.saved.append(self.global_steps)

    trainer = Broken()
    made = stage(PLAIN, validation_path=None, trainer=trainer, save_every=1)
    counted = []
    for step, found in enumerate((value, 0.5, value, value), 1):
        trainer.global_steps, trainer.found, metrics = step, found, {}
        trainer.step(metrics, {})
        trainer._save_checkpoint()
        counted.append(metrics.get("rejuice/nan_steps", 0))
    assert (counted, trainer.saved) == ([1, 0, 1, 2], [2])
    trainer.global_steps = 5
    with pytest.raises(DataError, match=r"step 5: .* is nan.*, in 3 steps in a row.*learning_rate"):
        trainer.step({}, {})
    assert recorded_error(made.run.folder).expected


DROPS = [PLAIN[0], summed("drop_row"), PLAIN[-1]]


def credit(*columns):
    return [{"bare_reward_mapper": None}, {"credit_mapper": {"columns": [*columns]}}]


@pytest.mark.parametrize(
    ("after", "texts", "found"),
    [
        (DROPS, ["nan"] * 4, "step 3: no group is left .*missing_component 4"),
        (DROPS, ["inf", "-inf", "inf", "nan"], "step 3: no group is left"),
        (credit("advantage"), ["1 advantage=Infinity"] * 4, "step 3: .*infinite_advantage 4"),
        (credit("advantage"), ["1 advantage=NaN"] * 4, "step 3: .*no_advantage 4"),
        (
            credit("advantage", "loss_weight"),
            ["1 advantage=1 loss_weight=Infinity"] * 4,
            "loss_weight",
        ),
        (
            credit("advantage", "token_weight"),
            ["1 advantage=1 token_weight=[NaN]"] * 4,
            "token_weight",
        ),
    ],
    ids=["nan_reward", "inf_reward", "inf_advantage", "nan_advantage", "inf_weight", "nan_weights"],
)
def test_rewards_and_weights_that_are_no_numbers_are_named(stage, after, texts, found):
    made = stage(after, validation_path=None)
    made.answer({0: texts}, step=3)
    with pytest.raises(DataError, match=found):
        made.train(3, 1)
    assert recorded_error(made.run.folder).expected


def test_an_empty_stage_of_a_curriculum_is_named_before_it_begins(stage):
    rows = [{"question": f"{k}?", "answer": "1", "level": str(k % 2)} for k in range(4)]
    stages = {"curriculum_filter": {"column": "level", "stages": {0: "2", 0.5: "1"}}}
    with pytest.raises(DataError, match="the stage from 0 on matches none of 4 rows"):
        stage(PLAIN, choosing=[stages], rows=rows)
