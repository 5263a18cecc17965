"""The real `main_ppo` on a CPU: what it trained on is what the recipe says offline, to the bit.

Three steps from the embedded policy, with a recipe that drops rows and groups, a schedule and a
refill; and the third step again, from the checkpoint of the second.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml
from killed_run import killed_while_saving
from true_policy import TruePolicy

from rejuice.operators.groups import Groups
from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.trainer.report import metrics

pytestmark = pytest.mark.slow

STEPS, PROMPTS, N = 3, 16, 6
LONGEST_S = 600

PROCESS = [
    {"prompt_template_mapper": {"question": "question", "reference": "answer", "reference_pattern": "#### (.*)"}},
    {"policy_rollout_mapper": {"n": N, "max_tokens": 40}},
    {"math_verify_mapper": None},
    {"format_reward_mapper": None},
    {"length_filter": {"unit": "tokens", "max": 24}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": {"from": 1.0, "to": 0.25}}, "on_missing": "drop_row"}},
    {"reward_std_filter": {"min": 1.0e-6}},
    {"grpo_advantage_mapper": {"std_floor": 0.1}},
]  # fmt: skip
TRAIN = {
    "steps": STEPS, "prompts_per_step": PROMPTS, "refill": 1, "learning_rate": 1e-4,
    "kl_coef": 0.01, "max_prompt_tokens": 128, "save_every": 1, "keep_checkpoints": 5,
    "validate_every": 3, "validation_n": 2, "loggers": [],
}  # fmt: skip


def rejuice(*words, cwd=None):
    """The command, in a process of its own."""
    code = "from rejuice.trainer.cli import main; main()"
    line = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(
        line, cwd=cwd, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


class Run:
    """The folder of a run that has ended."""

    def __init__(self, folder):
        self.folder = folder

    def table(self, step, name):
        return pq.read_table(self.folder / "steps" / f"{step:06d}" / f"{name}.parquet")

    def figures(self, step):
        found = {point.step: point.figures for point in metrics.read(self.folder)}
        return found[step]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("main-ppo")
    for split, prompts in (("train", 200), ("validation", 12)):
        rejuice("data", home / f"{split}.jsonl", "--prompts", prompts, "--responses", 0, "--levels", "1,2", "--split", split)  # fmt: skip
    document = {
        "project_name": "parity",
        "dataset_path": str(home / "train.jsonl"),
        "export_path": str(home / "curated.parquet"),
        "process": PROCESS,
        "train": {**TRAIN, "validation_path": str(home / "validation.jsonl")},
    }
    (home / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return home


@pytest.fixture(scope="module")
def run(home):
    """A run from beginning to end."""
    rejuice("train", home / "recipe.yaml", "--output", home / "run", "--quiet")
    return Run(home / "run")


def written(table):
    """The content of a table, bit by bit: a float differs from any other float, and -0.0 from 0.0."""
    columns = [(field.name, str(field.type)) for field in table.schema]
    return columns, [repr(row) for row in table.to_pylist()]


def test_every_step_was_trained_and_kept(run):
    trained = [point.step for point in metrics.read(run.folder) if point.trained]
    assert trained == [1, 2, 3]
    steps = sorted(path.name for path in (run.folder / "steps").iterdir())
    assert steps == ["000001", "000002", "000003"]


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_what_was_trained_on_is_what_rejuice_run_gives(run, step):
    folder = run.folder / "steps" / f"{step:06d}"
    rejuice("run", "recipe.yaml", cwd=folder)
    export = yaml.safe_load((folder / "recipe.yaml").read_text())["export_path"]
    replayed = pq.read_table(folder / export)
    decisions = run.table(step, "decisions")
    # Rows that training itself left out, for reasons that are not the recipe's.
    ours = decisions.filter(pc.equal(decisions["step"], "training"))
    assert set(ours["reason"].to_pylist()) <= {"surplus_group", "group_of_one"}
    left = pc.invert(pc.is_in(replayed["response_id"], ours["row_id"].combine_chunks()))
    curated = run.table(step, "curated")
    assert curated.num_rows > 0
    assert written(replayed.filter(left).select(curated.column_names)) == written(curated)
    # And nothing is lost: a row was trained on, or it has a reason.
    ids = [curated["response_id"], decisions["row_id"]]
    assert sorted(id_ for column in ids for id_ in column.to_pylist()) == sorted(
        run.table(step, "rollouts")["response_id"].to_pylist()
    )


def test_the_recipe_had_something_to_do(run):
    """Else the test above says little."""
    reasons = {
        reason
        for step in (1, 2, 3)
        for reason in run.table(step, "decisions")["reason"].to_pylist()
    }
    assert {"too_long", "no_reward_spread"} <= reasons
    sizes_G = Groups.of(run.table(1, "curated")).sizes_G
    assert len(set(sizes_G.tolist())) > 1
    assert any(run.figures(step)["rejuice/refills"] for step in (1, 2, 3))
    weights = [
        yaml.safe_load((run.folder / "steps" / f"{step:06d}" / "recipe.yaml").read_text())[
            "process"
        ]
        for step in (1, 2, 3)
    ]
    progress = [
        op["reward_sum_mapper"]["progress"]
        for each in weights
        for op in each
        if "reward_sum_mapper" in op
    ]
    assert progress == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_verl_logged_the_same_rewards_and_advantages(run, step):
    curated, logged = run.table(step, "curated"), run.figures(step)
    reward_N = curated["reward"].to_numpy().astype(np.float32)
    assert logged["critic/score/mean"] == pytest.approx(reward_N.mean(dtype=np.float64), rel=1e-6)
    assert logged["critic/score/max"] == reward_N.max()
    assert logged["critic/score/min"] == reward_N.min()
    assert logged["rejuice/reward"] == pytest.approx(logged["critic/score/mean"], rel=1e-6)
    # verl's are means over tokens, and its rewards are float32.
    advantage_N = curated["advantage"].to_numpy()
    tokens_N = pc.list_value_length(curated["response_token_ids"]).to_numpy()
    mean = (advantage_N * tokens_N).sum() / tokens_N.sum()
    assert logged["critic/advantages/mean"] == pytest.approx(mean, abs=1e-6)
    assert logged["critic/advantages/max"] == pytest.approx(advantage_N.max(), abs=1e-6)
    assert logged["critic/advantages/min"] == pytest.approx(advantage_N.min(), abs=1e-6)
    assert logged["response_length/mean"] == pytest.approx(tokens_N.mean())
    assert logged["rejuice/groups"] == len(set(curated["prompt_id"].to_pylist())) <= PROMPTS


def test_the_old_policy_is_the_one_that_is_trained(run):
    """Rollouts of step k are of the weights after step k - 1, and the update agrees about them."""
    for step in (1, 2, 3):
        assert set(run.table(step, "rollouts")["policy_version"].to_pylist()) == {step - 1}
        logged = run.figures(step)
        assert abs(logged["actor/ppo_kl"]) < 1e-6
        assert logged["actor/pg_clipfrac"] == 0
    # The divergence from the reference: none before the first update, some after it.
    assert abs(run.figures(1)["actor/kl_loss"]) < 1e-6
    assert run.figures(3)["actor/kl_loss"] > 1e-5
    true = TruePolicy(EMBEDDED)
    for row in run.table(1, "rollouts").slice(0, 24).to_pylist():
        expected = true.logprobs(row["prompt_token_ids"], row["response_token_ids"])
        np.testing.assert_allclose(row["response_logprobs"], expected, rtol=0, atol=1e-5)


def test_rollouts_are_those_of_the_weights_that_were_saved(run):
    """Samples of step 3, by the policy of the checkpoint of step 2, which is float32."""
    import torch

    saved = run.folder / "checkpoints" / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt"
    state = torch.load(saved, map_location="cpu", weights_only=False)
    true = TruePolicy(EMBEDDED)
    before = {name: weight.clone() for name, weight in true._model.state_dict().items()}
    true._model.load_state_dict({name: weight.to_local() for name, weight in state.items()})
    moved = [not torch.equal(w, before[name]) for name, w in true._model.state_dict().items()]
    assert all(moved)
    for row in run.table(3, "rollouts").slice(0, 24).to_pylist():
        expected = true.logprobs(row["prompt_token_ids"], row["response_token_ids"])
        np.testing.assert_allclose(row["response_logprobs"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("step", [0, STEPS])
def test_validation_is_the_mean_accuracy(run, step):
    table = pq.read_table(run.folder / "validations" / f"{step:06d}.parquet")
    assert table.num_rows == 24
    logged = run.figures(step)["val-core/parity/reward/mean@2"]
    assert logged == pytest.approx(pc.mean(table["reward_accuracy"]).as_py(), abs=1e-6)


def test_the_next_step_after_a_resume_is_the_same_one(run, home):
    """The folder as `kill -9` leaves it while step 3 is saved: half a checkpoint, no figures."""
    again = Run(home / "again")
    killed_while_saving(run.folder, again.folder, 3)
    rejuice("train", home / "recipe.yaml", "--output", again.folder, "--resume", "--quiet")
    for name in ("rollouts", "curated", "decisions"):
        first, second = run.table(3, name), again.table(3, name)
        plain = [column for column in first.column_names if column != "response_logprobs"]
        assert written(second.select(plain)) == written(first.select(plain)), name
    pairs = [run.table(3, "rollouts"), again.table(3, "rollouts")]
    first, second = (pc.list_flatten(each["response_logprobs"]).to_numpy() for each in pairs)
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)
    for name in ("actor/loss", "actor/grad_norm", "critic/score/mean", "actor/entropy_loss"):
        assert again.figures(3)[name] == pytest.approx(run.figures(3)[name], rel=1e-5), name
    assert Path(again.folder / "checkpoints" / "global_step_3").exists()


def test_stored_responses_train_without_sampling(run, home):
    """Replay mode, on what the run above has collected in three steps."""
    collected = home / "collected.parquet"
    tables = [run.table(step, "curated") for step in range(1, STEPS + 1)]
    pq.write_table(pa.concat_tables(tables), collected)
    folder = home / "replay"
    words = ["--train.replay", collected, "--train.refill", 0, "--train.prompts_per_step", 8]
    rejuice("train", home / "recipe.yaml", "--output", folder, "--steps", 3, *words, "--quiet")
    replayed = Run(folder)
    stored = feather.read_table(folder / "prompts" / "train.arrow")
    assert [p.step for p in metrics.read(folder) if p.trained] == [1, 2, 3]
    assert not (folder / "steps").exists()  # Nothing was sampled that could be kept.
    assert stored.num_rows >= 8
    rewards = pa.concat_tables(tables)["reward"].to_numpy()
    for step in (1, 2, 3):
        logged = replayed.figures(step)
        assert rewards.min() - 1e-6 <= logged["critic/score/min"]
        assert logged["critic/score/max"] <= rewards.max() + 1e-6
        assert logged["actor/grad_norm"] > 0
    # Stored log-probabilities are the old ones: ratios move away from 1 as the policy does.
    assert abs(replayed.figures(1)["actor/ppo_kl"]) < 0.05
    assert replayed.figures(3)["actor/ppo_kl"] != replayed.figures(1)["actor/ppo_kl"]
