"""The prompts that a run has left, for stock verl, with a reward function where there can be one.

DIR/train.parquet, DIR/validation.parquet   prompts, as verl's dataset reads them
DIR/train.arrow, DIR/validation.arrow       the same, for the reward
DIR/scoring.yaml, operators/, reward.py     as `verl` writes them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...operators import DataError, Filter, RecipeError, RejuiceError
from ...operators.columns import columns_of
from ...operators.errors import suggest
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.sampling.rollout import RolloutMapper
from ...pipelines.dataset.files import check_folder_is_free, filled, run_folder
from ...pipelines.dataset.write import with_column
from ...pipelines.recipe.recipe import Recipe, load
from ...pipelines.recipe.steps import Step
from ..launch.prompts import draw_prompts, for_verl
from .rows import Prompts, as_chats, prompts_of_dataset
from .verl import chat_template_keys, reward_key, with_own_columns, write_scoring
from .verl_reward import RESPONSE_COLUMNS, Scoring, scoring


class RowsExport(NamedTuple):
    prompts: Mapping[str, int]  # how many there are, by split
    found: Prompts  # of the rows
    scoring: Scoring | None  # the steps of the reward function, if there is one
    no_reward: str  # why there is none
    overrides: Mapping[str, Any]  # keys of verl and their values, with which it uses the export

    def sentences(self) -> Iterator[str]:
        yield from self.found.sentences()
        if self.scoring is None:
            yield (
                f"No reward function: {self.no_reward}. verl needs "
                "reward.custom_reward_function.path, or a data_source that it knows."
            )
        else:
            yield self.scoring.sentence()
        if "validation" not in self.prompts:
            yield "verl also needs data.val_files: add --val_rows N, or give a file of your own."


def recipe_of(dataset: Path) -> Path | None:
    path = run_folder(dataset) / "recipe.yaml"
    return path if isinstance(path, Path) and path.exists() else None


def export_rows(
    dataset: Path,
    folder: Path,
    leave_out: Sequence[str] = (),
    val_rows: int = 0,
    *,
    overwrite: bool = False,
) -> RowsExport:
    """Write the prompts of rows, and the reward function of their recipe where it has one.

    A hash of `prompt_id` decides which `val_rows` are held out for validation.
    """
    check_folder_is_free(folder, overwrite=overwrite)
    found = prompts_of_dataset(dataset)
    recipe, unread = _recipe_of(dataset)
    scored, no_reward = _scored(recipe, found.table.column_names, leave_out)
    no_reward = unread or no_reward
    source = "rejuice" if recipe is None else recipe.head.project_name
    chats = with_column(found.table, "prompt", as_chats(found.table["prompt"]))
    try:
        written = {
            split: (table, with_own_columns(for_verl(table, source, split), table))
            for split, table in _splits(chats, val_rows).items()
        }
    except DataError as error:
        raise error.at(str(dataset)) from None
    with filled(folder, overwrite=overwrite) as into:
        for split, (table, rows) in written.items():
            pq.write_table(rows, into / f"{split}.parquet")
            if scored is not None:
                feather.write_feather(table, into / f"{split}.arrow", compression="uncompressed")
        if recipe is not None and scored is not None:
            write_scoring(recipe, scored, into)
    place, overrides = folder.resolve(), dict[str, Any]()
    for split, key in (("train", "data.train_files"), ("validation", "data.val_files")):
        if split in written:
            overrides[key] = str(place / f"{split}.parquet")
    if recipe is not None:
        overrides |= _template_keys(recipe)
        if scored is not None:
            overrides |= reward_key(folder)
    counts = {split: rows.num_rows for split, (_, rows) in written.items()}
    return RowsExport(counts, found, scored, no_reward, overrides)


def _splits(prompts: pa.Table, val_rows: int) -> dict[str, pa.Table]:
    if not val_rows:
        return {"train": prompts}
    if val_rows >= prompts.num_rows:
        raise DataError(
            f"--val_rows {val_rows:,} of {prompts.num_rows:,} prompts leaves none to train on",
            "give fewer",
        )
    drawn = draw_prompts(prompts, val_rows)
    rest = np.delete(np.arange(prompts.num_rows), drawn)
    return {"train": prompts.take(rest), "validation": prompts.take(drawn)}


# --- The reward -----------------------------------------------------------------------


def _recipe_of(dataset: Path) -> tuple[Recipe | None, str]:
    path = recipe_of(dataset)
    try:
        return None if path is None else load(path), ""
    except RejuiceError as error:  # It may have been made where other packages are installed.
        return None, str(error)


def _scored(
    recipe: Recipe | None, columns: Sequence[str], leave_out: Sequence[str]
) -> tuple[Scoring | None, str]:
    if recipe is None:
        if leave_out:
            found = "there is no recipe of the rows that can be read"
            raise RecipeError(found, "give no --leave_out")
        return None, "no recipe is stored beside the rows"
    names = [step.name for step in recipe.steps]
    for name in leave_out:
        if name not in names:
            near = suggest(name, names) or f"the steps are: {', '.join(names)}"
            raise RecipeError(f"no step '{name}' to leave out", near)
    try:
        steps = _steps_of_reward(recipe, {*columns, *RESPONSE_COLUMNS}, leave_out)
        gone = [name for name in leave_out if name in [step.name for step in steps]]
        return scoring(steps, columns, gone), ""
    except RecipeError as error:
        if leave_out:
            raise
        return None, "; ".join(part for part in (error.found, error.right) if part)


def _steps_of_reward(recipe: Recipe, known: set[str], leave_out: Sequence[str]) -> list[Step]:
    """Filters are not among them: they have done their work on these rows."""
    recipe = recipe.in_training()
    samples = [at for at, s in enumerate(recipe.steps) if isinstance(s.operator, RolloutMapper)]
    if samples and isinstance(recipe.steps[samples[0]].operator, AgentRolloutMapper):
        raise RecipeError("stock verl samples single responses, and the recipe trajectories")
    end = samples[1] if samples[1:] else None  # From there on the policy judges.
    wanted, kept = {"reward"}, list[Step]()
    for step in reversed(recipe.steps[:end]):
        operator = step.operator
        written = wanted.intersection(operator.writes())
        if not written or isinstance(operator, (Filter, GrpoAdvantageMapper)):
            continue
        kept.append(step)
        if step.name not in leave_out:
            if not operator.where:  # Else other steps may write it in the other rows.
                wanted.difference_update(written)
            wanted.update({*operator.reads(), *columns_of(operator.where or ())} - known)
    if not kept:
        raise RecipeError("no step writes the column reward")
    return kept[::-1]


def _template_keys(recipe: Recipe) -> dict[str, Any]:
    samplers = [s.operator for s in recipe.steps if isinstance(s.operator, RolloutMapper)]
    return chat_template_keys(samplers[0].chat_template_kwargs) if samplers else {}
