"""Write programming problems to a dataset file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from .code_problems import code_problems, code_row
from .numbers import Split
from .recorded import write_rows

RESPONSES = 8
"""Recorded responses to each problem."""

_TEXT = pa.string()
_SCHEMA = pa.schema(
    [
        ("question", _TEXT),
        ("code", _TEXT),
        ("test_list", pa.list_(_TEXT)),
        ("tests", pa.list_(pa.struct([("input", _TEXT), ("output", _TEXT)]))),
        ("responses", pa.list_(pa.struct([("text", _TEXT), ("student", _TEXT)]))),
    ]
)


def write_code_problems(
    path: Path, *, seed: int = 0, prompts: int = 200, split: Split = "train"
) -> None:
    """Write one row per problem.

    The columns are `question`; `code`, a solution; the tests as statements, `test_list`, and as
    inputs and outputs, `tests`; and `responses`, a list of `{text, student}`.

    Raises:
        RejuiceError: there is no such format or split, or there are fewer problems.
    """
    problems = code_problems(seed, split, prompts)
    write_rows(path, _SCHEMA, (code_row(problem, seed, RESPONSES) for problem in problems))


def first_code_problems(*, seed: int, prompts: int, split: Split, most: int = 100) -> pa.Table:
    """The first rows that `write_code_problems` would write, at most `most` of them.

    It makes no array from Python's values, for which Arrow loads pandas.
    """
    from pyarrow import json as arrow_json

    problems = code_problems(seed, split, min(prompts, most))
    rows = (json.dumps(code_row(problem, seed, RESPONSES)) for problem in problems)
    options = arrow_json.ParseOptions(explicit_schema=_SCHEMA)
    return arrow_json.read_json(pa.BufferReader("\n".join(rows).encode()), parse_options=options)
