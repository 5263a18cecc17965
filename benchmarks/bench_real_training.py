"""A real language model of 135 million parameters: what each system learns, and TRL beside it.

    python benchmarks/bench_real_training.py --policy FOLDER [--runs FOLDER] [--seeds 3]
    python benchmarks/bench_real_training.py --table     # of the runs that are there
    python benchmarks/bench_real_training.py --trl --policy FOLDER [--seeds 2] [--until 20]

Each run is `rejuice train recipes/small_model/NAME.yaml`, about a quarter of an hour on two idle
cores; one that was stopped is resumed, and a finished one is not run again. `quality` needs its
judge, see its recipe. With `--trl`, TRL's GRPOTrainer trains on the same prompts with the same
settings, rewards and LoRA, and its policy is graded on the same held-out questions by
the same verifier, every 10 steps. Intervals of one run are Wilson's, 95%.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from bench_grpo import distinct, load, paths, table
from bench_trl import KEEP_MEMORY, LIKE_OURS
from transformers import TrainerCallback

from rejuice.operators.columns import RIGHT
from rejuice.operators.confidence import wilson_interval
from rejuice.operators.verifier import verify_batch
from rejuice.trainer import metrics
from rejuice.trainer.verl.judging import accuracy_figures

_ROOT = Path(__file__).parents[1]
_REJUICE = Path(sys.executable).parent / "rejuice"
_RECIPES = _ROOT / "recipes" / "small_model"
SYSTEMS: dict[str, list[str]] = {
    "grpo": [],
    "diversity": [],
    "self_verify": [],
    "verify_alter": ["--schedule", "verify_alter"],
    "flow": [],
    "quality": [],
}
"""By name of the runs, what differs from the recipe of that name."""
_VALIDATED_EVERY = 10
_ROWS = 128  # of a step: 16 prompts with 8 responses
_MOST = 32  # tokens of a response


def train(name: str, seed: int, runs: Path, policy: str) -> None:
    """Run a system, or go on with its run, unless it is finished."""
    folder = runs / f"{name}-{seed}"
    if (folder / "curves.png").exists():
        return
    recipe = _RECIPES / f"{'self_verify' if name == 'verify_alter' else name}.yaml"
    words = ["--train.policy", policy, "--train.seed", str(seed), *SYSTEMS[name]]
    again = ["--resume"] if (folder / "prompts" / "train.parquet").exists() else []
    command = [_REJUICE, "train", recipe, "--output", folder, *words, *again]
    subprocess.run(command, cwd=_ROOT, check=True)


# --- Tables of runs -------------------------------------------------------------------


def curves(runs: Path) -> None:
    """Print the held-out accuracy of each run, and of each level of difficulty."""
    print("| run | step | held-out accuracy | by level | tokens | seconds a step, median |")
    print("|---|---|---|---|---|---|")
    for folder in _finished(runs):
        run, seconds = load(folder), _seconds(folder)
        spent = np.concatenate(([0.0], run.tokens_S))
        for step in sorted(run.validated):
            (file,) = (folder / "validations").rglob(f"{step:06d}.parquet")
            verdicts = pq.read_table(file, columns=["level", "verdict"]).to_pylist()
            print(
                f"| {folder.name} | {step} | {_share([v['verdict'] for v in verdicts])} | "
                f"{_by_level(verdicts)} | {spent[step]:,.0f} | {seconds:.1f} |"
            )


FIGURES = {
    "pass rate": "rejuice/pass_rate",
    "entropy": "actor/entropy_loss",
    "tokens of a response": "rejuice/response_tokens",
    "not worked out": "rejuice/not_worked_out",
    "tool calls": "rejuice/agent/tool_calls",
    "tool errors": "rejuice/agent/tool_errors",
    "diversity": "rejuice/reward_diversity",
    "quality": "rejuice/reward_quality",
}
"""By name in the table, the figure of a step."""
_ENDS = 5  # steps whose mean is reported, at the beginning and at the end


def ends(runs: Path) -> None:
    """Print the figures of each run's first and last steps, those that it has."""
    print(f"\n| run | figure | first {_ENDS} steps | last {_ENDS} |\n|---|---|---|---|")
    for folder in _finished(runs):
        points = [each for each in metrics.read(folder) if each.trained]
        found = {
            name: [each.figures[key] for each in points if key in each.figures]
            for name, key in FIGURES.items()
        }
        steps = [each.step for each in points]
        found |= _judging(folder, steps)
        found["distinct right of 8"] = [distinct(folder, step) for step in steps]
        found["solution paths of 8"] = [paths(folder, step) for step in steps]
        for name, values in found.items():
            if values:
                first, last = np.mean(values[:_ENDS]), np.mean(values[-_ENDS:])
                print(f"| {folder.name} | {name} | {first:.3f} | {last:.3f} |")


