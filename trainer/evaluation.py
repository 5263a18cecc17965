"""How good a policy is on the validation sets of a recipe, as in training: `rejuice eval`.

recipe ── its steps before sampling ──> prompts of a set   what training validates on
       ── the policy, n of each     ──> responses          or those that were stored
       ── the steps that grade      ──> DIR/NAME.parquet   and the figures of it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import erfc, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..operators.arrow_compute import pc
from ..operators.columns import flat, is_text, numbers
from ..operators.confidence import Z_95
from ..operators.errors import DataError, RecipeError
from ..operators.filter.ngram_decontamination_filter import found_in
from ..operators.groups import Groups
from ..operators.operator import Operator
from ..operators.sampling.engines import policy_path
from ..operators.sampling.tokenizer import Encode, chat_encoder
from ..pipelines import Recipe, run
from ..pipelines.analysis.figures import MOST_SOURCES
from ..pipelines.dataset.read import read_all
from ..pipelines.recipe.train import Train, ValidationSet
from .accuracy import set_figures
from .launch.prompts import draw_prompts, prompts_of
from .split import ACCURACY, HeldOutSet, grading_steps, held_out_sets, split_recipe

# --- Evaluation of a policy -----------------------------------------------------------

FIGURES = "figures.json"
"""File in the folder of an evaluation."""


class Evaluation(NamedTuple):
    """What a policy does on some sets."""

    policy: str  # its name or folder; empty where stored responses were graded
    figures: dict[str, dict[str, float]]  # of each set, by name
    sources: dict[str, dict[str, dict[str, float]]]  # of each set and `data_source` in it
    contaminated: dict[str, int | None]  # questions that the dataset of the recipe has, too

    def write(self, folder: Path) -> None:
        """Write all of it as JSON."""
        text = json.dumps(self._asdict(), indent=2)
        (folder / FIGURES).write_text(f"{text}\n", "utf-8")


class Evaluator:
    """Evaluates policies by the steps of a recipe.

    Args:
        recipe: as for training; what validates there is what is evaluated here.
        sets: other sets, by name; none: those of its `train:` section.

    Attributes:
        policy: of the recipe.
        sets: what it is evaluated on.

    Raises:
        RecipeError: there is no set, or the recipe cannot be used for training.
    """

    def __init__(self, recipe: Recipe, sets: Mapping[str, ValidationSet] | None = None) -> None:
        config = recipe.head.train or Train()
        if sets:
            update = {"validation": dict(sets), "validation_path": None, "validation_n": 1}
            config = config.model_copy(update=update)
        self._recipe, self._parts = recipe, split_recipe(recipe)
        self._longest = config.max_prompt_tokens
        self.policy = self._parts.rollout.model
        self.sets = held_out_sets(self._parts, config, str(recipe.path))
        if not self.sets:
            found = "there is nothing to evaluate on"
            raise RecipeError(
                found, "give --set NAME=PATH, or train.validation", where=str(recipe.path)
            )

    def evaluate(
        self, folder: Path, policy: str | None = None, *, progress: bool = False
    ) -> Evaluation:
        """Sample and grade; what was sampled before in this folder is not sampled again.

        Args:
            folder: `NAME.parquet` of each set is written to it.
            policy: a name or a folder; None: that of the recipe.
            progress: show progress bars.

        Raises:
            RejuiceError: a set cannot be read, or sampling or grading fails.
        """
        rollout = self._parts.rollout
        fields = rollout.model_dump()
        named = policy or self.policy
        grading = [step.operator for step in grading_steps(self._parts.after)]
        encode = self._encoder(named)
        self._recipe.head.write_missing(*(each.path for each in self.sets))
        graded = dict[str, pa.Table]()
        for each in self.sets:
            prompts = prompts_of(each.path, each.steps, encode, self._longest).table
            if not prompts.num_rows:
                raise DataError(f"{each.path} gives no prompt", "look at the steps before sampling")
            prompts = prompts.take(draw_prompts(prompts, each.max_samples))
            n, temperature, top_p, _ = each.settings
            own = {"model": named, "n": n, "temperature": temperature, "top_p": top_p}
            sampling = type(rollout).model_validate({**fields, **own})
            graded[each.name] = self._run([sampling, *grading], prompts, folder, each, progress)
        return self._evaluation(named, graded)

    def grade(
        self, folder: Path, responses: Mapping[str, Path], *, progress: bool = False
    ) -> Evaluation:
        """Grade stored responses, such as `validations/NAME/000040.parquet` of a training run.

        Args:
            folder: `NAME.parquet` of each set is written to it.
            responses: by the name of a set, a dataset with the columns that the steps read.
            progress: show progress bars.

        Raises:
            RejuiceError: a dataset cannot be read or lacks a column, or there is no such set.
        """
        grading = [step.operator for step in grading_steps(self._parts.after)]
        sets = {each.name: each for each in self.sets}
        graded = dict[str, pa.Table]()
        for name, path in responses.items():
            if name not in sets:
                raise RecipeError(f"there is no set '{name}'", f"name one of {', '.join(sets)}")
            rows = read_all(path)
            written = {column for step in grading for column in step.writes()}
            rows = rows.drop_columns([each for each in rows.column_names if each in written])
            graded[name] = self._run(grading, rows, folder, sets[name], progress)
        return self._evaluation("", graded)

    def _encoder(self, policy: str) -> Encode | None:
        """Return what counts the tokens of prompts, as training does; a server does it itself."""
        rollout = self._parts.rollout
        if rollout.engine == "openai":
            return None
        return chat_encoder(policy_path(policy), rollout.chat_template_kwargs)

    def _run(
        self,
        steps: Sequence[Operator],
        rows: pa.Table,
        folder: Path,
        of: HeldOutSet,
        progress: bool,
    ) -> pa.Table:
        folder.mkdir(parents=True, exist_ok=True)
        recipe = Recipe(steps, rows, export_path=folder / f"{of.name}.parquet", name=of.name)
        return run(recipe, overwrite=True, progress=progress).table

    def _evaluation(self, policy: str, graded: Mapping[str, pa.Table]) -> Evaluation:
        n = {each.name: each.settings.n for each in self.sets}
        figures, sources = dict[str, dict[str, float]](), dict[str, Any]()
        for name, table in graded.items():
            figures[name] = evaluated(table, n[name])
            sources[name] = _of_sources(table, n[name])
        return Evaluation(policy, figures, sources, self._contaminated(graded))

    def _contaminated(self, graded: Mapping[str, pa.Table]) -> dict[str, int | None]:
        """Return how many prompts of each set are in the dataset; None where there is none."""
        spec = self._recipe.head.dataset_spec
        self._recipe.head.write_missing(*spec.paths)
        if self._recipe.table is None and not spec.exists():
            return dict.fromkeys(graded)
        trained = prompts_of(spec, self._parts.before, None, self._longest).table["prompt"]
        found = dict[str, int | None]()
        for name, table in graded.items():
            prompts = table["prompt"].take(pa.array(Groups.of(table).starts_G))
            found[name] = found_in(trained, prompts)
        return found


def evaluated(table: pa.Table, n: int) -> dict[str, float]:
    """Return the figures of a set: those of `set_figures`, how many prompts, how many ungraded."""
    finite = pc.is_finite(table[ACCURACY]).fill_null(False)
    graded = table.filter(finite)
    if not graded.num_rows:
        raise DataError("no response has an accuracy", f"look at the column {ACCURACY}_missing")
    counts = {
        "prompts": float(len(Groups.of(table).starts_G)),
        "ungraded": float(table.num_rows - graded.num_rows),
    }
    return {**counts, **set_figures(graded, n)}


def _of_sources(table: pa.Table, n: int) -> dict[str, dict[str, float]]:
    """Return the figures of each `data_source`; none where there are not some few."""
    if "data_source" not in table.column_names or not is_text(table["data_source"].type):
        return {}
    names = sorted(pc.unique(table["data_source"]).drop_null().to_pylist())
    if not MOST_SOURCES >= len(names) > 1:
        return {}
    own = {name: table.filter(pc.equal(table["data_source"], name)) for name in names}
    return {name: evaluated(rows, n) for name, rows in own.items()}


# --- Two policies on the same prompts -------------------------------------------------


class PairedDifference(NamedTuple):
    """How much better a policy is than another on the prompts that both answered."""

    prompts: int
    mean: float  # of the differences of the accuracies of prompts
    low: float  # of the 95% interval
    high: float
    p: float  # two-sided, of a z test of paired differences


def compare(table: pa.Table, other: pa.Table) -> PairedDifference:
    """Compare graded responses of two policies, prompt by prompt.

    Raises:
        DataError: they have no prompt in common.
    """
    ours, theirs = (_accuracies(each) for each in (table, other))
    common = [name for name in ours if name in theirs]
    if not common:
        raise DataError("the two evaluations have no prompt in common", "evaluate on the same set")
    delta_P = np.array([ours[name] - theirs[name] for name in common])
    mean, p = float(delta_P.mean()), len(delta_P)
    error = float(delta_P.std(ddof=1)) / sqrt(p) if p > 1 else float("nan")
    chance = erfc(abs(mean) / error / sqrt(2)) if error > 0 else float(mean == 0)
    return PairedDifference(p, mean, mean - Z_95 * error, mean + Z_95 * error, chance)


def _accuracies(table: pa.Table) -> dict[str, float]:
    """Return the mean accuracy of each prompt that has one."""
    table = table.filter(pc.is_finite(table[ACCURACY]).fill_null(False))
    groups = Groups.of(table)
    names = flat(table["prompt_id"]).take(pa.array(groups.starts_G)).to_pylist()
    return dict(zip(names, groups.mean(numbers(table, ACCURACY)).tolist(), strict=True))
