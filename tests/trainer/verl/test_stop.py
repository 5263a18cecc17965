"""What ends training before its last step, and the checkpoint of the best validation."""

from contextlib import nullcontext

import pytest
from fake_run import save
from training_stage import PLAIN, Trainer, buffer_of, summed

from rejuice.operators import DataError
from rejuice.trainer import saved
from rejuice.trainer.launch.training import prepare
from rejuice.trainer.run import early_end

pytestmark = pytest.mark.slow  # Imports verl.

SET = 4  # prompts


class Saves(Trainer):
    """A trainer that saves checkpoints into the folder of the run."""

    sampled = None

    def step(self, metrics, timing_raw):
        metrics["actor/grad_norm"] = 1.0
        return super().step(metrics, timing_raw) if self.sampled else None

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


# --- Outages, and a curriculum that is used up ------------------------------------------


def test_an_outage_of_a_judge_is_named_and_saves_what_was_trained(stage, capsys):
    after = [PLAIN[0], summed("drop_row"), PLAIN[-1]]
    made = stage(after, trainer=Saves(), validation_path=None, steps=9)
    for step, texts in enumerate((["1", "0"], *[["scorer_unreachable", "scorer_busy"]] * 3), 1):
        made.answer({step: texts}, step=step)
        with nullcontext() if step < 4 else pytest.raises(DataError) as found:
            made.train(step, 1)
        made.queue.partitions.clear()
    failed = "scorer_unreachable 1, scorer_busy 1 of 2 responses have no accuracy"
    assert f"step 2: warning: {failed}, so the step is left out" in capsys.readouterr().out
    assert str(found.value).startswith(f"step 4: {failed}, in 3 steps in a row; ")
    assert saved.steps(made.run.folder) == [4]


def test_an_outage_from_the_first_step_on_saves_nothing(stage):
    made = stage([PLAIN[0], summed("drop_row"), PLAIN[-1]], trainer=Saves(), validation_path=None)
    for step in (1, 2, 3):
        made.answer({step: ["scorer_error"] * 2}, step=step)
        with nullcontext() if step < 3 else pytest.raises(DataError, match="scorer_error 2 of 2"):
            made.train(step, 1)
        made.queue.partitions.clear()
    assert saved.last(made.run.folder) is None


@pytest.mark.parametrize("reason", ["scorer_malformed", "scorer_refused"])
def test_a_judge_whose_answers_are_no_verdicts_is_no_outage(stage, reason, capsys):
    made = stage([PLAIN[0], summed("drop_row"), PLAIN[-1]], trainer=Saves(), validation_path=None)
    made.answer({1: [reason, reason, "scorer_error"]}, step=1)
    with pytest.raises(DataError, match=f"step 1: no group is left .*{reason} 2"):
        made.train(1, 1)
    assert "the step is left out" not in capsys.readouterr().out


SOLVED = ["1"] * 4


@pytest.mark.parametrize("mode", [{}, {"mode": "colocate_async", "max_age": 1}])
def test_a_curriculum_that_is_used_up_ends_training_well(stage, mode):
    choosing = [{"history_mapper": None}, {"retire_filter": {"visits": 1}}]
    made = stage(PLAIN, choosing=choosing, prompts=4, trainer=Saves(), steps=9, **mode)
    made.uid_of = lambda index, made: f"{8 * made + index:09d}"
    for step in (1, 2):
        wanted = 4 if mode and step == 1 else 2
        rows = made.buffer._choose(step, wanted)
        assert len(rows) == (0 if mode and step == 2 else wanted), "none is chosen twice"
        if rows:
            made.answer(dict.fromkeys(rows, SOLVED), step=step)
        assert early_end(made.run.folder) is None
        made.train(step, 2)
    step, steps, why = early_end(made.run.folder)
    assert (step, steps, made.trainer.total_training_steps) == (2, 9, 2)
    assert "no prompt is left to sample (too_easy 4)" in why
    made.trainer._save_checkpoint()
    assert saved.last(made.run.folder) == 2
    with pytest.raises(DataError, match=r"step 3: no prompt is left to sample .*drop less"):
        prepare(made.run.recipe, made.run.folder, resume=True)
