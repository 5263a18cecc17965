"""Agents under the real `main_ppo`, with a tool behind a server that is not always there.

Three steps from the embedded policy, with a divergence from the reference and a validation.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from agent_recipe import pears, write_recipe
from exact import written
from killed_run import killed_while_saving
from rounding import LOG_PROBS

pytestmark = pytest.mark.slow

STEPS, PROMPTS, N = 3, 8, 4
FAULTS = {0: "status", 1: "hang", 2: "late", 3: "vanish"}
"""What the server does to every eighth question, from this one on."""
PARTS = '''
"""A flow that asks a tool before it answers again, and the tool."""

import aiohttp

from rejuice.operators.agents import Flow, Tool, ToolError


class AskAround(Flow):
    """Answer; ask what there is to say about it; and after every other answer, answer again."""

    async def run(self, task, play):
        first = await play.act(task.messages)
        await play.call("desk", {"answer": first.text})
        if len(first.text) % 2:
            return first.text
        return (await play.act(task.messages)).text


class Desk(Tool):
    """Say something about an answer."""

    url: str

    async def call(self, answer: str, *, task) -> str:
        try:
            async with aiohttp.ClientSession() as session:
                asked = {"question": task["question"]}
                async with session.get(self.url, params=asked) as found:
                    found.raise_for_status()
                    return await found.text()
        except aiohttp.ClientError as error:
            raise ToolError(repr(error)) from error

    def reads(self):
        return ("question",)
'''


class Desk(BaseHTTPRequestHandler):
    """What the tool asks; the number of a question is that of Ivy's pears."""

    closing = threading.Event()

    def do_GET(self):
        question = parse_qs(urlparse(self.path).query)["question"][0]
        fault = fault_of(question)
        if fault == "vanish":
            return  # Without an answer.
        if fault in ("hang", "late"):
            self.closing.wait(600 if fault == "hang" else 1)
        self.send_response(500 if fault == "status" else 200)
        self.end_headers()
        self.wfile.write(b"Is that so?")

    def log_message(self, *_):
        """Print nothing."""


