"""A stored run as one thing, whichever command has made it.

    Stored ──sets──> StoredSet ──base(part)──> Frame ──applied(part)──> AppliedStep, step by step

Nothing is read before it is asked for, and long columns stay mapped from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from ...operators import DataError, Operator
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ..dataset.remote import AnyPath
from ..engine.frame import Frame
from ..engine.report import Report
from ..engine.steps import AppliedStep, RunStep, iterate_steps
from ..recipe.recipe import Recipe
from ..recipe.steps import Step, is_sampling
from ..recipe.stored_operator import StoredOperator
from ..recipe.trust import read_stored

IDS = ("response_id", "prompt_id")
StoredKind = Literal["export", "training run", "training step"]
SetKind = Literal["answers", "judgements"]


class StoredSet(NamedTuple):
    """Rows that were processed together: an export, or answers or judgements of a training step.

    Attributes:
        name: `step 12` or `step 12 judgements`; empty for an export.
        training_step: 12; None for an export.
        kind: judgements are the policy's, of its own answers.
        recipe: as it ran; of a training step, the steps after sampling with weights as they were.
        parts: pieces of whole groups: the chunks of an export; 1 for a training step.
        source: of a part, the rows before the first step of `recipe`: those of the dataset; of a
            training step, `base`.
        base: of a part, its rows as sampled: before the first of `steps`.
        ids: of a part, the `response_id` and `prompt_id` of `base`, as far as it has them.
        steps: those after the last step that samples, in order, numbered as in `recipe`.
        results: of a part, for `apply_steps`: what each step did, as it is on file.
        incomplete: why what steps did is not on file; empty where it is. Then `results` raises,
            and of exports `base` has the rows that are left.
        final: the rows that are left.
        decisions: row_id, step and reason of dropped rows, those that training itself drops
            (step `training`) and those of steps before sampling included.
        fit: the steps of another recipe that would run on `base`, with weights at this progress.
    """

    name: str
    training_step: int | None
    kind: SetKind
    recipe: Recipe
    parts: int
    source: Callable[[int], Frame]
    base: Callable[[int], Frame]
    ids: Callable[[int], pa.Table]
    steps: tuple[Step, ...]
    results: Callable[[int], RunStep]
    incomplete: str
    final: Callable[[], pa.Table]
    decisions: Callable[[], pa.Table]
    fit: Callable[[Recipe], tuple[Step, ...]]

    def applied(self, part: int) -> Iterator[AppliedStep]:
        """The steps on a part, one after the other, as they ran; nothing is computed.

        Raises:
            DataError: what they did is not on file.
        """
        return iterate_steps(self.steps, self.base(part), self.results(part))


class Stored(NamedTuple):
    """A stored run.

    Attributes:
        path: as it was given.
        title: name of the project or of the run.
        kind: what it is.
        sets: by training step, answers before judgements; one for an export.
        recipe: the file with the whole recipe, as it ran.
        folder: of the run: of its code, only what the user trusts in this folder is imported.
        report: of an export; None for training.
        points: of training, what was logged, a mapping for each step, which is under `step`.
    """

    path: AnyPath
    title: str
    kind: StoredKind
    sets: tuple[StoredSet, ...]
    recipe: Path
    folder: Path
    report: Report | None = None
    points: tuple[Mapping[str, float], ...] = ()

    def read_recipe(self, overrides: Mapping[str, str] | None = None) -> Recipe:
        """The whole recipe, as it ran.

        Args:
            overrides: as those of `recipe.read.load`.

        Raises:
            RecipeError: it cannot be read.
        """
        return read_stored(self.recipe, self.folder, overrides)

    @property
    def recipes(self) -> list[Path]:
        """The files of all its recipes: training keeps one for each step."""
        return list(dict.fromkeys((self.recipe, *(one.recipe.path for one in self.sets))))


def steps_after_sampling(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps after the last one that samples or reads responses; all, where none does.

    Example:
        >>> [step.name for step in steps_after_sampling(recipe.steps)]
        ['math_verify_mapper', 'format_reward_mapper', ...]
    """
    at = [number for number, step in enumerate(steps, 1) if _gives_responses(step.operator)]
    return tuple(steps[at[-1] if at else 0 :])


def not_on_file(why: str, right: str = "run it again") -> Callable[[int], RunStep]:
    """The `results` of a set that is incomplete.

    Args:
        why: is not empty.
        right: what helps.
    """

    def results(part: int) -> RunStep:
        raise DataError(why, f"{right} to see what each step did")

    return results


def with_written(recipe: Recipe, written: Sequence[Sequence[str]]) -> Recipe:
    """A recipe whose operators without code know which columns they have written.

    Args:
        recipe: as it ran.
        written: of each step, the columns.
    """
    steps = tuple(
        step._replace(operator=step.operator.with_written(names))
        if isinstance(step.operator, StoredOperator)
        else step
        for step, names in zip(recipe.steps, written, strict=True)
    )
    return recipe.replace(steps=steps)


def _gives_responses(operator: Operator) -> bool:
    return is_sampling(operator) or isinstance(operator, RecordedRolloutMapper)
