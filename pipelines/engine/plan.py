"""What will be run, and under which keys its results are kept.

    key of a step = hash(key of the step before it, operator config, operator code)
    key of what a resumable operator computed = hash(operator config, operator code), and the row
    key of the source = hash(content, chunking)

A result is found again if and only if everything that led to it is unchanged. What one step did to
one chunk is a commit: one file, put in place by one rename. Its columns are what the step wrote,
and its schema metadata carries the rest of the change: which rows it dropped and why, what was
taken away, notes, seconds. So a chain of commits is as small as what the steps did.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import Change, Operator, RecipeError, RejuiceError, ResumableOperator, Scope
from ...operators.cache_key import cache_key_json, code_version
from ...operators.columns import flat
from ...operators.groups import Array
from ..dataset.files import (
    FORMAT,
    check_is_folder,
    check_own_folder,
    read_checked,
    remove_file,
    write_checked,
    write_file,
)
from ..dataset.read import Source, chunk_name
from ..dataset.remote import AnyPath
from ..recipe.columns import check_replaced, checked_schema, group_columns
from ..recipe.recipe import Recipe
from ..recipe.steps import Step
from .frame import Frame
from .steps import RunStep, StepResult, apply_steps

# --- How many rows are worked on at once ----------------------------------------------

CHUNK_ROWS = 65_536
RESUMABLE_CHUNK_ROWS = 2_048
"""Where a step is resumable: as a rule it samples, and a row becomes many with all their tokens."""

REQUEST_CHUNK_ROWS = 256
"""Where a step asks a server for each row: a chunk is what progress counts, and what is lost when
the run is stopped."""
_COLUMN_BYTES = 2**31 - 1
"""What a column of texts holds of one chunk: Arrow counts its bytes in 32 bits."""


def default_chunk_rows(operators: Sequence[Operator]) -> int:
    rows = CHUNK_ROWS
    for operator in operators:
        if operator.asks_server:
            return REQUEST_CHUNK_ROWS
        if isinstance(operator, ResumableOperator):
            rows = RESUMABLE_CHUNK_ROWS
    return min(rows, _most_rows(operators))


def check_chunk_rows(operators: Sequence[Operator], chunk_rows: int) -> None:
    """Refuse a chunk of so many rows if its results might not fit, before anything is paid for."""
    most = _most_rows(operators)
    if chunk_rows > most:
        largest = _COLUMN_BYTES / most * chunk_rows / 1e9
        found = f"{chunk_rows:,} rows may become {largest:.1f} GB of text in a step that samples"
        raise RecipeError(found, f"a chunk holds 2.1 GB: --chunk_rows {most}", where="--chunk_rows")


def _most_rows(operators: Sequence[Operator]) -> int:
    """Most rows of a chunk whose results certainly fit, as far as the steps say how large they
    become; one at least."""
    rows, most = 1, _COLUMN_BYTES
    for operator in operators:
        if isinstance(operator, ResumableOperator):
            rows_out, text_bytes = operator.largest_result()
            most = min(most, _COLUMN_BYTES // max(1, rows * text_bytes))
            rows *= rows_out
    return max(1, most)


# --- What will be run, and under which keys its results are kept ----------------------

KEPT = "kept-"
"""How the names of folders with kept rows begin."""
_FOLDER = re.compile(r"\w[\w-]*")
"""The name of a folder in a cache."""


class Plan(NamedTuple):
    """A recipe over a source, with the place of every commit."""

    recipe: Recipe  # what is to be run
    source: Source  # the chunks
    cache: AnyPath  # the folder of commits
    keys: tuple[str, ...]  # per step, the name of its folder of commits
    retried: tuple[Retries, ...] = ()  # per step, as far as it is known

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.recipe.steps

    @classmethod
    def open(cls, recipe: Recipe, cache: AnyPath, chunk_rows: int, *, verify: bool = False) -> Plan:
        """Open the dataset, check the recipe against it, cut it into chunks, and plan the steps."""
        dataset = recipe.opened(cache, verify=verify)
        groups = group_columns(recipe, checked_schema(recipe, dataset))
        source = dataset.chunks(cache, chunk_rows=chunk_rows, group_by=groups)
        # Once more with all columns: some may first turn up far down.
        check_replaced(recipe.steps, source.schema.names, dataset.spec, recipe.where)
        return cls.of(recipe, source, cache)

    @classmethod
    def of_run(cls, recipe: Recipe, cache: AnyPath, uses: Sequence[str]) -> Plan | None:
        """The plan of a finished run, whatever became of the code of its operators; None where a
        folder is none of a cache, or the source is gone or changed.

        `uses` are the folders in the cache as its manifest lists them: that of the source, and
        those of the steps in order. What was retried since, for another export, is of another run.
        """
        source_name, *keys = uses[: len(recipe.steps) + 1]
        if len(keys) < len(recipe.steps) or not all(map(_FOLDER.fullmatch, (source_name, *keys))):
            return None
        source = recipe.opened(cache).chunks_in(cache / source_name)
        return None if source is None else cls(recipe, source, cache, tuple(keys))

    @classmethod
    def of(cls, recipe: Recipe, source: Source, cache: AnyPath) -> Plan:
        keys, retried, key = list[str](), list[Retries](), f"{source.folder.name}-{FORMAT}"
        for step in recipe.steps:
            operator = step.operator
            key = _hash(key, operator)
            first = cache / f"{operator.name()}-{key}"
            check_own_folder(first)
            if isinstance(operator, ResumableOperator):
                check_is_folder(kept_folder(cache, operator))
            retried.append(Retries.of(first))
            if retried[-1].times:
                key += f"-{retried[-1].times}"
            keys.append(f"{operator.name()}-{key}")
            check_own_folder(cache / keys[-1])
        return cls(recipe, source, cache, tuple(keys), tuple(retried))

    def other_code(self) -> frozenset[str]:
        """Names of steps whose code is another than it was, or is not known."""
        found, key = set[str](), f"{self.source.folder.name}-{FORMAT}"
        for step, name in zip(self.steps, self.keys, strict=True):
            own = name.removeprefix(f"{step.operator.name()}-")
            try:
                same = own.partition("-")[0] == _hash(key, step.operator)
            except RejuiceError:  # It is not imported, or a file of it is gone.
                same = False
            if not same:
                found.add(step.name)
            key = own
        return frozenset(found)

    def report_head(self, chunk_rows: int) -> dict[str, Any]:
        """The fields of a report that describe the run, without its figures."""
        recipe = self.recipe
        return {
            "project_name": recipe.head.project_name,
            "recipe": str(recipe.path.resolve() if recipe.from_file else recipe.path),
            "dataset_path": str(recipe.head.dataset_spec),
            "export_path": str(recipe.head.export_path),
            "key": self.keys[-1],
            "cache": str(self.cache.resolve()),
            "chunk_rows": chunk_rows,
            "columns": tuple(self.source.schema.names),
        }

    def stages(self) -> Iterator[tuple[Step, ...]]:
        """The steps, split after each one of dataset scope, which waits for all chunks of those
        before it, and around each resumable operator."""
        waiting: list[Step] = []
        for step in self.steps:
            is_resumable = isinstance(step.operator, ResumableOperator)
            if is_resumable and waiting:
                yield tuple(waiting)
                waiting = []
            waiting.append(step)
            if is_resumable or step.operator.scope is Scope.DATASET:
                yield tuple(waiting)
                waiting = []
        if waiting:
            yield tuple(waiting)

    def folder(self, step: Step) -> AnyPath:
        """Where the commits of a step are, or will be."""
        return self.cache / self.keys[step.number - 1]

    def retries(self, step: Step) -> Retries:
        return self.retried[step.number - 1]

    def first_folder(self, step: Step) -> AnyPath:
        """Where the commits of a step were before any retry; it counts the retries."""
        times, folder = self.retries(step).times, self.folder(step)
        return folder.with_name(folder.name.removesuffix(f"-{times}")) if times else folder

    def folders_before_retry(self, step: Step) -> Iterator[AnyPath]:
        """Yield where the commits of a step were before its last retry of what was missing, and
        before those of that kind before it; the last first."""
        retries, first = self.retries(step), self.first_folder(step)
        for times in range(retries.times - 1, retries.dropped - 1, -1):
            yield first.with_name(f"{first.name}-{times}") if times else first

    def remove_commits(self, step: Step, names: str) -> None:
        """Remove commits of a step, and those of before its retries, which it would begin with."""
        for folder in (self.folder(step), *self.folders_before_retry(step)):
            for path in folder.glob(names):
                remove_file(path)

    def count_retry(self, step: Step, what: Retried) -> None:
        """Count one more retry of a step: the next plan has other keys from this step on."""
        count_retry(self.first_folder(step), what)

    def path(self, step: Step, chunk: int) -> AnyPath:
        return self.folder(step) / chunk_name(chunk)

    def committed_chunks(self, step: Step) -> frozenset[int]:
        """The chunks of which a step is committed, from one list of its folder in a store."""
        there = {path.name for path in self.folder(step).glob("*.arrow")}
        return frozenset(n for n in range(len(self.source.rows)) if chunk_name(n) in there)

    def is_done(self, step: Step) -> bool:
        return len(self.committed_chunks(step)) == len(self.source.rows)

    def source_frame(self, chunk: int) -> Frame:
        return Frame.of_chunk(self.source, chunk)

    def committed(self, chunk: int) -> RunStep:
        """For `apply_steps`: what a step did to a chunk, as it was committed."""
        return lambda step, _: self.load(step, chunk)

    def load(self, step: Step, chunk: int) -> StepResult:
        """What a step did to a chunk; FileNotFoundError where it is not committed."""
        return load(self.path(step, chunk))

    def frame_before(self, chunk: int, step: Step | None) -> Frame:
        """A chunk as it is before a step (None: after the last)."""
        done = self.steps if step is None else self.steps[: step.number - 1]
        return apply_steps(done, self.source_frame(chunk), run=self.committed(chunk))


def kept_folder(cache: AnyPath, operator: ResumableOperator) -> AnyPath:
    """Where the rows of a resumable operator are kept, whatever steps led to them."""
    fields = cache_key_json(operator, of_row=True)
    key = _digest("", fields, code_version(type(operator)))
    return cache / f"{KEPT}{operator.name()}-{key}"


def operator_key(operator: Operator) -> str:
    """The key of an operator by itself, whatever led to its rows: a hash of its config and code.

    Equal keys and equal input give equal results.
    """
    return _hash("", operator)


def _hash(key: str, operator: Operator) -> str:
    return _digest(key, cache_key_json(operator), code_version(type(operator)))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# --- Commits --------------------------------------------------------------------------

_PARENT = "__parent__"
_META = b"rejuice"
_FAILED = b"failed_rows"


def save(path: AnyPath, commit: StepResult) -> None:
    write_checked(path, as_table(commit))


def load(path: AnyPath, *, mapped: bool = True) -> StepResult:
    """Read a commit; mapped, its columns stay on disk until they are used."""
    return of_table(read_checked(path, mapped=mapped))


def as_table(commit: StepResult) -> pa.Table:
    """A commit as it is in its file: columns and metadata."""
    change = commit.change
    rows, slugs, codes = _dropped(change)
    meta = {
        "rows_in": commit.rows_in,
        "seconds": commit.seconds,
        "notes": {name: float(figure) for name, figure in change.notes.items()},
        "logged": dict(change.logged),
        "without": change.without,
        "slugs": slugs,
    }
    schema_meta = {
        _META: json.dumps(meta).encode(),
        b"dropped_rows": rows.astype("<i4").tobytes(),
        b"dropped_slugs": codes.astype("<i4").tobytes(),
    }
    if change.failed is not None:
        schema_meta[_FAILED] = change.failed.astype("<i4").tobytes()
    columns = {name: flat(column) for name, column in change.columns.items()}
    if change.parents is not None:
        columns[_PARENT] = pa.array(change.parents, pa.int32())
    return pa.table(columns).replace_schema_metadata(schema_meta)


def of_table(table: pa.Table) -> StepResult:
    schema_meta = table.schema.metadata
    meta = json.loads(schema_meta[_META])
    rows = np.frombuffer(schema_meta[b"dropped_rows"], "<i4")
    reasons = None
    if len(rows):
        at_N = np.full(meta["rows_in"], -1, np.int32)
        at_N[rows] = np.frombuffer(schema_meta[b"dropped_slugs"], "<i4")
        reasons = pa.array(meta["slugs"], pa.string()).take(pa.array(at_N, mask=at_N < 0))
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    parents = columns.pop(_PARENT, None)
    kept = schema_meta.get(_FAILED)
    change = Change(
        columns,
        reasons,
        None if parents is None else np.asarray(parents).astype(np.int64),
        tuple(meta["without"]),
        meta["notes"],
        meta["logged"],
        None if kept is None else np.frombuffer(kept, "<i4").astype(np.int64),
    )
    return StepResult(change, meta["rows_in"], meta["seconds"])


def _dropped(change: Change) -> tuple[Array, list[str], Array]:
    if change.reasons is None:
        return np.zeros(0, np.int32), [], np.zeros(0, np.int32)
    encoded = flat(change.reasons).dictionary_encode()
    rows = np.flatnonzero(np.asarray(encoded.is_valid()))
    codes = np.asarray(encoded.indices.fill_null(-1))[rows]
    return rows, encoded.dictionary.to_pylist(), codes


# --- How often failures of a step were computed again ---------------------------------
# Each retry has a file in the step's folder, whose name says what was retried: there no damage to
# its content matters. The results of a retry are in a folder of their own, so that exports of
# before it stay as they are, and the keys of later steps depend on it.
#
#     llm_verify_mapper-77b1…/000000.arrow, retry-1-missing
#     llm_verify_mapper-77b1…-1/000000.arrow

_RETRY = re.compile(r"retry-(\d+)-(missing|dropped)")
Retried = Literal["missing", "dropped"]


class Retries(NamedTuple):
    times: int = 0  # how often something was
    # which of them was the last one of what was missing, and of what was dropped; 0: none
    missing: int = 0
    dropped: int = 0

    @classmethod
    def of(cls, folder: AnyPath) -> Retries:
        last = {"missing": 0, "dropped": 0}
        for path in folder.glob("retry-*"):
            if match := _RETRY.fullmatch(path.name):
                last[match[2]] = max(last[match[2]], int(match[1]))
        return cls(max(last.values()), **last)


def count_retry(folder: AnyPath, what: Retried) -> None:
    write_file(folder / f"retry-{Retries.of(folder).times + 1}-{what}", "")


def counts_retry(file: AnyPath) -> bool:
    """Whether a file in the folder of a step counts a retry."""
    return _RETRY.fullmatch(file.name) is not None


def arrow_stream(table: pa.Table) -> pa.Buffer:
    """A table by itself, with its schema: `pa.ipc.open_stream` reads it without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
