"""A recipe for TRL's `GRPOTrainer`: its prompts, its rewards and its sampling settings.

    trainer = GRPOTrainer(
        model=...,
        args=GRPOConfig(**grpo_settings("recipe.yaml"), output_dir="run"),
        train_dataset=train_dataset("recipe.yaml"),
        reward_funcs=reward_funcs("recipe.yaml"),
    )

TRL removes no row from a batch. A row that a step after sampling drops gets None for its reward:
TRL leaves it out of the mean and deviation of its group and gives it no advantage, but counts its
tokens when it averages the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..operators import ALL, DataError, OperatorError, RecipeError
from ..operators.chats import prompt_ids
from ..operators.columns import CREDIT, MESSAGES, ROW_CONTRACT, columns_of, content_ids, numbers
from ..operators.groups import Groups
from ..operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..pipelines.dataset.read import read_all
from ..pipelines.dataset.remote import to_path
from ..pipelines.dataset.spec import DatasetSpec
from ..pipelines.recipe.columns import check_replaced
from ..pipelines.recipe.recipe import load
from ..pipelines.recipe.steps import Step, credit_step, of_files
from .run import Policy
from .split import SplitRecipe, answers_only
from .verl.curation import Curated, at_progress, curate, first_rows, values_table
from .verl.figures import response_figures

PathLike: TypeAlias = "str | Path"
Chat: TypeAlias = Sequence[Mapping[str, Any]]

_NOT_PASSED = ("prompt_token_ids", "response_logprobs", "sampling")


def reward_funcs(recipe: PathLike, *, policy: str | None = None) -> list[RecipeReward]:
    """Return what `GRPOTrainer(reward_funcs=...)` takes: one function, the `reward` of a recipe.

    It is one function and not one for each component, because TRL sums several with `nansum`: a
    missing component would count as 0 beside one that is present, whatever the weights.
    Components, pass rate and dropped rows are logged as metrics, `rejuice/...`.

    Args:
        recipe: with a `policy_rollout_mapper`; the steps after it give the reward.
        policy: a folder or hub name; by default the recipe's. It defines the tokens that end a
            response.

    Raises:
        RecipeError: the recipe is wrong, or a step reads what TRL does not pass.
    """
    loaded = load(Path(recipe))
    parts = answers_only(loaded)
    for step in parts.after:
        for column in (*step.operator.reads(), *columns_of(step.operator.where or ())):
            if column in _NOT_PASSED:
                what = f"reads column '{column}', which TRL does not pass"
                right = "leave the step out"
                raise RecipeError(what, right, where=f"{recipe}, step {step.number} {step.name}")
    trained = loaded.head.train.policy if loaded.head.train else None
    return [RecipeReward(parts, policy or trained or parts.rollout.model)]


def train_dataset(recipe: PathLike, dataset_path: PathLike | None = None) -> Any:
    """Return the prompts of a recipe as a `datasets.Dataset`: `prompt`, and all other columns.

    TRL passes the columns to the reward with each completion. A repeated prompt is kept once: the
    recipe would see two groups of it in a batch as one.

    Args:
        recipe: the steps before its `policy_rollout_mapper` make the prompts.
        dataset_path: rows to make them of; by default the recipe's.

    Raises:
        RejuiceError: the recipe or the dataset is wrong.
    """
    from datasets import Dataset
    from datasets.table import InMemoryTable

    loaded = load(Path(recipe))
    spec = loaded.head.dataset_spec
    if dataset_path is not None:
        spec = DatasetSpec.of(to_path(str(dataset_path)))
    loaded.head.write_missing(*spec.paths)
    rows = read_all(spec.with_suffix() if of_files(loaded.steps) else spec)
    trained = loaded.in_training()
    check_replaced(trained.steps, rows.column_names, spec, trained.where)
    table = curate(answers_only(loaded).before, rows).table
    return Dataset(InMemoryTable(table.take(first_rows(table["prompt_id"]))))


def grpo_settings(recipe: PathLike) -> dict[str, Any]:
    """Fields of `GRPOConfig` that follow from the recipe: how to sample, and how to normalise.

    Raises:
        RecipeError: the recipe is wrong, or TRL cannot normalise rewards in its way.
    """
    parts = answers_only(load(Path(recipe)))
    rollout = parts.rollout
    return {
        "num_generations": rollout.n,
        "max_completion_length": rollout.max_tokens,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "chat_template_kwargs": dict(rollout.chat_template_kwargs) or None,
        "scale_rewards": _scale(parts.after, str(recipe)),
    }


def _scale(steps: Sequence[Step], recipe: str) -> str:
    """`scale_rewards`, for the advantage that the recipe would train with."""
    for each in steps:
        credit = {*CREDIT}.intersection(each.operator.writes())
        if credit and not isinstance(each.operator, GrpoAdvantageMapper):
            what = f"TRL computes advantages itself, and would not use {min(credit)}"
            right = f"leave it out, or use {GrpoAdvantageMapper.name()}"
            raise RecipeError(what, right, where=f"{recipe}, step {each.number} {each.name}")
    step = credit_step(steps)
    if step is None:
        return "group"
    operator = step.operator
    assert isinstance(operator, GrpoAdvantageMapper)
    divides = operator.normalise == "std"
    lacking = {
        operator.normalise: operator.normalise not in ("std", "none"),
        "std_floor": operator.std_floor > 0,
        "epsilon": divides and operator.epsilon != GrpoAdvantageMapper().epsilon,
        "clip": operator.clip is not None,
    }
    for name, is_used in lacking.items():
        if is_used:
            raise RecipeError(
                f"TRL has no {name}",
                "give normalise: std or none, without a floor or clip and with the default epsilon",
                where=f"{recipe}, step {step.number} {step.name}",
            )
    return "group" if divides else "none"


class RecipeReward:
    """A reward function of TRL that runs the steps of a recipe after sampling.

    Args:
        parts: the recipe.
        policy: a folder or hub name.
    """

    def __init__(self, parts: SplitRecipe, policy: str) -> None:
        self.__name__ = "reward"  # TRL logs rewards/reward/mean.
        self._parts, self._policy = parts, policy
        self._reads = set[str]()
        for step in parts.after:
            self._reads.update(step.operator.reads(), step.operator.optional_reads())
            self._reads.update(columns_of(step.operator.where or ()))

    def __call__(
        self,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat],
        completion_ids: Sequence[Sequence[int]],
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,  # TRL's protocol: the columns of the dataset.
    ) -> list[float | None]:
        """Return the rewards of completions; None if a step has dropped it or gives it no reward.

        Raises:
            RejuiceError: a step fails, as the recipe may demand for missing components, or groups
                are not complete.
        """
        rollouts = self._rollouts(prompts, completions, completion_ids, columns)
        steps = self._parts.after
        if trainer_state is not None:
            last = max(1, trainer_state.max_steps - 1)
            steps = at_progress(steps, min(1.0, trainer_state.global_step / last))
        curated = curate(steps, rollouts)
        rows_of = _rows_of(rollouts, curated)
        if log_metric is not None:
            values = values_table(rollouts, steps, curated.written)
            for name, value in response_figures(curated, rollouts, values, steps).items():
                if np.isfinite(value):  # TRL takes the mean over processes, some without rows.
                    log_metric(f"rejuice/{name}", value)
        if log_extra is not None:
            _log_rows(log_extra, rollouts, curated, rows_of)
        return _to_rollouts(rows_of, numbers(curated.table, "reward").tolist(), rollouts.num_rows)

    def _rollouts(
        self,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Any],
    ) -> pa.Table:
        """TRL's arguments as rows of the row contract."""
        made: dict[str, pa.Array] = {
            name: _column(name, values)
            for name, values in columns.items()
            if name in self._reads or name in ("prompt_id", "reference") or set(ALL) & self._reads
        }
        made["prompt"] = pa.array([_chat(prompt) for prompt in prompts], MESSAGES)
        if "prompt_id" not in made:
            made["prompt_id"] = prompt_ids(made["prompt"], made.get("reference"))
        names = made["prompt_id"]
        groups = Groups.of_column(names)
        self._check_groups(groups, names.take(pa.array(groups.starts_G)).to_pylist())
        texts = [_text(completion) for completion in completions]
        positions = map(str, groups.position().tolist())
        made["response_id"] = content_ids(zip(names.to_pylist(), positions, texts, strict=True))
        made["response"] = pa.array(texts, ROW_CONTRACT["response"])
        kind = ROW_CONTRACT["response_token_ids"]
        made["response_token_ids"] = pa.array([list(ids) for ids in completion_ids], kind)
        if {"finish_reason", *ALL} & self._reads:
            ended = (len(ids) > 0 and int(ids[-1]) in self._end_token_ids for ids in completion_ids)
            made["finish_reason"] = pa.array(["stop" if end else "length" for end in ended])
        return pa.table(made)

    def _check_groups(self, groups: Groups, names_G: list[str]) -> None:
        n = self._parts.rollout.n
        for name, size in zip(names_G, groups.sizes_G.tolist(), strict=True):
            if size != n:
                raise DataError(
                    f"{size} completions of prompt '{name}' came together, the recipe has n: {n}",
                    f"set num_generations to {n}, per_device_train_batch_size * "
                    "steps_per_generation to a multiple of it, and give each prompt once",
                )
        if len(set(names_G)) < len(names_G):
            twice = next(name for name in names_G if names_G.count(name) > 1)
            raise DataError(
                f"prompt '{twice}' is in a batch twice", "give each prompt once in the dataset"
            )

    @cached_property
    def _end_token_ids(self) -> frozenset[int]:
        return Policy.load(self._policy).end_token_ids


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    column = pa.array(values)
    known = ROW_CONTRACT.get(name)
    return column.cast(known) if known and pa.types.is_null(column.type) else column


