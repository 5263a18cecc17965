"""Write generated problems, with or without recorded responses, to a dataset file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...operators import RejuiceError
from ..dataset.write import writer
from .numbers import Split
from .problems import Problem, problems
from .solvers import respond, solver_of

_PROMPT = [("question", pa.string()), ("answer", pa.string()), ("level", pa.int64())]
_RESPONSE = [(name, pa.string()) for name in ("text", "finish_reason", "student")]
_FORMATS = (".jsonl", ".parquet", ".arrow")
_BATCH = 1_000


def write_recorded(
    path: Path,
    *,
    seed: int = 0,
    prompts: int = 200,
    responses: int = 8,
    split: Split = "train",
    levels: Sequence[int] = (1, 2, 3),
) -> None:
    """Write one row per problem, with the responses of several solvers in the list `responses`.

    The columns are `question`, `answer` (as in GSM8K), `level`, and `responses`: a list of
    structs `text`, `finish_reason`, `student`. The suffix of `path` is the format: `.jsonl`,
    `.parquet` or `.arrow`. No question appears twice; some responses to a question do.

    Raises:
        RejuiceError: there is no such format, split or level, or there are fewer problems.
    """
    schema = pa.schema([*_PROMPT, ("responses", pa.list_(pa.struct(_RESPONSE)))])
    rows = (
        {**_prompt(problem), "responses": _responses(problem, seed, responses)}
        for problem in problems(seed, split, prompts, levels)
    )
    write_rows(path, schema, rows)


def write_prompts(
    path: Path,
    *,
    seed: int = 0,
    prompts: int = 200,
    split: Split = "train",
    levels: Sequence[int] = (1, 2, 3),
) -> None:
    """Write one row per problem without responses: `question`, `answer`, `level`.

    Raises:
        RejuiceError: as in `write_recorded`.
    """
    write_rows(path, pa.schema(_PROMPT), map(_prompt, problems(seed, split, prompts, levels)))


def check_format(path: Path) -> None:
    """Check that problems can be written to a path.

    Raises:
        RejuiceError: its suffix is of no known format.
    """
    if path.suffix not in _FORMATS:
        raise RejuiceError(f"{path} has no known format", f"end it in {', '.join(_FORMATS)}")


def first_prompts(
    *, seed: int, prompts: int, split: Split, levels: Sequence[int], most: int = 100
) -> pa.Table:
    """The first rows that `write_prompts` would write, at most `most` of them.

    It makes no array from Python's values, for which Arrow loads pandas.
    """
    rows = map(_prompt, problems(seed, split, min(prompts, most), levels))
    builders = {name: pa.lib.StringBuilder() for name, _ in _PROMPT}
    for row in rows:
        for name, value in row.items():
            builders[name].append(str(value))
    columns = [builders[name].finish().cast(kind) for name, kind in _PROMPT]
    return pa.table(columns, schema=pa.schema(_PROMPT))


def write_rows(path: Path, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows to a file, whose suffix is the format.

    Raises:
        RejuiceError: it is of no known format.
    """
    check_format(path)
    with writer(path, schema) as write:
        while batch := list(islice(rows, _BATCH)):
            write(pa.Table.from_pylist(batch, schema))


def _prompt(problem: Problem) -> dict[str, Any]:
    return {"question": problem.question, "answer": problem.answer, "level": problem.level}


def _responses(problem: Problem, seed: int, n: int) -> list[dict[str, str]]:
    return [
        dict(respond(problem, solver_of(problem, seed, k), seed, k)._asdict()) for k in range(n)
    ]
