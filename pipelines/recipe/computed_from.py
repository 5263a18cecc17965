"""From which columns each column was computed: what is computed of a response that is sampled anew
is no longer true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ...operators import ALL, RecipeError
from ..data_juicer.steps import ForeignOperator
from .steps import Step

Origins = Mapping[str, Collection[str]]
"""By column, the columns from which it was computed, directly or by way of others."""


class _Followed:
    """The columns of rows while they go through steps.

    Args:
        columns: of the dataset.
        origins: of those that a run has written.
    """

    def __init__(self, columns: Iterable[str], origins: Origins) -> None:
        self.there = set(columns)
        self.origins = {name: frozenset(of) for name, of in origins.items()}
        self.stale = dict[str, tuple[str, Step]]()  # with what was replaced, and by which step

    def apply(self, step: Step) -> None:
        """Follow the columns through a step."""
        operator = step.operator
        reads = [name for name in operator.reads_of(self.there) if name in self.there]
        writes, removed = frozenset(operator.writes()), frozenset(operator.removes())
        of = frozenset(reads).union(*(self.origins.get(name, ()) for name in reads))
        if "prompt" in writes and "response" in of:
            # The new prompts are about the responses, and so is what was computed of these.
            self.origins.clear()
            of = frozenset()
        for name in sorted(writes & self.there):
            # A response that an operator changes, and does not replace, is still the same one; what
            # says something about it, such as a verdict, is another one then.
            about = name != "response" and "response" in self.origins.get(name, ())
            if name in reads and not about:
                continue
            for other, its in self.origins.items():
                if name in its and other not in writes | removed and other in self.there:
                    self.stale.setdefault(other, (name, step))
        for name in removed | writes:
            self.origins.pop(name, None)
            self.stale.pop(name, None)
        self.origins.update(dict.fromkeys(operator.writes(), of))
        self.there = (self.there - removed) | writes


def check_current(
    steps: Sequence[Step],
    columns: Iterable[str],
    origins: Origins,
    where: Callable[[Step], str],
) -> None:
    """Check that no column is left of something that a later step has replaced.

    Args:
        steps: of a recipe.
        columns: of the dataset.
        origins: of those columns of it that a run has written.
        where: what to call a step in a message.

    Raises:
        RecipeError: a verdict, say, is of a response that a later step samples anew.
    """
    followed = _Followed(columns, origins)
    for at, step in enumerate(steps):
        if _is_unknown(step):
            if isinstance(step.operator, ForeignOperator) and step.operator.keeps_columns:
                continue
            return  # What it adds and removes is only known once it has run.
        for name in step.operator.reads_of(followed.there):
            if name in followed.stale:
                raise _error(name, followed.stale, steps[:at], where, f", and {step.name} reads it")
        followed.apply(step)
    for name in followed.stale:
        raise _error(name, followed.stale, steps, where, "")


def _error(
    name: str,
    stale: Mapping[str, tuple[str, Step]],
    before: Sequence[Step],
    where: Callable[[Step], str],
    why: str,
) -> RecipeError:
    replaced, step = stale[name]
    writers = [s for s in before if name in s.operator.writes() and s.number < step.number]
    others = sorted(stale.keys() - {name})
    also = f" (as are {', '.join(others)})" if others else ""
    if replaced in step.operator.reads():
        keep = f"write another column than '{replaced}'"
    elif writers:
        without = f"read its export without '{replaced}' (`columns`)"
        keep = f"run the steps before this one as a recipe of their own, and {without}"
    else:
        keep = f"read the dataset without '{replaced}' (`columns`)"
    if writers:
        writer = f"step {writers[-1].number} {writers[-1].name}"
        right = f"put {writer} after this step, too, or leave it out"
    else:
        writer = "the run that made the dataset"
        right = f"let a step after this one compute {name} again, or leave it out of the dataset"
    return RecipeError(
        f"replaces '{replaced}', of which {writer} computed '{name}'{also}{why}: "
        "it would stay as it was",
        f"{right}; to keep it as it is, {keep}",
        where=where(step),
    )


def computed_from(
    steps: Sequence[Step], columns: Iterable[str], origins: Origins
) -> dict[str, frozenset[str]]:
    """From which columns each column was computed after some steps, as far as is known.

    Args:
        steps: of a recipe.
        columns: of the dataset.
        origins: of those columns of it that a run has written.
    """
    followed = _Followed(columns, origins)
    for step in steps:
        if not _is_unknown(step):
            followed.apply(step)
    return followed.origins


def _is_unknown(step: Step) -> bool:
    return isinstance(step.operator, ForeignOperator) or step.operator.reads() == ALL
