"""What will be run, and under which keys its results are kept.

    key of a step = hash(key of the step before it, operator config, operator code)
    key of what a stream keeps = hash(its config, its code), and the content of the chunk
    key of the source = hash(content, chunking)

So a result is found again if and only if everything that led to it is unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...operators import Operator, Scope, StreamOperator
from ...operators.registry import code_version, config_json
from ..apply.frame import Frame
from ..dataset.arrow_files import FORMAT
from ..dataset.read import Source, chunk_name
from ..recipe.recipe import Recipe, Step
from .commit import Commit, load
from .streaming import generation


class Stage(NamedTuple):
    """Steps that run chunk by chunk, and the step of dataset scope that waits for all of them."""

    steps: tuple[Step, ...]
    barrier: Step | None

    @property
    def stream(self) -> StreamOperator | None:
        """The operator, where it is one whose rows are committed one by one."""
        operator = self.steps[0].operator if self.steps else None
        return operator if isinstance(operator, StreamOperator) else None


class Plan(NamedTuple):
    """A recipe over a source, with the place of every commit.

    Attributes:
        recipe: what is to be run.
        source: the chunks.
        cache: the folder of commits.
        keys: per step, the name of its folder of commits.
    """

    recipe: Recipe
    source: Source
    cache: Path
    keys: tuple[str, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The recipe's steps."""
        return self.recipe.steps

    @classmethod
    def of(cls, recipe: Recipe, source: Source, cache: Path) -> Plan:
        """The plan of a recipe."""
        keys, key = [], f"{source.folder.name}-{FORMAT}"
        for step in recipe.steps:
            key = _digest(key, step.operator)
            keys.append(f"{step.operator.name()}-{key}")
            if isinstance(step.operator, StreamOperator):
                key += f"-{generation(kept_folder(cache, step.operator))}"
        return cls(recipe, source, cache, tuple(keys))

    def stages(self) -> Iterator[Stage]:
        """The steps, cut behind each one of dataset scope, and on both sides of a stream."""
        held: list[Step] = []
        for step in self.steps:
            if isinstance(step.operator, StreamOperator):
                if held:
                    yield Stage(tuple(held), None)
                yield Stage((step,), None)
                held = []
            elif step.operator.scope is Scope.DATASET:
                yield Stage(tuple(held), step)
                held = []
            else:
                held.append(step)
        if held:
            yield Stage(tuple(held), None)

    def path(self, step: Step, chunk: int) -> Path:
        """Where the commit of a step on a chunk is, or will be."""
        return self.cache / self.keys[step.number - 1] / chunk_name(chunk)

    def digest_path(self, step: Step, chunk: int) -> Path:
        """Where the digest of a chunk for a step of dataset scope is kept."""
        return self.cache / self.keys[step.number - 1] / f"digest-{chunk_name(chunk)}"

    def paths(self, step: Step) -> list[Path]:
        """Where the commits of a step are, or will be."""
        return [self.path(step, chunk) for chunk in range(len(self.source.rows))]

    def is_done(self, step: Step) -> bool:
        """Whether every chunk of a step is committed."""
        return all(path.exists() for path in self.paths(step))

    def replay(self, chunk: int, steps: tuple[Step, ...]) -> Iterator[tuple[Frame, Commit]]:
        """For each of the first steps, the frame before it and what it did."""
        frame = Frame.of(self.source.chunk(chunk))
        for step in steps:
            commit = load(self.path(step, chunk))
            yield frame, commit
            frame = frame.after(commit.change)

    def frame_before(self, chunk: int, step: Step | None) -> Frame:
        """A chunk as it is before a step (None: after the last)."""
        done = self.steps if step is None else self.steps[: step.number - 1]
        frame = Frame.of(self.source.chunk(chunk))
        for before, commit in self.replay(chunk, done):
            frame = before.after(commit.change)
        return frame


def kept_folder(cache: Path, operator: StreamOperator) -> Path:
    """Where the results of a stream are kept, whatever came before it."""
    return cache / f"kept-{operator.name()}-{_digest('', operator)}"


def _digest(key: str, operator: Operator) -> str:
    parts = [key, config_json(operator), code_version(type(operator))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
