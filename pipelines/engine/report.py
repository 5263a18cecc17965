"""What a run did: the funnel in numbers, and the audit log, which has each dropped row."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypedDict

from ...operators import (
    Change,
    DataError,
    EmptyResultError,
    Mapper,
    Operator,
    ResumableOperator,
    Scope,
)
from ...operators.arrow_compute import pc
from ...operators.columns import is_list, is_text, share_of_zeros
from ...operators.disk import NotAFileError
from ...operators.operator import CALL_FAILED, merge_logged, surviving_rows
from ...operators.sampling.rollout import RolloutMapper
from ..dataset.files import open_input, read_file, run_folder, write_file
from ..dataset.remote import AnyPath
from ..dataset.write import writer
from ..notebook import bars, beside, cell, shown_name
from ..recipe.recipe import Recipe
from .conditional_step import MatchLog, own_columns
from .frame import Frame


class ColumnFigures(TypedDict, total=False):
    """How often each value of a column occurs, or how many numbers there are, and their spread.

    Where there is no number, only `n` and `null` are there.
    """

    counts: dict[str, int]
    n: int
    null: int
    mean: float
    std: float
    min: float
    max: float


class StepReport(BaseModel):
    """One line of the funnel: rows_in + added = rows_out + sum(dropped).

    `retried` rows had failed in an earlier run, and were computed again by this one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    step: str
    rows_in: int
    rows_out: int
    added: int
    dropped: dict[str, int]
    seconds: float
    cached: bool
    retried: int = 0
    notes: dict[str, float]
    logged: dict[str, int] = {}
    """WARNING and ERROR messages that the step logged, one of each kind, and how often."""
    columns: dict[str, ColumnFigures]
    """Figures of the written columns that have any, and of what weights mask; see `masked_by`."""
    written: list[str] = []
    """All written columns."""
    reasons: dict[str, str] = {}
    """What each of the reasons in `dropped` means, as the operator says."""
    matched: int | None = None
    """Rows that the `where` of the step matches; None: it has none, or that is not recorded."""
    unmatched: str = ""
    """Why that is none, in words."""

    def counts(self) -> tuple[str, ...]:
        """By `COUNTS`."""
        return (
            f"{self.rows_in:,}",
            f"{self.added:,}" if self.added else "",
            f"{sum(self.dropped.values()):,}" if self.dropped else "",
            f"{self.rows_out:,}",
            "cached" if self.cached else f"{self.seconds:.2f}",
        )


COUNTS = ("rows in", "added", "dropped", "rows out", "seconds")


