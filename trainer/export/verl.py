"""A recipe for stock verl: its prompts as Parquet, and its reward as a function in a file.

DIR/train.parquet, DIR/validation*.parquet   prompts, as verl's dataset reads them
DIR/train.arrow, DIR/validation*.arrow       the same with all their columns, for the reward
DIR/*-decisions.parquet                      rows of the dataset that were dropped, and why
DIR/scoring.yaml                             the steps that score a response
DIR/operators/                               the recipe's own files that define some of them
DIR/functions/                               those with reward functions, and what they import
DIR/reward.py                                compute_score, for verl

The folder can be moved, but its files belong together.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...operators import DataError, Kind, RecipeError, RejuiceError
from ...operators.columns import flat
from ...operators.functions.target import FunctionTarget
from ...operators.mapper.reward_function_mapper import RewardFunctionMapper
from ...operators.sampling.engines import policy_path
from ...operators.sampling.tokenizer import Encode, chat_encoder
from ...pipelines.dataset.files import check_folder_is_free
from ...pipelines.dataset.write import with_column
from ...pipelines.recipe.columns import checked_schema
from ...pipelines.recipe.recipe import Recipe, dump
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.trust import with_imports
from ..launch.prompts import make_held_out, make_prompts
from ..run import is_prepared
from ..split import HeldOutSet, SplitRecipe, answers_only, held_out_sets
from .verl_reward import FUNCTIONS, OPERATORS, STEPS, Scoring, scoring

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
    scoring: Scoring  # the steps that score, and those that were left out
    overrides: Mapping[str, Any]  # keys of verl and their values, with which it uses the export

    def sentences(self) -> Iterator[str]:
        """Yield which steps score a response, what was left out, and what verl needs besides."""
        yield self.scoring.sentence()
        if "data.val_files" not in self.overrides:
            yield (
                "verl also needs data.val_files: set train.validation_path in the recipe, or give "
                "a file of your own."
            )


def export_verl(
    recipe: Recipe, folder: Path, leave_out: Sequence[str] = (), *, overwrite: bool = False
) -> VerlExport:
    """Write prompts and reward function of a recipe to a folder.

    If it has a `train:` section, prompts longer than its `max_prompt_tokens` are left out, and its
    validation sets are exported too.
    """
    for_survivors = _for_survivors(recipe, folder)
    try:
        parts = answers_only(recipe)
    except RecipeError as error:
        if any(step.operator.kind is not Kind.MAPPER for step in recipe.steps):
            right = f"{error.right}; for the prompts that the filters leave, {for_survivors}"
            raise RecipeError(error.found, right, where=error.where) from None
        raise
    if is_prepared(folder):
        raise RejuiceError(f"{folder} holds a training run", "give another folder")
    check_folder_is_free(folder, overwrite=overwrite)
    columns = dict.fromkeys(checked_schema(recipe.in_training()).names)
    for step in parts.before:
        columns.update(dict.fromkeys(step.operator.writes()))
    found = scoring(parts.after, list(columns), leave_out, for_survivors)
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
    made = {"train": train.prompts} | {
        each.split: make_held_out(each, folder, encode=encode, longest=longest).prompts
        for each in held_out
    }
    for split in made:
        _keep_columns(folder, split, str(recipe.path))
    write_scoring(recipe, found, folder)
    overrides = _overrides(recipe, parts, folder.resolve(), list(made))
    return VerlExport(made, found, {**overrides, **reward_key(folder)})


def _keep_columns(folder: Path, split: str, where: str) -> None:
    path = folder / f"{split}.parquet"
    made, rows = pq.read_table(path), feather.read_table(folder / f"{split}.arrow")
    places = pc.struct_field(made["extra_info"], "index")  # A validation set may be a part of them.
    try:
        table = with_own_columns(made, rows.take(places))
    except DataError as error:
        raise error.at(where) from None
    pq.write_table(table, path)


def with_own_columns(made: pa.Table, prompts: pa.Table) -> pa.Table:
    """Prompts with all their columns, and with those of verl that they lack.

    The user's own columns are kept, and so are the fields of the user's own structs.
    """
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


def write_scoring(recipe: Recipe, found: Scoring, folder: Path) -> None:
    head = {
        "project_name": recipe.head.project_name,
        "dataset_path": "rollouts.parquet",
        "export_path": "scored.parquet",
        "custom_operator_paths": _copied(recipe.head.custom_operator_paths, folder),
    }
    document = dump(recipe.part(_with_copied_functions(found.steps, folder), head))
    (folder / STEPS).write_text(document, "utf-8")
    (folder / "reward.py").write_text(_REWARD.format(recipe=recipe.path.name), "utf-8")


def reward_key(folder: Path) -> dict[str, str]:
    return {"reward.custom_reward_function.path": str(folder.resolve() / "reward.py")}


def chat_template_keys(chat_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {f"+data.apply_chat_template_kwargs.{key}": value for key, value in chat_kwargs.items()}


def _for_survivors(recipe: Recipe, folder: Path) -> str:
    export = recipe.head.export_path
    words = [] if export.exists() else [f"`rejuice run {shlex.quote(str(recipe.path))}` and "]
    words += [f"`rejuice export verl {shlex.quote(str(export))} {shlex.quote(str(folder))}`"]
    return "".join(words)


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
        **chat_template_keys(chat_kwargs),
    }


def _copied(paths: Sequence[Path], folder: Path) -> list[str]:
    """Copies of files that define operators, by names relative to `folder`."""
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
