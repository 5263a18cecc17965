"""The steps of a recipe that can score one response by itself, as verl's reward function.

verl's reward loop passes one response at a time. Steps that need a whole group, drop rows or read
token ids cannot run there: `rejuice train` runs all of a recipe, between rollouts and update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from ...operators import ALL, DataError, Filter, Kind, RecipeError, Scope
from ...operators.columns import (
    CREDIT,
    ROW_CONTRACT,
    columns_of,
    component_columns,
    content_ids,
    numbers,
)
from ...operators.config import WeightSchedule
from ...operators.errors import suggest
from ...operators.groups import hash_each
from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...pipelines.recipe.recipe import load
from ...pipelines.recipe.steps import Step, gives_reward
from ..verl.curation import curate

STEPS = "scoring.yaml"
"""The file of the steps, beside the prompts and the reward function."""
OPERATORS = "operators"
"""The folder of files that define some of them."""
FUNCTIONS = "functions"
"""The folder of files with reward functions that some of them call."""
RESPONSE_COLUMNS = ("response_id", "response")
"""The columns of a response, beside the row of its prompt."""


class Scoring(NamedTuple):
    steps: tuple[Step, ...]  # the steps that run
    components: tuple[str, ...]  # reward components that are missing without them

    def sentence(self) -> str:
        steps, lost = ", ".join(step.name for step in self.steps), ", ".join(self.components)
        return f"Responses are scored by {steps}{f', without {lost}' if lost else ''}."


def scoring(steps: Sequence[Step], columns: Sequence[str], leave_out: Sequence[str]) -> Scoring:
    """The steps that give one response its reward.

    `grpo_advantage_mapper` is never among them: verl computes advantages itself.
    """
    names = [step.name for step in steps]
    for name in leave_out:
        if name not in names:
            near = suggest(name, names) or f"the steps after sampling are: {', '.join(names)}"
            raise RecipeError(f"no step '{name}' to leave out", near)
    found, refused = _examined(steps, columns, leave_out)
    if refused:
        why = ", ".join(f"{name} {objection}" for name, objection in refused.items())
        enough = _enough_to_leave_out(steps, columns, leave_out, refused)
        flags = " ".join(f"--leave_out {name}" for name in enough)
        drops = any(x.operator.kind is not Kind.MAPPER for x in steps if x.name in refused)
        remedies = [
            "run the recipe and export the prompts that its filters leave" if drops else "",
            f"give {flags}" if flags else "",
            "train with `rejuice train`, which runs every step",
        ]
        what = f"verl's reward function is given one response at a time: {why}"
        raise RecipeError(what, ", or ".join(filter(None, remedies)))
    return found


def _examined(
    steps: Sequence[Step], columns: Sequence[str], leave_out: Sequence[str]
) -> tuple[Scoring, dict[str, str]]:
    known, missing = {*columns, *RESPONSE_COLUMNS}, set[str]()
    kept, refused, lost = list[Step](), dict[str, str](), list[str]()
    for step in steps:
        if isinstance(step.operator, GrpoAdvantageMapper):
            continue
        if step.name in leave_out:
            missing.update(step.operator.writes())
            continue
        if isinstance(step.operator, RewardSumMapper):
            absent = [
                c for c in step.operator.weights if component_columns(c)[0] in missing - known
            ]
            lost += absent
            step = step._replace(operator=_without_components(step.operator, absent))
        objection = next(_objections(step, known), None)
        if objection is not None:
            refused[step.name] = objection
        known.update(step.operator.writes())
        kept.append(step)
    if not refused and not gives_reward(kept):
        raise RecipeError("nothing is left that writes the column reward", "leave out less")
    return Scoring(tuple(kept), tuple(lost)), refused


def _enough_to_leave_out(
    steps: Sequence[Step],
    columns: Sequence[str],
    leave_out: Sequence[str],
    refused: Mapping[str, str],
) -> Sequence[str]:
    """Names of steps without which the others can score a response; none where that is in vain.

    The sum is never among them. Its own objection may be about a component that goes with the
    step that writes it.
    """
    sums = {step.name for step in steps if isinstance(step.operator, RewardSumMapper)}
    while more := [name for name in refused if name not in sums]:
        leave_out = [*leave_out, *more]
        try:
            _, refused = _examined(steps, columns, leave_out)
        except RecipeError:
            return ()
        if not refused:
            return leave_out
    return ()


def _without_components(operator: RewardSumMapper, components: Sequence[str]) -> RewardSumMapper:
    weights = {name: w for name, w in operator.weights.items() if name not in components}
    if not weights:
        raise RecipeError("no reward component is left", "leave out less")
    gates = {name: gate for name, gate in operator.gates.items() if name in weights}
    return operator.model_copy(update={"weights": weights, "gates": gates})


def _objections(step: Step, known: set[str]) -> Iterator[str]:
    operator = step.operator
    if operator.writes() and {*CREDIT}.issuperset(operator.writes()):
        yield "gives credit, which stock verl computes itself"
        return
    if isinstance(operator, RewardSumMapper):
        if "mixed_groups_only" in operator.gates.values():
            yield "has a gate that looks at the group"
        if operator.on_missing == "group_mean":
            yield "takes the mean of the group for what is missing"
        if any(isinstance(weight, WeightSchedule) for weight in operator.weights.values()):
            yield "has a weight that changes from step to step"
    elif operator.scope is not Scope.ROW:
        yield "looks at more than one response"
    elif isinstance(operator, Filter):
        yield "drops rows"
    for name in dict.fromkeys((*operator.reads(), *columns_of(operator.where or (), known))):
        if name not in known and name not in ALL:
            yield f"reads column '{name}'"


class RowReward:
    """Scores responses of verl, one by one, by the files that `rejuice export verl` wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = load(folder / STEPS).steps
        self._splits = sorted(path.stem for path in folder.glob("*.arrow"))
        if not self._splits:
            raise DataError(f"{folder} has no prompts", "keep the files of an export together")
        self._prompts = cache(self._read)

    def __call__(self, response: str, extra_info: Mapping[str, Any]) -> dict[str, float]:
        """`score`, the reward; its components; and, where there is a verdict, `acc`."""
        row = self._row(extra_info)
        rows = row.append_column("response", pa.array([response], ROW_CONTRACT["response"]))
        ids = content_ids([(row["prompt_id"][0].as_py(), "0", response)])
        curated = curate(self._steps, rows.append_column("response_id", ids))
        table = curated.table
        if table.num_rows != 1 or table["reward"][0].as_py() is None:
            reasons = curated.decisions["reason"].to_pylist()
            raise DataError(
                f"no reward for a response to prompt '{extra_info['prompt_id']}'"
                f" ({', '.join(reasons) or 'it is null'})"
            )
        scored = {"score": numbers(table, "reward")[0]}
        if "verdict" in table.column_names:
            scored["acc"] = table["verdict"][0].as_py() == "correct"
        for step in self._steps:
            for name in step.operator.writes():
                if name.startswith("reward_") and not name.endswith("_missing"):
                    scored[name] = numbers(table, name)[0]
        return {name: float(value) for name, value in scored.items()}

    def _row(self, extra_info: Mapping[str, Any]) -> pa.Table:
        name = extra_info.get("prompt_id")
        if name is None:
            raise DataError(
                "extra_info has no 'prompt_id'", f"train on the files in {self._folder}"
            )
        # A prompt may be in two splits; the user's own `split` may be none of them.
        own = str(extra_info.get("split"))
        for split in sorted(self._splits, key=lambda split: split != own):
            if (row := self._prompts(split).find(name)) is not None:
                return row
        right = "train on the Parquet files that were exported with this reward function"
        raise DataError(f"prompt '{name}' is not in {self._folder}", right)

    def _read(self, split: str) -> _PromptRows:
        return _PromptRows(feather.read_table(self._folder / f"{split}.arrow", memory_map=True))


class _PromptRows:
    """The prompts of a split, found by their ids; 16 bytes each are in memory."""

    def __init__(self, table: pa.Table) -> None:
        hashes = hash_each(table["prompt_id"])
        self._table, self._order = table, np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, prompt_id: str) -> pa.Table | None:
        wanted = hash_each(pa.array([prompt_id], pa.string()))[0]
        first, end = (np.searchsorted(self._hashes, wanted, side) for side in ("left", "right"))
        for place in self._order[first:end]:
            if self._table["prompt_id"][place].as_py() == prompt_id:
                return self._table.slice(place, 1)
        return None
