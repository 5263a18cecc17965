"""Agents as a step of a recipe: runs that are killed, and failures that are tried again."""

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fake_server import FakeServer
from kept import kept_rows

from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

N, PROMPTS = 2, 120
COMMAND = [sys.executable, "-m", "rejuice.pipelines.cli", "run"]
MINE = '''
from pathlib import Path
from rejuice.operators.agents import Flow, Tool, ToolError

class Note(Tool):
    """Note a word."""
    shelf: str
    async def call(self, word: str) -> str:
        shelf = Path(self.shelf)
        if (shelf / "closed").exists(): raise ToolError("the shelf is closed")
        with (shelf / "notes").open("a") as file: file.write(f"{word}\\n")
        return f"noted {word}"

class TwoTurns(Flow):
    """Act, note that, and act again."""
    async def run(self, task, play):
        first = await play.act(task.messages)
        seen = await play.call("note", {"word": first.text})
        return (await play.act((*task.messages, ("user", seen.text)))).text
'''


class SameAnswers(FakeServer):
    """Gives the same answer to a seed at every attempt."""

    def answer(self, path, body, seed, attempt, n):
        return super().answer(path, body, seed, 0, n)


@pytest.fixture
def recipe_of(recipe_file, tmp_path):
    """A recipe with agents whose policy is behind a server; its tool notes what it is called."""

    def make(server, name, **options):
        shelf = tmp_path / name
        shelf.mkdir()
        (tmp_path / "mine.py").write_text(MINE)
        api = {"api": "chat", "patience_s": 60, "back_off_s": 0.002, "base_url": server.url}
        fields = {
            "engine": "openai", "model": "m", "n": N, "max_tokens": 9, "flow": "two_turns",
            "tools": [{"note": {"shelf": str(shelf)}}], "openai": {**api, **options},
        }  # fmt: skip
        return recipe_file(
            [{"prompt_template_mapper": {}}, {"agent_rollout_mapper": fields}],
            [{"question": f"{k}?", "answer": str(k)} for k in range(PROMPTS)],
            name=f"{name}.yaml",
            custom_operator_paths=[str(tmp_path / "mine.py")],
            export_path=str(shelf / "out.parquet"),
        )

    return make


def table_of(path):
    return pq.read_table(load(path).head.export_path)


def finished(shelf):
    """The groups that are committed: for each trajectory the texts of its turns."""
    found = [row["turns"] for row in kept_rows(shelf / ".rejuice", "agent_rollout_mapper")]
    return [[turn["text"] for turn in turns if turn["role"] == "policy"] for turns in found]


def notes_of(shelf):
    with suppress(FileNotFoundError):
        return Counter((shelf / "notes").read_text().splitlines())
    return Counter()


@pytest.mark.slow
def test_killed_again_and_again_no_finished_group_is_run_again(recipe_of, tmp_path):
    with SameAnswers(think_s=0.02) as server:
        path, shelf = recipe_of(server, "killed", concurrency=4), tmp_path / "killed"
        rng, requested, noted = random.Random(0), Counter[int](), Counter[str]()
        for _ in range(4):
            run = subprocess.Popen([*COMMAND, str(path), "--chunk_rows", "20"])
            wanted = len(finished(shelf)) + rng.randrange(8, 18) * N
            while len(finished(shelf)) < wanted:
                assert run.poll() is None
                time.sleep(0.005)
            run.kill()
            run.wait()
            done = finished(shelf)
            seeds = [int(text.split(":")[0]) for texts in done for text in texts]
            # How often their turns were sampled, and their tools called: it must stay so.
            requested = Counter({seed: server.attempts[seed] for seed in seeds}) | requested
            words = notes_of(shelf)
            noted = Counter({texts[0]: words[texts[0]] for texts in done}) | noted
        assert 30 * N < len(noted) < PROMPTS * N
        subprocess.run([*COMMAND, str(path), "--chunk_rows", "20"], check=True)
        assert {seed: server.attempts[seed] for seed in requested} == requested
        assert {word: n for word, n in notes_of(shelf).items() if word in noted} == noted
        killed = table_of(path)
        whole = recipe_of(server, "whole", concurrency=4)
        engine.run(load(whole))
        assert killed.num_rows == PROMPTS * N
        assert killed.equals(table_of(whole))


@pytest.mark.slow
def test_chunks_are_sampled_side_by_side_with_the_bytes_of_a_single_one(recipe_of):
    with SameAnswers() as server:
        whole = recipe_of(server, "whole", concurrency=4)
        engine.run(load(whole))
    # No answer before more trajectories are under way than three chunks have.
    with SameAnswers(crowd=3 * 5 * N + 1) as server:
        parts = recipe_of(server, "parts", concurrency=40)
        engine.run(load(parts), chunk_rows=5)
    assert table_of(parts).equals(table_of(whole))


@pytest.mark.slow
def test_trajectories_that_failed_are_run_again_and_others_are_kept(recipe_of, tmp_path):
    with SameAnswers() as server:
        path, shelf = recipe_of(server, "shelf"), tmp_path / "shelf"
        (shelf / "closed").touch()
        report = engine.run(load(path))
        counts = report.steps[1].columns["finish_reason"]["counts"]
        assert counts == {"tool_failed": PROMPTS * N}
        assert table_of(path)["response"].null_count == PROMPTS * N
        (shelf / "closed").unlink()
        before = Counter(server.attempts)
        engine.run(load(path))
        assert server.attempts == before, "they are kept, as everything that was paid for"
        engine.run(load(path), retry_missing="agent_rollout_mapper")
        table = table_of(path)
        assert table["response"].null_count == 0
        assert pc.all(pc.equal(table["finish_reason"], "stop")).as_py()
        again = Counter(server.attempts)
        engine.run(load(path), retry_missing="agent_rollout_mapper")
        assert server.attempts == again
