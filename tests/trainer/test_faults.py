"""What goes wrong in training, in real runs on a CPU: each ends as its recipe says, with a line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from fake_judge import FakeJudge, scores_of, verdict

from rejuice.operators.verifier import verify
from rejuice.trainer import metrics
from rejuice.trainer.launch import checkpoints, training

pytestmark = pytest.mark.slow

PROMPTS, RESPONSES = 8, 4
DEADLINE_S = 3.0
PATIENCE_S = 1
HANGS = r"\int_0^{\infty} e^{-x^x}\sin(x^3)dx"  # as a reference; see tests/operators/verifier
LONGEST_S = 900  # of one run, on a busy machine
ROOM = "12m"  # for one checkpoint, but not for two


class Judge(FakeJudge):
    """Scores responses in the order in which it first sees them.

    Attributes:
        garbled: of these questions, every other distinct response gets no verdict.
        deadly: it dies when it gets one of these questions,
        lives: but for the first so many times.
    """

    def __init__(self) -> None:
        self.garbled: set[str] = set()
        self.deadly: set[str] = set()
        self.lives = 0
        self._numbers: dict[str, int] = {}
        self._seen: defaultdict[str, list[int]] = defaultdict(list)
        self._death: asyncio.Task[None] | None = None
        super().__init__()

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        shown = body["messages"][-1]["content"]
        return self._numbers.setdefault(shown, len(self._numbers)), 1

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        shown = body["messages"][-1]["content"]
        requested = re.search(r"<question \w+>\n(.*?)\n</question", shown, re.DOTALL)
        question = requested[1] if requested else ""
        if question in self.deadly:
            self.lives -= 1
            if self.lives < 0:
                self._death = asyncio.get_running_loop().create_task(self._kill())
        seen = self._seen[question]
        if seed not in seen:
            seen.append(seed)
        garbled = question in self.garbled and seen.index(seed) % 2
        text = "It is nice." if garbled else verdict(scores_of(seed * 7 + 3))
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
        return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}


class Ended(NamedTuple):
    """A run of the command that has ended."""

    status: int
    output: list[str]


class Training:
    """`rejuice train` on a folder."""

    def __init__(self, tmp_path: Path, judge: Judge, *, steps: int, **quality: Any) -> None:
        self.folder = tmp_path / "run"
        self._recipe = tmp_path / "faults.yaml"
        self._data = tmp_path / "data.jsonl"
        numbers = range(12, 12 + steps * PROMPTS)
        self.questions = [
            f"Ivy has {n} pears. Leo has 8 fewer than Ivy. How many pears does Leo have?"
            for n in numbers
        ]
        self.references = [str(n - 8) for n in numbers]
        server = {
            "base_url": judge.url,
            "patience_s": PATIENCE_S,
            "back_off_s": 0.02,
            "concurrency": 4,
        }
        document = {
            "project_name": "faults",
            "dataset_path": str(self._data),
            "export_path": str(tmp_path / "out.parquet"),
            "process": [
                {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
                {
                    "policy_rollout_mapper": {
                        "engine": "transformers",
                        "model": "embedded",
                        "n": RESPONSES,
                        "max_tokens": 48,
                    }
                },
                {"math_verify_mapper": {"timeout": DEADLINE_S}},
                {
                    "llm_quality_reward_mapper": {
                        "model": "m",
                        "server": server,
                        "cache": str(tmp_path / "scores.sqlite"),
                        **quality,
                    }
                },
                {
                    "reward_sum_mapper": {
                        "weights": {"accuracy": 1.0, "quality": 0.5},
                        "on_missing": "group_mean",
                    }
                },
                {"grpo_advantage_mapper": {}},
            ],
            "train": {
                "steps": steps,
                "prompts_per_step": PROMPTS,
                "save_every": 1,
                "max_prompt_tokens": 128,
                "learning_rate": 1e-4,
                "loggers": [],
                "verl": {"data.shuffle": False},
            },
        }
        self._recipe.write_text(yaml.safe_dump(document, sort_keys=False))

    def train(self, *words: str, during: Callable[[], None] = lambda: None) -> Ended:
        """Run the command to its end; `during` is called again and again meanwhile."""
        rows = [
            {"question": question, "answer": reference}
            for question, reference in zip(self.questions, self.references, strict=True)
        ]
        data = "".join(json.dumps(row) + "\n" for row in rows)
        self._data.write_text(data)
        main = "from rejuice.pipelines.cli.main import main; main()"
        line = [sys.executable, "-c", main, "train", str(self._recipe), "-o", str(self.folder)]
        start = time.monotonic()
        with subprocess.Popen(
            [*line, "--quiet", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "COLUMNS": "300"},
        ) as running:
            try:
                while running.poll() is None:
                    assert time.monotonic() < start + LONGEST_S, "it hangs"
                    during()
                    time.sleep(0.02)
            except BaseException:
                running.terminate()
                running.wait()
                raise
            output = running.stderr.read().replace(f"{self.folder}/", "RUN/")
        assert training.of_run(self.folder) == []
        lines = output.replace(str(self.folder), "RUN").splitlines()
        return Ended(running.returncode, lines)

    def resume(self, *words: str, during: Callable[[], None] = lambda: None) -> Ended:
        """The same, from the newest checkpoint."""
        return self.train("--resume", *words, during=during)

    @property
    def trained(self) -> list[int]:
        """The steps that were trained."""
        return [point.step for point in metrics.read(self.folder) if point.trained]

    def figures(self, step: int) -> dict[str, float]:
        """What was logged of a step."""
        found = {point.step: point.figures for point in metrics.read(self.folder)}
        return {key.removeprefix("rejuice/"): value for key, value in found[step].items()}

    def table(self, step: int, name: str) -> pa.Table:
        """What was kept of a step."""
        return pq.read_table(self.folder / "steps" / f"{step:06d}" / f"{name}.parquet")

    def once_there(self, word: str, act: Callable[[], object]) -> Callable[[], None]:
        """Do something when a process of the run has this word in its command line."""
        done = []

        def look() -> None:
            if not done and self._with(word):
                done.append(word)
                act()

        return look

    def once(self, step: int, act: Callable[[], object]) -> Callable[[], None]:
        """Do something when a step is trained, so that the next one has just begun."""
        done = []

        def look() -> None:
            if not done and step in self.trained:
                done.append(step)
                act()

        return look

    def kill(self, word: str) -> None:
        """Kill the process of the run that has this word in its command line."""
        found = self._with(word)
        assert len(found) == 1, [p.cmdline()[:3] for p in training.of_run(self.folder)]
        found[0].kill()

    def _with(self, word: str) -> list[psutil.Process]:
        found = []
        for process in training.of_run(self.folder):
            with suppress(psutil.Error):  # It has just ended.
                if word in " ".join(process.cmdline()):
                    found.append(process)
        return found


@pytest.fixture
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


def test_every_fault_ends_with_a_line_and_the_run_is_completed(tmp_path, judge):
    """One run of eight steps, of which each launch but the last ends by another fault."""
    training = Training(tmp_path, judge, steps=8)
    questions = training.questions
    of_step = {step: questions[(step - 1) * PROMPTS : step * PROMPTS] for step in range(1, 9)}
    training.references[questions.index(of_step[7][4])] = HANGS
    # Half of the responses to some questions get no verdict.
    judge.garbled = set(of_step[1])
    with small_disk(training.folder / "checkpoints") as grow:
        go_on = training.train
        if grow:
            the_disk_is_full(training)
            grow()
            go_on = training.resume
        the_scorer_dies(go_on, training, judge, of_step[3])
        halves_are_filled_up(training, step=1)
        verl_is_killed(training)
        saved = it_is_stopped(training)
        the_sampler_is_killed(training, saved + 1)
        # A reference hangs the verifier in step 7, and the scorer dies in step 8: neither is fatal.
        judge.deadly, judge.lives = set(of_step[8]), 10
        assert training.resume(
            *("--reward_sum_mapper.on_missing", "drop_row"),
            *("--llm_quality_reward_mapper.on_server_down", "missing"),
        ) == (0, [])
        assert training.trained == [*range(1, 9)]
        assert checkpoints.last(training.folder) == 8
        for step, expected in of_step.items():
            found = {
                row[-1]["content"] for row in training.table(step, "rollouts")["prompt"].to_pylist()
            }
            assert all(any(each in prompt for prompt in found) for each in expected), step
        what_hangs_is_dropped(training, step=7, question=of_step[7][4])
        what_is_not_scored_is_counted(training, step=8)
    if not grow:
        pytest.skip("all passed but the full disk: mounting a small one needs root")


def the_disk_is_full(training: Training) -> None:
    """There is room for the checkpoint of step 1, but not for another."""
    assert training.train() == (
        1,
        [
            "rejuice: training failed at step 2: no space left on the disk of RUN/checkpoints",
            "verl's log is RUN/verl.log; `rejuice train RUN --resume` resumes from step 1",
        ],
    )
    assert checkpoints.steps(training.folder) == [1]


def the_scorer_dies(
    go_on: Callable[[], Ended], training: Training, judge: Judge, questions: list[str]
) -> None:
    """The server is gone when it is to score the first response of step 3."""
    judge.deadly = set(questions)
    ended = go_on()
    assert ended.status == 1
    why, then = ended.output
    assert why.startswith(
        "rejuice: training failed at step 3: step 4 llm_quality_reward_mapper: "
        f"{judge.url} could not be reached for 1 s: connection refused"
    )
    assert why.endswith("; is the server up?")
    assert then == ("verl's log is RUN/verl.log; `rejuice train RUN --resume` resumes from step 2")
    assert training.trained == [1, 2]
    judge.start()
    judge.deadly = set()


def verl_is_killed(training: Training) -> None:
    """verl's own process, when Ray has started its first one: before it trains, which is quicker."""
    kill = training.once_there("ray::TaskRunner", lambda: training.kill("main_ppo"))
    assert training.resume(during=kill) == (
        1,
        [
            "rejuice: training failed: verl was killed by SIGKILL",
            "verl's log is RUN/verl.log; `rejuice train RUN --resume` resumes from step 2",
        ],
    )