def _judging(folder: Path, steps: Sequence[int]) -> dict[str, list[float]]:
    """Return the figures of all judgements of each step that has some."""
    found: dict[str, list[float]] = {}
    for step in steps:
        part = folder / "steps" / f"{step:06d}" / "verify"
        if part.exists():
            label = pq.read_table(part / "rollouts.parquet", columns=["label"])["label"]
            judgement = pq.read_table(part / "values.parquet", columns=["judgement"])["judgement"]
            for name, value in accuracy_figures(label, judgement).items():
                found.setdefault(f"judgements: {name}", []).append(value)
    return found


def _finished(runs: Path) -> list[Path]:
    return sorted(each.parent for each in runs.glob("*-*/curves.png"))


def _seconds(folder: Path) -> float:
    points = metrics.read(folder)
    return float(np.median([each.figures["timing_s/step"] for each in points if each.trained]))


def _share(verdicts: list[str]) -> str:
    right, n = verdicts.count("correct"), len(verdicts)
    low, high = wilson_interval(right / n, n)
    return f"{right / n:.3f} ({low:.3f} to {high:.3f})"


def _by_level(rows: list[dict[str, Any]]) -> str:
    levels = sorted({row["level"] for row in rows})
    of_level = ([r["verdict"] for r in rows if r["level"] == level] for level in levels)
    return ", ".join(f"{found.count('correct') / len(found):.2f}" for found in of_level)


# --- TRL beside it --------------------------------------------------------------------


