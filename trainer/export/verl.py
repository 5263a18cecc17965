"""A recipe for stock verl: its prompts as Parquet, and its reward as a function in a file.

DIR/train.parquet, DIR/validation.parquet    prompts, as verl's dataset reads them
DIR/train.arrow, DIR/validation.arrow        the same with all their columns, for the reward
DIR/*-decisions.parquet                      rows of the dataset that gave no prompt, and why
DIR/scoring.yaml                             the steps that score a response
DIR/reward.py                                compute_score, for verl

The folder can be moved, but not taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ...operators import RejuiceError
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.plan import checked_schema
from ...pipelines.recipe import Recipe, Step
from ..config import train_config
from ..cut import Cut, cut
from ..launch.prompts import make_prompts
from ..policies import located
from .verl_reward import STEPS, Scoring, scoring

_REWARD = '''\
"""The reward of {recipe}, for verl's `reward.custom_reward_function.path`.

Made by `rejuice export verl`; scoring.yaml and the prompts beside it belong to it.
"""

from pathlib import Path
from typing import Any

from rejuice.trainer.export.verl_reward import RowReward

_reward = RowReward(Path(__file__).resolve().parent)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> dict[str, float]:
    """Score one response; verl logs what stands beside `score`."""
    return _reward(solution_str, extra_info)
'''


class VerlExport(NamedTuple):
    """What was written.

    Attributes:
        prompts: how many there are, by split.
        scoring: what scores, and what was left out.
        overrides: keys of verl and their values, which make it use the export.
    """

    prompts: Mapping[str, int]
    scoring: Scoring
    overrides: Mapping[str, str]


def export_verl(recipe: Recipe, folder: Path, leave_out: Sequence[str] = ()) -> VerlExport:
    """Write prompts and reward function of a recipe to a folder.

    Args:
        recipe: with a `policy_rollout_mapper`. Where it has a `train:` section, prompts longer than
            its `max_prompt_tokens` are left out, and its `validation_path` is exported too.
        folder: where to write; files of an earlier export are replaced.
        leave_out: names of steps behind sampling to do without.

    Raises:
        RejuiceError: a step cannot score a response by itself, or a dataset is not right.
    """
    parts = cut(recipe)
    if (folder / "train.json").exists():
        raise RejuiceError(f"{folder} holds a training run", "give another folder")
    columns = dict.fromkeys(checked_schema(recipe).names)
    for step in parts.before:
        columns.update(dict.fromkeys(step.operator.writes()))
    found = scoring(parts.after, list(columns), leave_out)
    datasets, encode, longest = _inputs(recipe, parts)
    made = {
        name: make_prompts(
            path, parts.before, folder, name, source=parts.source, encode=encode, longest=longest
        ).prompts
        for name, path in datasets.items()
    }
    (folder / STEPS).write_text(_scoring_recipe(recipe, found.steps), "utf-8")
    (folder / "reward.py").write_text(_REWARD.format(recipe=recipe.path.name), "utf-8")
    here = folder.resolve()
    overrides = {_FILES[name]: str(here / f"{name}.parquet") for name in made}
    overrides["reward.custom_reward_function.path"] = str(here / "reward.py")
    return VerlExport(made, found, overrides)


_FILES = {"train": "data.train_files", "validation": "data.val_files"}


def _inputs(recipe: Recipe, parts: Cut) -> tuple[dict[str, Path], Encode, int]:
    """The datasets, the encoding of a prompt, and how many tokens it may have."""
    datasets = {"train": recipe.head.dataset_path}
    if recipe.head.train is None:
        return datasets, lambda _: (), 0  # Any length: nothing says how long is too long.
    config = train_config(recipe)
    if config.validation_path is not None:
        datasets["validation"] = config.validation_path
    policy = located(config.policy or parts.rollout.model)
    return (
        datasets,
        chat_encoder(policy, parts.rollout.chat_template_kwargs),
        config.max_prompt_tokens,
    )


def _scoring_recipe(recipe: Recipe, steps: Sequence[Step]) -> str:
    process: list[dict[str, Any]] = [
        {step.operator.name(): step.operator.model_dump(mode="json")} for step in steps
    ]
    custom = [str(path.resolve()) for path in recipe.head.custom_operator_paths]
    head = {
        "project_name": recipe.head.project_name,
        "dataset_path": "rollouts.parquet",
        "export_path": "scored.parquet",
        "text_keys": recipe.head.model_dump(mode="json")["text_keys"],
        "custom_operator_paths": custom,
    }
    return yaml.safe_dump({**head, "process": process}, sort_keys=False)