class Report(BaseModel):
    """What a run did; `report.json` holds the same."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="constants",
    )

    project_name: str
    recipe: str
    dataset_path: str
    export_path: str
    key: str
    """The cache key of the last step: two runs with the same key have the same rows."""
    cache: str
    """The folder with the finished chunks; empty where there is none."""
    chunk_rows: int
    columns: tuple[str, ...] = ()
    """The columns of the dataset as it was read, as far as they are known."""
    rows_in: int
    rows_out: int
    added: int
    dropped: int
    seconds: float
    steps: tuple[StepReport, ...]

    @classmethod
    def of(
        cls, steps: Sequence[StepReport], *, cache: str = "", chunk_rows: int = 0, **head: Any
    ) -> Report:
        """The report of some steps; `head` are its first five fields, and the columns."""
        return cls.model_validate(
            {
                **head,
                "cache": cache,
                "chunk_rows": chunk_rows,
                "rows_in": steps[0].rows_in,
                "rows_out": steps[-1].rows_out,
                "added": sum(step.added for step in steps),
                "dropped": sum(sum(step.dropped.values()) for step in steps),
                "seconds": round(sum(step.seconds for step in steps), 3),
                "steps": tuple(steps),
            }
        )

    def __str__(self) -> str:
        counts = f"{self.rows_in:,} rows in, {self.added:,} added, {self.dropped:,} dropped"
        ends = f"{self.rows_out:,} rows out; {len(self.steps)} steps"
        lines = [f"{shown_name(self.project_name)}: {counts}, {ends}"]
        changing = [step for step in self.steps if step.added or step.dropped]
        width = max((len(shown_name(step.step)) for step in changing), default=0)
        for step in changing[:_MOST_STEPS]:
            parts = (f"{step.rows_in:,} -> {step.rows_out:,}", *_shown_reasons(step.dropped))
            lines.append(f"  {shown_name(step.step):<{width}}  {', '.join(parts)}")
        if len(changing) > _MOST_STEPS:
            lines.append(f"  ... {len(changing) - _MOST_STEPS} more steps")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.funnel_table() + beside(self.rows_plot())

    def funnel_table(self) -> str:
        head = [cell("step", "th"), *(cell(name, "th", right=True) for name in COUNTS)]
        lines = [[*head, cell("drop reasons", "th")]]
        for step in self.steps:
            counts = (cell(each, right=True) for each in step.counts())
            cells = [cell(shown_name(step.step)), *counts]
            lines.append([*cells, cell(", ".join(_shown_reasons(step.dropped)))])
        rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
        title = escape(shown_name(self.project_name))
        caption = f'<caption style="text-align:left">{title}</caption>'
        return f'<table style="border-collapse:collapse;color:inherit">{caption}{rows}</table>'

    def rows_plot(self) -> str:
        """The rows of the dataset, and those after each step, as bars."""
        rows = [("dataset", self.rows_in), *((step.step, step.rows_out) for step in self.steps)]
        return bars("rows after each step", rows)

    def write(self, folder: AnyPath) -> None:
        write_file(folder / "report.json", f"{self.model_dump_json(indent=2)}\n")

    @classmethod
    def read(cls, export_path: AnyPath) -> Report:
        path = run_folder(export_path) / "report.json"
        try:
            return cls.model_validate_json(read_file(path))
        except (FileNotFoundError, NotADirectoryError):
            right = "give the export_path of a finished run"
            raise DataError(f"{path} does not exist", right) from None
        except NotAFileError as error:
            raise DataError(f"{path}: {error.strerror}", "run the recipe again") from None
        except (ValidationError, OSError):
            raise DataError(f"{path} is damaged", "run the recipe again") from None


_MOST_STEPS = 12
"""Lines of steps in a text."""
_MOST_SHOWN = 5


def _shown_reasons(dropped: Mapping[str, int]) -> Iterator[str]:
    """The most frequent reasons, and how many others there are."""
    for reason, n in Counter(dropped).most_common(_MOST_SHOWN):
        yield f"{shown_name(reason)} {n:,}"
    if len(dropped) > _MOST_SHOWN:
        yield f"{len(dropped) - _MOST_SHOWN} other reasons"


# --- Which rows of a step have failed for reasons that another attempt may not meet ---

MISSING = "_missing"
"""How the names of columns end that have the reasons why values are missing."""


def failures(operator: Operator, column: str) -> Collection[str] | None:
    """Values of a column that say that a row failed, and another attempt may not; None: all."""
    if column.endswith(MISSING):
        return operator.retryable
    return operator.failed_values().get(column, frozenset())


def may_fail(operator: Operator) -> bool:
    """Whether `--retry_missing` can compute rows of the operator again."""
    if operator.asks_server:
        return True
    one_by_one = isinstance(operator, Mapper) and operator.scope is Scope.ROW
    if not one_by_one and not isinstance(operator, ResumableOperator):
        return False
    has_reasons = any(name.endswith(MISSING) for name in operator.writes())
    return (has_reasons and operator.retryable != frozenset()) or bool(operator.failed_values())


def count_retryable(operator: Operator, line: StepReport) -> int:
    if not may_fail(operator):
        return 0
    if operator.asks_server:
        return line.dropped.get(CALL_FAILED, 0) + int(line.notes.get(CALL_FAILED, 0))
    found = 0
    for name, figures in line.columns.items():
        values = failures(operator, name)
        for value, n in figures.get("counts", {}).items():
            found += n if values is None or value in values else 0
    return found


def count_dropped(operator: Operator, line: StepReport) -> int:
    """How many prompts were dropped for a reason that another attempt may not meet."""
    if not isinstance(operator, RolloutMapper):
        return 0
    return sum(n for reason, n in line.dropped.items() if reason in operator.may_pass)


def retry_hints(recipe: Recipe, report: Report) -> Iterator[str]:
    """Yield how to compute again what failed in a run, a line for each step and option."""
    for step, line in zip(recipe.steps, report.steps, strict=True):
        if failed := count_retryable(step.operator, line):
            yield f"{failed:,} rows failed in {step.name}: add --retry_missing {step.name} to retry"
        if dropped := count_dropped(step.operator, line):
            yield f"{dropped:,} prompts were dropped by {step.name}: add --retry_dropped to retry"


# --- Summary --------------------------------------------------------------------------
# Figures of the columns that a step wrote, for the report; they add up over chunks.

Summary = dict[str, dict[str, Any]]

_COUNTED = ("verdict", "task", "label", "finish_reason", "policy")
_MOST_VALUES = 50
_MASKED = "_masked"
_WEIGHTS = ("loss_weight", "token_weight")


def masked_by(name: str) -> str | None:
    """The weight that a name such as `token_weight_masked` has the share of masked tokens of."""
    weight = name.removesuffix(_MASKED)
    return weight if name != weight and weight in _WEIGHTS else None


def summarise(columns: Mapping[str, pa.Array]) -> Summary:
    """Sums of the numeric columns and counts of the slug columns among `columns`.

    A reward may also be true or false: 1 or 0. For `WEIGHT_masked` see `masked_by`.
    """
    figures: Summary = {}
    for name, column in columns.items():
        is_flag = name.startswith("reward_") and pa.types.is_boolean(column.type)
        if is_flag or _is_number(column.type):
            figures[name] = _moments(column)
            if name == "loss_weight":
                figures[name + _MASKED] = _moments(pc.equal(column, 0).cast(pa.float64()))
        elif name == "token_weight" and is_list(column.type) and _is_number(column.type.value_type):
            figures[name + _MASKED] = _moments(share_of_zeros(column))
        elif is_text(column.type) and (name in _COUNTED or name.endswith("_missing")):
            counts = column.value_counts().to_pylist()
            pairs = {c["values"]: c["counts"] for c in counts if c["values"] is not None}
            figures[name] = {"counts": dict(Counter(pairs).most_common(_MOST_VALUES))}
    return figures


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def merge(summaries: Iterable[Summary]) -> Summary:
    """One summary of all chunks, with mean and standard deviation (population) of the numbers."""
    total: Summary = {}
    for summary in summaries:
        for name, part in summary.items():
            total[name] = _added(total.get(name), part)
    return {name: _shown(part) for name, part in total.items()}


def _moments(column: pa.Array) -> dict[str, Any]:
    values = column.drop_null().cast(pa.float64(), safe=False)
    values = values.filter(pc.is_finite(values))  # JSON has no nan; it counts as null here.
    n, null = len(values), len(column) - len(values)
    if not n:
        return {"n": 0, "null": null}
    mean, variance = pc.mean(values).as_py(), pc.variance(values).as_py()
    spread = pc.min_max(values).as_py()
    return {"n": n, "null": null, "mean": mean, "m2": variance * n, **spread}


def _added(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    if one is None:
        return other
    if "counts" in one:
        return {"counts": dict(Counter(one["counts"]) + Counter(other["counts"]))}
    n, null = one["n"] + other["n"], one["null"] + other["null"]
    if not one["n"] or not other["n"]:
        return {**(one if one["n"] else other), "null": null}
    # Chan, Golub, LeVeque: sums of squares would cancel where the mean is far from 0.
    apart = other["mean"] - one["mean"]
    return {
        "n": n,
        "null": null,
        "mean": one["mean"] + apart * other["n"] / n,
        "m2": one["m2"] + other["m2"] + apart**2 * one["n"] * other["n"] / n,
        "min": min(one["min"], other["min"]),
        "max": max(one["max"], other["max"]),
    }


def _shown(part: dict[str, Any]) -> dict[str, Any]:
    if not part.get("n"):
        return part
    std = math.sqrt(part["m2"] / part["n"])
    figures = {"mean": part["mean"], "std": std, "min": part["min"], "max": part["max"]}
    rounded = {key: round(value, 6) for key, value in figures.items()}
    return {"n": part["n"], "null": part["null"], **rounded}


# --- Empty result ---------------------------------------------------------------------
# Whether the steps of a run came to nothing: no row is left, or one failed on every row.

_MOST_REASONS = 3


def check_not_empty(recipe: Recipe, report: Report) -> None:
    """Raise where a step of a finished run has dropped the last row, or failed on every row.

    Of several findings the first is reported, because later ones follow from it.
    """
    for step, line in zip(recipe.steps, report.steps, strict=True):
        found = empty_result(step.operator, line)
        if found is not None:
            left = "" if report.rows_out or not line.rows_out else ", and in the end no row is left"
            retry = ""
            if count_retryable(step.operator, line):
                retry = f" and add --retry_missing {step.name}"
            elif count_dropped(step.operator, line):
                retry = " and add --retry_dropped"
            right = f"fix that{retry}, or accept it with --allow_empty"
            raise EmptyResultError(f"{found}{left}", right, where=recipe.where(step))


def empty_result(operator: Operator, line: StepReport) -> str | None:
    """What a step came to, if that is nothing.

    A reward component without a single value is a failure, unless the operator says of every reason
    that it is none (`not_failures`).
    """
    for name, figures in line.columns.items():
        value, is_reason = name.removesuffix(MISSING), name.endswith(MISSING)
        # A column of that name need not hold reasons: an operator of the user's may count in it.
        if not (is_reason and name.startswith("reward_") and "counts" in figures):
            continue
        counts: Mapping[str, int] = figures["counts"]
        # A component of no number at all may have no figures.
        has_value = line.columns.get(value, {}).get("n", 0) > 0
        if not has_value and not counts.keys() <= operator.not_failures:
            found = f"none of {sum(counts.values()):,} rows has a {value}: {_most_frequent(counts)}"
            return "; ".join([found, *islice(line.logged, 1)])
    if line.rows_in and line.notes.get(CALL_FAILED, 0) >= line.rows_in:
        return f"none of {line.rows_in:,} rows was answered by its server"
    if line.rows_in and not line.rows_out:
        rows = f"the last {line.rows_in:,} rows" if line.rows_in > 1 else "the last row"
        return f"no row is left: it dropped {rows}: {_most_frequent(line.dropped)}"
    return None


def _most_frequent(counts: Mapping[str, int]) -> str:
    most = [f"{reason} {n:,}" for reason, n in Counter(counts).most_common(_MOST_REASONS)]
    return ", ".join([*most, *(["..."] if len(counts) > len(most) else [])])


# --- The audit log: how many rows each step got, made and dropped, and why it dropped each ---
#
# One log is filled for each part of a dataset (a chunk, a block, the groups of a training step);
# the logs of all parts are merged.

DECISIONS = pa.schema([("row_id", pa.string()), ("step", pa.string()), ("reason", pa.string())])
NEW_ROW = "a new row"
"""Stands for the id of a row without one, and without a place in the dataset."""


@dataclass
class StepLog:
    """What one step did, added up over the parts of a dataset."""

    step: str
    rows_in: int = 0
    rows_out: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # rows by reason
    notes: Counter[str] = field(default_factory=Counter)
    logged: dict[str, int] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    seconds: float = 0.0
    summaries: list[Summary] = field(default_factory=list)  # one for each part
    decisions: list[pa.Table] = field(default_factory=list)  # one for each part
    matches: MatchLog | None = None  # None: it has no condition
    reasons: Mapping[str, str] = field(default_factory=dict)  # what the slugs mean

    def add(
        self, operator: Operator, before: Frame, change: Change, seconds: float, first_row: int = 0
    ) -> None:
        """Add what the step did to a part, which has `first_row` rows of the dataset before it."""
        rows = surviving_rows(change, before.num_rows)
        reasons = (
            [] if change.reasons is None else change.reasons.drop_null().value_counts().to_pylist()
        )
        matches = MatchLog.of(operator, before)
        columns = change.columns if matches is None else own_columns(operator, before, change)
        self.merge(
            StepLog(
                self.step,
                before.num_rows,
                before.num_rows if rows is None else len(rows),
                Counter({each["values"]: each["counts"] for each in reasons}),
                Counter(change.notes),
                dict(change.logged),
                set(change.columns),
                seconds,
                [summarise(columns)],
                [decisions(before, change, self.step, first_row)],
                matches,
                operator.reasons,
            )
        )

    def merge(self, other: StepLog) -> None:
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.dropped.update(other.dropped)
        self.notes.update(other.notes)
        self.logged = merge_logged((self.logged, other.logged))
        self.written |= other.written
        self.seconds += other.seconds
        self.summaries += other.summaries
        self.decisions += other.decisions
        if self.matches is None or other.matches is None:
            self.matches = self.matches or other.matches
        else:
            self.matches.merge(other.matches)
        self.reasons = self.reasons or other.reasons

    def take_decisions(self) -> pa.Table:
        """The decisions so far, which leave the log; see `DECISIONS`."""
        found, self.decisions = self.decisions, []
        return pa.concat_tables([DECISIONS.empty_table(), *found])

    def report(self, *, cached: bool = False, retried: int = 0) -> StepReport:
        return StepReport(
            step=self.step,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            added=self.rows_out + self.dropped.total() - self.rows_in,
            dropped=dict(self.dropped.most_common()),
            seconds=round(self.seconds, 3),
            cached=cached,
            retried=retried,
            notes=dict(self.notes),
            logged=self.logged,
            columns=merge(self.summaries),
            written=sorted(self.written),
            reasons={slug: self.reasons[slug] for slug in self.dropped if slug in self.reasons},
            matched=None if self.matches is None else self.matches.matched,
            unmatched="" if self.matches is None else self.matches.why_none(),
        )


@dataclass
class AuditLog:
    steps: dict[str, StepLog] = field(default_factory=dict)  # by name

    def step(self, name: str) -> StepLog:
        return self.steps.setdefault(name, StepLog(name))

    def merge(self, other: AuditLog) -> None:
        for name, log in other.steps.items():
            self.step(name).merge(log)


def decisions(frame: Frame, change: Change, step: str, first_row: int = 0) -> pa.Table:
    """A row for each row of `frame` that `change` drops: row_id, step, reason.

    The id is the response's, else the prompt's, else `row N` of the dataset, counted from 1
    (`a new row` where an operator made it);
    `first_row` rows of it come before the frame's source.
    """
    if change.reasons is None or change.reasons.null_count == len(change.reasons):
        return DECISIONS.empty_table()
    rows = np.flatnonzero(np.asarray(change.reasons.is_valid()))
    dropped = frame.after(Change(parents=rows))
    ids = [
        dropped.select([name])[name].combine_chunks()
        for name in ("response_id", "prompt_id")
        if name in frame.column_names
    ]
    if not ids or ids[-1].null_count:
        places = pa.array(dropped.source_rows + first_row + 1, mask=dropped.source_rows < 0)
        named = pc.binary_join_element_wise("row", places.cast(pa.string()), " ")
        ids.append(pc.coalesce(named, NEW_ROW))
    steps = pa.repeat(pa.scalar(step), len(rows))
    reasons = change.reasons.drop_null()
    return pa.table([pc.coalesce(*ids), steps, reasons], schema=DECISIONS)


# --- The decisions of a run on file: Parquet, in the folder of each step --------------
# curated.run/03_pass_rate_filter/decisions.parquet          of an export in one file
# curated.run/03_pass_rate_filter/decisions-00000.parquet    of one in parts, one for each of them

DECISIONS_STEM, DECISIONS_SUFFIX = "decisions", ".parquet"
_STEP = re.compile(r"\d{2,}_\w+")
"""The folder of a step, see `Step.label`."""
_DECISIONS = re.compile(r"decisions(-\d{5,})?[.]parquet")


def write_decisions(folder: AnyPath, decisions: pa.Table) -> None:
    with writer(folder / f"{DECISIONS_STEM}{DECISIONS_SUFFIX}", DECISIONS) as write:
        write(decisions)


def read_decisions(folder: AnyPath) -> pa.Table:
    """All decisions in a run folder, or in the folder of one of its steps, step by step."""
    files = decision_files(folder)
    batches = [batch for file in files for batch in _batches(file, DECISIONS.names)]
    return pa.Table.from_batches(batches, DECISIONS)


def decided_rows(folder: AnyPath) -> Iterator[str | None]:
    """Yield the `row_id` of each decision in a run folder; no more is read than is asked for."""
    for file in decision_files(folder):
        for batch in _batches(file, ["row_id"]):
            yield from batch["row_id"].to_pylist()


def decision_files(folder: AnyPath) -> list[AnyPath]:
    """The files of a step or, of a run folder, those of all its steps."""
    inside: Iterable[AnyPath] = folder.iterdir() if folder.is_dir() else ()
    found = sorted(inside, key=str)
    steps = [path for path in found if _STEP.fullmatch(path.name)]
    own = [path for path in found if _DECISIONS.fullmatch(path.name)]
    return [*own, *(file for step in steps for file in decision_files(step))]


def _batches(file: AnyPath, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq  # It loads clients of object stores.

    schema = pa.schema([DECISIONS.field(name) for name in columns])
    try:
        with open_input(file) as source, pq.ParquetFile(source) as parquet:
            for batch in parquet.iter_batches(columns=columns):
                batch.validate(full=True)
                yield batch.select(columns).cast(schema)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError):
        raise DataError(f"{file} is damaged", "run the recipe again") from None
