"""Real runs of `main_ppo` on a CPU, which all tests of this folder share: each takes a minute to start.

Four steps from the embedded policy, by a recipe that has everything: it chooses the prompts of each
step, drops rows and groups, has a schedule of weights and a refill, replays groups of earlier steps,
and trains on judgements of answers at every second step.
"""

import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from killed_run import killed_while_saving

from rejuice.operators.sampling.processes import DEFAULT_ENVIRONMENT
from rejuice.operators.workers import usable_cores
from rejuice.trainer import metrics
from rejuice.trainer.cpu.fork_server import PreloadServer, is_supported
from tools.embedded_policy.problems import JUDGE_TEMPLATE

STEPS, PROMPTS, N = 4, 16, 6
LONGEST_S = 900

CHOOSING = [
    {"history_mapper": None},
    {"retire_filter": {"visits": 1}},
    {"difficulty_selector": {"explore": 0.5, "cooldown_steps": 1}},
]
"""At each step, before it samples."""
PROCESS = [
    {"prompt_template_mapper": {"question": "question", "reference": "answer", "reference_pattern": "#### (.*)"}},
    *CHOOSING,
    {"policy_rollout_mapper": {"n": N, "max_tokens": 40}},
    {"math_verify_mapper": None},
    {"format_reward_mapper": None},
    {"length_filter": {"unit": "tokens", "max": 24}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": {"from": 1.0, "to": 0.25}}, "on_missing": "drop_row"}},
    {"reward_std_filter": {"min": 1.0e-6}},
    {"replay_selector": {"max_age": 2}},
    {"grpo_advantage_mapper": {"std_floor": 0.1}},
    {"importance_weight_mapper": None},
    {"self_verification_mapper": {"template": JUDGE_TEMPLATE}},
    {"label_balance_selector": {"column": "label", "positive": "Yes", "target": 16}},
    {"policy_rollout_mapper": {"task": "verify", "n": 4, "max_tokens": 40}},
    {"judgement_reward_mapper": None},
    {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    {"grpo_advantage_mapper": {"std_floor": 0.1}},
]  # fmt: skip
TRAIN = {
    "schedule": "verify_alter", "verification": {"every": 2}, "steps": STEPS,
    "prompts_per_step": PROMPTS, "refill": 1, "learning_rate": 1e-4, "kl_coef": 0.01,
    "max_prompt_tokens": 128, "save_every": 1, "keep_checkpoints": 5, "validate_every": STEPS,
    "validation_n": 2, "loggers": ["tensorboard"],
}  # fmt: skip


def command(*words, cwd=None, status=0):
    """`rejuice`, in a process of its own; what it writes to standard error."""
    code = "from rejuice.pipelines.cli.main import main; main()"
    line = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(
        line,
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == status, done.stderr[-3000:]
    return done.stderr


class Run:
    """The folder of a run that has ended."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def trained(self):
        """The steps that were trained."""
        return [point.step for point in metrics.read(self.folder) if point.trained]

    def step(self, step, part="."):
        """The folder of a step, or of its judgements."""
        return self.folder / "steps" / f"{step:06d}" / part

    def table(self, step, name, part="."):
        return pq.read_table(self.step(step, part) / f"{name}.parquet")

    def recipe(self, step):
        """What was applied to the rollouts of a step, as its operators' keys and fields."""
        return yaml.safe_load((self.step(step) / "recipe.yaml").read_text())["process"]

    def figures(self, step):
        found = {point.step: point.figures for point in metrics.read(self.folder)}
        return found[step]


@pytest.fixture(scope="package", autouse=True)
def fork_server():
    """One for all trainings, of which each would load the libraries of verl for ten seconds."""
    if not is_supported():
        yield
        return
    environment = {**DEFAULT_ENVIRONMENT, "OMP_NUM_THREADS": str(usable_cores())}
    with PreloadServer(environment) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def rejuice():
    return command


@pytest.fixture(scope="session")
def ended():
    """From the folder of a run that has ended to what is in it."""
    return Run


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("main-ppo")
    for split, prompts in (("train", 200), ("validation", 12)):
        command("data", home / f"{split}.jsonl", "--prompts", prompts, "--responses", 0, "--levels", "1,2", "--split", split)  # fmt: skip
    document = {
        "project_name": "parity",
        "dataset_path": str(home / "train.jsonl"),
        "export_path": str(home / "curated.parquet"),
        "process": PROCESS,
        "train": {**TRAIN, "validation_path": str(home / "validation.jsonl")},
    }
    (home / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return home


@pytest.fixture(scope="session")
def run(home):
    """A run from beginning to end."""
    command("train", home / "recipe.yaml", "--output", home / "run", "--quiet")
    return Run(home / "run")


@pytest.fixture(scope="session")
def resumed(home, run):
    """One that `kill -9` ended while it saved its last step, and that goes on at another rate."""
    folder = home / "killed"
    killed_while_saving(run.folder, folder, STEPS)
    command("train", home / "recipe.yaml", "--output", folder, "--resume", "--quiet", "--train.learning_rate", 5e-6)  # fmt: skip
    return Run(folder)


@pytest.fixture(scope="session")
def replayed(home, run):
    """One that trains on the answers that the first has collected, without sampling."""
    collected = home / "collected.parquet"
    tables, seen = [run.table(step, "curated") for step in range(1, STEPS + 1)], set()
    for at, table in enumerate(tables):  # A prompt may be chosen again: here it has one group.
        again = pc.is_in(table["prompt_id"], pa.array([*seen], pa.string()))
        tables[at] = table.filter(pc.invert(again))
        seen.update(table["prompt_id"].to_pylist())
    pq.write_table(pa.concat_tables(tables, promote_options="default"), collected)
    document = yaml.safe_load((home / "recipe.yaml").read_text())
    first = [name for step in document["process"] for name in step].index(
        "self_verification_mapper"
    )
    document["process"][first:] = []
    left_out = [*CHOOSING, {"replay_selector": {"max_age": 2}}]
    document["process"] = [each for each in document["process"] if each not in left_out]
    for name in ("schedule", "verification"):
        del document["train"][name]
    (home / "replay.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    words = ["--train.replay", collected, "--train.refill", 0, "--train.prompts_per_step", 8]
    command("train", home / "replay.yaml", "--output", home / "replay", "--steps", 2, *words, "--quiet")  # fmt: skip
    return Run(home / "replay")
