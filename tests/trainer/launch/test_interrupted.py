"""After Ctrl-C: a checkpoint that is being written is waited for."""

from types import SimpleNamespace

import pytest
from fake_run import line, save, write_run

from rejuice.trainer import saved
from rejuice.trainer.launch import training


@pytest.mark.parametrize("begun", [True, False])
def test_a_checkpoint_that_is_begun_in_time_is_waited_for(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(training, "_SAVE_S", 0.0)
    monkeypatch.setattr(training, "_POLL_S", 0.0)
    folder = write_run(tmp_path / "run", [line(1, 0.5)])
    polls = []

    def poll():
        polls.append(None)
        if begun and len(polls) == 1:
            saved.folder_of(folder, 1).mkdir(parents=True)
        if len(polls) == 3:
            save(folder, 1)

    run = SimpleNamespace(
        folder=folder, stop_file=folder / "stop", config=SimpleNamespace(save_every=9)
    )
    training._save_last_step(run, SimpleNamespace(poll=poll))
    assert run.stop_file.exists()
    assert saved.last(folder) == (1 if begun else None)
