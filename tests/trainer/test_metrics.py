"""What verl logged, line by line, and across resumes."""

import math

import pytest
from fake_run import line, write_run

from rejuice.trainer import metrics
from rejuice.trainer.metrics import Point, Reader


def point(**figures):
    return Point(3, figures)


def test_figures_of_a_step(tmp_path):
    run = write_run(tmp_path / "run", [line(3, 0.25, validation=0.5, **{"timing_s/testing": 1.5})])
    (found,) = metrics.read(run)
    assert (found.step, found.trained, found.validation) == (3, True, 0.5)
    assert (found.reward, found.components) == (0.35, {"accuracy": 0.25, "format": 0.1})
    assert (found.pass_rate, found.tokens, found.entropy) == (0.25, 23.0, 0.47)
    assert (found.kl, found.grad_norm) == (0.0, 0.2), "a divergence of 1e-9 is rounding"
    assert (found.sampled, found.dropped, found.generated) == (100, 10, 2300.0)
    assert found.seconds == 3.5


def test_figures_that_are_not_there():
    found = point()
    assert not found.trained
    assert found.components == {}
    assert (found.sampled, found.generated, found.seconds, found.failed) == (0, 0.0, 0.0, 0)
    names = ("validation", "reward", "pass_rate", "tokens", "entropy", "kl", "grad_norm", "dropped")
    assert [getattr(found, name) for name in names] == [None] * len(names)


def test_the_better_of_two_figures():
    both = point(**{"actor/entropy": 1.0, "actor/entropy_loss": 2.0, "actor/kl_loss": 3.0, "actor/ppo_kl": 4.0})  # fmt: skip
    assert (both.entropy, both.kl) == (1.0, 3.0)


def test_what_a_judge_has_failed_at_is_counted_over_components_and_parts():
    found = point(**{
        "rejuice/missing/quality/scorer_malformed": 3.0,
        "rejuice/missing/quality/no_response": 5.0,
        "rejuice/missing/accuracy/scorer_timeout": 2.0,
        "rejuice/verify/missing/quality/scorer_busy": 1.0,
        "rejuice/groups_without_signal": 0.25,
        "rejuice/verify/groups_without_signal": 0.5,
    })  # fmt: skip
    assert found.judge_failures == 6
    assert (found.without_signal, found.judged_without_signal) == (0.25, 0.5)
    none = point()
    assert (none.judge_failures, none.without_signal, none.judged_without_signal) == (0, None, None)


def test_judgements_count_where_there_are_some():
    both = {"rejuice/rows_sampled": 8, "rejuice/verify/rows_sampled": 4, "rejuice/rows_trained": 9}
    found = point(**both, **{"rejuice/tokens_sampled": 50.0, "rejuice/verify/accuracy": 0.75})
    assert (found.sampled, found.dropped, found.generated, found.judged) == (12, 3, 50.0, 0.75)
    # Answers that are sampled only to be judged are not dropped.
    only = {"rejuice/groups": 0, "rejuice/rows_trained": 3}
    assert point(**both | only).dropped == 1


def test_the_reward_of_stored_responses_is_what_verl_was_given():
    assert point(**{"critic/score/mean": 0.5}).reward == 0.5
    assert point(**{"critic/score/mean": 0.5, "rejuice/reward": 0.25}).reward == 0.25


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("val-core/grpo-arithmetic/reward/mean@1", True),
        ("val-core/a/b/acc/mean@16", True),
        ("val-core/a/acc/best@16/mean", False),
        ("val-aux/a/reward/mean@1", False),
    ],
)
def test_which_figure_is_the_validation(name, counts):
    assert (point(**{name: 0.5}).validation == 0.5) is counts


SETS = {
    "rejuice/validation/gsm8k/mean@1": 0.4, "rejuice/validation/gsm8k/mean_low": 0.3,
    "rejuice/validation/gsm8k/mean_high": 0.5, "rejuice/validation/aime/mean@16": 0.1,
    "rejuice/validation/aime/pass@16": 0.3, "rejuice/validation/aime/maj@16": 0.2,
    "rejuice/validation/failed_prompts": 0.0, "val-core/gsm8k/reward/mean@1": 0.41,
}  # fmt: skip


def test_each_validation_set_has_its_own_figures():
    found = point(**SETS)
    assert found.validations == {"gsm8k": 0.4, "aime": 0.1}
    assert found.validation == 0.4
    assert (found.interval("gsm8k"), found.interval("aime")) == ((0.3, 0.5), None)
    assert (found.votes("gsm8k"), found.votes("aime")) == ({}, {"pass@16": 0.3, "maj@16": 0.2})


def test_a_reader_takes_whole_lines_once(tmp_path):
    reader = Reader(tmp_path / "metrics.jsonl")
    assert reader.fresh() == [], "verl has not begun the file"
    path = tmp_path / "metrics.jsonl"
    whole, half = line(1, 0.1), line(2, 0.2)
    path.write_text(whole + half[:30])
    assert [p.step for p in reader.fresh()] == [1]
    assert reader.fresh() == []
    path.write_text(whole + half)
    assert [p.step for p in reader.fresh()] == [2]


def test_null_is_not_a_number_and_a_text_is_left_out(tmp_path):
    text = '{"step": 1, "data": {"actor/grad_norm": null, "b": "x", "c": 1}}\n'
    (tmp_path / "metrics.jsonl").write_text(text)
    for _ in range(2):
        (found,) = metrics.read(tmp_path)
        assert math.isnan(found.grad_norm)
        assert (found.destroyed, found.figures["c"], "b" in found.figures) == (True, 1, False)
        metrics.keep(tmp_path, until=1)  # It is null in what is set aside, too.
    assert "NaN" not in (tmp_path / "metrics.earlier.jsonl").read_text()


def test_steps_before_a_resume_are_kept(tmp_path):
    run = write_run(tmp_path / "run", [line(0, validation=0.1)] + [line(s, 0.1) for s in (1, 2, 3)])
    metrics.keep(run, until=2)
    assert [p.step for p in metrics.read(run)] == [0, 1, 2], "step 3 will be done again"
    # verl starts its file again, with a validation of what it has loaded.
    (run / "metrics.jsonl").write_text(line(2, validation=0.7) + line(3, 0.9))
    found = metrics.read(run)
    assert [p.step for p in found] == [0, 1, 2, 3]
    assert (found[2].validation, found[2].pass_rate) == (0.7, 0.1)
    assert found[3].pass_rate == 0.9
    metrics.keep(run, until=3)
    assert metrics.read(run) == found, "a second resume loses nothing"
