"""Runs that sample ahead, killed at any moment and resumed: no sample is lost, none trains twice.

`KILLS` says how often each is killed; in CI once.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest
import yaml

from rejuice.trainer.launch import checkpoints
from rejuice.trainer.launch.training import of_run

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "1"))
PROMPTS, N, AGE, SAVE_EVERY = 8, 4, 2, 2
STEPS = 4 + 3 * KILLS
PROCESS = [
    {"prompt_template_mapper": {"question": "question", "reference": "answer", "reference_pattern": "#### (.*)"}},
    {"policy_rollout_mapper": {"n": N, "max_tokens": 24}},
    {"math_verify_mapper": None},
    {"format_reward_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    {"policy_age_filter": {"max_age": AGE}},
    {"grpo_advantage_mapper": None},
    {"importance_weight_mapper": {"level": "sequence"}},
]  # fmt: skip
LONGEST_S = 300


def started(recipe, folder, *words):
    code = "from rejuice.pipelines.cli.main import main; main()"
    line = [sys.executable, "-c", code, "train", recipe, "--output", folder, "--quiet", *words]
    return subprocess.Popen(list(map(str, line)), stderr=subprocess.PIPE, text=True)


def killed_after(child, folder, seconds):
    """Kill a run and all its processes, so long after it has trained another step."""
    steps, end = folder / "steps", time.monotonic() + LONGEST_S
    there = len(list(steps.glob("*"))) if steps.exists() else 0
    while not steps.exists() or len(list(steps.glob("*"))) <= there:
        assert child.poll() is None, child.stderr.read()[-2000:]
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(seconds)
    child.kill()
    child.wait()
    for process in of_run(folder):
        process.kill()


def waiting(folder):
    """By prompt, the responses that were sampled, and that the checkpoint has not trained on."""
    saved = checkpoints.last(folder) or 0
    done = {each for step in range(1, saved + 1) for each in responses(folder, step)}
    found = [json.loads(file.read_text()) for file in (folder / "ahead").glob("*.json")]
    return {
        each["prompt_id"]: [sample["token_ids"] for sample in each["samples"]]
        for each in found
        if each["prompt_id"] not in done
    }


def responses(folder, step):
    """By prompt, the responses that a step has sampled."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "steps" / f"{step:06d}" / "rollouts.parquet")
    found = {}
    for row in table.select(["prompt_id", "response_token_ids"]).to_pylist():
        found.setdefault(row["prompt_id"], []).append(row["response_token_ids"])
    return found


@pytest.fixture(scope="module")
def recipe(home):
    document = yaml.safe_load((home / "recipe.yaml").read_text())
    data = home / "many.jsonl"
    document["dataset_path"] = str(data)
    document["generated_datasets"] = {str(data): {"type": "arithmetic", "prompts": 1000}}
    document["process"] = PROCESS
    document["train"] = {
        "steps": STEPS, "prompts_per_step": PROMPTS, "learning_rate": 1e-4, "max_age": AGE,
        "max_prompt_tokens": 128, "save_every": SAVE_EVERY, "validate_every": 0, "loggers": [],
    }  # fmt: skip
    (home / "ahead.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return home / "ahead.yaml"


@pytest.mark.parametrize("mode", ["separate_async", "colocate_async"])
def test_no_sample_is_lost_and_none_trains_twice(home, recipe, ended, mode):
    if KILLS == 1 and mode == "colocate_async":
        pytest.skip("KILLS=10 runs both: on a CPU they differ in sync_every alone")
    folder, draw, kept = home / mode, random.Random(mode), {}
    for kill in range(KILLS):
        again = ["--resume"] if kill else []
        child = started(recipe, folder, "--train.mode", mode, *again)
        killed_after(child, folder, draw.uniform(0, 2))
        kept |= waiting(folder)
    child = started(recipe, folder, "--train.mode", mode, "--resume")
    assert child.wait(LONGEST_S * 4) == 0, child.stderr.read()[-2000:]

    # verl logs the figures of a step after its checkpoint: a run that is killed between has none.
    lost = {*range(1, STEPS + 1)} - {*ended(folder).trained}
    assert len(lost) <= KILLS
    assert not {step % SAVE_EVERY for step in lost} - {0}
    trained = {step: responses(folder, step) for step in range(1, STEPS + 1)}
    assert {len(found) for found in trained.values()} == {PROMPTS}
    counts = Counter(prompt for found in trained.values() for prompt in found)
    assert set(counts.values()) == {1}
    final = {prompt: each for found in trained.values() for prompt, each in found.items()}
    assert kept
    assert {prompt: final.get(prompt) for prompt in kept} == kept
    ages = {age for step in trained for age in ended(folder).table(step, "rollouts")["policy_age"].to_pylist()}  # fmt: skip
    assert max(ages) in range(1, AGE + 1)
    assert not list((folder / "ahead").glob("*.json"))
