"""Signs of reward hacking in simulated runs: false alarms as stated, planted hacks found.

benchmarks/bench_signs.py prints the same figures of more runs.
"""

import numpy as np
import pytest
from simulated_signs import HACKS, audited, simulated

from rejuice.pipelines.analysis.reward_hacking import ALPHA, SignResult, signs_of, with_alarms

EXPORT = (
    "length pays", "format without accuracy", "quality without accuracy",
    "format carries the advantage", "quality carries the advantage", "many boxes", "echo of the prompt",
)  # fmt: skip
TRAINING = (
    "length pays", "length drift", "format outruns accuracy", "quality outruns accuracy", *EXPORT[1:],
)  # fmt: skip
NEVER_FOUND_BY_CHANCE = ("format carries the advantage", "quality carries the advantage")
"""Accuracy has most of the advantage in a clean run."""


def most_alarms(runs, rate):
    """The number that so many alarms exceed with a probability of 0.1% (binomial)."""
    logs = np.cumsum([0.0, *np.log(np.arange(1, runs + 1))])
    k = np.arange(runs + 1)
    log_p = logs[runs] - logs[k] - logs[runs - k] + k * np.log(rate) + (runs - k) * np.log1p(-rate)
    return int(np.argmax(np.cumsum(np.exp(log_p)) >= 0.999))


def check_clean(runs, steps, **fields):
    """False alarms of clean runs, of the family and of each sign."""
    found = [audited(seed, steps=steps, **fields) for seed in range(runs)]
    alarms = sum(any(each.alarm for each in run.values()) for run in found)
    assert alarms <= most_alarms(runs, ALPHA)
    for name in TRAINING if steps > 1 else EXPORT:
        p = np.sort([run[name].p for run in found])
        for rate in (0.01, 0.05, 0.2):
            assert (p <= rate).sum() <= most_alarms(runs, rate), (name, rate)
        if name in NEVER_FOUND_BY_CHANCE:
            continue
        # Great p-values would be no false alarms, but no tests either; ties make them greater.
        least = 0.5 if name == "many boxes" else 1.0
        assert (p <= 0.2).sum() >= least * (runs - most_alarms(runs, 0.8)), name


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 40])
def test_few_clean_runs_have_an_alarm(steps):
    check_clean(100, steps)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 40])
def test_one_clean_run_in_a_hundred_has_an_alarm_at_most(steps):
    check_clean(400, steps)


def found_in(hack, runs, steps=None):
    """In how many runs with a hack its sign alarms."""
    steps = steps or (100 if hack in ("length drift", "format outruns accuracy") else 1)
    return sum(audited(seed, hack, steps=steps)[hack].alarm for seed in range(runs))


@pytest.mark.slow
@pytest.mark.parametrize("hack", HACKS)
def test_a_planted_hack_is_found(hack):
    assert found_in(hack, 4) == 4


@pytest.mark.slow
@pytest.mark.parametrize("hack", HACKS)
def test_planted_hacks_are_found_in_95_of_100_runs(hack):
    assert found_in(hack, 20) >= 19


@pytest.mark.slow
def test_a_component_as_strong_as_accuracy_is_found_as_often_as_stated():
    """The edge of the null hypothesis: each group is as likely to have more of one as of the other."""
    p = []
    for seed in range(200):
        rows = simulated(seed)
        own = dict.fromkeys(rows.parts, rows.components["quality"])
        rng = np.random.default_rng([8, seed])
        own["quality"], own["accuracy"] = rng.normal(size=(2, len(rows.groups_N)))
        own["format"] = np.zeros(len(rows.groups_N))
        rows = rows._replace(parts=own, advantages_N=own["quality"] + own["accuracy"])
        found = {x.name: x.p for x in signs_of(rows._replace(components={}))}
        p.append(found["quality carries the advantage"])
    assert np.mean(p) == pytest.approx(0.5, abs=4 / np.sqrt(12 * 200))
    assert (np.array(p) <= 0.05).sum() <= most_alarms(200, 0.05)


