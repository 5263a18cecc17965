"""The folder of a training run, and what the processes of the run read from it.

docs/training.md lists the files of the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ..operators.errors import RecipeError
from ..pipelines.recipe.recipe import Recipe, dump, load
from ..pipelines.recipe.steps import Step
from ..pipelines.recipe.train import Train
from .policies import Policy, Sampling
from .split import HeldOutSet, SplitRecipe, check_section, held_out_sets, split_recipe

RUN_VARIABLE = "REJUICE_RUN"
"""Environment variable of every process of a run: the folder of the run."""
WEIGHTS = "sampler.safetensors"
"""File in that folder through which weights reach the sampler on a CPU."""
CHECKPOINT = "global_step_"
"""What the names of verl's checkpoints begin with, before the number of the step."""
ESTIMATOR = "rejuice"
"""Name of the recipe's advantage, for verl's `algorithm.adv_estimator`."""


def is_prepared(folder: Path) -> bool:
    """Whether the folder has everything that a run needs to be launched."""
    return (folder / "prompts" / "train.parquet").exists()


class TrainingRun(NamedTuple):
    """A run, as its processes see it."""

    folder: Path  # the folder of the run
    recipe: Recipe  # the whole recipe
    config: Train  # its `train:` section
    split: SplitRecipe  # the parts of the recipe
    held_out: tuple[HeldOutSet, ...]  # the sets that it validates on

    @classmethod
    def of(cls, folder: Path, recipe: Recipe) -> TrainingRun:
        """The run of a recipe; nothing is written.

        Raises:
            RecipeError: the recipe cannot be used for training.
        """
        config, where = recipe.head.train, str(recipe.path)
        if config is None:
            raise RecipeError("there is no `train:` section", "add one", where=where)
        parts = split_recipe(recipe)
        check_section(parts, config, where)
        return cls(folder, recipe, config, parts, held_out_sets(parts, config, where))

    @classmethod
    def open(cls, folder: Path) -> TrainingRun:
        """The run of a folder."""
        return cls.of(folder, load(folder / "recipe.yaml"))

    @property
    def policy(self) -> str:
        """Name of the policy that is trained."""
        return self.config.policy or self.split.rollout.model

    def progress(self, step: int) -> float:
        """How far training is at a step, from 0 at the first to 1 at the last."""
        return (step - 1) / max(1, self.config.steps - 1)

    def prompts(self, split: str) -> pa.Table:
        """The prompts of `train` or of a validation set, mapped from their file."""
        import pyarrow.feather as feather  # It loads what `rejuice check` does not need.

        return feather.read_table(self.folder / "prompts" / f"{split}.arrow", memory_map=True)

    def sampler(self) -> tuple[Policy, Sampling]:
        """The policy, and its sampling parameters."""
        rollout, config = self.split.rollout, self.config
        seed = config.seed if config.seeds_requests else None
        sampling = Sampling(rollout.temperature, rollout.top_p, rollout.max_tokens, seed)
        return Policy.load(self.policy), sampling

    def saved_steps(self) -> list[int]:
        """The steps with a checkpoint, from one of which a resume continues.

        verl removes the weights of old ones, and leaves the rest of their folders.
        """
        weights = (self.folder / "checkpoints").glob(f"{CHECKPOINT}*/actor")
        return sorted(int(each.parent.name.removeprefix(CHECKPOINT)) for each in weights)

    def step_folder(self, step: int) -> Path:
        """The folder of a step."""
        return self.folder / "steps" / f"{step:06d}"

    def step_recipe(self, step: int, steps: Sequence[Step], part: str = "") -> str:
        """A recipe, as YAML, that repeats on a step's rollouts what training did to them."""
        folder = self.step_folder(step) / part
        head = {
            "project_name": self.folder.name,
            "dataset_path": str(folder / "rollouts.parquet"),
            "export_path": str(folder / "again.parquet"),
        }
        return dump(self.recipe.part(steps, head))
