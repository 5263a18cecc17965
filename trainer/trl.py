"""A recipe for TRL's `GRPOTrainer`: its prompts, its rewards and its settings of sampling.

    trainer = GRPOTrainer(
        model=...,
        args=GRPOConfig(**grpo_settings("recipe.yaml"), output_dir="run"),
        train_dataset=train_dataset("recipe.yaml"),
        reward_funcs=reward_funcs("recipe.yaml"),
    )

TRL takes no row out of a batch. What a step after sampling drops has None for its reward: TRL
leaves it out of the mean and deviation of its group and gives it no advantage, but counts its
tokens where it averages the loss.
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
from ..operators.columns import MESSAGES, ROW_CONTRACT, content_ids, numbers
from ..operators.groups import Groups
from ..operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..pipelines.dataset.read import read_all
from ..pipelines.recipe.read import load
from ..pipelines.recipe.recipe import Step
from .export.answers import answers_only
from .loop.advantage import asked
from .loop.curation import Curated, at_progress, curate
from .loop.step_files import figures
from .policies import Policy
from .split import Cut

RecipePath: TypeAlias = "str | Path"
Chat: TypeAlias = Sequence[Mapping[str, Any]]

_NOT_TOLD = ("prompt_token_ids", "response_logprobs", "sampling")


def reward_funcs(recipe: RecipePath, *, policy: str | None = None) -> list[RecipeReward]:
    """What `GRPOTrainer(reward_funcs=...)` takes: one function, the `reward` of a recipe.

    It is one function and not one for each component, because TRL sums several with `nansum`: a
    reward that is missing would count as 0 beside a component that is not, whatever the weights.
    Components, pass rate and dropped rows are logged as metrics, `rejuice/...`.

    Args:
        recipe: with a `policy_rollout_mapper`; the steps after it give the reward.
        policy: a folder or hub name; by default the recipe's. It says which tokens end a response.

    Raises:
        RecipeError: the recipe, or a step reads what TRL does not tell.
    """
    loaded = load(Path(recipe))
    parts = answers_only(loaded)
    for step in parts.after:
        for column in step.operator.reads():
            if column in _NOT_TOLD:
                raise RecipeError(
                    f"reads column '{column}', which TRL does not tell",
                    "leave the step out",
                    where=f"{recipe}, step {step.number} {step.name}",
                )
    said = loaded.head.train.policy if loaded.head.train else None
    return [RecipeReward(parts, policy or said or parts.rollout.model)]


def train_dataset(recipe: RecipePath, dataset_path: RecipePath | None = None) -> Any:
    """The prompts of a recipe as a `datasets.Dataset`: `prompt`, and all other columns.

    The columns come to the reward with each completion. A prompt that comes up twice is there
    once: two groups of it in a batch would be one to the recipe.

    Args:
        recipe: the steps before its `policy_rollout_mapper` make the prompts.
        dataset_path: rows to make them of; by default the recipe's.

    Raises:
        RejuiceError: the recipe or the dataset is not right.
    """
    from datasets import Dataset
    from datasets.table import InMemoryTable

    loaded = load(Path(recipe))
    rows = read_all(Path(dataset_path or loaded.head.dataset_path))
    table = curate(answers_only(loaded).before, rows).table
    named = pa.table({"name": table["prompt_id"], "row": np.arange(table.num_rows)})
    first = named.group_by("name", use_threads=False).aggregate([("row", "min")])["row_min"]
    return Dataset(InMemoryTable(table.take(first)))


def grpo_settings(recipe: RecipePath) -> dict[str, Any]:
    """Fields of `GRPOConfig` that the recipe decides: how to sample, and how to normalise.

    Raises:
        RecipeError: the recipe is not right, or TRL cannot normalise rewards as it says.
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
    """`scale_rewards`, for the advantage that training would take."""
    operator = asked(steps)
    divides = operator.normalise == "std"
    lacking = {
        "leave_one_out": operator.normalise == "leave_one_out",
        "std_floor": operator.std_floor > 0,
        "epsilon": divides and operator.epsilon != GrpoAdvantageMapper().epsilon,
    }
    for name, is_asked in lacking.items():
        if is_asked:
            step = next(step for step in steps if step.operator is operator)
            raise RecipeError(
                f"TRL has no {name}",
                "give normalise: std or none, without a floor and with the default epsilon",
                where=f"{recipe}, step {step.number} {step.name}",
            )
    return "group" if divides else "none"