class Log(NamedTuple):
    """A file of lines: of a step its `seconds`, `reward` and `tokens`, of a validation `right`, `n`."""

    path: Path

    def add(self, **line: Any) -> None:
        """Add a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """All lines; none if there is no file."""
        text = self.path.read_text("utf-8") if self.path.exists() else ""
        return list(map(json.loads, text.splitlines()))

    def keep(self, until: int) -> None:
        """Leave out the lines of later steps."""
        lines = [line for line in self.lines() if line["step"] <= until]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


class Validations(TrainerCallback):  # type: ignore[misc]
    """Writes the steps of TRL and validations between them to a file, and ends the training.

    Args:
        log: that file.
        questions: on which the policy is validated.
        until: step at which training ends.
    """

    def __init__(self, log: Log, questions: Sequence[Mapping[str, Any]], until: int) -> None:
        self.log, self.questions, self.until = log, questions, until

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if not state.global_step:  # Otherwise it is resumed.
            self.validate(0, **given)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds = time.perf_counter() - self.began

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **given: Any) -> None:
        if "reward" not in logs:
            return
        tokens = _ROWS * logs["completions/mean_length"]
        self.log.add(
            step=state.global_step, seconds=self.seconds, reward=logs["reward"], tokens=tokens
        )
        if state.global_step % _VALIDATED_EVERY == 0:
            self.validate(state.global_step, **given)
        control.should_training_stop |= state.global_step >= self.until

    def validate(self, step: int, model: Any, processing_class: Any, **_: Any) -> None:
        texts = _answers(model, processing_class, [row["prompt"] for row in self.questions])
        references = [row["reference"] for row in self.questions]
        found = verify_batch(texts, references, worked_out=True, workers=1)
        self.log.add(step=step, right=sum(each.verdict == RIGHT for each in found), n=len(found))
        print(self.log.lines()[-1], flush=True)


def train_trl(folder: Path, policy: str, seed: int, until: int, rows: int) -> None:
    """Train with TRL on the recipe's prompts, or go on from its last checkpoint.

    Neither validations nor checkpoints count in a step's time.
    """
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from rejuice.trainer.trl import grpo_settings, reward_funcs, train_dataset

    recipe, log = _RECIPES / "grpo.yaml", Log(folder / "log.jsonl")
    train = yaml.safe_load(recipe.read_text("utf-8"))["train"]
    questions = list(train_dataset(recipe, _ROOT / "outputs/small_model/validation.parquet"))

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    settings = {
        **grpo_settings(recipe),
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": _ROWS // rows,
        "max_steps": train["steps"],
        **LIKE_OURS,
        "learning_rate": train["learning_rate"],
        "lr_scheduler_type": "cosine",
        "weight_decay": 0.01,  # verl's
        "seed": seed,
        "output_dir": str(folder),
        "save_strategy": "steps",
        "save_steps": _VALIDATED_EVERY,
        "save_total_limit": 1,
    }
    # Whose last file is there.
    whole = (each.parent for each in folder.glob("checkpoint-*/trainer_state.json"))
    saved = {int(each.name.rpartition("-")[2]): str(each) for each in whole}
    log.keep(max(saved, default=-1))
    GRPOTrainer(
        model=policy,
        args=GRPOConfig(**settings),
        train_dataset=train_dataset(recipe, _ROOT / "outputs/small_model/train.parquet"),
        reward_funcs=reward_funcs(recipe),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        callbacks=[Validations(log, questions, until)],
    ).train(resume_from_checkpoint=saved[max(saved)] if saved else None)


@torch.no_grad()
def _answers(model: Any, tokenizer: Any, prompts: list[Any]) -> list[str]:
    """One response to each prompt, sampled as in training."""
    texts: list[str] = []
    for start in range(0, len(prompts), _ROWS):
        given = tokenizer.apply_chat_template(
            prompts[start : start + _ROWS], add_generation_prompt=True, padding=True,
            tokenizer_kwargs={"padding_side": "left"}, return_dict=True, return_tensors="pt",
        )  # fmt: skip
        out = model.generate(
            **given, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=_MOST,
            pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        new = out[:, given["input_ids"].shape[1] :]
        texts += tokenizer.batch_decode(new, skip_special_tokens=True)
    return texts


def _is_finished(folder: Path, steps: int) -> bool:
    lines = Log(folder / "log.jsonl").lines()
    return any("right" in line and line["step"] == steps for line in lines)


def trl_curves(runs: Path) -> None:
    """Print TRL's held-out accuracy and seconds."""
    for log in sorted(runs.glob("trl-*/log.jsonl")):
        lines = Log(log).lines()
        seconds = np.array([line["seconds"] for line in lines if "seconds" in line])
        for line in lines:
            if "right" in line:
                verdicts = ["correct"] * line["right"] + ["wrong"] * (line["n"] - line["right"])
                print(f"| {log.parent.name} | {line['step']} | {_share(verdicts)} |")
        print(f"{log.parent.name}: {np.median(seconds):.1f} s a step, median of {len(seconds)}")


def main() -> None:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--runs", type=Path, default=_ROOT / "outputs" / "bench_small_model")
    parser.add_argument("--systems", nargs="+", default=["grpo"], choices=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--until", type=int, default=40, help="step at which TRL stops")
    parser.add_argument("--rows", type=int, default=64, help="of a pass of TRL")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--trl", action="store_true")
    given = parser.parse_args()
    if given.until % _VALIDATED_EVERY:
        parser.error(f"--until is not a multiple of {_VALIDATED_EVERY}")
    if given.trl and not KEEP_MEMORY.items() <= os.environ.items():  # Read when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    for seed in range(0 if given.table else given.seeds):
        if given.trl:
            folder = given.runs / f"trl-{seed}"
            if not _is_finished(folder, given.until):
                folder.mkdir(parents=True, exist_ok=True)
                train_trl(folder, given.policy, seed, given.until, given.rows)
            continue
        for name in given.systems:
            train(name, seed, given.runs, given.policy)
    curves(given.runs)
    ends(given.runs)
    trl_curves(given.runs)
    if not given.trl:
        # The agent's questions are others.
        same = [name for name in SYSTEMS if name != "flow"]
        there = [name for name in same if any(given.runs.glob(f"{name}-*/curves.png"))]
        table(there, given.runs)


if __name__ == "__main__":
    main()
