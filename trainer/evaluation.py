"""How good a policy is on the validation sets of a recipe, as in training: `rejuice eval`.

recipe ── its steps before sampling ──> prompts of a set   what training validates on
       ── the policy, n of each     ──> responses          or those that were stored
       ── the steps that grade      ──> DIR/NAME.parquet   and the figures of it
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..operators.arrow_compute import pc
from ..operators.columns import flat, numbers
from ..operators.errors import DataError, RecipeError
from ..operators.filter.ngram_decontamination_filter import found_in
from ..operators.groups import Groups
from ..operators.operator import Operator, ResumableOperator
from ..operators.registry import build
from ..operators.sampling.engines import policy_path
from ..operators.sampling.tokenizer import Encode, chat_encoder
from ..pipelines import Recipe, run
from ..pipelines.analysis.figures import few_sources
from ..pipelines.dataset.files import write_file
from ..pipelines.dataset.read import read_all
from ..pipelines.dataset.spec import DatasetSpec
from ..pipelines.recipe.train import Train, ValidationSet
from .accuracy import of_graded_tasks, set_figures, with_accuracy
from .launch.prompts import draw_prompts, prompts_of
from .split import ACCURACY, HeldOutSet, grading_steps, held_out_sets, split_recipe

# --- Evaluation of a policy -----------------------------------------------------------

FIGURES = "figures.json"
"""File in the folder of an evaluation."""


class Evaluation(NamedTuple):
    policy: str  # its name or folder; empty where stored responses were graded
    figures: dict[str, dict[str, float]]  # of each set, by name
    sources: dict[str, dict[str, dict[str, float]]]  # of each set and `data_source` in it

    def add(self, name: str, table: pa.Table, n: int, **counts: int) -> None:
        self.figures[name] = {**evaluated(table, n), **{k: float(v) for k, v in counts.items()}}
        # A source of which nothing was graded has no figures.
        few = few_sources(with_accuracy(table))
        own = {
            each: table.filter(pc.equal(table["data_source"].cast(pa.string()), each))
            for each in few
        }
        self.sources[name] = {each: evaluated(rows, n) for each, rows in own.items()}

    def write(self, folder: Path) -> None:
        text = json.dumps(self._asdict(), indent=2)
        write_file(folder / FIGURES, f"{text}\n")


class Evaluator:
    """Evaluates policies by the steps of a training recipe.

    `sets` take the place of those of its `train:` section.
    """

    def __init__(self, recipe: Recipe, sets: Mapping[str, ValidationSet] | None = None) -> None:
        config = recipe.head.train or Train()
        if sets:
            update = {"validation": dict(sets), "validation_path": None, "validation_n": 1}
            config = config.model_copy(update=update)
        self._recipe, self._parts = recipe, split_recipe(recipe)
        self.replaced: Collection[str] = ()
        self._longest = config.max_prompt_tokens
        self._grading = [step.operator for step in grading_steps(self._parts.after)]
        self.policy = config.policy or self._parts.rollout.model
        self.engine = self._parts.rollout.engine
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

        `policy` is a name or a folder; None: that of the recipe.
        """
        if self.engine == "recorded":
            found = "the recipe's engine is recorded, and samples from no policy"
            raise RecipeError(found, "set another engine", where=str(self._recipe.path))
        named = policy or self.policy
        encode = self._encoder(named)
        self._recipe.head.write_missing(*(each.path for each in self.sets))
        evaluation = Evaluation(named, {}, {})
        for each in self.sets:
            curated = prompts_of(each.path, each.steps, encode, self._longest)
            if not curated.table.num_rows:
                raise DataError(f"{each.path} gives no prompt", "look at the steps before sampling")
            prompts = curated.table.take(draw_prompts(curated.table, each.max_samples))
            sampling = self._sampling(named, each)
            table = self._run([sampling, *self._grading], prompts, folder, each.name, progress)
            answered = len(Groups.of(table).starts_G)
            evaluation.add(
                each.name,
                table,
                each.settings.n,
                dropped_prompts=curated.decisions.num_rows,
                failed_prompts=prompts.num_rows - answered,
            )
        return evaluation

    def grade(
        self, folder: Path, responses: Mapping[str, Path], *, progress: bool = False
    ) -> Evaluation:
        """Grade stored responses, such as `validations/NAME/000040.parquet` of a training run.

        n is the most responses to a prompt there.
        """
        names, evaluation = [each.name for each in self.sets], Evaluation("", {}, {})
        for name, path in responses.items():
            if name not in names:
                raise RecipeError(f"there is no set '{name}'", f"name one of {', '.join(names)}")
            rows = read_all(path)
            if "prompt_id" not in rows.column_names:
                right = "give responses that rejuice has sampled or a recipe has read"
                raise DataError(f"{path} has no column 'prompt_id'", right)
            written = {column for step in self._grading for column in step.writes()}
            rows = rows.drop_columns([each for each in rows.column_names if each in written])
            table = self._run(self._grading, rows, folder, name, progress)
            evaluation.add(name, table, int(Groups.of(table).sizes_G.max(initial=1)))
        return evaluation

    def contaminated(
        self, folder: Path, names: Iterable[str], trained_on: Path | None = None
    ) -> dict[str, int]:
        """How many prompts of each set also occur in the training data.

        Without `trained_on`, the prompts of a run, they are made again from the dataset, if it is
        on this machine and that costs nothing.
        """
        import pyarrow.feather as feather  # It loads what `rejuice --help` does not need.

        spec = self._recipe.head.dataset_spec
        if trained_on is not None:
            trained = feather.read_table(trained_on, columns=["prompt"])["prompt"]
        elif self._is_at_hand(spec):
            trained = prompts_of(spec, self._parts.before, None, self._longest).table["prompt"]
        else:
            return {}
        found = dict[str, int]()
        for name in names:
            table = read_all(folder / f"{name}.parquet")
            if "prompt" in table.column_names:
                prompts = table["prompt"].take(pa.array(Groups.of(table).starts_G))
                found[name] = found_in(trained, prompts)
        return found

    def _is_at_hand(self, spec: DatasetSpec) -> bool:
        """Whether the prompts of the dataset can be made without the hub, servers or sampling."""
        asks = any(
            step.operator.asks_server or isinstance(step.operator, ResumableOperator)
            for step in self._parts.before
        )
        return len(spec.paths) == len(spec.parts) and spec.exists() and not asks

    def _sampling(self, policy: str, of: HeldOutSet) -> Operator:
        n, temperature, top_p, _ = of.settings
        own = {"model": policy, "n": n, "temperature": temperature, "top_p": top_p}
        rollout = self._parts.rollout
        # The log-probabilities of an evaluation train nothing.
        return build(type(rollout), {**rollout.model_dump(), **own, "on_policy": False})

    def _encoder(self, policy: str) -> Encode | None:
        """What counts the tokens of prompts, as training does; a server does it itself."""
        if self.engine == "openai":
            return None
        return chat_encoder(policy_path(policy), self._parts.rollout.chat_template_kwargs)

    def _run(
        self, steps: Sequence[Operator], rows: pa.Table, folder: Path, name: str, progress: bool
    ) -> pa.Table:
        folder.mkdir(parents=True, exist_ok=True)
        recipe = Recipe(steps, rows, export_path=folder / f"{name}.parquet", name=name)
        return run(recipe, overwrite=name in self.replaced, progress=progress).table