def test_what_a_hack_is_not_has_no_alarm():
    """A sign is of its own hack: an echo that pays is neither many boxes nor a format."""
    found = audited(0, "echo of the prompt")
    assert [name for name, each in found.items() if each.alarm] == ["echo of the prompt"]


def test_too_few_groups_have_a_reason_and_no_p_value():
    found = audited(0, groups=12)
    assert {each.p for each in found.values()} == {None}
    assert found["format carries the advantage"].reason == "too few groups (12)"
    assert found["many boxes"].reason.startswith("too few groups (")
    assert not any(each.alarm for each in found.values())


def test_what_is_not_there_is_named():
    rows = simulated(0)
    nothing = np.full(len(rows.groups_N), np.nan)
    rows = rows._replace(
        right_N=nothing, advantages_N=nothing, boxes_N=nothing, echo_N=nothing, parts={}
    )
    reasons = {each.name: each.reason for each in signs_of(rows)}
    assert reasons == {
        "length pays": "no advantages",
        "format without accuracy": "no verdicts",
        "quality without accuracy": "no verdicts",
        "many boxes": "no verdicts",
        "echo of the prompt": "no advantages",
    }
    empty = rows._replace(
        response_ids=[],
        components={},
        **{name: getattr(rows, name)[:0] for name in rows._fields if name.endswith("_N")},
    )
    assert [each.p for each in signs_of(empty)] == [None] * 3


def test_rows_behind_a_sign_are_those_that_make_it():
    rows = simulated(0, "many boxes")
    found = {each.name: each for each in signs_of(rows)}["many boxes"]
    at = [int(row[1:]) for row in found.rows]
    assert len(at) == 20
    # Boxes with right, or none with wrong, where the group is mixed.
    assert (rows.boxes_N[at] == rows.right_N[at]).all()


def test_a_drift_with_a_rising_pass_rate_is_no_alarm():
    rows = simulated(0, "length drift", steps=100)
    rising = np.random.default_rng(0).random(len(rows.steps_N)) < rows.steps_N / 100
    rows = rows._replace(right_N=rising.astype(float), verdicts_N=rising.astype(np.int64))
    # Length depends on the step alone: it drifts among groups with as many right, too.
    drift = {x.name: x for x in with_alarms([*signs_of(rows)])}["length drift"]
    assert drift.p <= ALPHA
    assert not drift.alarm
    assert drift.reason.startswith("no alarm: the pass rate has risen")


@pytest.mark.parametrize("rising", [True, False])
def test_validation_decides_where_there_is_enough(rising):
    rows = simulated(0, "length drift", steps=100)
    values = [(step, 0.3 + 0.004 * step * rising) for step in range(0, 100, 10)]
    found = {x.name: x for x in with_alarms([*signs_of(rows, values)])}["length drift"]
    assert found.alarm is not rising
    assert found.reason.startswith("no alarm: validation has risen") is rising


def test_signs_of_one_set_do_not_depend_on_the_others():
    rows = simulated(3)
    once = {x.name: x.p for x in signs_of(rows)}
    fewer = rows._replace(components={"quality": rows.components["quality"]}, parts={})
    again = {x.name: x.p for x in signs_of(fewer)}
    assert all(once[name] == p for name, p in again.items())


def test_alarms_are_corrected_over_those_with_a_p_value():
    def sign(p, reason=""):
        return SignResult("x", "", p, 0.5, reason=reason)

    found = with_alarms([sign(0.004), sign(None, "too few groups (3)"), sign(0.3), sign(0.0001)])
    assert [each.alarm for each in found] == [True, False, False, True]
    assert [x.alarm for x in with_alarms([sign(0.006), sign(0.3)])] == [False, False]
    # Holm counts a drift that something explains, but it is no alarm.
    explained = with_alarms([sign(0.0001, "no alarm: validation has risen"), sign(0.01)])
    assert [each.alarm for each in explained] == [False, True]
