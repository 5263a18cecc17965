"""Flows and tools that hang, exit, raise or crash, under the real `main_ppo`: one step."""

import json

import pytest
import yaml
from user_ways import FLOW_WAYS, MINE, TOOL_WAYS

pytestmark = pytest.mark.slow

N, FINE = 4, 8
WAYS = {f"tool {way}": TOOL_WAYS[way][0] for way in (
    "exits", "os_exits", "kills", "cancels", "outage", "none", "sleeps", "spins", "swallows",
)} | {f"flow {way}": FLOW_WAYS[way][0] for way in (
    "exits", "os_exits", "raises", "number", "sleeps", "until_found", "goes_on", "sub_task",
)}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory, rejuice, ended):
    home = tmp_path_factory.mktemp("user-code")
    rows = [{"question": way, "answer": "1"} for way in WAYS]
    rows += [
        {"question": f"Ivy has {n} pears. Leo has 8 fewer than Ivy. How many pears does Leo have?",
         "answer": str(n - 8)}
        for n in range(16, 16 + FINE)
    ]  # fmt: skip
    (home / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "mine.py").write_text(MINE)
    agents = {"n": N, "max_tokens": 40, "flow": {"acts": {"seconds": 3}}, "tools": ["ways"]}
    document = {
        "project_name": "user-code",
        "dataset_path": str(home / "train.jsonl"),
        "export_path": str(home / "curated.parquet"),
        "custom_operator_paths": [str(home / "mine.py")],
        "process": [
            {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
            {"agent_rollout_mapper": agents},
            {"math_verify_mapper": None},
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
            {"grpo_advantage_mapper": {"std_floor": 0.1}},
        ],
        "train": {
            "steps": 1, "prompts_per_step": len(rows), "learning_rate": 1e-4,
            "max_prompt_tokens": 128, "save_every": 0, "validate_every": 0, "loggers": [],
        },
    }  # fmt: skip
    (home / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    rejuice("train", home / "recipe.yaml", "--output", home / "run", "--quiet")
    return ended(home / "run")


def test_each_way_fails_its_own_trajectories_and_the_others_train(run):
    assert len(WAYS) >= 15
    assert run.trained == [1]
    rollouts = run.table(1, "rollouts").to_pylist()
    assert len(rollouts) == N * (len(WAYS) + FINE)
    for row in rollouts:
        wanted = WAYS.get(row["question"], "stop")
        assert row["finish_reason"] == wanted, (row["question"], row["finish_reason"])
    curated = run.table(1, "curated").to_pylist()
    assert {row["question"] for row in curated}.isdisjoint(WAYS)
    assert run.figures(1)["rejuice/failed_prompts"] == 0


def test_the_console_log_names_each_kind_once(run):
    log = (run.folder / "verl.log").read_text()
    for cause in ("flow_failed", "tool_failed", "time_limit"):
        assert f"a trajectory failed with {cause}: " in log
