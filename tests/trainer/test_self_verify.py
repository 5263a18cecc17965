"""The real `main_ppo` on a CPU, where the policy judges its own answers: undisturbed, and killed.

Four steps of `verify_alter` with judgements at the second and the fourth; and the fourth once more,
from the checkpoint of the third.
"""

import subprocess
import sys

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from killed_run import killed_while_saving

from rejuice.pipelines.engine.local import run as run_recipe
from rejuice.pipelines.recipe.read import load
from rejuice.trainer.report import metrics
from rejuice.trainer.warmstart.demonstrator import JUDGE_TEMPLATE

pytestmark = pytest.mark.slow

STEPS, LONGEST_S = 4, 600
PROCESS = [
    {"prompt_template_mapper": {"question": "question", "reference": "answer", "reference_pattern": "#### (.*)"}},
    {"policy_rollout_mapper": {"n": 6, "max_tokens": 40}},
    {"math_verify_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
    {"self_verification_mapper": {"template": JUDGE_TEMPLATE}},
    {"label_balance_selector": {"column": "label", "positive": "Yes", "target": 16}},
    {"policy_rollout_mapper": {"task": "verify", "n": 4, "max_tokens": 40}},
    {"judgement_reward_mapper": None},
    {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    {"grpo_advantage_mapper": None},
]  # fmt: skip
TRAIN = {
    "schedule": "verify_alter", "verification": {"every": 2}, "steps": STEPS,
    "prompts_per_step": 8, "learning_rate": 1e-4, "max_prompt_tokens": 128, "save_every": 1,
    "keep_checkpoints": 5, "loggers": [],
}  # fmt: skip


def rejuice(*words):
    code = "from rejuice.trainer.cli import main; main()"
    line = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("self-verify")
    rejuice("data", home / "train.jsonl", "--prompts", 64, "--responses", 0, "--levels", "1,2")
    document = {
        "project_name": "self-verify",
        "dataset_path": str(home / "train.jsonl"),
        "export_path": str(home / "curated.parquet"),
        "process": PROCESS,
        "train": TRAIN,
    }
    (home / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return home


@pytest.fixture(scope="module")
def whole(home):
    """A run from beginning to end."""
    rejuice("train", home / "recipe.yaml", "--output", home / "whole", "--quiet")
    return home / "whole"


@pytest.fixture(scope="module")
def resumed(home, whole):
    """One that was killed while it saved its last step, and goes on."""
    folder = home / "killed"
    killed_while_saving(whole, folder, STEPS)
    rejuice("train", home / "recipe.yaml", "--output", folder, "--resume", "--quiet")
    return folder


def judged(folder, step):
    return pq.read_table(folder / "steps" / f"{step:06d}" / "verify" / "curated.parquet")


def figures(folder, step):
    found = next(point.figures for point in metrics.read(folder) if point.step == step)
    return {name: value for name, value in found.items() if name.startswith("rejuice/verify/")}


def test_judgements_train_at_every_second_step_on_answers_of_both(whole):
    kept = [(whole / "steps" / f"{step:06d}" / "verify").exists() for step in range(1, STEPS + 1)]
    assert kept == [False, True, False, True]
    for step in (2, 4):
        rows = judged(whole, step)
        sampled_at = set(rows["sampled_at_step"].to_pylist())
        assert sampled_at == {step - 1, step}
        assert set(rows["policy_version"].to_pylist()) == {step - 1}
        labels = rows.group_by(["prompt_id", "label"]).aggregate([])["label"].to_pylist()
        assert labels.count("Yes") == labels.count("No") > 0


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("part", [".", "verify"])
def test_what_was_trained_on_is_what_rejuice_run_gives(whole, tmp_path, step, part):
    folder = whole / "steps" / f"{step:06d}" / part
    again = tmp_path / "again.parquet"
    recipe = load(folder / "recipe.yaml", {"export_path": str(again)})
    run_recipe(recipe, cache=tmp_path / "cache")
    kept, found = pq.read_table(folder / "curated.parquet"), pq.read_table(again)
    found = found.filter(pc.is_in(found["response_id"], kept["response_id"]))
    for name in ("response_id", "reward"):
        assert found[name].to_pylist() == kept[name].to_pylist()


def test_a_run_that_was_killed_judges_the_same_answers_of_the_same_age(whole, resumed):
    first, second = judged(whole, 4), judged(resumed, 4)
    names = ["prompt_id", "label", "judged_response_id", "sampled_at_step", "answer_policy_version"]
    assert second.select(names).to_pylist() == first.select(names).to_pylist()
    assert second["response"].to_pylist() == first["response"].to_pylist()
    assert figures(resumed, 4) == pytest.approx(figures(whole, 4), rel=1e-5)
