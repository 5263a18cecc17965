"""A policy that is destroyed: updates that are not numbers are counted, and end training."""

import math

import pytest
from training_stage import PLAIN, Trainer

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