def fault_of(question):
    return FAULTS.get(int(question.split()[2]) % 8)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The recipe, its data, and the server."""
    home = tmp_path_factory.mktemp("agents")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agents = {
        "n": N, "flow": {"ask_around": {"seconds": 12}},
        "tools": [{"desk": {"url": f"http://127.0.0.1:{server.server_port}/"}}],
    }  # fmt: skip
    train = {
        "steps": STEPS, "prompts_per_step": PROMPTS, "kl_coef": 0.01, "save_every": 1,
        "keep_checkpoints": 5, "validate_every": STEPS,
        "validation_path": str(home / "held_out.jsonl"), "verl": {"data.shuffle": False},
    }  # fmt: skip
    asked = list(map(pears, range(16, 16 + STEPS * PROMPTS)))
    held_out = list(map(pears, range(84, 88)))
    write_recipe(home, PARTS, agents, train, train=asked, held_out=held_out)
    yield home
    Desk.closing.set()
    server.shutdown()


@pytest.fixture(scope="module")
def run(home, rejuice, ended):
    """A run from beginning to end."""
    rejuice("train", home / "recipe.yaml", "--output", home / "run", "--quiet")
    return ended(home / "run")


@pytest.fixture(scope="module")
def resumed(home, run, rejuice, ended):
    """One that `kill -9` ended while it saved its last step, and that goes on."""
    killed_while_saving(run.folder, home / "killed", STEPS)
    rejuice("train", home / "recipe.yaml", "--output", home / "killed", "--resume", "--quiet")
    return ended(home / "killed")


@pytest.fixture(scope="module")
def replayed(home, run, rejuice, ended):
    """One that trains on the trajectories that the first has collected."""
    tables = [run.table(step, "curated") for step in range(1, STEPS + 1)]
    pq.write_table(pa.concat_tables(tables), home / "collected.parquet")
    words = ["--train.replay", home / "collected.parquet", "--train.validation_path", "null"]
    words += ["--train.prompts_per_step", 4, "--steps", 2, "--train.save_every", 0, "--quiet"]
    rejuice("train", home / "recipe.yaml", "--output", home / "replay", *words)
    return ended(home / "replay")


@pytest.mark.smoke
def test_it_trains_on_turns_and_says_what_they_were(run):
    assert run.trained == [1, 2, 3]
    for step in run.trained:
        figures, rollouts = run.figures(step), run.table(step, "rollouts")
        curated = run.table(step, "curated")
        assert figures["rejuice/agent/trajectories"] == rollouts.num_rows == PROMPTS * N
        assert figures["rejuice/agent/turn_rows"] == pc.sum(curated["turn_count"]).as_py()
        assert figures["rejuice/agent/turns"] == pytest.approx(
            pc.mean(rollouts["turn_count"]).as_py()
        )
        assert 1 < figures["rejuice/agent/turns"] < 2
        for name in ("actor/pg_loss", "actor/kl_loss", "actor/entropy_loss", "actor/grad_norm"):
            assert np.isfinite(figures[name]), name
        assert figures["actor/grad_norm"] > 0
        assert abs(figures["actor/ppo_kl"]) < 1e-3
        assert figures["critic/advantages/max"] == pytest.approx(
            pc.max(curated["advantage"]).as_py(), rel=1e-5
        )
    assert run.figures(1)["actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert run.figures(3)["actor/kl_loss"] > 1e-6, "the policy has moved away from the reference"
    assert {0, STEPS} <= {
        step for step in range(STEPS + 1) if "val-core/agents/reward/mean@1" in run.figures(step)
    }


@pytest.mark.smoke
def test_what_a_tool_does_is_missing_with_a_reason_and_never_a_zero(run):
    """The server fails, hangs or vanishes for three of eight prompts, and is late for one."""
    ends = {"status": "tool_failed", "hang": "time_limit", "vanish": "tool_failed"}
    for step in run.trained:
        rollouts, curated = run.table(step, "rollouts"), run.table(step, "curated")
        faults = [fault_of(question) for question in rollouts["question"].to_pylist()]
        assert set(faults) == {*FAULTS.values(), None}
        wanted = [ends.get(fault, "stop") for fault in faults]
        assert rollouts["finish_reason"].to_pylist() == wanted
        names = zip(rollouts["response_id"].to_pylist(), wanted, strict=True)
        failed = {name for name, end in names if end != "stop"}
        dropped = {
            row["row_id"]: row["reason"]
            for row in run.table(step, "decisions").to_pylist()
            if row["row_id"] in failed
        }
        assert dropped == dict.fromkeys(failed, "missing_component")
        assert failed.isdisjoint(curated["response_id"].to_pylist())
        figures = run.figures(step)
        assert figures["rejuice/agent/failed/tool_failed"] == 2 * N
        assert figures["rejuice/agent/failed/time_limit"] == N
        assert figures["rejuice/failed_prompts"] == 0
        assert "late" in {fault_of(question) for question in curated["question"].to_pylist()}


@pytest.mark.smoke
def test_the_step_is_repeated_by_its_own_recipe(run, rejuice):
    folder = run.step(2)
    rejuice("run", folder / "recipe.yaml", "--trust", cwd=folder)
    again, kept = pq.read_table(folder / "again.parquet"), run.table(2, "curated")
    assert written(again.select(kept.column_names)) == written(kept)
    assert "turns" in kept.column_names


def test_a_run_that_was_killed_does_its_step_again_as_it_was(run, resumed):
    for name in ("curated", "decisions"):
        first, second = run.table(STEPS, name), resumed.table(STEPS, name)
        lossy = {"response_logprobs", "turns", "tool_seconds"} & set(first.column_names)
        plain = [column for column in first.column_names if column not in lossy]
        assert written(second.select(plain)) == written(first.select(plain)), name
    pairs = [actions(each.table(STEPS, "rollouts")) for each in (run, resumed)]
    assert [turn["token_ids"] for turn in pairs[1]] == [turn["token_ids"] for turn in pairs[0]]
    for first, second in zip(*pairs, strict=True):
        np.testing.assert_allclose(second["logprobs"], first["logprobs"], rtol=0, atol=LOG_PROBS)
    first, second = run.figures(STEPS), resumed.figures(STEPS)
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "critic/score/mean"):
        assert second[name] == pytest.approx(first[name], rel=1e-3, abs=1e-6), name


def actions(table):
    turns = [turn for cell in table["turns"].to_pylist() for turn in cell]
    return [turn for turn in turns if turn["role"] == "policy"]


def test_stored_trajectories_train_without_sampling(run, replayed):
    assert replayed.trained == [1, 2]
    assert not (replayed.folder / "steps").exists()
    stored = pq.read_table(replayed.folder / "prompts" / "train.parquet")
    assert stored.num_rows >= 8
    for step in (1, 2):
        logged = replayed.figures(step)
        assert logged["actor/grad_norm"] > 0
        assert np.isfinite(logged["actor/pg_loss"])
        assert {logged["critic/score/min"], logged["critic/score/max"]} <= {0.0, 1.0}
    assert abs(replayed.figures(1)["actor/ppo_kl"]) < 0.05