class RecipeReward:
    """A reward function of TRL that runs the steps of a recipe after sampling.

    Args:
        parts: the recipe.
        policy: a folder or hub name.
    """

    def __init__(self, parts: Cut, policy: str) -> None:
        self.__name__ = "reward"  # TRL logs rewards/reward/mean.
        self._parts, self._policy = parts, policy
        self._reads = {name for step in parts.after for name in step.operator.reads()}

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
        """The rewards of completions; None where a step has dropped one or gives it none.

        Raises:
            RejuiceError: a step fails, as the recipe says for what is missing, or groups are not
                whole.
        """
        rollouts = self._rollouts(prompts, completions, completion_ids, columns)
        steps = self._parts.after
        if trainer_state is not None:
            last = max(1, trainer_state.max_steps - 1)
            steps = at_progress(steps, min(1.0, trainer_state.global_step / last))
        curated = curate(steps, rollouts)
        rows_of = _rows_of(rollouts, curated)
        if log_metric is not None:
            for name, value in figures(curated, rollouts, steps).items():
                if np.isfinite(value):  # TRL takes the mean over processes, whose rows may all go.
                    log_metric(f"rejuice/{name}", value)
        if log_extra is not None:
            _log_rows(log_extra, rollouts, curated, rows_of)
        return _spread(rows_of, numbers(curated.table, "reward").tolist(), rollouts.num_rows)

    def _rollouts(
        self,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Any],
    ) -> pa.Table:
        """What TRL hands over as rows of the row contract."""
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
        places = map(str, groups.position().tolist())
        made["response_id"] = content_ids(zip(names.to_pylist(), places, texts, strict=True))
        made["response"] = pa.array(texts, ROW_CONTRACT["response"])
        kind = ROW_CONTRACT["response_token_ids"]
        made["response_token_ids"] = pa.array([list(ids) for ids in completion_ids], kind)
        if {"finish_reason", *ALL} & self._reads:
            ended = (len(ids) > 0 and int(ids[-1]) in self._ends for ids in completion_ids)
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
    def _ends(self) -> frozenset[int]:
        return Policy.load(self._policy).ends


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
                f"a message has '{name}' beside its content",
                "a recipe scores one whole text",
            )
    return content


def _rows_of(rollouts: pa.Table, curated: Curated) -> list[int]:
    """The rollout that each row left is of."""
    place = {name: row for row, name in enumerate(rollouts["response_id"].to_pylist())}
    left = curated.table["response_id"].to_pylist()
    if len(set(left)) < len(left) or not set(left) <= place.keys():
        raise OperatorError("a step makes new rows", "TRL has no place for them")
    return [place[name] for name in left]


def _spread(rows_of: Sequence[int], values: Sequence[Any], rows: int) -> list[Any]:
    """A value for each rollout, None for those that are gone and where there is no number."""
    spread: list[Any] = [None] * rows
    for row, value in zip(rows_of, values, strict=True):
        spread[row] = None if isinstance(value, float) and not np.isfinite(value) else value
    return spread


def _log_rows(
    log_extra: Callable[[str, list[Any]], None],
    rollouts: pa.Table,
    curated: Curated,
    rows_of: Sequence[int],
) -> None:
    """Components, and why rows are dropped, for TRL's table of completions."""
    table, rows = curated.table, rollouts.num_rows
    for name in table.column_names:
        if name.startswith("reward_") and name not in rollouts.column_names:
            log_extra(name, _spread(rows_of, table[name].to_pylist(), rows))
    why = pc.binary_join_element_wise(curated.decisions["step"], curated.decisions["reason"], ": ")
    whys = dict(zip(curated.decisions["row_id"].to_pylist(), why.to_pylist(), strict=True))
    log_extra("dropped", [whys.get(name) for name in rollouts["response_id"].to_pylist()])