def it_is_stopped(training: Training) -> int:
    """By a signal after step 3: the last step is saved before `save_every` is due, and is given."""

    def stop() -> None:
        (command,) = (each for each in psutil.Process().children() if "train" in each.cmdline())
        command.send_signal(signal.SIGTERM)

    ended = training.resume("--train.save_every", "50", during=training.once(3, stop))
    saved = checkpoints.last(training.folder)
    line = f"rejuice: stopped; `rejuice train RUN --resume` resumes from step {saved}"
    assert ended == (130, [line])
    assert saved in {3, 4}
    return saved


def the_sampler_is_killed(training: Training, after: int) -> None:
    """While it samples for the step after one, or when it is to have new weights."""
    ended = training.resume(during=training.once(after, lambda: training.kill("ray::Sampler")))
    why, then = ended.output
    assert ended.status == 1
    assert why in {
        f"rejuice: training failed at step {after + 1}: {why} was killed; the machine is probably out of memory"
        for why in ("the sampler failed: its process", "verl's process Sampler")
    }
    again = f"`rejuice train RUN --resume` resumes from step {after}"
    assert then == f"verl's log is RUN/verl.log; {again}"


def halves_are_filled_up(training: Training, step: int) -> None:
    """Half of a group has no quality, and gets that of the other half."""
    rows = training.table(step, "curated").to_pylist()
    assert len(rows) == PROMPTS * RESPONSES
    missing_G = []
    for at in range(0, len(rows), RESPONSES):
        group = rows[at : at + RESPONSES]
        assert len({row["prompt_id"] for row in group}) == 1
        there = [row["reward_quality"] for row in group if row["reward_quality"] is not None]
        for row in group:
            quality = row["reward_quality"]
            slug = "scorer_malformed" if quality is None else None
            assert row["reward_quality_missing"] == slug
            filled = sum(there) / len(there) if quality is None else quality
            assert row["reward"] == pytest.approx(row["reward_accuracy"] + 0.5 * filled, abs=1e-12)
        missing_G.append(RESPONSES - len(there))
    assert RESPONSES // 2 in missing_G
    found = training.figures(step)
    assert found["note/reward_sum_mapper/missing_quality"] == sum(missing_G)
    assert found["note/reward_sum_mapper/group_mean_quality"] == sum(missing_G)
    assert 0 < found["note/llm_quality_reward_mapper/fault_malformed"] <= sum(missing_G)
    assert found["rows_trained"] == len(rows)


