"""The folder of a training run, and what it says to the processes of the run.

RUN/recipe.yaml                  the recipe with every default written out
RUN/train.json                   the `train:` section, resolved
RUN/command.txt                  what was launched
RUN/prompts/{train,validation}.{arrow,parquet}   prompts of the recipe; the same for verl
RUN/metrics.jsonl                what verl logged, a line per step
RUN/steps/000012/                rollouts, decisions and rewards of a step, and their recipe
RUN/checkpoints/global_step_50/  as verl writes them
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.feather as feather
import yaml

from ..pipelines.recipe import Step, load
from .config import Train
from .cut import Cut, cut
from .policies import Policy, Sampling, end_tokens, located

PARTS = {"train": "train", "val": "validation"}
"""Partitions of TransferQueue, and what their files are called."""


class TrainingRun(NamedTuple):
    """A run, as its processes know it."""

    folder: Path
    config: Train
    cut: Cut

    @classmethod
    def open(cls, folder: Path) -> TrainingRun:
        """The run of a folder."""
        config = Train.model_validate(json.loads((folder / "train.json").read_text()))
        return cls(folder, config, cut(load(folder / "recipe.yaml")))

    @property
    def policy(self) -> str:
        """Name of the policy that is trained."""
        return self.config.policy or self.cut.rollout.model

    def progress(self, step: int) -> float:
        """How far training is at a step, from 0 at the first to 1 at the last."""
        return (step - 1) / max(1, self.config.steps - 1)

    def prompts(self, partition: str) -> pa.Table:
        """The prompts of a partition, mapped from their file."""
        return feather.read_table(
            self.folder / "prompts" / f"{PARTS[partition]}.arrow", memory_map=True
        )

    def sampler(self) -> tuple[Policy, Sampling]:
        """Which policy samples, and how."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(located(self.policy))
        rollout = self.cut.rollout
        sampling = Sampling(
            rollout.temperature, rollout.top_p, rollout.max_tokens, self.config.seed
        )
        return Policy(self.policy, tokenizer, end_tokens(self.policy)), sampling

    def step_folder(self, step: int) -> Path:
        """Where a step is kept."""
        return self.folder / "steps" / f"{step:06d}"

    def step_recipe(self, step: int, steps: Sequence[Step]) -> str:
        """A recipe, as YAML, that does to a step's rollouts what training did."""
        folder = self.step_folder(step)
        process: list[dict[str, Any]] = [
            {step.operator.name(): step.operator.model_dump(mode="json")} for step in steps
        ]
        head = {
            "project_name": self.folder.name,
            "dataset_path": str(folder / "rollouts.parquet"),
            "export_path": str(folder / "again.parquet"),
            **self._for_steps(),
        }
        return yaml.safe_dump({**head, "process": process}, sort_keys=False)

    def _for_steps(self) -> dict[str, Any]:
        """Keys of the recipe's top that decide what its steps are."""
        recipe = yaml.safe_load((self.folder / "recipe.yaml").read_text("utf-8"))
        names = ("text_keys", "custom_operator_paths")
        return {name: recipe[name] for name in names if recipe.get(name)}
