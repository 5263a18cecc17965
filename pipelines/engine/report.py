"""What a run did, in numbers: the funnel."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypedDict

from ...operators import DataError
from ...operators.disk import NotAFileError
from ..dataset.files import read_file, write_file
from ..dataset.remote import AnyPath
from ..dataset.run_folder import run_folder


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
    """WARNING and ERROR messages of Data-Juicer, one of each kind, and how often it was logged."""
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
