"""Responses, references, servers and agents of others, where they are at hand."""

import re
import socket
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest
from command import runner

FOLDER = Path(__file__).resolve().parents[2] / "../shared/data/strangers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.exists(), reason="the inputs are not at hand"),
]
SERVERS = {
    "ollama": "set openai: {server: {one_sample_per_request: true}}",
    "n1only": "set openai: {server: {one_sample_per_request: true}}",
    "tgi": "set openai: {server: {finish_reasons: {eos_token: stop}}}",
    "nofinish": "set openai: {server: {finish_reasons: {null: stop}}}",
    "err200": "server_error, 200, but an error: Provider returned error",
    "o1": "set openai: {server: {token_limit: max_completion_tokens}}",
    "index0": "set openai: {server: {index: by_order}}",
    "noindex": "set openai: {server: {index: by_order}}",
    "seed32": "set openai: {server: {seed: 32_bit}}",
}
READ = ("models404", "parts", "reason", "tools", "thinkinline", "usagezero")
AGENTS = {
    "correct": "hermes llama argstr fence after newline numans both thinkans toolans nullcontent",
    "no_answer": "unclosed_think plain",
}
JUDGED = "plain think fence extra"
MALFORMED = "thinkopen nullcontent nested obj ten"


class Inputs:
    """A copy of the folders, whose server listens on a port of its own."""

    def __init__(self, folder, command_in):
        self.folder, self._command_in = folder, command_in

    def run(self, command, name, recipe, *words):
        """The exit status and what was printed, in one line."""
        status, out, err = self._command_in(self.folder / name)(command, recipe, *words)
        return status, re.sub(r"\s+", " ", f"{out} {err}")

    def rows(self, name, export="out.parquet"):
        return pq.read_table(self.folder / name / export).to_pylist()

    def serve(self, name):
        """The server of a folder, with its recipes set to it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for path in (*(self.folder / name).glob("*.yaml"), self.folder / name / "server.py"):
            path.write_text(re.sub(r"\b876\d\b", str(port), path.read_text()))
        server = subprocess.Popen(
            [sys.executable, "server.py"], cwd=self.folder / name, stderr=subprocess.DEVNULL
        )
        for _ in range(600):
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    return server
            time.sleep(0.1)
        raise AssertionError(f"the server of {name} does not answer")


@pytest.fixture
def inputs(tmp_path, monkeypatch, capsys):
    copytree(FOLDER / "training", tmp_path / "training")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755)
    return Inputs(tmp_path / "training", partial(runner, monkeypatch, capsys))


@pytest.fixture
def serving(inputs):
    """Starts the server of a folder, and ends it."""
    started = []
    yield lambda name: started.append(inputs.serve(name))
    for server in started:
        server.kill()
        server.wait()


def verdicts(rows, of="question"):
    return Counter((row[of].split()[0].removeprefix("case_"), row["verdict"]) for row in rows)


def test_answers(inputs):
    assert inputs.run("run", "01-answers", "recipe.yaml", "--quiet")[0] == 0
    rows = inputs.rows("01-answers")
    found = {(row["case"], row["response"]): row["verdict"] for row in rows}
    for case, end, verdict in [
        ("nothink", "final<|message|>\\boxed{12}", "correct"),
        ("nothink", "[/THINK] The answer is 12", "correct"),
        ("nothink", "<think>so \\boxed{12}", "no_answer"),
        ("nothink", "It is \\boxed{12}", "no_answer"),
        ("mc_multi", "\\boxed{A, C}", "correct"),
        ("mc_letter_text", "B - 12 cm", "correct"),
        ("fr_35", "La réponse est 3,5.", "correct"),
    ]:
        assert [v for (c, text), v in found.items() if c == case and text.endswith(end)] == [
            verdict
        ]


def test_languages(inputs):
    assert inputs.run("run", "15-chinese", "all.yaml", "--quiet")[0] == 0
    assert Counter(row["verdict"] for row in inputs.rows("15-chinese", "all.parquet")) == {
        "correct": 48,
        "wrong_answer": 12,
    }


def test_references(inputs):
    status, printed = inputs.run("run", "16-orref", "recipe.yaml")
    assert status == 0, printed
    assert [row["verdict"] for row in inputs.rows("16-orref")] == [
        *["correct", "correct", "wrong_answer", "correct"] * 2,
        *["correct"] * 3,
        "wrong_answer",
    ]
    _, printed = inputs.run("check", "02-refs", "dupq2.yaml")
    line = "rows with the same prompt differ in column 'image'"
    assert line in printed
    assert line in inputs.run("run", "02-refs", "dupq2.yaml")[1]
    identity = '--prompt_template_mapper.identity=["image"]'
    assert inputs.run("run", "02-refs", "dupq2.yaml", "--overwrite", identity)[0] == 0
    assert {row["group_n"] for row in inputs.rows("02-refs", "dupq2.parquet")} == {2}


def test_what_is_the_same_in_all_rows(inputs):
    status, printed = inputs.run("run", "17-constant-reward", "recipe.yaml")
    assert status == 0
    assert "verdict: wrong_answer 8; reward_accuracy: 0.000" in printed
    assert "No group has a signal: no response is correct (wrong_answer 8)" in printed


def test_a_validation_set_with_each_problem_four_times(inputs):
    status, printed = inputs.run("check", "06-train", "recipe.yaml")
    assert status == 0
    assert "9 of the first 12 rows repeat an earlier prompt" in printed
    assert "validation_n" in printed


def test_chats(inputs):
    for recipe, line in [
        ("tool2_o.yaml", "have a field 'tool_calls', which the policy would not see"),
        (
            "prefill_s.yaml",
            "ends with the assistant's message, which the policy would not continue",
        ),
    ]:
        status, printed = inputs.run("check", "12-rewards", recipe)
        assert (status, line in printed) == (2, True), printed


def test_templates(inputs):
    subprocess.run(
        [sys.executable, "make.py"], cwd=inputs.folder / "10-thinking-template", check=True
    )
    status, printed = inputs.run("run", "10-thinking-template", "append.yaml")
    assert (status, "leaves out the thoughts of earlier messages" in printed) == (2, True), printed
    assert inputs.run("run", "10-thinking-template", "r1.yaml", "--quiet")[0] == 0
    rewards = {row["reward_format"] for row in inputs.rows("10-thinking-template", "r1.parquet")}
    assert max(rewards) > 0


def test_servers(inputs, serving):
    serving("04-servers")
    for name, line in SERVERS.items():
        status, printed = inputs.run("run", "04-servers", f"{name}.yaml")
        assert (status, line in printed) == (2, True), printed
    for name in READ:
        status, printed = inputs.run("run", "04-servers", f"{name}.yaml", "--quiet")
        assert status == 0, printed
    thoughts = [row for row in inputs.rows("04-servers", "reason.parquet") if row["response"]]
    assert len(thoughts) == 12
    assert Counter(row["finish_reason"] for row in thoughts) == {"stop": 11, "length": 1}
    assert all(row["response"].startswith("<think>") for row in thoughts)


def test_a_server_with_a_reasoning_parser(inputs, serving):
    serving("14-reasoning-parser")
    assert inputs.run("run", "14-reasoning-parser", "recipe.yaml", "--quiet")[0] == 0
    rows = inputs.rows("14-reasoning-parser")
    assert all(row["response"].startswith("<think>\nLet me think.") for row in rows)
    assert Counter((row["finish_reason"], row["verdict"]) for row in rows) == {
        ("stop", "correct"): 6,
        ("length", "no_answer"): 2,
    }


def test_agents(inputs, serving):
    serving("05-agents")
    assert inputs.run("run", "05-agents", "recipe.yaml", "--quiet")[0] == 0
    rows = inputs.rows("05-agents")
    found = verdicts(rows)
    for verdict, names in AGENTS.items():
        for name in names.split():
            assert found[name, verdict] == 1, name
    latex = {row["response"] for row in rows if row["question"].startswith("case_bs")}
    assert latex == {"\\boxed{12}", "\\frac{24}{2}"}
    assert inputs.run("run", "05-agents", "docs.yaml", "--quiet")[0] == 0
    prompts = {row["prompt_id"] for row in inputs.rows("05-agents", "docs.parquet")}
    assert len(prompts) == 4


def test_judges(inputs, serving):
    serving("07-judge")
    for recipe in ("r_json_schema", "r_text"):
        assert inputs.run("run", "07-judge", f"{recipe}.yaml", "--quiet")[0] == 0
        export = recipe.replace("r_", "out_") + ".parquet"
        rows = inputs.rows("07-judge", export)
        found = {row["question"].split()[0].removeprefix("case_"): row for row in rows}
        assert all(found[name]["verdict"] == "correct" for name in JUDGED.split())
        for name in MALFORMED.split():
            assert found[name]["reward_quality_missing"] == "scorer_malformed", name
        assert {row["verdict"] for row in rows} == {"correct", None}  # none is false
    for recipe, line in [
        ("norf", "set answer_format: text"),
        ("o1", "set server: {token_limit: max_completion_tokens}"),
        ("o1b", "set server: {token_limit: max_completion_tokens}"),
        ("o1c", "set server: {token_limit: max_completion_tokens}"),
    ]:
        status, printed = inputs.run("run", "07-judge", f"{recipe}.yaml")
        assert (status, line in printed) == (2, True), printed
