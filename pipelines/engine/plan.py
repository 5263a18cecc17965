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
from typing import Any, NamedTuple

import pyarrow as pa

from ...operators import ALL, DataError, Operator, RecipeError, ResumableOperator, Scope
from ...operators.cache_key import cache_key_json, code_version
from ...operators.errors import suggest
from ...operators.registry import load_all
from ..apply.frame import Frame
from ..dataset.arrow_files import FORMAT
from ..dataset.read import Source, chunk_name, peek_schema, whole_schema
from ..dataset.write import check_export_path
from ..recipe.recipe import Recipe, Step
from .commit import Commit, load
from .streaming import generation


class Stage(NamedTuple):
    """Steps that run chunk by chunk, and the step of dataset scope that waits for all of them."""

    steps: tuple[Step, ...]
    barrier: Step | None

    @property
    def stream(self) -> ResumableOperator | None:
        """The operator, where it is one whose rows are committed one by one."""
        operator = self.steps[0].operator if self.steps else None
        return operator if isinstance(operator, ResumableOperator) else None


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
            if isinstance(step.operator, ResumableOperator):
                key += f"-{generation(kept_folder(cache, step.operator))}"
        return cls(recipe, source, cache, tuple(keys))

    def stages(self) -> Iterator[Stage]:
        """The steps, cut behind each one of dataset scope, and on both sides of a stream."""
        held: list[Step] = []
        for step in self.steps:
            if isinstance(step.operator, ResumableOperator):
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


def kept_folder(cache: Path, operator: ResumableOperator) -> Path:
    """Where the results of a stream are kept, whatever came before it."""
    return cache / f"kept-{operator.name()}-{_digest('', operator)}"


def _digest(key: str, operator: Operator) -> str:
    parts = [key, cache_key_json(operator), code_version(type(operator))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def group_columns(recipe: Recipe, schema: pa.Schema) -> tuple[str, ...]:
    """Columns of the dataset whose consecutive equal values make a group.

    What the step that writes `prompt_id` reads; or the dataset's own `prompt_id`, where a step
    uses it before it is written anew, or none writes it.
    """
    own = ("prompt_id",) if "prompt_id" in schema.names else ()
    for step in recipe.steps:
        operator = step.operator
        if own and operator.scope is not Scope.ROW and "prompt_id" in operator.reads():
            return own
        if "prompt_id" in operator.writes():
            return tuple(name for name in operator.reads() if name in schema.names)
    return own


def checked_schema(recipe: Recipe) -> pa.Schema:
    """The dataset's schema, once paths are right and the columns follow through the recipe.

    Raises:
        RejuiceError: the dataset cannot be read, the export would harm it, or a step reads a
            column that is not there.
    """
    path = recipe.head.dataset_path
    check_export_path(recipe.path, recipe.head.export_path, path)
    schema = peek_schema(path)
    try:
        check_columns(recipe, schema)
    except RecipeError:
        whole = whole_schema(path)
        if whole.equals(schema):
            raise
        check_columns(recipe, whole)
        return whole
    return schema


def check_columns(recipe: Recipe, schema: pa.Schema) -> None:
    """Follow the columns through the recipe before anything is run.

    Raises:
        RecipeError: a step reads a column that neither the dataset nor an earlier step has.
        DataError: an id is not a text.
    """
    for name in ("prompt_id", "response_id"):
        if name in schema.names and not _may_be_text(schema.field(name).type):
            found = f"column '{name}' is {schema.field(name).type}"
            raise DataError(found, "make it a string", where=str(recipe.head.dataset_path))
    there = set(schema.names)
    for step in recipe.steps:
        operator = step.operator
        if operator.reads() == ALL:
            return  # What it adds and removes is only known once it has run.
        for name in operator.reads():
            if name not in there:
                where = f"{recipe.path}, step {step.number} {step.name}"
                raise RecipeError(
                    f"column '{name}' is missing", _who_writes(name, there), where=where
                )
        there.difference_update(operator.removes())
        there.update(operator.writes())


def _may_be_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))


def _who_writes(column: str, there: set[str]) -> str:
    writers = []
    for name, kind in load_all()[0].items():
        # Fields without a default are filled with nothing: what it writes is all that is asked.
        required: Any = {f: () for f, info in kind.model_fields.items() if info.is_required()}
        operator = kind.model_construct(**required)
        if column in operator.writes() and column not in operator.reads():
            writers.append(name)
    if writers:
        return f"{' or '.join(writers)} writes it: put that step before this one"
    return suggest(column, there) or f"there are: {', '.join(sorted(there))}"
