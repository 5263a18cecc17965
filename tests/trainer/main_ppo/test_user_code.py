"""Flows and tools that hang, exit, raise or crash, under the real `main_ppo`: one step."""

import pytest
from agent_recipe import pears, write_recipe
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
    rows += map(pears, range(16, 16 + FINE))
    agents = {"n": N, "flow": {"acts": {"seconds": 3}}, "tools": ["ways"]}
    train = {"steps": 1, "prompts_per_step": len(rows), "save_every": 0, "validate_every": 0}
    write_recipe(home, MINE, agents, train, train=rows)
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