def what_hangs_is_dropped(training: Training, step: int, question: str) -> None:
    """The verdicts on a question's responses time out; they do not train, and the step goes on."""
    rows = training.table(step, "rollouts").to_pylist()
    group = [row for row in rows if question in row["prompt"][-1]["content"]]
    assert len(group) == RESPONSES
    slugs = [verify(row["response"], HANGS, timeout=DEADLINE_S).verdict for row in group]
    assert "timeout" in slugs
    assert {"timeout", "no_answer"} >= set(slugs)
    late = {row["response_id"] for row in group}  # By the reference, whatever is answered.
    decisions = training.table(step, "decisions").to_pylist()
    by_us = {d["row_id"] for d in decisions if d["step"] == "reward_sum_mapper"}
    assert by_us == late
    assert {d["reason"] for d in decisions} <= {"missing_component", "group_of_one"}
    found = training.figures(step)
    assert found["note/reward_sum_mapper/missing_accuracy"] == len(late)
    assert found["dropped/missing_component"] == len(late)
    assert found["rows_trained"] == len(rows) - len(decisions)


@contextmanager
def small_disk(path: Path) -> Iterator[Callable[[], object] | None]:
    """A disk with room for one checkpoint, and what makes it larger; None where it cannot be."""
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        grow = ["mount", "-o", "remount,size=256m", str(path)]
        yield lambda: subprocess.run(grow, check=True)
    finally:
        subprocess.run(["umount", str(path)], check=True)


def what_is_not_scored_is_counted(training: Training, step: int) -> None:
    """The scorer died in this step: some responses are scored, the others are known as missing."""
    curated = training.table(step, "curated")
    filled = pc.equal(curated["reward_quality_missing"], "scorer_unreachable")
    filled_up = pc.sum(filled).as_py() or 0
    found = training.figures(step)
    dropped = int(found.get("dropped/missing_component", 0))
    assert filled_up + dropped > 0
    assert found["note/reward_sum_mapper/missing_quality"] == filled_up + dropped
    assert found.get("note/reward_sum_mapper/group_mean_quality", 0) == filled_up
    # When the scorer dies is a matter of timing: what is left of a group may be one response.
    alone = int(found.get("dropped/group_of_one", 0))
    assert found["rows_trained"] == PROMPTS * RESPONSES - dropped - alone
    assert 0 < curated["reward_quality"].null_count + dropped < PROMPTS * RESPONSES
    assert np.isfinite(curated["reward"].to_numpy()).all()