def evaluated(table: pa.Table, n: int) -> dict[str, float]:
    """Those of `set_figures`, how many prompts, how many ungraded.

    Rows of tasks that no step grades do not count, as in training.
    """
    table = of_graded_tasks(table)
    graded = with_accuracy(table)
    if not graded.num_rows:
        raise DataError("no response has an accuracy", f"look at the column {ACCURACY}_missing")
    counts = {
        "prompts": float(len(Groups.of(table).starts_G)),
        "ungraded": float(table.num_rows - graded.num_rows),
    }
    return {**counts, **set_figures(graded, n)}


# --- Two policies on the same prompts -------------------------------------------------


_DRAWS = 10_000
_EXACT = 13
"""With so many prompts or fewer, all 2^P assignments of signs are tried."""


class PairedDifference(NamedTuple):
    """How much better a policy is than another on the prompts that both answered."""

    prompts: int
    mean: float  # of the differences of the accuracies of prompts
    low: float  # of the 95% interval, by a bootstrap over prompts; nan of one prompt
    high: float
    p: float  # two-sided, of a permutation test: signs of the differences are exchanged


def compare(table: pa.Table, other: pa.Table) -> PairedDifference:
    ours, theirs = (_accuracies(each) for each in (table, other))
    common = [name for name in ours if name in theirs]
    if not common:
        raise DataError("the two evaluations have no prompt in common", "evaluate on the same set")
    delta_P = np.array([ours[name] - theirs[name] for name in common])
    prompts, mean, rng = len(delta_P), float(delta_P.mean()), np.random.default_rng(0)
    if prompts <= _EXACT:
        signs = np.array(list(product((-1.0, 1.0), repeat=prompts)))
        flipped = signs @ delta_P / prompts
        p = float((np.abs(flipped) >= abs(mean) - 1e-12).mean())
    else:
        flips = (rng.choice((-1.0, 1.0), prompts) @ delta_P / prompts for _ in range(_DRAWS))
        # The observed assignment is one of those that are possible.
        p = (sum(abs(each) >= abs(mean) - 1e-12 for each in flips) + 1) / (_DRAWS + 1)
    if prompts == 1:
        return PairedDifference(1, mean, float("nan"), float("nan"), p)
    drawn = [delta_P[rng.integers(prompts, size=prompts)].mean() for _ in range(_DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return PairedDifference(prompts, mean, float(low), float(high), p)


def _accuracies(table: pa.Table) -> dict[str, float]:
    table = with_accuracy(table)
    groups = Groups.of(table)
    names = flat(table["prompt_id"]).take(pa.array(groups.starts_G)).to_pylist()
    return dict(zip(names, groups.mean(numbers(table, ACCURACY)).tolist(), strict=True))
