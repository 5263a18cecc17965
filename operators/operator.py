"""The one abstraction: an operator is its config, and a pure function of a table.

    recipe key ──> Operator (frozen pydantic model) ──apply(table)──> Change

Operators never remove rows. They return a `Change`: which columns to write, which rows to drop, and
why. The runner carries it out, counts it and keeps it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import SerializerFunctionWrapHandler, field_validator, model_serializer

from .arrow_compute import pc
from .columns import columns_of, flat
from .condition import Wanted, checked_where
from .config import Named

Columns = tuple[str, ...]


CALL_FAILED = "llm_call_failed"
"""The reason of a row that a server gave no answer for, or the note that counts such rows, of an
operator that `asks_server`."""


class Change(NamedTuple):
    """What an operator wants done to a table of N rows.

    Attributes:
        columns: new or replaced columns, each as long as the output: N, or len(parents).
        reasons: string[N]; null keeps the row, a slug drops it. None keeps all.
        parents: int64[M]: the input row each output row comes from, for operators that expand
            rows. None means one output row per input row. Columns that are not written are
            copied from the parent. -1 is a new row without a parent: there they are null.
            Parents ascend, -1 aside. An input row without a child needs a reason.
        without: columns of the input that the output no longer has.
        notes: figures for the run report (a shortfall, a count); summed over chunks.
        logged: messages about rows, such as WARNING and ERROR messages of a library that does the
            work, and how often each was logged; added up over chunks by `merge_logged`.
        failed: int64[K]: the input rows that the operator failed on for a reason that another
            attempt may not meet. A filter drops them, a mapper leaves them as they are. None: it
            does not say; reasons in columns `..._missing` may.
    """

    columns: Mapping[str, pa.Array] = {}
    reasons: pa.Array | None = None
    parents: NDArray[np.int64] | None = None
    without: Columns = ()
    notes: Mapping[str, float] = {}
    logged: Mapping[str, int] = {}
    failed: NDArray[np.int64] | None = None

    def drops_all(self) -> bool:
        """Whether every row is dropped."""
        return self.reasons is not None and not self.reasons.null_count


ALL: Columns = ("*",)
"""What an operator `reads` whose needs are not known, such as one of another library."""


class Scope(str, Enum):
    """How much of the data an operator must see at once."""

    ROW = "row"
    """Any slice of rows."""
    GROUP = "group"
    """Whole groups: all rows of a `prompt_id`, which are contiguous."""
    DATASET = "dataset"
    """All rows, but only of what `digest` keeps of them."""


class ScopeByField:
    """A scope that depends on the value of a field; of the class itself it is the default."""

    def __init__(self, field: str, default: Scope, scopes: Mapping[Any, Scope]) -> None:
        self.field, self.default, self.scopes = field, default, scopes

    def __get__(self, operator: object | None, owner: type) -> Scope:
        if operator is None:
            return self.default
        return self.scopes.get(getattr(operator, self.field), self.default)


class Kind(str, Enum):
    """What an operator is for: how lists and the reference group it."""

    MAPPER = "mapper"
    """Adds columns or expands rows."""
    FILTER = "filter"
    """Keeps or drops rows, or groups, each by itself."""
    DEDUPLICATOR = "deduplicator"
    """Drops what repeats something else."""
    SELECTOR = "selector"
    """Chooses which rows stay, out of many."""


COMMON_FIELDS = ("where", "on")
"""The fields that every operator has. The engine carries them out, and `apply` knows neither."""


class Operator(Named):
    """Base of all operators: fields are the recipe's keys, `apply` does the work.

    Subclass `Mapper` or `Filter` where one of them fits; subclass this to expand rows, or to
    write columns and drop rows in one step.
    """

    where: dict[str, Wanted] | None = None
    """Which rows the step is about, such as `{data_source: [gsm8k, math], level: {min: 3}}`: of
    each column the value, the values or the range. Other rows pass untouched. Null: all rows."""
    on: Literal["run", "train"] | None = None
    """Where the step exists: offline only (`run`), or in training only (`train`). Null: in both."""

    noun: ClassVar[str] = "operator"
    kind: ClassVar[Kind] = Kind.MAPPER
    """A subclass whose purpose differs from that of its base class sets its own."""
    scope: ClassVar[Scope] = Scope.ROW
    gil_bound: ClassVar[bool] = False
    """Whether the work is a loop in Python: then several workers have to be processes."""
    depends_on: ClassVar[tuple[str, ...]] = ()
    """Distributions whose version decides the result, such as `math-verify`."""
    code: ClassVar[str | None] = None
    """The version of the code that decides the result; None: a digest of the source. Set it where
    results are too expensive to be computed again after every edit, and change it with the edits
    that change results. A subclass states its own."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """Every slug the operator may give, with what it means. Empty: not declared."""
    estimates: ClassVar[str] = ""
    """What it computes of the responses to a prompt as an estimate of what the policy gives, such
    as `the pass rate`; empty: nothing. It is off where some of them were dropped before."""
    not_failures: ClassVar[frozenset[str]] = frozenset()
    """Reasons in its columns `..._missing` that say that the step is not meant for the row. Where
    all values are missing and some reason is another one, a run ends with an error."""
    retryable: ClassVar[frozenset[str] | None] = None
    """Reasons in its columns `..._missing` that another attempt may not meet, such as a timeout:
    `--retry_missing` computes these rows again. None: all of them."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        source_states[cls] = source_state(cls)
        for name in COMMON_FIELDS:
            if name in vars(cls).get("__annotations__", {}) and cls.__module__ != __name__:
                raise TypeError(f"{cls.__name__}.{name} is a field of every operator: rename it")
        if not inspect.isabstract(cls):
            for call in on_definition:
                call(cls)

    @field_validator("where", mode="before")
    @classmethod
    def _check_where(cls, value: Any) -> Any:
        return None if value is None else checked_where(value)

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The common fields come last, and are left out where they are not set: in recipes and
        cache keys."""
        fields: dict[str, Any] = handler(self)
        common = {name: fields.pop(name, None) for name in COMMON_FIELDS}
        return fields | {name: value for name, value in common.items() if value is not None}

    @classmethod
    def own_fields(cls) -> tuple[str, ...]:
        """The names of its fields, without those that every operator has."""
        return tuple(name for name in cls.model_fields if name not in COMMON_FIELDS)

    @property
    def asks_server(self) -> bool:
        """Whether its work on each row is a request to a server, and it is not resumable.

        Its chunks are small, and it is not applied just to look at its result. What it has no
        answer for it drops, or counts in a note, as `CALL_FAILED`; `--retry_missing` asks again.
        """
        return False

    def reads(self) -> Columns:
        """Columns that must be in the table."""
        return columns_of(self.paths())

    def failed_values(self) -> Mapping[str, frozenset[str]]:
        """Columns in which these values say that the row has failed for a reason that another
        attempt may not meet: `--retry_missing` computes such rows again, too."""
        return {}

    def reader_of(self, column: str) -> str:
        """What of the operator reads a column, for messages, such as `the tool search`; empty: the
        operator itself."""
        return ""

    def optional_reads(self) -> Mapping[str, str]:
        """Columns that it reads where they are there, each with the column it is a statistic of: a
        recipe in which a step writes the latter after the dataset gave the former is refused."""
        return {}

    def paths(self) -> Sequence[str]:
        """Those of `reads` that may be paths, such as `response.body.choices`, whose column is only
        known with the dataset: names of columns may have dots, too."""
        return ()

    def reads_of(self, columns: Collection[str]) -> list[str]:
        """Columns that it reads of a table with these, optional ones included; not for `ALL`."""
        by_name = columns_of(self.paths())
        paths = columns_of(self.paths(), columns)
        named = (name for name in self.reads() if name not in by_name)
        optional = (name for name in self.optional_reads() if name in columns)
        return list(dict.fromkeys((*paths, *named, *optional)))

    def needs_of(self, columns: Collection[str]) -> list[str]:
        """Columns of a table with these that the step needs: `reads_of`, and those of `where`."""
        of_where = columns_of(self.where or (), columns)
        return list(dict.fromkeys((*self.reads_of(columns), *of_where)))

    def writes(self) -> Columns:
        """Columns the operator adds or replaces."""
        return ()

    def replaces(self) -> Columns:
        """Columns of `writes` that may be in the input: by default those that it also reads.

        A recipe is refused if a step would replace any other column, of the dataset or of another
        operator. One that the same operator, or the run that made the dataset, has written may
        always be computed again.
        """
        reads = self.reads()
        return tuple(name for name in self.writes() if reads == ALL or name in reads)

    def removes(self) -> Columns:
        """Columns of the input that the output no longer has."""
        return ()

    def drops_within_groups(self) -> bool:
        """Whether it may drop some responses to a prompt and keep others, by what is in them.

        What is computed of a group afterwards is then of another group than the one that was
        sampled, and `rejuice check` warns of it. A filter that drops all rows of a prompt or none
        returns False.
        """
        return self.kind is not Kind.MAPPER

    def cache_key_fields(self) -> Mapping[str, Any]:
        """What decides the result, as JSON: all fields. Kept results are found again by it.

        Leave out fields that only say how the work is done (an address, a number of workers), and
        add what the fields do not show (the content of a file that they name).
        """
        return self.model_dump(mode="json")

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        """Lines that `rejuice explain` adds about a row after the step; None: the step itself is
        explained."""
        return {}

    def preflight(self) -> None:
        """Check that what it needs is there, such as a server that is up, or raise a RejuiceError:
        before other steps run, so that a run does not end after hours for what could be known at
        once. By default what `check_files` checks."""
        self.check_files()

    def check_files(self) -> None:
        """Check that packages and folders which it needs are there, or raise a RejuiceError;
        nothing in them is read. `rejuice check` calls it, and not what opens a stored run, whose
        folders may be gone."""

    def digest(self, table: pa.Table) -> pa.Table:
        """For dataset scope: what `apply` needs of a chunk of whole groups, one row for each row.

        As narrow as can be: the digests of all rows that are decided together are in memory, and
        without `shard` these are all rows.
        """
        return table.select(self.reads_of(table.column_names))

    def shard(self, digest: pa.Table) -> NDArray[np.uint64] | None:
        """For dataset scope: which rows `apply` may be given without the others, uint64[N]; None:
        it needs the digests of all rows together.

        Rows with different values are decided independently of one another, of their order, too:
        what becomes of a row is the same whichever rows with other values are in the table, and
        where. Rows with the same value are together and keep their order. So a dataset of any size
        is decided in parts that fit into memory. A row has the same value in the digest of any
        rows, and a change to rows in shards has no `parents`.
        """
        return None

    @abstractmethod
    def apply(self, table: pa.Table) -> Change:
        """Compute the change for `table` (for dataset scope: for digests, concatenated)."""


source_states: dict[type[Operator], tuple[int, int] | None] = {}
"""The file of each operator class as it was when the class was defined, see `source_state`."""


def source_state(operator_class: type[Operator]) -> tuple[int, int] | None:
    """When the file of a class was last changed, in ns, and its bytes; None where it has none."""
    file = getattr(sys.modules.get(operator_class.__module__), "__file__", None)
    try:
        found = os.stat(file) if file else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


on_definition: list[Callable[[type[Operator]], object]] = []
"""Called with every concrete operator class as it is defined: how other programs learn of it."""


class RowsOfChunk(NamedTuple):
    """Rows that a resumable operator is to process, and the table that they are in.

    Attributes:
        table: whole groups, as for `apply`.
        rows: the rows to process; the others were processed before.
    """

    table: pa.Table
    rows: Sequence[int]


class ResumableOperator(Operator):
    """A resumable operator, for expensive work such as sampling: each finished row is persisted.

    It runs in one process for all rows, and each row is committed as it finishes. Joined, the
    changes of `process_rows` to all rows are what `apply` gives. What becomes of a row depends on
    its values in the columns of `reads` and on nothing else, unless it is dropped: so its result
    is found again wherever the row comes up.
    """

    @abstractmethod
    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        """Changes to single rows of `table`, whole groups as for `apply`, in any order, as they
        finish.

        Yields a row, and the change to a table of that row alone; each of `rows` once. Others were
        processed before.
        """

    def process_chunks(self, chunks: Iterator[RowsOfChunk]) -> Iterator[tuple[int, int, Change]]:
        """The number of a table, from 0, a row of it, and the change to a table of that row alone;
        in any order, as they finish.

        By default one table after the other. Override it where the work on a table ends with fewer
        rows under way than could be, as while the longest responses are sampled: rows of the next
        table can then be begun before. Take the next when you can begin more rows, not before: it
        is read from the disk then.
        """
        for number, chunk in enumerate(chunks):
            for row, change in self.process_rows(*chunk):
                yield number, row, change

    def findable(self, table: pa.Table, rows: Sequence[int]) -> Sequence[int]:
        """Those of some rows whose result may be that of an equal row: by default all."""
        return rows

    def largest_result(self) -> tuple[int, int]:
        """What a row may become: most rows, and most bytes of text in one of their columns, about.

        Chunks have so few rows that a column of the results fits into one, which is 2 GiB. By
        default one row with little text.
        """
        return 1, 0

    def has_results(self) -> bool:
        """Whether it may find results without computing them, as in a cache of its own."""
        return False

    def close(self) -> None:
        """Release what is kept from one call of `process_rows` to the next, such as a model."""


class Mapper(Operator):
    """An operator that adds or replaces columns and keeps every row."""

    @abstractmethod
    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        """The columns named in `writes`, each with `table.num_rows` values."""

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        """Figures for the run report about the columns that `map` returned for a table; none."""
        return {}

    def logged(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, int]:
        """Messages for the run report, as of `Change`, about the columns of `map`; none."""
        return {}

    @final
    def apply(self, table: pa.Table) -> Change:
        """The columns of `map`, the notes, and what is logged."""
        columns = self.map(table)
        notes, logged = self.notes(table, columns), self.logged(table, columns)
        return Change(columns=columns, notes=notes, logged=logged)


class Filter(Operator):
    """An operator that decides for each row: keep it, or drop it for a reason."""

    kind: ClassVar[Kind] = Kind.FILTER

    @abstractmethod
    def decide(self, table: pa.Table) -> pa.Array:
        """string[N]: null keeps the row, a slug drops it. `drop` builds it from masks."""

    @final
    def apply(self, table: pa.Table) -> Change:
        """The reasons of `decide`."""
        return Change(reasons=self.decide(table))


class GroupFilter(Filter):
    """A filter that keeps or drops all rows of a prompt, by what is in them."""

    scope: ClassVar[Scope] = Scope.GROUP

    def drops_within_groups(self) -> bool:
        return False


Mask: TypeAlias = Any  # bool[N] as a pyarrow array, a numpy array or a list


def drop(masks: Mapping[str, Mask]) -> pa.Array:
    """Reasons from masks: a row gets the first slug whose mask is true there.

    Args:
        masks: slug to bool[N]. A null in a mask counts as false, so the row is kept: give rows
            without a value a slug of their own.

    Returns:
        string[N], null where no mask is true.

    Example:
        >>> drop({"too_short": [True, False, False], "too_long": [True, False, True]}).to_pylist()
        ['too_short', None, 'too_long']
    """
    if not masks:
        raise ValueError("drop() needs a mask to know how many rows there are")
    # The type is given, because an empty list has none of its own.
    given = [pc.fill_null(pa.array(flat(mask), pa.bool_()), False) for mask in masks.values()]
    conditions = pa.StructArray.from_arrays(given, names=list(masks))
    return pc.case_when(conditions, *[pa.scalar(slug) for slug in masks])


# --- Changes to parts of a table, split and put together ------------------------------

OTHER_MESSAGES = "other messages"
_MOST_KINDS = 20
_VARYING = re.compile(r"\b(?:0x)?[0-9a-fA-F-]{12,}\b|\d+")  # ids and numbers in a message


def surviving_rows(change: Change, n: int) -> NDArray[np.int64] | None:
    """For each output row of `change`, the input row it comes from; None: all n, in order."""
    if change.parents is not None:
        return np.asarray(change.parents, np.int64)
    if change.reasons is None or change.reasons.null_count == n:
        return None
    return np.flatnonzero(np.asarray(change.reasons.is_null()))


def split(
    change: Change, starts: Sequence[int], only: Container[int] | None = None
) -> Iterator[Change]:
    """The changes to parts of the rows, of which `change` is the change to all. `starts` are the
    first row of each part and the end of the last; `only` are the numbers of the parts that are
    given."""
    ends, notes, logged = [int(at) for at in starts], change.notes, change.logged
    if change.parents is not None:
        # A row without a parent goes with the row before it.
        nearest = np.maximum.accumulate(np.append(0, change.parents))[1:]
        ends = [int(at) for at in np.searchsorted(nearest, starts)]
    parts = zip(pairwise(starts), pairwise(ends), strict=True)
    for number, ((start, stop), (begin, end)) in enumerate(parts):
        if only is not None and number not in only:
            notes, logged = {}, {}
            continue
        reasons = None if change.reasons is None else _copy(change.reasons, start, stop)
        parents = None
        if change.parents is not None:
            own = np.asarray(change.parents)[begin:end]
            parents = np.where(own < 0, -1, own - start)
        columns = {name: _copy(column, begin, end) for name, column in change.columns.items()}
        failed = change.failed
        if failed is not None:
            failed = failed[(failed >= start) & (failed < stop)] - start
        yield Change(columns, reasons, parents, change.without, notes, logged, failed)
        notes, logged = {}, {}  # About all rows: they are counted once, with the first part.


def concatenate(changes: Sequence[Change], sizes: Sequence[int]) -> Change:
    """The change to all rows, from the changes to parts of `sizes` rows: the inverse of `split`."""
    first = changes[0]
    columns = {
        name: pa.chunked_array([part for change in changes for part in _chunks(change, name)])
        for name in first.columns
    }
    offsets = np.cumsum([0, *sizes[:-1]])
    parts = list(zip(changes, sizes, offsets, strict=True))
    reasons = pa.concat_arrays(
        pa.nulls(n, pa.string()) if change.reasons is None else flat(change.reasons)
        for change, n, _ in parts
    )
    parents = failed = None
    if any(change.parents is not None for change in changes):
        own = [np.arange(n) if c.parents is None else np.asarray(c.parents) for c, n, _ in parts]
        placed = zip(own, offsets, strict=True)
        parents = np.concatenate([np.where(rows < 0, -1, rows + at) for rows, at in placed])
    if any(change.failed is not None for change in changes):
        failed = np.concatenate([c.failed + at for c, _, at in parts if c.failed is not None])
    notes: Counter[str] = Counter()
    for change in changes:
        notes.update(change.notes)
    logged = merge_logged(change.logged for change in changes)
    return Change(columns, reasons, parents, first.without, notes, logged, failed)


def interleave(changes: Sequence[Change], rows: Sequence[NDArray[np.integer]]) -> Change:
    """The change to all rows, from changes without parents to parts that lie between each other:
    the rows of all parts together are all rows, each once."""
    joined = concatenate(changes, [len(part) for part in rows])
    rows_N = np.concatenate(rows)
    order = pa.array(np.argsort(rows_N))
    columns = {name: column.take(order) for name, column in joined.columns.items()}
    failed = None if joined.failed is None else np.sort(rows_N[joined.failed]).astype(np.int64)
    reasons = None if joined.reasons is None else joined.reasons.take(order)
    return joined._replace(columns=columns, reasons=reasons, failed=failed)


def merge_logged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """How often each kind of message was logged in all parts, the most frequent first.

    Messages that differ only in numbers and ids are of one kind, which has the text of that one of
    them that sorts first. Of too many kinds, the rarer ones are counted together.
    """
    texts: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for part in parts:
        for message, n in part.items():
            kind = _VARYING.sub("#", message)
            texts[kind] = min(texts.get(kind, message), message)
            counts[kind] += n
    # Not `most_common`, which leaves the order of equal counts to that of the threads.
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    others = sum(counts[kind] for kind in kinds[_MOST_KINDS:])
    found = {texts[kind]: counts[kind] for kind in kinds[:_MOST_KINDS]}
    return {**found, OTHER_MESSAGES: found.get(OTHER_MESSAGES, 0) + others} if others else found


def _copy(column: Any, start: int, stop: int) -> Any:
    # A slice would keep the whole column alive, in every worker and every file.
    return column.take(pa.array(np.arange(start, stop)))


def _chunks(change: Change, name: str) -> list[pa.Array]:
    column = change.columns[name]
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
