"""A recipe for stock verl: its prompts as Parquet, and its reward as a function in a file.

DIR/train.parquet, DIR/validation*.parquet   prompts, as verl's dataset reads them
DIR/train.arrow, DIR/validation*.arrow       the same with all their columns, for the reward
DIR/*-decisions.parquet                      rows of the dataset that were dropped, and why
DIR/scoring.yaml                             the steps that score a response
DIR/operators/                               the recipe's own files that define some of them
DIR/functions/                               those with reward functions, and what they import
DIR/reward.py                                compute_score, for verl

The folder can be moved, but its files belong together. Of the rows that a run has left, the prompts
are written the same way, with a reward function where there can be one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...operators import DataError, Filter, RecipeError, RejuiceError
from ...operators.columns import columns_of, flat, is_list
from ...operators.errors import suggest
from ...operators.functions.target import FunctionTarget
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_function_mapper import RewardFunctionMapper
from ...operators.sampling.engines import policy_path
from ...operators.sampling.rollout import RolloutMapper
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.dataset.files import check_folder_is_free, filled, run_folder
from ...pipelines.dataset.write import with_column
from ...pipelines.recipe.columns import checked_schema
from ...pipelines.recipe.recipe import Recipe, dump, load
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.trust import with_imports
from ..launch.prompts import draw_prompts, for_verl, make_held_out, make_prompts
from ..run import is_prepared
from ..split import HeldOutSet, SplitRecipe, answers_only, held_out_sets
from .rows import Prompts, as_chats, prompts_of_dataset
from .trl_formats import pictures
from .verl_reward import FUNCTIONS, OPERATORS, RESPONSE_COLUMNS, STEPS, Scoring, scoring

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
    """Score one response; verl logs the entries beside `score`."""
    return _reward(solution_str, extra_info)
'''


class VerlExport(NamedTuple):
    prompts: Mapping[str, int]  # how many there are, by split
    scoring: Scoring | None  # the steps that score, and those that were left out
    overrides: Mapping[str, Any]  # keys of verl and their values, with which it uses the export
    no_reward: str = ""  # why there is no reward function
    found: Prompts | None = None  # of the rows of an export

    def sentences(self) -> Iterator[str]:
        if self.found is not None:
            yield from self.found.sentences()
        if self.scoring is not None:
            yield self.scoring.sentence()
        else:
            yield (
                f"No reward function: {self.no_reward}. verl needs "
                "reward.custom_reward_function.path, or a data_source that it knows."
            )
        if "data.val_files" not in self.overrides:
            own = "add --val_rows N" if self.found else "set train.validation_path in the recipe"
            yield f"verl also needs data.val_files: {own}, or give a file of your own."


def export_verl(
    recipe: Recipe, folder: Path, leave_out: Sequence[str] = (), *, overwrite: bool = False
) -> VerlExport:
    """Write prompts and reward function of a recipe to a folder.

    If it has a `train:` section, prompts longer than its `max_prompt_tokens` are left out, and its
    validation sets are exported too.
    """
    parts = answers_only(recipe)
    if is_prepared(folder):
        raise RejuiceError(f"{folder} holds a training run", "give another folder")
    check_folder_is_free(folder, overwrite=overwrite)
    columns = dict.fromkeys(checked_schema(recipe.in_training()).names)
    for step in parts.before:
        columns.update(dict.fromkeys(step.operator.writes()))
    found = scoring(parts.after, list(columns), leave_out)
    held_out, encode, longest = _inputs(recipe, parts)
    recipe.head.write_missing(*recipe.head.dataset_spec.paths, *(each.path for each in held_out))
    train = make_prompts(
        recipe.head.dataset_spec,
        parts.before,
        folder,
        "train",
        source=parts.source,
        encode=encode,
        longest=longest,
    )
    made = {"train": train} | {
        each.split: make_held_out(each, folder, encode=encode, longest=longest) for each in held_out
    }
    for split in made:
        _keep_columns(folder, split, str(recipe.path))
    _write_scoring(recipe, found, folder)
    overrides = _overrides(recipe, parts, folder.resolve(), list(made))
    return VerlExport(made, found, {**overrides, **_reward_key(folder)})


def _keep_columns(folder: Path, split: str, where: str) -> None:
    path = folder / f"{split}.parquet"
    made, rows = pq.read_table(path), feather.read_table(folder / f"{split}.arrow")
    places = pc.struct_field(made["extra_info"], "index")  # A validation set may be a part of them.
    try:
        table = _with_own_columns(made, rows.take(places))
    except DataError as error:
        raise error.at(where) from None
    pq.write_table(table, path)


def _with_own_columns(made: pa.Table, prompts: pa.Table) -> pa.Table:
    """Prompts with all their columns, and with those of verl that they lack.

    The user's own columns are kept, and so are the fields of the user's own structs.
    """
    for name, column in pictures(prompts).items():
        asked = any("<image>" in str(chat) for chat in made["prompt"].to_pylist())
        if not (asked and name == "images" and is_list(column.type)):
            found = f"has pictures in column '{name}', which verl would not show with the prompt"
            right = "let a column images have a list of them, one for each <image> in the prompt"
            raise DataError(found, right)
    for name in made.column_names:
        own = prompts[name] if name in prompts.column_names else None
        if own is None or pa.types.is_null(own.type):
            prompts = with_column(prompts, name, made[name])
        elif pa.types.is_struct(made[name].type):
            prompts = with_column(prompts, name, _joined(name, own, made[name]))
    return prompts


def _joined(name: str, own: pa.ChunkedArray, made: pa.ChunkedArray) -> pa.StructArray:
    if not pa.types.is_struct(own.type):
        raise DataError(f"column '{name}' is {own.type}, and verl reads a struct", "rename it")
    added, fields = _fields(made), _fields(own)
    for key in added.keys() & fields.keys() & {"prompt_id"}:
        if not fields[key].equals(added[key]):
            found = f"'{name}' has a field '{key}', by which the reward finds its row"
            raise DataError(found, "rename it")
    fields = added | fields
    return pa.StructArray.from_arrays([*fields.values()], [*fields])


def _fields(structs: pa.ChunkedArray) -> dict[str, pa.Array]:
    names = [each.name for each in structs.type]
    return dict(zip(names, flat(structs).flatten(), strict=True))


def _write_scoring(recipe: Recipe, found: Scoring, folder: Path) -> None:
    head = {
        "project_name": recipe.head.project_name,
        "dataset_path": "rollouts.parquet",
        "export_path": "scored.parquet",
        "custom_operator_paths": _copied(recipe.head.custom_operator_paths, folder),
    }
    document = dump(recipe.part(_with_copied_functions(found.steps, folder), head))
    (folder / STEPS).write_text(document, "utf-8")
    (folder / "reward.py").write_text(_REWARD.format(recipe=recipe.path.name), "utf-8")


def _reward_key(folder: Path) -> dict[str, str]:
    return {"reward.custom_reward_function.path": str(folder.resolve() / "reward.py")}


def _chat_template_keys(chat_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {f"+data.apply_chat_template_kwargs.{key}": value for key, value in chat_kwargs.items()}


def override_words(values: Mapping[str, Any]) -> list[str]:
    """As Hydra reads keys and values on a command line."""
    return [f"{key}={_word(value)}" for key, value in values.items()]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_word, value)) + "]"
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value):
        return value
    # In Hydra's grammar, backslashes count only before a quote, and at the end: there they are
    # doubled, and the quote is escaped. Written here, as Hydra need not be installed.
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + (m[2] and "\\'"), value)
    return f"'{escaped}'"


_PLAIN = re.compile(r"/[A-Za-z0-9_./:+-]*")
"""Paths that Hydra reads without quotes."""


def _inputs(recipe: Recipe, parts: SplitRecipe) -> tuple[tuple[HeldOutSet, ...], Encode, int]:
    config = recipe.head.train
    if config is None:
        return (), lambda _: (), 0  # Without a `train:` section there is no limit.
    policy = policy_path(config.policy or parts.rollout.model)
    return (
        held_out_sets(parts, config, str(recipe.path)),
        chat_encoder(policy, parts.rollout.chat_template_kwargs),
        config.max_prompt_tokens,
    )


def _overrides(
    recipe: Recipe, parts: SplitRecipe, folder: Path, made: Sequence[str]
) -> dict[str, Any]:
    config, chat_kwargs = recipe.head.train, parts.rollout.chat_template_kwargs
    train, *held_out = (str(folder / f"{name}.parquet") for name in made)
    return {
        "data.train_files": train,
        **({"data.val_files": held_out[0] if len(held_out) == 1 else held_out} if held_out else {}),
        **({} if config is None else {"data.max_prompt_length": config.max_prompt_tokens}),
        **_chat_template_keys(chat_kwargs),
    }


def _copied(paths: Sequence[Path], folder: Path) -> list[str]:
    names = list[str]()
    for number, path in enumerate(paths, 1):
        place = folder / OPERATORS / str(number)
        place.mkdir(parents=True, exist_ok=True)
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            shutil.copy(file, place)
            names.append(f"{OPERATORS}/{number}/{file.name}")
    return names


def _with_copied_functions(steps: Sequence[Step], folder: Path) -> tuple[Step, ...]:
    """Steps whose reward functions are in copies of their files, named relative to `folder`.

    With a file goes what it imports from its own folder.
    """
    made, numbers = list[Step](), dict[Path, int]()
    for step in steps:
        operator = step.operator
        target = None
        if isinstance(operator, RewardFunctionMapper):
            target = FunctionTarget.parse(operator.function)
        if target is None or target.file is None:
            made.append(step)
            continue
        file = Path(target.file)
        name = f"{FUNCTIONS}/{numbers.setdefault(file, len(numbers) + 1)}"
        for each in with_imports([file], file.parent):
            place = folder / name / each.relative_to(file.parent)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, place)
        update = {"function": f"{name}/{file.name}:{target.name}"}
        made.append(step._replace(operator=operator.model_copy(update=update)))
    return tuple(made)


# --- The prompts that a run has left ----------------------------------------------------


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
) -> VerlExport:
    """Write the prompts of rows, and the reward function of their recipe where it has one.

    A hash of `prompt_id` decides which `val_rows` are held out for validation.
    """
    found = prompts_of_dataset(dataset)
    recipe, unread = _recipe_of(dataset)
    scored, no_reward = _scored(recipe, found.table.column_names, leave_out)
    no_reward = unread or no_reward
    source = "rejuice" if recipe is None else recipe.head.project_name
    chats = with_column(found.table, "prompt", as_chats(found.table["prompt"]))
    try:
        written = {
            split: (table, _with_own_columns(for_verl(table, source, split), table))
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
            _write_scoring(recipe, scored, into)
    place, overrides = folder.resolve(), dict[str, Any]()
    for split, key in (("train", "data.train_files"), ("validation", "data.val_files")):
        if split in written:
            overrides[key] = str(place / f"{split}.parquet")
    if recipe is not None:
        samplers = [s.operator for s in recipe.steps if isinstance(s.operator, RolloutMapper)]
        kwargs = samplers[0].chat_template_kwargs if samplers else {}
        overrides |= _chat_template_keys(kwargs)
        if scored is not None:
            overrides |= _reward_key(folder)
    counts = {split: rows.num_rows for split, (_, rows) in written.items()}
    return VerlExport(counts, scored, overrides, no_reward, found)


def _splits(prompts: pa.Table, val_rows: int) -> dict[str, pa.Table]:
    if not val_rows:
        return {"train": prompts}
    if val_rows >= prompts.num_rows:
        what = f"--val_rows {val_rows:,} of {prompts.num_rows:,} prompts leaves none to train on"
        raise DataError(what, "give fewer")
    drawn = draw_prompts(prompts, val_rows)
    rest = np.delete(np.arange(prompts.num_rows), drawn)
    return {"train": prompts.take(rest), "validation": prompts.take(drawn)}


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
