"""What messages about training recommend is run, word by word; nothing here trains."""

import re
import shlex

import pytest
from command import runner
from fake_run import line, save, write_recipe

from rejuice.operators import RejuiceError
from rejuice.trainer.cpu import fork_server
from rejuice.trainer.launch import checkpoints, prompts, training

LINES = [line(0, validation=0.25), *(line(step, step / 10) for step in (1, 2, 3, 4))]


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    """The command, in a folder with a recipe; it must end with `code`, and returns its output."""
    run = runner(monkeypatch, capsys, tmp_path)
    write_recipe(tmp_path / "my try.yaml")

    def checked(words, code=0):
        name, *rest = shlex.split(words)
        assert name == "rejuice"
        found, out, err = run(*rest)
        assert found == code, err
        return out + err

    return checked


@pytest.fixture(autouse=True)
def trains(monkeypatch):
    """What verl does, in its stead: by default it trains all steps."""

    class Verl:
        steps, checkpoint, status = LINES, 4, 0

    def launched(run, **_):
        (run.folder / "metrics.jsonl").write_text("".join(Verl.steps))
        (run.folder / "verl.log").touch()
        if Verl.checkpoint:
            save(run.folder, Verl.checkpoint)
        return Verl.status

    monkeypatch.setattr(training, "launch", launched)
    monkeypatch.setattr(fork_server, "is_supported", lambda: False)
    monkeypatch.setattr(training, "of_run", lambda folder: [])
    monkeypatch.setattr(prompts, "chat_encoder", lambda *_: lambda messages: [0] * 3)
    monkeypatch.setattr(
        checkpoints, "_merge", lambda run, actor, target, variables: target.mkdir(exist_ok=True)
    )
    return Verl


def commands(message):
    """The commands in backticks."""
    return re.findall(r"`(rejuice [^`]*)`", message)


@pytest.mark.slow
@pytest.mark.recommended("pipelines/cli/training.py", "`rejuice train {…} --resume`")
@pytest.mark.parametrize("checkpoint", [None, 2])
def test_a_run_that_failed_is_resumed(rejuice, trains, checkpoint):
    trains.steps, trains.checkpoint, trains.status = LINES[:4], checkpoint, 1
    (command,) = commands(rejuice("rejuice train 'my try.yaml'", code=1))
    trains.steps, trains.checkpoint, trains.status = LINES, 4, 0
    assert "4 steps" in rejuice(command)


@pytest.mark.slow
@pytest.mark.recommended(
    "pipelines/cli/training.py",
    "`rejuice export policy {…} DIR` and `rejuice report {…} --curves FILE`",
)
def test_what_could_not_be_written_is_written(rejuice, monkeypatch, tmp_path):
    def fails(*_):
        raise RejuiceError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(training, "draw", fails)
        policy, curves = commands(rejuice("rejuice train 'my try.yaml'", code=1))
    rejuice(policy.replace("DIR", "policy"))
    assert (tmp_path / "policy").is_dir()
    rejuice(curves.replace("FILE", "curves.png"))
    assert (tmp_path / "curves.png").is_file()


@pytest.mark.slow
@pytest.mark.recommended("trainer/launch/training.py", "leave --resume out")
@pytest.mark.recommended("trainer/launch/training.py", "give --steps to train more")
@pytest.mark.recommended("trainer/launch/training.py", "give --resume to continue it, or another --output")  # fmt: skip
def test_the_options_of_train(rejuice, trains):
    train = "rejuice train 'my try.yaml'"
    assert "leave --resume out" in rejuice(f"{train} --resume", code=2)
    trains.steps, trains.checkpoint, trains.status = LINES[:4], 2, 1
    rejuice(train, code=1)
    err = rejuice(train, code=2)
    assert "give --resume to continue it, or another --output" in err
    trains.steps, trains.checkpoint, trains.status = LINES, 4, 0
    rejuice(f"{train} --resume")
    rejuice(f"{train} --output outputs/another")
    assert "give --steps to train more" in rejuice(f"{train} --resume --train.seed 7", code=2)
    trains.checkpoint = 5
    rejuice(f"{train} --resume --steps 5")


@pytest.mark.slow
@pytest.mark.recommended("pipelines/cli/training.py", "--steps with --resume trains more, another --output starts anew")  # fmt: skip
def test_what_a_finished_run_recommends(rejuice, trains, tmp_path):
    train = "rejuice train 'my try.yaml'"
    rejuice(train)
    assert "--steps with --resume trains more, another --output starts anew" in rejuice(train)
    trains.steps, trains.checkpoint = [*LINES, line(5, 0.5)], 5
    assert "5 steps in" in rejuice(f"{train} --resume --steps 5")
    trains.steps, trains.checkpoint = LINES, 4
    assert "nothing to do" not in rejuice(f"{train} --output another")


@pytest.mark.slow
@pytest.mark.recommended("trainer/report/curves.py", "give the --output of one")
def test_the_output_of_a_run_has_curves(rejuice, tmp_path):
    rejuice("rejuice train 'my try.yaml' --output 'a run'")
    step = "'a run/recipe.yaml'"
    assert "give the --output of one" in rejuice(f"rejuice report {step} --curves x.png", code=2)
    rejuice("rejuice report 'a run' --curves curves.png")
    assert (tmp_path / "curves.png").is_file()
