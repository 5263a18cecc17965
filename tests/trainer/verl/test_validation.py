"""Validation sets: their figures, and each with its own prompts, n and temperature."""

from itertools import combinations
from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from training_stage import PLAIN

pytestmark = pytest.mark.slow  # Imports verl.


@pytest.fixture
def validation(verl):
    from rejuice.trainer import accuracy as figures

    return figures


def graded(prompts):
    """A table of prompts, each a list of (answer, is right)."""
    rows = [(f"p{at}", *each) for at, responses in enumerate(prompts) for each in responses]
    return pa.table(
        {
            "prompt_id": [name for name, _, _ in rows],
            "extracted_answer": pa.array([answer for _, answer, _ in rows], pa.string()),
            "verdict": ["correct" if right else "wrong_answer" for *_, right in rows],
            "reward_accuracy": [float(right) for *_, right in rows],
        }
    )


# --------------------------------------------------------------------------- figures


def test_the_figures_of_an_example_by_hand(validation):
    """One prompt with 1 of 4 right, and one with 3 of 4."""
    found = validation.set_figures(
        graded(
            [
                [("1", False), ("2", True), ("1", False), (None, False)],
                [("7", True), ("7", True), ("8", False), (" 7 ", True)],
            ]
        ),
        4,
    )
    assert found.pop("mean_low") < 0.5 < found.pop("mean_high")
    # pass@2: 1 - C(3, 2) / C(4, 2) = 1/2 and 1 - C(1, 2) / C(4, 2) = 1.
    assert found == {"mean@4": 0.5, "pass@2": 0.75, "pass@4": 1.0, "maj@4": 0.5}


@pytest.mark.parametrize(("n", "right"), [(1, 0), (4, 0), (4, 1), (5, 3), (8, 7), (6, 6)])
def test_pass_at_k_is_the_share_of_the_subsets_that_have_a_right_one(validation, n, right):
    for k in range(1, n + 1):
        subsets = list(combinations(range(n), k))
        share = np.mean([any(each < right for each in subset) for subset in subsets])
        assert validation.pass_at_k(n, right, k) == pytest.approx(share)


@pytest.mark.parametrize(
    ("answers", "right", "expected"),
    [
        (["3", "3", "4"], {"3"}, 1.0),
        (["3", "3", "4"], {"4"}, 0.0),
        (["3", "4"], {"4"}, 0.5),  # A tie, whatever came first.
        (["3", "4", "5"], {"4"}, 1 / 3),
        ([None, None, "4"], {"4"}, 1.0),  # Who gives no answer does not vote.
        ([None, ""], set(), 0.0),
    ],
)
def test_the_majority(validation, answers, right, expected):
    rights = [answer in right for answer in answers]
    assert validation.majority(answers, rights) == pytest.approx(expected)
    assert validation.majority(answers[::-1], rights[::-1]) == pytest.approx(expected)


def test_verls_own_validation_metrics_agree(validation):
    """verl draws with replacement: pass@k to it is 1 - (1 - c / n)^k, up to its bootstrap."""
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    rng = np.random.default_rng(3)
    prompts = [
        [("7", True) if right else (str(rng.integers(3)), False) for right in rng.random(32) < p]
        for p in (0.05, 0.2, 0.5, 0.7, 0.9)
    ]
    table = graded(prompts)
    ours = validation.set_figures(table, 32)
    infos = {
        "reward": table["reward_accuracy"].to_pylist(),
        "pred": table["extracted_answer"].to_pylist(),
    }
    uids = table["prompt_id"].to_pylist()
    theirs = process_validation_metrics(["set"] * len(uids), uids, infos)["set"]["reward"]
    assert ours["mean@32"] == pytest.approx(theirs["mean@32"])
    rights = [sum(right for _, right in each) for each in prompts]
    for k in (2, 4, 8, 16):
        with_replacement = np.mean([1 - (1 - right / 32) ** k for right in rights])
        assert theirs[f"best@{k}/mean"] == pytest.approx(with_replacement, abs=0.02)
        assert ours[f"pass@{k}"] == pytest.approx(
            np.mean([1 - comb(32 - right, k) / comb(32, k) for right in rights])
        )
        assert theirs[f"best@{k}/mean"] < ours[f"pass@{k}"] + 0.02
    # Of 2 out of 32, drawing with replacement makes little difference.
    assert ours["pass@2"] == pytest.approx(theirs["best@2/mean"], abs=0.02)
    # Three of five majorities are right, and none of them is close to a tie.
    assert ours["maj@32"] == 0.6
    assert theirs["maj@32/mean"] == pytest.approx(0.6, abs=0.05)


def test_one_response_each_has_wilsons_interval(validation):
    """8 of 10: 0.490 to 0.943, as in Wilson (1927)."""
    found = validation.AccuracyInterval.of(np.array([1.0] * 8 + [0.0] * 2), 10)
    assert found == pytest.approx((0.8, 0.490, 0.943), abs=5e-4)


def test_an_interval_does_not_take_the_responses_to_one_prompt_for_independent(validation):
    prompts = np.array([1.0] * 8 + [0.0] * 2)
    same = validation.AccuracyInterval.of(prompts, 160)  # All 16 responses to a prompt are alike.
    assert same == pytest.approx(validation.AccuracyInterval.of(prompts, 10))
    alike = validation.AccuracyInterval.of(np.full(10, 1 / 3), 30)
    # 2 x 1.96 x sqrt(2/9 / 10 + (1.96 / 20)^2) / (1 + 1.96^2 / 10)
    assert alike.high - alike.low == pytest.approx(0.505, abs=5e-4)
    assert validation.AccuracyInterval.of(np.ones(10), 10).low == pytest.approx(0.722, abs=5e-4)
    assert validation.AccuracyInterval.of(np.array([-1.0, 1.0, 1.0]), 3).low < -0.5


