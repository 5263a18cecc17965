"""The folder of a training run, and what it says to the processes of the run.

RUN/recipe.yaml                  the recipe and its `train:` section, with every default written out
RUN/command.txt                  what was launched
RUN/prompts/{train,validation}.{arrow,parquet}   prompts of the recipe; the same for verl. Where
                                 train.parquet is, the run can be launched
RUN/metrics.jsonl                what verl logged, a line per step
RUN/steps/000012/                rollouts, decisions and rewards of a step, and their recipe; in
                                 verify/ those of the judgements, in answers.arrow what waits for
                                 them
RUN/checkpoints/global_step_50/  as verl writes them
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.feather as feather

from ..operators.errors import RecipeError
from ..pipelines.recipe.read import load
from ..pipelines.recipe.recipe import Recipe, Step
from ..pipelines.recipe.train import Train
from ..pipelines.recipe.yaml_text import dump
from .policies import Policy, Sampling
from .split import Cut, check_schedule, cut

MARK = "REJUICE_RUN"
"""Variable that every process of a run has: the folder of the run."""
WEIGHTS = "sampler.safetensors"
"""File in that folder by which weights reach the sampler of a CPU."""
PARTS = {"train": "train", "val": "validation"}
"""Partitions of TransferQueue, and what their files are called."""


def is_prepared(folder: Path) -> bool:
    """Whether there is all that a run needs to be launched."""
    return (folder / "prompts" / "train.parquet").exists()


class TrainingRun(NamedTuple):
    """A run, as its processes know it.

    Attributes:
        folder: where it is.
        recipe: whole.
        config: its `train:` section.
        cut: its parts.
    """

    folder: Path
    recipe: Recipe
    config: Train
    cut: Cut

    @classmethod
    def of(cls, folder: Path, recipe: Recipe) -> TrainingRun:
        """The run of a recipe; nothing is written.

        Raises:
            RecipeError: it is no recipe that can train.
        """
        config, where = recipe.head.train, str(recipe.path)
        if config is None:
            raise RecipeError("there is no `train:` section", "add one", where=where)
        parts = cut(recipe)
        check_schedule(parts, config, where)
        return cls(folder, recipe, config, parts)

    @classmethod
    def open(cls, folder: Path) -> TrainingRun:
        """The run of a folder."""
        return cls.of(folder, load(folder / "recipe.yaml"))

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
        rollout = self.cut.rollout
        sampling = Sampling(
            rollout.temperature, rollout.top_p, rollout.max_tokens, self.config.seed
        )
        return Policy.load(self.policy), sampling

    def step_folder(self, step: int) -> Path:
        """Where a step is kept."""
        return self.folder / "steps" / f"{step:06d}"

    def step_recipe(self, step: int, steps: Sequence[Step], part: str = "") -> str:
        """A recipe, as YAML, that does to a step's rollouts what training did."""
        folder = self.step_folder(step) / part
        head = {
            "project_name": self.folder.name,
            "dataset_path": str(folder / "rollouts.parquet"),
            "export_path": str(folder / "again.parquet"),
        }
        return dump(self.recipe.part(steps, head))
