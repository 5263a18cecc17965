"""Sampling as a step of a recipe: against servers that fail, and runs that are killed."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter

import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from fake_server import FakeServer, Trouble
from kept import kept_rows

from rejuice.operators import EngineError
from rejuice.operators.groups import hash_each
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.report import read_decisions
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

N = 3
QUICK = {"api": "chat", "back_off_s": 0.002, "timeout_s": 60, "patience_s": 60, "attempts": 6}
COMMAND = [sys.executable, "-m", "rejuice.pipelines.cli", "run"]
TROUBLES = [  # of single prompts
    Trouble.RATE_LIMIT, Trouble.RATE_LIMIT_AFTER, Trouble.ERROR_500, Trouble.ERROR_503,
    Trouble.RESET, Trouble.RESET_MID_BODY, Trouble.SLOW, Trouble.WRONG_JSON, Trouble.CUT_JSON,
    Trouble.EMPTY, Trouble.FEWER, Trouble.TWICE, Trouble.ABORTED, Trouble.REFUSED, Trouble.FILTERED,
]  # fmt: skip


@pytest.fixture
def recipe_of(recipe_file):
    """A recipe that samples from a server, for so many prompts."""

    def make(server, prompts, **options):
        sampling = {"engine": "openai", "model": "m", "n": N, "max_tokens": 9}
        options = {**QUICK, "base_url": server.url, **options}
        return recipe_file(
            [
                {"prompt_template_mapper": {}},
                {"policy_rollout_mapper": {**sampling, "openai": options}},
                {"length_filter": {"min": 1}},
            ],
            [{"question": f"{k}?", "answer": str(k)} for k in range(prompts)],
        )

    return make


def decisions_of(path):
    (folder,) = (path.parent / "out" / "curated.run").glob("02_*/")
    return read_decisions(folder).to_pylist()


def check_whole(path, prompts):
    """Every prompt is n responses or a decision; gives the reasons of the decisions."""
    rows = pq.read_table(load(path).head.export_path).to_pylist()
    sampled = Counter(row["prompt_id"] for row in rows)
    dropped = Counter(row["row_id"] for row in decisions_of(path))
    assert set(sampled.values()) <= {N}
    assert set(dropped.values()) <= {1}
    assert len(sampled) + len(dropped) == prompts
    assert not set(sampled) & set(dropped)
    for row in rows:  # Text, tokens and seed of one request.
        seed, attempt, index = map(int, row["response"].split(":"))
        assert row["sampling"]["seed"] == seed
        assert row["response_token_ids"] == [attempt, index, 7]
    assert len({row["response"] for row in rows}) == len(rows)
    return Counter(row["reason"] for row in decisions_of(path))


def seeds_of(path):
    """The seeds of the prompts, in the order of the dataset, as the mapper gives them."""
    recipe = load(path)
    table = pyarrow.json.read_json(recipe.head.dataset_path)
    prompt_ids = run_in_memory([recipe.steps[0].operator], table)["prompt_id"]
    return [int(seed) % 2**62 for seed in hash_each(prompt_ids)]


@pytest.mark.usefixtures("slow_at_once")
@pytest.mark.parametrize("draw", range(3))
def test_failures_of_a_server_end_as_responses_or_decisions(recipe_of, draw):
    rng = random.Random(draw)
    with FakeServer(retry_after=rng.choice(["0.02", "0", "soon"])) as server:
        path = recipe_of(server, 60)
        server.script = {
            seed: [rng.choice(TROUBLES) for _ in range(rng.choice([0, 0, 1, 2, 6]))]
            for seed in seeds_of(path)
        }
        if draw == 0:
            server.script[seeds_of(path)[7]] = [Trouble.RESTART]
        report = engine.run(load(path))
        reasons = check_whole(path, 60)
        assert report.steps[1].dropped == dict(reasons)
        assert len(reasons) > 1
        # A good answer is taken, and the prompt is not sent again; but a server that is killed may
        # have counted answers that nobody got.
        assert set(server.answered.values()) == {1} or draw == 0


def test_a_storm_of_429_passes(recipe_of):
    with FakeServer(retry_after="0.01") as server:
        path = recipe_of(server, 40)
        server.script = {seed: [Trouble.RATE_LIMIT_AFTER] * 4 for seed in seeds_of(path)}
        engine.run(load(path))
        assert check_whole(path, 40) == {}
        assert set(server.attempts.values()) == {5}


def test_a_server_that_is_gone_ends_the_run_and_nothing_is_lost(recipe_of):
    with FakeServer(think_s=0.02) as server:
        path = recipe_of(server, 40, patience_s=0.2, concurrency=4)
        server.script = {seeds_of(path)[20]: [Trouble.SLOW] * 9}
        url = server.url

        def kill_in_the_middle():
            while not committed(path):
                time.sleep(0.005)
            server.kill()

        threading.Thread(target=kill_in_the_middle).start()
        with pytest.raises(EngineError) as caught:
            engine.run(load(path))
        message = str(caught.value)
        assert message.startswith(
            f"{path}, line 5, step 2 policy_rollout_mapper: {url} could not be reached"
        )
        assert "\n" not in message
        kept = len(committed(path))
        assert 0 < kept < 40
        server.script.clear()
        before = Counter(server.answered)
        server.start()
        engine.run(load(path))
        assert check_whole(path, 40) == {}
        sampled_again = [seed for seed in before if server.answered[seed] > 1]
        assert len(sampled_again) <= 4  # Answered, perhaps, as the server died; never committed.


@pytest.mark.slow
def test_killed_again_and_again(recipe_of):
    with FakeServer(think_s=0.03) as server:
        path = recipe_of(server, 200, concurrency=2)
        rng, requested, late = random.Random(0), dict[int, int](), 0
        for _ in range(4):
            run = subprocess.Popen([*COMMAND, str(path), "--chunk_rows", "30"])
            wanted = len(requested) + rng.randrange(13, 40)
            while len(committed(path)) < wanted:
                assert run.poll() is None
                time.sleep(0.005)
            run.kill()
            run.wait()
            late += len(set(server.answered) - set(committed(path)))
            # How often each finished prompt was requested: it must stay so.
            requested = {seed: server.attempts[seed] for seed in committed(path)} | requested
        assert 50 < len(requested) < 200
        subprocess.run([*COMMAND, str(path), "--chunk_rows", "30"], check=True)
        assert check_whole(path, 200) == {}
        assert {seed: server.attempts[seed] for seed in requested} == requested
        # Only prompts that were under way when a run was killed were requested twice: two, and those
        # whose answer the server had sent, but that was not on disk yet.
        again = [seed for seed, times in server.attempts.items() if times > 1]
        assert len(again) <= 4 * 2 + late


def committed(path):
    """Seeds of the prompts that are finished."""
    return {row["sampling"]["seed"] for row in sampled_rows(path)}


def sampled_rows(path):
    return kept_rows(path.parent / "out" / ".rejuice", "policy_rollout_mapper")


@pytest.mark.slow
def test_the_embedded_policy_killed_again_and_again(recipe_file, tmp_path):
    """All prompts, each with n responses, as if nothing had happened; nothing sampled again."""
    sampling = {"n": N, "max_tokens": 40, "transformers": {"workers": 1, "rows": 48}}
    path = recipe_file([{"prompt_template_mapper": {}}, {"policy_rollout_mapper": sampling}])
    write_dataset(tmp_path / "data.jsonl", "arithmetic", DemoOptions(prompts=300, levels=(1, 2)))
    rng, finished = random.Random(0), dict[str, list[int]]()

    def responses():
        return {row["response_id"]: row["response_token_ids"] for row in sampled_rows(path)}

    for _ in range(2):  # Each time torch is imported again, in two processes.
        run = subprocess.Popen([*COMMAND, str(path)])
        wanted = len(finished) + N * rng.randrange(5, 20)
        while len(responses()) < wanted:
            assert run.poll() is None
            time.sleep(0.005)
        run.kill()
        run.wait()
        before, finished = finished, responses()
        assert before.items() <= finished.items()
    assert len(finished) < 300 * N
    subprocess.run([*COMMAND, str(path)], check=True)
    table = pq.read_table(load(path).head.export_path)
    assert set(Counter(table["prompt_id"].to_pylist()).values()) == {N}
    assert table.num_rows == 300 * N
    undisturbed = load(path, {"export_path": str(tmp_path / "undisturbed" / "out.parquet")})
    engine.run(undisturbed)
    expected = pq.read_table(undisturbed.head.export_path)
    for name in ("response_id", "response_token_ids", "sampling"):
        assert table[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.slow
def test_two_runs_in_one_process_do_not_mix(recipe_of, tmp_path):
    """Threads have engines of their own: an engine takes one call at a time."""
    with FakeServer(think_s=0.002) as server:
        path = recipe_of(server, 100)
        overrides = [
            {"export_path": str(tmp_path / "out" / f"{k}.parquet"), "policy_rollout_mapper.seed": k}
            for k in "12"
        ]
        runs = [
            threading.Thread(target=engine.run, args=(load(path, override),))
            for override in overrides
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        for override in overrides:
            for row in pq.read_table(override["export_path"]).to_pylist():
                assert row["response"].split(":")[0] == str(row["sampling"]["seed"])


@pytest.mark.slow
@pytest.mark.parametrize("again", [["1 + 1?", "1 + 1?", "2 + 1?"], ["3 + 1?", "1 + 1?", "1 + 1?"]])
def test_a_repeated_prompt_is_dropped_in_whatever_is_found_in_the_cache_too(recipe_file, again):
    def dropped(questions):
        path = recipe_file(
            [
                {"prompt_template_mapper": {}},
                {"policy_rollout_mapper": {"n": 2, "max_tokens": 4}},
                {"length_filter": {"min": 0}},
            ],
            [{"question": text, "answer": "2"} for text in questions],
        )
        recipe = load(path)
        engine.run(recipe, overwrite=True)
        found = Counter(row["reason"] for row in decisions_of(path))
        return found, pq.read_table(recipe.head.export_path).num_rows

    assert dropped(["1 + 1?", "2 + 1?"]) == ({}, 4)
    assert dropped(again) == ({"repeated_prompt": 1}, 4)
    assert dropped(again[::-1]) == ({"repeated_prompt": 1}, 4)
