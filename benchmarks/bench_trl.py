"""`rejuice train` against TRL's GRPOTrainer: wall time of a training step, everything included.

python benchmarks/bench_trl.py [steps]: both train the embedded policy on the same prompts, 64 a
step, 8 responses each, with the rewards of `recipes/grpo_arithmetic.yaml`, in turns: A B A B. TRL
is first tried in several settings, of which the fastest takes part. No validation, no checkpoints.
About 20 minutes on two cores; nothing else should run beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions

RECIPE = Path(__file__).parents[1] / "recipes" / "grpo_arithmetic.yaml"
BIN = Path(sys.executable).parent
PROMPTS, N, LEARNING_RATE, ROUNDS = 64, 8, 1e-4, 2
TRIED_STEPS = 4
LIKE_OURS = {
    "lr_scheduler_type": "constant",
    "beta": 0.0,
    "loss_type": "dapo",  # The mean over the tokens of a step, as verl's token-mean.
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "model_init_kwargs": {"dtype": "float32"},
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
}
"""Settings of TRL as they are in profile `cpu`, without checkpoints and trackers."""
# What the processes of `rejuice train` are given too (trainer/launch/verl_config.py, `environment`).
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}


class Setting(NamedTuple):
    """How TRL runs: processes with threads each, rows of a forward pass, and what else."""

    processes: int
    threads: int
    rows: int
    config: Mapping[str, Any] = MappingProxyType({})
    memory: Mapping[str, str] = KEEP_MEMORY

    def __str__(self) -> str:
        more = "".join(f", {key}={value}" for key, value in self.config.items())
        more += "" if self.memory else ", malloc as it is"
        return f"{self.processes} x {self.threads} threads, {self.rows} rows{more}"


SETTINGS = (
    Setting(1, 2, 512),
    Setting(1, 2, 64),
    Setting(2, 1, 256),
    Setting(2, 1, 128),
    Setting(2, 1, 64),
    Setting(2, 1, 32),
    Setting(2, 1, 64, memory={}),
    Setting(2, 1, 64, {"cache_implementation": "static"}),
    Setting(2, 1, 64, {"use_transformers_continuous_batching": True}),
    Setting(2, 1, 64, {"dataloader_num_workers": 1}),
    Setting(2, 1, 64, {"model_init_kwargs": {"dtype": "float32", "attn_implementation": "eager"}}),
)


class Step(NamedTuple):
    """The end of a training step, in seconds since the start, and what it trained on."""

    end_s: float
    reward: float
    tokens: float


def main(steps: int) -> None:
    """Try TRL's settings, run both in turns and print the tables."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        # More than needed: a prompt that comes up twice is sampled once.
        write_dataset(
            folder / "prompts.jsonl",
            "arithmetic",
            DemoOptions(prompts=PROMPTS * (steps + 4), levels=(1, 2)),
        )
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        tried = [(_median(trl(folder, setting, TRIED_STEPS)), setting) for setting in SETTINGS]
        tried.sort(key=itemgetter(0))
        print("\n| TRL's settings | s per step |\n|---|---|")
        for seconds, setting in tried:
            print(f"| {setting} | {seconds:.2f} |", flush=True)
        best = tried[0][1]
        contestants: dict[str, Callable[[], list[Step]]] = {
            "`rejuice train`": lambda: rejuice(folder, steps),
            f"TRL {version('trl')}, {best}": lambda: trl(folder, best, steps),
        }
        runs = [(name, run()) for _ in range(ROUNDS) for name, run in contestants.items()]
    if not all(found for _, found in runs):
        sys.exit("a run failed; VERBOSE=1 shows why")
    print("\n| | to the end of step 1, s | s per step, median | mean | reward | tokens |")
    print("|---|---|---|---|---|---|")
    for name, found in runs:
        print(_line(name, found))
    ours, theirs = (
        statistics.median(s for who, found in runs if who == name for s in _seconds(found))
        for name in contestants
    )
    print(f"\nTRL / rejuice, medians over all steps: {theirs / ours:.2f}", end="; ")
    print(f"load {os.getloadavg()[0]:.1f}; {steps} steps of {PROMPTS} x {N}")