def _chat(prompt: str | Chat) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": message["role"], "content": _content(message)} for message in prompt]


def _text(completion: str | Chat) -> str:
    if isinstance(completion, str):
        return completion
    if len(completion) != 1:
        raise DataError(
            f"a completion has {len(completion)} messages", "a recipe scores one response, one text"
        )
    return _content(completion[0])


def _content(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if not isinstance(content, str):
        raise DataError(f"the content of a message is {content!r:.60}", "recipes read text only")
    for name in message.keys() - {"role", "content"}:
        if message[name]:
            raise DataError(
                f"a message has '{name}' beside its content", "a recipe scores one whole text"
            )
    return content


def _rows_of(rollouts: pa.Table, curated: Curated) -> list[int]:
    """The rollout to which each remaining row belongs."""
    row_of = {name: row for row, name in enumerate(rollouts["response_id"].to_pylist())}
    left = curated.table["response_id"].to_pylist()
    if len(set(left)) < len(left) or not set(left) <= row_of.keys():
        raise OperatorError("a step makes new rows", "TRL has no place for them")
    return [row_of[name] for name in left]


def _to_rollouts(rows_of: Sequence[int], values: Sequence[Any], rows: int) -> list[Any]:
    """A value for each rollout; None for dropped ones, and for values that are not finite."""
    found: list[Any] = [None] * rows
    for row, value in zip(rows_of, values, strict=True):
        found[row] = None if isinstance(value, float) and not np.isfinite(value) else value
    return found


def _log_rows(
    log_extra: Callable[[str, list[Any]], None],
    rollouts: pa.Table,
    curated: Curated,
    rows_of: Sequence[int],
) -> None:
    """Log components, and why rows were dropped, for TRL's table of completions."""
    table, rows = curated.table, rollouts.num_rows
    for name in table.column_names:
        if name.startswith("reward_") and name not in rollouts.column_names:
            log_extra(name, _to_rollouts(rows_of, table[name].to_pylist(), rows))
    reasons = pc.binary_join_element_wise(
        curated.decisions["step"], curated.decisions["reason"], ": "
    )
    row_ids = curated.decisions["row_id"].to_pylist()
    reason_of = dict(zip(row_ids, reasons.to_pylist(), strict=True))
    log_extra("dropped", [reason_of.get(name) for name in rollouts["response_id"].to_pylist()])
