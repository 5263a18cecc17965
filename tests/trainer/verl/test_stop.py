"""Validations that end training, and the checkpoint of the best one."""

import pytest
from fake_run import save
from training_stage import PLAIN, Trainer, buffer_of

from rejuice.operators import DataError
from rejuice.trainer import saved
from rejuice.trainer.run import early_end

pytestmark = pytest.mark.slow  # Imports verl.

SET = 4  # prompts


class Saves(Trainer):
    """A trainer that saves checkpoints into the folder of the run."""

    def step(self, metrics, timing_raw):
        metrics["actor/grad_norm"] = 1.0

    def _save_checkpoint(self):
        save(self.file.parent, self.global_steps)


@pytest.fixture
def made(stage):
    def make(**train):
        given = {"steps": 9, "validate_every": 1, "keep_checkpoints": 1, **train}
        return stage(PLAIN, trainer=Saves(), **given)

    return make


def validated(stage, rights, first=0):
    """Take steps as verl does, each with a validation, of which so many responses are right."""
    trainer = stage.trainer
    for trainer.global_steps, right in enumerate(rights, first):
        if trainer.global_steps:
            trainer.step({}, {})
            trainer._save_checkpoint()
        stage.answer({k: ["1" if k < right else "0"] for k in range(SET)}, "val")
        stage.sample(trainer.global_steps, SET, "val")
        stage.queue.partitions.clear()
    return early_end(stage.run.folder)


def test_training_ends_after_validations_without_gain(made, capsys):
    stage = made(stop={"validations_without_gain": 2})
    assert validated(stage, (1, 2, 1, 3, 3)) is None
    step, steps, why = validated(stage, (2,), first=5)
    assert (step, steps, stage.trainer.total_training_steps) == (5, 9, 5)
    assert "0.750 of step 3" in why
    assert saved.steps(stage.run.folder) == [5]
    assert f"step 5: {why}, so training ends here" in capsys.readouterr().out


def test_training_ends_once_all_figures_are_reached(made):
    stage = made(stop={"at": {"accuracy": 0.5, "validation/mean@1": 0.75}})
    assert validated(stage, (0, 1, 2)) is None
    step, _, why = validated(stage, (3,), first=3)
    assert (step, saved.last(stage.run.folder)) == (3, 3)
    assert "accuracy 0.750, validation/mean@1 0.750" in why


def test_what_is_reached_before_a_step_says_so(made):
    stage = made(stop={"at": {"accuracy": 0.5}})
    with pytest.raises(DataError, match=r"step 0: .*accuracy 0.500.* trained a step.*train.stop"):
        validated(stage, (2,))
    assert early_end(stage.run.folder) is None


def test_the_last_step_ends_as_ever(made):
    assert validated(made(stop={"at": {"accuracy": 0.5}}, steps=2), (0, 1, 2)) is None


def test_the_best_checkpoint_is_kept_also_after_a_resume(made):
    stage = made(keep="best", save_every=50)
    folder = stage.run.folder
    validated(stage, (4, 1, 3, 3, 2))
    assert saved.steps(folder) == [2, 4]
    assert saved.best(folder, stage.run.config).step == 2
    stage.buffer = buffer_of(stage.run, stage.trainer)
    validated(stage, (1,), first=5)
    assert saved.steps(folder) == [2, 5]
    validated(stage, (4, 0), first=6)
    assert saved.steps(folder) == [6, 7]
    logged = [data["rejuice/best/step"] for _, data in stage.trainer.logged if len(data) == 2]
    assert logged == [1, 2, 2, 2, 2, 6, 6]


def test_a_step_that_is_no_number_is_not_the_best(made):
    stage = made(keep="best", stop={"nan_steps": 0})
    validated(stage, (0, 1))
    stage.buffer._outcome = stage.buffer._outcome._replace(kind="nan")
    stage.trainer.step = lambda metrics, timing_raw: None
    validated(stage, (4,), first=2)
    assert saved.steps(stage.run.folder) == [1]
