"""What is seen of training: a line for each step."""

import io

import pytest
from fake_run import line
from rich.console import Console

from rejuice.trainer.report.watch import Watch, spell


@pytest.fixture
def watch(tmp_path):
    """A factory of watches of a run of four steps; `message` is what was written so far."""

    def make(terminal=False, quiet=False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)
        made = Watch(tmp_path, 4, console, quiet=quiet)
        made.message = console.file.getvalue
        return made

    return make


@pytest.fixture
def log(tmp_path):
    """Append lines to metrics.jsonl."""

    def append(*lines):
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.writelines(lines)

    return append


def test_a_log_gets_a_line_per_step(watch, log, tmp_path):
    with watch() as seen:
        seen.poll()
        log(line(0, validation=0.25))
        seen.poll()
        log(line(1, 0.3))
        seen.poll()
        seen.poll()
        log(line(2, 0.5, validation=0.5, **{"timing_s/testing": 1.0}))
    assert seen.message() == (
        f"starting verl (about a minute); its output is in {tmp_path}/verl.log\n"
        "step 0/4: validation accuracy 0.250\n"
        "step 1/4: reward 0.400, accuracy 0.300, format 0.100, pass rate 0.300, "
        "response tokens 21.0, entropy 0.490, KL 0, rows dropped 10, 2.0 s, 6 s left\n"
        "step 2/4: validation accuracy 0.500, reward 0.600, accuracy 0.500, format 0.100, "
        "pass rate 0.500, response tokens 22.0, entropy 0.480, KL 0, rows dropped 10, 3.0 s, "
        "6 s left\n"
    )
    assert seen.step == 2


SETS = {
    "rejuice/validation/gsm8k/mean@1": 0.4, "rejuice/validation/gsm8k/mean_low": 0.3,
    "rejuice/validation/gsm8k/mean_high": 0.5, "rejuice/validation/aime/mean@16": 0.1,
    "rejuice/validation/aime/pass@16": 0.3, "rejuice/validation/aime/maj@16": 0.2,
}  # fmt: skip


def test_validation_sets_are_shown_apart_and_once(watch, log):
    """verl logs its own mean after ours, at the same step."""
    with watch() as seen:
        log(line(0, **SETS))
        seen.poll()
        log(line(0, validation=0.25), line(1, 0.3), line(2, **SETS), line(2, 0.5, validation=0.5))
    lines = seen.message().splitlines()[1:]
    shown = "validation gsm8k 0.400 [0.300, 0.500], validation aime 0.100, pass@16 0.300, maj@16 0.200"  # fmt: skip
    assert [lines[0], lines[2]] == [f"step 0/4: {shown}", f"step 2/4: {shown}"]
    assert [text.split(",")[0] for text in (lines[1], lines[3])] == [
        "step 1/4: reward 0.400",
        "step 2/4: reward 0.600",
    ]
    assert len(lines) == 4


def test_a_log_says_what_agents_did(watch, log):
    figures = {"turns": 2.5, "tool_calls": 1.5, "tool_errors": 0.25}
    failed = {"failed/tool_failed": 2.0, "failed/time_limit": 1.0}
    logged = {f"rejuice/agent/{name}": value for name, value in (figures | failed).items()}
    with watch() as seen:
        log(line(1, 0.3), line(2, 0.3, **logged))
        seen.poll()
    before, after = seen.message().splitlines()[1:]
    assert "turns" not in before
    assert "response tokens 22.0, turns 2.50, tool calls 1.50, tool errors 0.250, entropy" in after
    assert "trajectories failed 3, 2.0 s" in after


@pytest.mark.parametrize("terminal", [True, False])
def test_a_server_that_is_waited_for_is_shown(watch, log, tmp_path, terminal):
    waiting = "waiting for http://judge:8000/v1 (connection refused): 45 s of 600 s"
    with watch(terminal=terminal) as seen, (tmp_path / "verl.log").open("w") as verl:
        log(line(1, 0.1))
        verl.write(f"step:1\n(TaskRunner pid=77) WARNING: {waiting[:30]}")
        verl.flush()
        seen.poll()
        assert "waiting" not in seen.message()
        verl.write(f"{waiting[30:]}\n(TaskRunner pid=77) more\n")
        verl.flush()
        seen.poll()
        seen.poll()
    lines = [text.strip() for text in seen.message().splitlines() if "waiting" in text]
    assert [text[text.index("waiting") :] for text in lines] == [waiting]


def test_the_first_step_does_not_count_for_the_time_left(watch, log):
    with watch() as seen:
        slow = line(1, 0.1).replace('"timing_s/step": 2.0', '"timing_s/step": 50.0')
        log(slow, line(2, 0.1))
    assert [text.rsplit(", ", 1)[1] for text in seen.message().splitlines()[1:]] == [
        "2 min 30 s left",
        "4 s left",
    ]