def _line(name: str, found: list[Step]) -> str:
    fifth = max(1, len(found) // 4)
    first, last = (
        statistics.mean(s.reward for s in part) for part in (found[:fifth], found[-fifth:])
    )
    tokens = statistics.mean(step.tokens for step in found)
    return (
        f"| {name} | {found[0].end_s:.0f} | {_median(found):.2f} "
        f"| {statistics.mean(_seconds(found)):.2f} | {first:.2f} to {last:.2f} | {tokens:.1f} |"
    )


def _seconds(found: list[Step]) -> list[float]:
    """From the end of a step to the end of the next; the first has none."""
    return [b.end_s - a.end_s for a, b in pairwise(found)]


def _median(found: list[Step]) -> float:
    return statistics.median(_seconds(found)) if len(found) > 1 else float("inf")


def rejuice(folder: Path, steps: int) -> list[Step]:
    """`rejuice train`, as a user calls it."""
    run = Path(tempfile.mkdtemp(dir=folder))
    overrides = {
        "dataset_path": folder / "prompts.jsonl",
        "steps": steps,
        "output": run / "run",
        "train.validation_path": "null",
        "train.save_every": 0,
        "train.prompts_per_step": PROMPTS,
        "train.learning_rate": LEARNING_RATE,
        "train.verl": "{data.shuffle: false}",
        "policy_rollout_mapper.n": N,
    }
    flags = [word for key, value in overrides.items() for word in (f"--{key}", str(value))]
    log = run / "run" / "metrics.jsonl"
    return _watched([BIN / "rejuice", "train", RECIPE, *flags, "--quiet"], log, _of_verl)


def _of_verl(line: dict[str, Any]) -> tuple[float, float]:
    return line["data"]["rejuice/reward"], line["data"]["rejuice/response_tokens"]


def trl(folder: Path, setting: Setting, steps: int) -> list[Step]:
    """TRL's trainer in processes of its own; no steps where it fails with a setting."""
    run = Path(tempfile.mkdtemp(dir=folder))
    settings = {"dataset": str(folder / "prompts.jsonl"), "run": str(run), "steps": steps}
    settings |= {
        "rows": setting.rows,
        "processes": setting.processes,
        "config": dict(setting.config),
    }
    launcher: list[str | Path] = [sys.executable]
    if setting.processes > 1:
        launcher = [BIN / "torchrun", "--standalone", "--nproc_per_node", str(setting.processes)]
    environment = {**setting.memory, "OMP_NUM_THREADS": str(setting.threads)}
    command = [*launcher, __file__, "--trl", json.dumps(settings)]
    print(setting, end=" ", flush=True)
    found = _watched(command, run / "log.jsonl", _of_trl, OMP_WAIT_POLICY="PASSIVE", **environment)
    print(f"{_median(found):.2f}", flush=True)
    return found


def _of_trl(line: dict[str, Any]) -> tuple[float, float]:
    return line["reward"], line["completions/mean_length"]


def _watched(
    command: list[str | Path],
    log: Path,
    figures_of: Callable[[dict[str, Any]], tuple[float, float]],
    **environment: str,
) -> list[Step]:
    """Run a command and note when each line of its log appears."""
    start, ends, found = time.perf_counter(), list[float](), list[Step]()
    loud = None if os.environ.get("VERBOSE") else subprocess.DEVNULL
    env = {**os.environ, **environment}
    with subprocess.Popen(command, env=env, stdout=loud, stderr=loud) as process:
        while process.poll() is None:
            there = log.read_bytes().count(b"\n") if log.exists() else 0
            ends += [time.perf_counter() - start] * (there - len(ends))
            time.sleep(0.02)
    if process.returncode:
        print(f"failed with {process.returncode}", end=" ")
        return []
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for end, line in zip(ends, lines, strict=False):
        found.append(Step(end, *figures_of(line)))
    return found


def train_trl(job: dict[str, Any]) -> None:
    """Be one of TRL's processes."""
    import torch
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rejuice.operators.sampling.engines import EMBEDDED
    from rejuice.trainer.trl import grpo_settings, reward_funcs, train_dataset

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    log = Path(job["run"]) / "log.jsonl"

    class Log(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            (Path(job["run"]) / "begun").touch()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if state.is_world_process_zero and "reward" in logs:
                with log.open("a") as file:
                    file.write(json.dumps(logs) + "\n")

    settings = {
        **grpo_settings(RECIPE),
        "num_generations": N,
        "per_device_train_batch_size": job["rows"],
        "gradient_accumulation_steps": PROMPTS * N // job["rows"] // job["processes"],
        "max_steps": job["steps"],
        "learning_rate": LEARNING_RATE,
        **LIKE_OURS,
        "shuffle_dataset": False,
        "disable_tqdm": True,
        "output_dir": job["run"],
        **job["config"],
    }
    GRPOTrainer(
        model=str(EMBEDDED),
        args=GRPOConfig(**settings),
        train_dataset=train_dataset(RECIPE, job["dataset"]),
        reward_funcs=reward_funcs(RECIPE),
        callbacks=[Log()],
    ).train()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trl"]:
        train_trl(json.loads(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
