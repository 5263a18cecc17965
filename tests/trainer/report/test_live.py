"""`rejuice view RUN --live`: what it shows of a run so far, and when it takes a run for ended."""

import json
import os

import command
import pytest
from page_fixture import Page
from trained_run import tiny_rollouts, write_trained

from rejuice.operators import RejuiceError
from rejuice.trainer.report import live
from rejuice.trainer.report.live import RunSoFar


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.mark.slow
def test_the_page_has_the_curves_so_far_and_the_last_whole_step(tmp_path):
    run = write_trained(tmp_path / "try", tiny_rollouts(tmp_path), (1, 2, 3))
    live = RunSoFar(run, lambda folder: [], str, most_bytes=39_000_000)
    assert live.version().startswith("000003-")
    (run / "steps" / "000003" / "recipe.yaml").unlink()  # It is being written.
    assert live.version().startswith("000002-")
    page = tmp_path / "page.html"
    page.write_bytes(live.page("v1"))
    head = Page(page).head
    assert (head["live"], [each["name"] for each in head["sets"]]) == ("v1", ["step 2"])
    assert [point["step"] for point in head["curves"][0]["points"]] == [1, 2, 3]


@pytest.mark.recommended("trainer/report/stored.py", "give the --output of one")
def test_the_status_has_the_step_the_time_left_the_last_update_and_the_failure(tmp_path):
    run = write_trained(tmp_path / "try", tiny_rollouts(tmp_path), (1, 2))
    now, processes = [1000.0], [1]
    for name in ("metrics.jsonl", "recipe.yaml", "steps"):
        os.utime(run / name, (1000.0, 1000.0))
    live = RunSoFar(
        run,
        lambda folder: processes,
        lambda folder: "out of memory",
        most_bytes=1,
        now=lambda: now[0],
    )
    assert live.status() == "step 2 of 4, 4 s left; last update 00:16:40 UTC"
    processes.clear()
    now[0] = 9000.0
    assert live.status().startswith("step 2 of 4; it has ended: out of memory; last update")


def test_what_is_no_run_is_one_line(tmp_path):
    live = RunSoFar(tmp_path, lambda folder: [], str, most_bytes=39_000_000)
    with pytest.raises(RejuiceError, match="holds no training run; give the --output of one"):
        live.page("v1")


@pytest.mark.slow
def test_a_run_before_its_first_step_has_a_page(tmp_path):
    run = write_trained(tmp_path / "try", tiny_rollouts(tmp_path), ())
    live = RunSoFar(run, lambda folder: [], str, most_bytes=39_000_000)
    assert b'"sets":[]' in live.page(live.version())


def test_a_run_has_ended_when_its_processes_have_and_nothing_is_written(tmp_path):
    processes, now = [1], [0.0]
    live = RunSoFar(tmp_path, lambda folder: processes, str, most_bytes=1, now=lambda: now[0])
    log = tmp_path / "verl.log"
    log.write_text("")
    os.utime(log, (1000.0, 1000.0))
    now[0] = 9000.0
    assert live.is_running()  # A long step writes nothing.
    processes.clear()  # It was killed, or runs on another machine.
    now[0] = 1059.0
    assert live.is_running()
    now[0] = 1061.0
    assert not live.is_running()


@pytest.mark.slow
def test_the_address_is_followed_by_a_space(tmp_path, rejuice, monkeypatch):
    """Terminals take a colon behind it for a part of the link."""
    run = write_trained(tmp_path / "try", tiny_rollouts(tmp_path), (1,))
    address = "http://127.0.0.1:8000/token/"
    monkeypatch.setattr(live, "serve", lambda run, port, tell: tell(address))
    status, out, _ = rejuice("view", run, "--live", "--no-open")
    assert (status, out.splitlines()[0].split()[:3]) == (0, ["Open", address, "in"])


@pytest.mark.recommended("pipelines/cli/analysis.py", "--live")
@pytest.mark.recommended("pipelines/cli/analysis.py", "--port is an option of --live")
def test_only_one_training_run_is_followed(tmp_path, rejuice):
    export = tmp_path / "out.jsonl"
    export.write_text(json.dumps({"prompt": "1 + 1?"}) + "\n")
    cases = (
        (("view", export, "--port", "8000"), "--port is an option of --live; add --live"),
        (("view", export, export, "--live"), "--live follows one run, not 2; give one of them"),
        (("view", export, "--live"), "out.jsonl"),
    )
    for words, expected in cases:
        status, _, error = rejuice(*words, "--no-open")
        assert (status, len(error.strip().splitlines())) == (2, 1), words
        assert expected in error