def test_a_component_that_is_missing_in_a_step_is_not_shown(watch, log):
    with watch() as seen:
        log(line(1, 0.1).replace('"rejuice/reward_format": 0.1, ', ""), line(2, 0.1))
    first, second = seen.message().splitlines()[1:]
    assert "format" not in first
    assert "format 0.100" in second


def test_rare_figures_are_shown_if_there_are_any(watch, log):
    with watch() as seen:
        log(line(1, 0.1, **{"rejuice/failed_prompts": 0.0}))
        failed = {"rejuice/failed_prompts": 3.0, "rejuice/failed_responses": 2.0}
        log(line(2, 0.1, **failed, **{"rejuice/verify/accuracy": 0.5}))
    first, second = seen.message().splitlines()[1:]
    assert "failed" not in first
    assert "judgement" not in first
    assert "pass rate 0.100, judgement accuracy 0.500, response tokens" in second
    assert "rows dropped 10, prompts failed 3, responses failed 2, 2.0 s" in second


SIGNAL = {"rejuice/groups_without_signal": 0.25, "rejuice/verify/groups_without_signal": 0.5}
JUDGED = {"rejuice/missing/quality/scorer_malformed": 1200.0, "rejuice/missing/format/no_response": 7.0}  # fmt: skip


def test_groups_without_signal_and_judge_failures_are_shown(watch, log):
    with watch() as seen:
        log(line(1, 0.1, **SIGNAL), line(2, 0.2, **SIGNAL, **JUDGED))
    last = seen.message().splitlines()[-1]
    assert "pass rate 0.200, groups without signal 0.250, judgements without signal 0.500" in last
    assert "rows dropped 10, judge failures 1,200, 2.0 s" in last


def test_right_answers_that_are_formulas_are_shown_and_warned_of_once(watch, log):
    notes = {"rejuice/not_worked_out": 1.0}
    with watch() as seen:
        log(line(1, 0.3), line(2, 0.3, **notes), line(3, 0.3, **notes))
    shown = seen.message().splitlines()[1:]
    assert ["not worked out 1.000" in each for each in shown] == [False, True, False, True]
    assert shown[2] == (
        "step 2: warning: 100% of the right answers are only equal to the reference, as the "
        "question's own formula is; worked_out: true of math_verify_mapper asks for a number"
    )


def test_quiet_prints_nothing(watch, log):
    for terminal in (False, True):
        with watch(terminal, quiet=True) as seen:
            log(line(1, 0.1))
        assert seen.message() == ""


@pytest.mark.parametrize(
    ("message", "stage"),
    [
        ("INFO worker.py -- Started a local Ray instance.", "starting the trainer"),
        ("train and validate dataloader initialized, x", "loading the policy"),
        ("all initialize finished, ready to fit", "validating before the first step"),
    ],
)
def test_what_happens_before_the_first_step(watch, tmp_path, message, stage):
    (tmp_path / "verl.log").write_text("all initialize finished, ready to fit, of an earlier run\n")
    with watch() as seen:
        with (tmp_path / "verl.log").open("a") as file:
            file.write(f"{message}\n")
        seen.poll()
        seen.poll()
    assert seen.message().splitlines()[1:] == [stage]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.9, "1 h 0 min"),
        (90061, "25 h 1 min"),
        (float("nan"), "an unknown time"),
    ],
)
def test_spell(seconds, text):
    assert spell(seconds) == text


def test_a_collapse_and_responses_without_an_end_are_logged_at_their_step(watch, log):
    def of_set(mean, low, high):
        return {f"rejuice/validation/a/{name}": value for name, value in (("mean@1", mean), ("mean_low", low), ("mean_high", high))}  # fmt: skip

    cut = {"rejuice/truncated": 1.0}
    with watch() as seen:
        log(line(0, **of_set(0.6, 0.5, 0.7)))
        log(line(1, 0.5, **of_set(0.2, 0.1, 0.55)))  # Perhaps by chance.
        log(line(2, **of_set(0.2, 0.1, 0.3)), line(2, 0.5, **cut, **of_set(0.2, 0.1, 0.3)))
        log(line(3, **{"rejuice/best/step": 3.0}), line(3, 0.5, **cut))
    lines = seen.message().splitlines()
    found = [each for each in lines if "warning" in each or "best" in each]
    assert [each[:7] for each in found] == ["step 2:", "step 2:", "step 3:"]
    assert "collapsed to 0.200, from 0.600 at step 0" in found[0]
    assert "every response ended at max_tokens" in found[1]
    assert "the best validation so far" in found[2]
