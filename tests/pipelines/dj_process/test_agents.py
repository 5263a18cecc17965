"""Agents under `dj-process`: their tools and flows of files, and mistakes before anything is sampled."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from fake_server import FakeServer
from rounding import LOG_PROBS

from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytest.importorskip("data_juicer")
pytestmark = pytest.mark.slow

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
MINE = '''
from rejuice.operators.agents import Flow, Tool

class Pages(Tool):
    """Read the pages."""
    column: str = "documents"
    def reads(self): return (self.column,)
    async def call(self, word: str, *, task) -> str: return task[self.column]

class ReadOnce(Flow):
    """Read, then answer."""
    async def run(self, task, play):
        first = await play.act(task.messages)
        seen = await play.call("pages", {"word": first.text})
        return (await play.act((*task.messages, ("user", seen.text)))).text
'''


def written(folder, url, tools):
    rows = [{"question": f"{k}?", "answer": str(k), "documents": f"page {k}"} for k in range(6)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.py").write_text(MINE)
    agents = {
        "engine": "openai", "model": "m", "n": 2, "max_tokens": 9, "flow": "read_once",
        "tools": tools, "openai": {"api": "chat", "base_url": url},
    }  # fmt: skip
    document = {
        "dataset_path": str(folder / "data.jsonl"),
        "export_path": str(folder / "out" / "curated.parquet"),
        "skip_op_error": False,
        "custom_operator_paths": [str(folder / "mine.py")],
        "process": [{"prompt_template_mapper": {}}, {"agent_rollout_mapper": agents}],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def dj_process(path):
    command = [str(Path(sys.executable).with_name("dj-process")), "--config", str(path)]
    return subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, errors="replace"
    )


def test_tools_and_flows_of_files_are_found(tmp_path):
    with FakeServer() as server:
        path = written(tmp_path, server.url, ["pages"])
        ran = dj_process(path)
        assert ran.returncode == 0, ran.stderr[-3000:]
        theirs = pq.read_table(tmp_path / "out" / "curated.parquet")
        assert theirs.num_rows == 12
        server.attempts.clear()
        run(load(path, {"export_path": str(tmp_path / "ours.parquet")}))
        ours = pq.read_table(tmp_path / "ours.parquet")
    assert ours.column_names == theirs.column_names
    assert ours.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (["page"], "agent_rollout_mapper, tools: unknown tool 'page'; did you mean 'pages'?"),
        (
            [{"pages": {"column": "docments"}}],
            "step 2 agent_rollout_mapper: column 'docments', which the tool pages reads, is "
            "missing; did you mean 'documents'?",
        ),
    ],
)
def test_a_mistake_ends_the_run_before_anything_is_sampled(tmp_path, tools, message):
    with FakeServer() as server:
        ran = dj_process(written(tmp_path, server.url, tools))
        assert ran.returncode != 0
        assert message in ran.stderr
        assert not server.attempts


def test_the_agent_for_a_laptop_samples_the_same_trajectories(tmp_path):
    """The recipe flow_lookup.yaml, with its policy, on six questions."""
    document = yaml.safe_load((RECIPES / "flow_lookup.yaml").read_text("utf-8"))
    questions = str(tmp_path / "questions.parquet")
    document |= {
        "dataset_path": questions,
        "generated_datasets": {questions: {"type": "lookup", "prompts": 6}},
    }
    del document["train"]
    tables = {}
    for name in ("ours", "theirs"):
        document["export_path"] = str(tmp_path / name / "curated.parquet")
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        if name == "ours":
            run(load(path))
        else:
            done = dj_process(path)
            assert done.returncode == 0, done.stderr[-3000:]
        tables[name] = pq.read_table(document["export_path"])
    assert tables["ours"].num_rows == 48
    assert tables["theirs"].column_names == tables["ours"].column_names
    ours, theirs = (rows_and_logprobs(table) for table in tables.values())
    assert theirs[0] == ours[0]
    # What else is in a batch changes their last bits.
    assert theirs[1] == pytest.approx(ours[1], abs=LOG_PROBS)


def rows_and_logprobs(table):
    """The rows without log-probabilities, and these."""
    rows, logprobs = table.drop_columns("response_logprobs").to_pylist(), []
    for row in rows:
        for turn in row["turns"]:
            logprobs += turn.pop("logprobs") or ()
    return rows, logprobs
