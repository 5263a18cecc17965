"""Steps without signal, under the real `main_ppo`: they leave the policy as it is, and end the run."""

import json

import pytest
import yaml

from rejuice.trainer import saved

pytestmark = pytest.mark.slow

SOLVED = '''
import numpy as np
import pyarrow as pa

from rejuice.operators import Mapper


class SolvedMapper(Mapper):
    """A reward that differs before the first update, and is 1 after it."""

    def reads(self):
        return ("response", "policy_version")

    def writes(self):
        return ("reward",)

    def map(self, table):
        version_N = table["policy_version"].to_numpy()
        reward_N = np.where(version_N == 0, np.arange(len(version_N)) % 2, 1)
        return {"reward": pa.array(reward_N.astype(float))}
'''


@pytest.fixture(scope="module")
def solved(home, rejuice, ended):
    """Eight steps were asked for, and all is solved after the first."""
    (home / "solved.py").write_text(SOLVED)
    document = yaml.safe_load((home / "recipe.yaml").read_text())
    # Verdicts, by which the held-out problems are graded.
    graders = ("prompt_template_mapper", "policy_rollout_mapper", "math_verify_mapper")
    steps = [each for each in document["process"] if not {*graders}.isdisjoint(each)][:3]
    last = [{"solved_mapper": None}, {"reward_std_filter": {"min": 1e-6}}]
    document["process"] = [*steps, *last, {"grpo_advantage_mapper": None}]
    document["custom_operator_paths"] = [str(home / "solved.py")]
    for name in ("schedule", "verification", "refill"):
        del document["train"][name]
    document["train"] |= {"steps": 8, "stop_without_signal": 2, "save_every": 50}
    document["train"] |= {"keep": "best", "keep_checkpoints": 1, "validate_every": 1}
    (home / "solved.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    rejuice("train", home / "solved.yaml", "--output", home / "solved", "--quiet")
    return ended(home / "solved")


def test_it_ends_with_policy_curves_and_the_reason(solved):
    assert solved.trained == [1, 2, 3]
    assert json.loads((solved.folder / "ended.json").read_text()) == {
        "step": 3, "steps": 8, "why": "no group has a signal, in 2 steps in a row",
    }  # fmt: skip
    assert (solved.folder / "policy" / "config.json").exists()
    assert (solved.folder / "curves.png").exists()
    best = int(solved.figures(3)["rejuice/best/step"])
    accuracy = {n: solved.figures(n)["rejuice/validation/validation/mean@2"] for n in (1, 2, 3)}
    assert (best, accuracy[best]) == (max(accuracy, key=accuracy.get), max(accuracy.values()))
    assert saved.steps(solved.folder) == sorted({best, 3})


def test_skipped_steps_leave_the_policy_as_it_is(solved):
    assert solved.figures(1)["actor/grad_norm"] > 0
    for step in (2, 3):
        figures = solved.figures(step)
        assert "actor/grad_norm" not in figures
        assert (figures["rejuice/groups_without_signal"], figures["rejuice/rows_trained"]) == (1, 0)
        assert figures["timing_s/step"] > 0
        assert solved.table(step, "decisions")["reason"].unique().to_pylist() == [
            "no_reward_spread"
        ]
    accuracy = "rejuice/validation/validation/mean@2"
    assert {accuracy} <= solved.figures(0).keys() & solved.figures(3).keys()


def test_a_resume_has_nothing_to_do(home, solved, rejuice):
    before = (solved.folder / "verl.log").stat().st_mtime_ns
    rejuice("train", home / "solved.yaml", "--output", solved.folder, "--resume")
    assert (solved.folder / "verl.log").stat().st_mtime_ns == before


def test_a_rate_that_destroys_the_policy_is_named_at_the_next_step(home, rejuice):
    document = yaml.safe_load((home / "recipe.yaml").read_text())
    document["process"] = [
        document["process"][0],
        {"policy_rollout_mapper": {"n": 4, "max_tokens": 40}},
        {"math_verify_mapper": None},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
        {"grpo_advantage_mapper": None},
    ]
    for name in ("schedule", "verification", "refill", "validation_path", "validation_n"):
        del document["train"][name]
    document["train"] |= {"learning_rate": 1e6, "stop": {"nan_steps": 1}}
    (home / "destroyed.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    words = (home / "destroyed.yaml", "--output", home / "destroyed")
    logged = rejuice("train", *words, status=1)
    failed = "rejuice: training failed: step 2: grad_norm is nan or infinite: no update was made"
    assert failed in logged
    assert saved.steps(home / "destroyed") == [1]
    assert not (home / "destroyed" / "policy").exists()
