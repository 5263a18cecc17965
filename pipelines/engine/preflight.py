"""Finds out early whether steps can run, such as whether their servers are up."""

from __future__ import annotations

from ...operators import EngineError, RejuiceError, ResumableOperator
from ..recipe.steps import Step
from .plan import Plan, kept_folder


class _LocatedError(EngineError):
    """An error of another step than the one that is running, which puts nothing in front of it."""

    def at(self, where: str) -> RejuiceError:
        return self


class Preflight:
    """Checks what the steps of a plan need, each step once.

    A resumable step that may find all of its results, from an earlier run or in a cache of its own,
    may need no server. It is checked only where rows before it are computed that it cannot know.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._checked = set[str]()

    def before_all(self) -> None:
        """Check the steps that are certain to compute something.

        Raises:
            EngineError: such a step cannot run.
        """
        for step in self._plan.steps:
            operator = step.operator
            if isinstance(operator, ResumableOperator):
                is_certain = not self._has_results(operator)
            else:
                is_certain = not self._plan.is_done(step)
            if is_certain:
                self._check(step)

    def before_rows_of(self, step: Step) -> None:
        """Check the steps after one that is about to compute rows.

        Raises:
            EngineError: such a step cannot run.
        """
        if isinstance(step.operator, ResumableOperator) and step.operator.has_results():
            return  # What it finds, such as recorded responses, the steps after it may know.
        for later in self._plan.steps[step.number :]:
            self._check(later)

    def _check(self, step: Step) -> None:
        """Check what a step needs, unless it was checked."""
        if step.name not in self._checked:
            self._checked.add(step.name)
            try:
                step.operator.preflight()
            except RejuiceError as error:
                where = self._plan.recipe.where(step)
                raise _LocatedError(error.found, error.right, where=where) from error

    def _has_results(self, operator: ResumableOperator) -> bool:
        kept = any(kept_folder(self._plan.cache, operator).glob("*.keys"))
        return kept or operator.has_results()
