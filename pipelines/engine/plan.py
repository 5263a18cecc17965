"""What will be run, and under which keys its results are kept.

    key of a step = hash(key of the step before it, operator config, operator code)
    key of a resumable operator = hash(operator config, operator code), and the rows of the chunk
    key of the source = hash(content, chunking)

A result is found again if and only if everything that led to it is unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ...operators import ALL, DataError, Operator, RecipeError, Scope, StreamOperator, installed
from ...operators.errors import suggest
from ...operators.registry import code_version, config_json, get
from ..apply.frame import Frame
from ..apply.steps import RunStep, apply_steps
from ..dataset.arrow_files import FORMAT
from ..dataset.read import Source, chunk_name, peek_schema, whole_schema
from ..dataset.write import check_export_path
from ..recipe.recipe import Recipe, Step
from .commit import load
from .resumable import generation


class Stage(NamedTuple):
    """Steps that run chunk by chunk, and the step of dataset scope that waits for all of them."""

    steps: tuple[Step, ...]
    barrier: Step | None

    @property
    def resumable(self) -> StreamOperator | None:
        """The operator of the stage, if it is one whose rows are persisted one by one."""
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
        """The steps, split after each one of dataset scope, and around each resumable operator."""
        waiting: list[Step] = []
        for step in self.steps:
            if isinstance(step.operator, StreamOperator):
                if waiting:
                    yield Stage(tuple(waiting), None)
                yield Stage((step,), None)
                waiting = []
            elif step.operator.scope is Scope.DATASET:
                yield Stage(tuple(waiting), step)
                waiting = []
            else:
                waiting.append(step)
        if waiting:
            yield Stage(tuple(waiting), None)

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

    def source_frame(self, chunk: int) -> Frame:
        """A chunk before the first step."""
        return Frame.of(self.source.chunk(chunk))

    def committed(self, chunk: int) -> RunStep:
        """For `apply_steps`: what a step did to a chunk, as it was committed."""
        return lambda step, _: load(self.path(step, chunk))

    def frame_before(self, chunk: int, step: Step | None) -> Frame:
        """A chunk as it is before a step (None: after the last)."""
        done = self.steps if step is None else self.steps[: step.number - 1]
        return apply_steps(done, self.source_frame(chunk), run=self.committed(chunk))


def kept_folder(cache: Path, operator: StreamOperator) -> Path:
    """Where the results of a resumable operator are kept, whatever steps led to its rows."""
    return cache / f"kept-{operator.name()}-{_digest('', operator)}"


def _digest(key: str, operator: Operator) -> str:
    parts = [key, config_json(operator), code_version(type(operator))]
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
    for name in installed():
        kind = get(name)
        # Fields without a default are filled with nothing: what it writes is all that is asked.
        required: Any = {f: () for f, info in kind.model_fields.items() if info.is_required()}
        operator = kind.model_construct(**required)
        if column in operator.writes() and column not in operator.reads():
            writers.append(name)
    if writers:
        return f"{' or '.join(writers)} writes it: put that step before this one"
    return suggest(column, there) or f"there are: {', '.join(sorted(there))}"
