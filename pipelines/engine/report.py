"""What a run did, in numbers: the funnel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypedDict

from ...operators import DataError, EmptyResultError, Mapper, Operator, ResumableOperator, Scope
from ...operators.change import CALL_FAILED
from ...operators.columns import is_text
from ...operators.compute import pc
from ...operators.disk import NotAFileError
from ...operators.sampling.rollout import RolloutMapper
from ..dataset.files import read_file, write_file
from ..dataset.remote import AnyPath
from ..dataset.run_folder import run_folder
from ..recipe.recipe import Recipe


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
    """Figures of the written columns that have any."""
    written: list[str] = []
    """All written columns; not recorded by version 0.4 and earlier."""


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
    rows_in: int
    rows_out: int
    added: int
    dropped: int
    seconds: float
    steps: tuple[StepReport, ...]

    @classmethod
    def of(
        cls, steps: Sequence[StepReport], *, cache: str = "", chunk_rows: int = 0, **head: str
    ) -> Report:
        """The report of some steps; `head` are its first five fields."""
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

    def write(self, folder: AnyPath) -> None:
        """Write `report.json`."""
        write_file(folder / "report.json", f"{self.model_dump_json(indent=2)}\n")

    @classmethod
    def read(cls, export_path: AnyPath) -> Report:
        """The report of a finished run.

        Raises:
            DataError: nothing was run to that path, or its report is damaged.
        """
        path = run_folder(export_path) / "report.json"
        try:
            return cls.model_validate_json(read_file(path))
        except (FileNotFoundError, NotADirectoryError):
            found = f"{path} does not exist"
            raise DataError(found, "give the export_path of a finished run") from None
        except NotAFileError as error:
            raise DataError(f"{path}: {error.strerror}", "run the recipe again") from None
        except (ValidationError, OSError):
            raise DataError(f"{path} is damaged", "run the recipe again") from None


# --- Which rows of a step have failed for reasons that another attempt may not meet ---

MISSING = "_missing"
"""How the names of columns end that have the reasons why values are missing."""


def is_failure(operator: Operator, column: str, value: object) -> bool:
    """Whether a value that a step wrote says that the row failed, and another attempt may not."""
    if column.endswith(MISSING):
        return operator.retryable is None or value in operator.retryable
    return value in operator.failed_values().get(column, ())


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
    """How many values are missing for a reason that another attempt may not meet."""
    if not may_fail(operator):
        return 0
    if operator.asks_server:
        return line.dropped.get(CALL_FAILED, 0) + int(line.notes.get(CALL_FAILED, 0))
    return sum(
        n
        for name, figures in line.columns.items()
        for value, n in figures.get("counts", {}).items()
        if is_failure(operator, name, value)
    )


def count_dropped(operator: Operator, line: StepReport) -> int:
    """How many prompts were dropped for a reason that another attempt may not meet."""
    if not isinstance(operator, RolloutMapper):
        return 0
    return sum(n for reason, n in line.dropped.items() if reason in operator.may_pass)


def retry_hints(recipe: Recipe, report: Report) -> Iterator[str]:
    """How to compute again what failed in a run, a line for each step and option."""
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


def summarise(columns: Mapping[str, pa.Array]) -> Summary:
    """Sums of the numeric columns and counts of the slug columns among `columns`.

    A reward may also be true or false: 1 or 0.
    """
    figures: Summary = {}
    for name, column in columns.items():
        is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        if is_number or (name.startswith("reward_") and pa.types.is_boolean(column.type)):
            figures[name] = _moments(column)
        elif is_text(column.type) and (name in _COUNTED or name.endswith("_missing")):
            counts = column.value_counts().to_pylist()
            pairs = {c["values"]: c["counts"] for c in counts if c["values"] is not None}
            figures[name] = {"counts": dict(Counter(pairs).most_common(_MOST_VALUES))}
    return figures


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
    null = len(column) - len(values)
    if not len(values):
        return {"n": 0, "null": null}
    mean, variance = pc.mean(values).as_py(), pc.variance(values).as_py()
    low, high = pc.min_max(values).as_py().values()
    spread = variance * len(values)
    return {"n": len(values), "null": null, "mean": mean, "m2": spread, "min": low, "max": high}


def _added(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    if one is None:
        return other
    if "counts" in one:
        return {"counts": dict(Counter(one["counts"]) + Counter(other["counts"]))}
    null = one["null"] + other["null"]
    if not one["n"] or not other["n"]:
        return {**(one if one["n"] else other), "null": null}
    # Chan, Golub, LeVeque: sums of squares would cancel where the mean is far from 0.
    n, apart = one["n"] + other["n"], other["mean"] - one["mean"]
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
    """Check that a finished run came to something.

    Of several findings the first is reported, because later ones follow from it.

    Raises:
        EmptyResultError: a step has dropped the last row, or failed on every row.
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
            fix = f"fix that{retry}"
            right = f"{fix}, or accept it with --allow_empty"
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
            return f"none of {sum(counts.values()):,} rows has a {value}: {_most_frequent(counts)}"
    if line.rows_in and line.notes.get(CALL_FAILED, 0) >= line.rows_in:
        return f"none of {line.rows_in:,} rows was answered by its server"
    if line.rows_in and not line.rows_out:
        rows = f"the last {line.rows_in:,} rows" if line.rows_in > 1 else "the last row"
        return f"no row is left: it dropped {rows}: {_most_frequent(line.dropped)}"
    return None


def _most_frequent(counts: Mapping[str, int]) -> str:
    most = [f"{reason} {n:,}" for reason, n in Counter(counts).most_common(_MOST_REASONS)]
    return ", ".join([*most, *(["..."] if len(counts) > len(most) else [])])