def test_a_prompt_with_few_graded_responses_has_no_part_in_pass_at_many(validation):
    found = validation.set_figures(graded([[("1", True)] * 2, [("2", False)] * 4]), 4)
    assert (found["mean@4"], found["pass@2"], found["pass@4"]) == (0.5, 0.5, 0.0)


def test_one_response_has_no_other_figures(validation):
    found = validation.set_figures(graded([[("1", True)], [("2", False)]]), 1)
    assert set(found) == {"mean@1", "mean_low", "mean_high"}


def test_without_verdicts_a_response_of_accuracy_1_is_right(validation):
    table = graded([[("1", True), ("2", False)]]).drop_columns(["verdict"])
    assert validation.set_figures(table, 2)["pass@2"] == 1.0


# --------------------------------------------------------------------------- in a run


@pytest.fixture
def sets(stage, tmp_path):
    """A run that validates on two sets; the second has other columns, and the first's prompts."""
    rows = [{"problem": f"What is {k} + 1?", "answer": str(k + 1), "level": k} for k in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "other.parquet")
    overrides = {"prompt_template_mapper": {"question": "problem"}}
    other = {"path": str(tmp_path / "other.parquet"), "n": 2, "temperature": 0.5, "overrides": overrides}  # fmt: skip
    first = str(tmp_path / "validation.jsonl")
    return stage(PLAIN, validation_path=None, validation={"first": first, "other": other})


def test_each_set_is_graded_and_reported_apart(sets, capsys):
    """Prompts of both have the same ids, and the same responses."""
    first = sets.ask([0, 1], "val", 3, split="validation-first")
    other = sets.ask([0, 1], "val", 3, split="validation-other")
    sets.answer({0: ["1"], 1: ["timeout"]}, "val", 3, slots=first)
    sets.answer({0: ["1", "0"], 1: ["0", "0"]}, "val", 3, slots=other)
    sets.fail([2], "val", 3)
    batch, figures = sets.sample(3, 5, "val")
    assert figures == {}
    assert sets.rewards(batch) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert set(sets.queue.kv_list("val")["val"]) == set(batch.keys)
    [(step, logged)] = sets.trainer.logged
    logged = {name.removeprefix("rejuice/validation/"): x for name, x in logged.items()}
    intervals = {name: logged.pop(name) for name in list(logged) if "low" in name or "high" in name}
    assert step == 3
    assert logged == {
        "failed_prompts": 1,
        "first/mean@1": 1.0, "first/ungraded": 1, "first/failed_responses": 0,
        "other/mean@2": 0.25, "other/pass@2": 0.5, "other/ungraded": 0, "other/failed_responses": 0,
    }  # fmt: skip
    assert intervals["other/mean_low"] < 0.25 < intervals["other/mean_high"]
    folder = sets.run.folder / "validations"
    kept = {name: pq.read_table(folder / name / "000003.parquet") for name in ("first", "other")}
    assert kept["first"]["response"].to_pylist() == ["1", "timeout"]
    assert kept["other"]["level"].to_pylist() == [0, 0, 1, 1]
    settings = [row["temperature"] for row in kept["other"]["sampling"].to_pylist()]
    assert settings == [0.5] * 4
    assert "step 3: 1 response of first without an accuracy" in capsys.readouterr().out


def test_a_response_that_no_step_is_to_grade_is_not_ungraded(stage, capsys):
    scripted = {"scripted_mapper": {"where": {"response": ["1", "0", "timeout"]}}}
    run = stage([scripted, *PLAIN[1:]])
    run.ask([0, 1, 2], "val", 3)
    run.answer({0: ["1"], 1: ["timeout"], 2: ["another task"]}, "val", 3)
    batch, _ = run.sample(3, 3, "val")
    assert run.rewards(batch) == [1.0]
    [(_, logged)] = run.trainer.logged
    ungraded = [value for name, value in logged.items() if name.endswith("/ungraded")]
    assert ungraded == [1.0]
    assert ": 1 response of " in capsys.readouterr().out


def test_the_prompts_say_how_they_are_sampled_also_after_a_resume(sets):
    from rejuice.trainer.launch.prompts import write_prompts

    folder = sets.run.folder / "prompts"

    def rows(name):
        return pq.read_table(folder / f"validation-{name}.parquet").to_pylist()

    first, other = rows("first")[3], rows("other")[3]
    assert (first["data_source"], first["__rollout_n__"]) == ("first", 1)
    assert (other["data_source"], other["__rollout_n__"]) == ("other", 2)
    assert other["prompt"] == first["prompt"]
    assert other["extra_info"] == {
        "index": 3, "prompt_id": first["extra_info"]["prompt_id"], "split": "validation-other",
        "temperature": 0.5, "top_p": 1.0, "max_tokens": 16,
    }  # fmt: skip
    held_out = [each._replace(settings=each.settings._replace(n=5)) for each in sets.run.held_out]
    write_prompts(sets.run._replace(held_out=tuple(held_out)), overwrite=False)
    assert rows("other")[3]["__rollout_n__"] == 5
