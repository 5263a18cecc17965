"""A dataset of several tasks, distinguished by the column `data_source`, with recorded responses.

    arithmetic     a worded problem, whose answer is compared with a reference
    code           a programming problem, whose tests are run
    explanation    a worded problem again, of which the solution is to be judged, and not the answer

A row lacks what its task does not have: an arithmetic problem has no tests, and code no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from .code_problems import RESPONSES, code_problems, code_row
from .problems import Split, problems
from .recorded import respond, solver_of, write_rows

SOURCES = ("arithmetic", "code", "explanation")
"""The tasks, in turn."""
_TEXT = pa.string()
_SCHEMA = pa.schema(
    [
        ("data_source", _TEXT),
        ("question", _TEXT),
        ("answer", _TEXT),
        ("test_list", pa.list_(_TEXT)),
        (
            "responses",
            pa.list_(pa.struct([(name, _TEXT) for name in ("text", "finish_reason", "student")])),
        ),
    ]
)


def mixed_rows(
    *, seed: int, prompts: int, split: Split, levels: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield one row per problem: `data_source`, `question`, `answer`, `test_list`, `responses`.

    Raises:
        RejuiceError: there is no such split or level, or there are fewer problems.
    """
    code = len(range(1, prompts, len(SOURCES)))
    worded = problems(seed, split, prompts - code, levels)
    programs = code_problems(seed, split, code)
    for row in range(prompts):
        source = SOURCES[row % len(SOURCES)]
        if source == "code":
            made = code_row(next(programs), seed, RESPONSES)
            responses = [{**each, "finish_reason": "stop"} for each in made["responses"]]
            question, answer, tests = made["question"], None, made["test_list"]
        else:
            problem = next(worded)
            question, answer, tests = problem.question, problem.answer, None
            responses = [
                dict(respond(problem, solver_of(problem, seed, k), seed, k)._asdict())
                for k in range(RESPONSES)
            ]
        yield {
            "data_source": source,
            "question": question,
            "answer": answer,
            "test_list": tests,
            "responses": responses,
        }


def write_mixed(
    path: Path,
    *,
    seed: int = 0,
    prompts: int = 200,
    split: Split = "train",
    levels: Sequence[int] = (1, 2, 3),
) -> None:
    """Write one row per problem, see `mixed_rows`.

    Raises:
        RejuiceError: as `mixed_rows`, or there is no such format.
    """
    rows = mixed_rows(seed=seed, prompts=prompts, split=split, levels=levels)
    write_rows(path, _SCHEMA, rows)


def first_mixed(
    *, seed: int, prompts: int, split: Split, levels: Sequence[int], most: int = 100
) -> pa.Table:
    """Return the first rows that `write_mixed` would write, at most `most` of them.

    It makes no array from Python's values, for which Arrow loads pandas.
    """
    from pyarrow import json as arrow_json

    rows = mixed_rows(seed=seed, prompts=min(prompts, most), split=split, levels=levels)
    text = "\n".join(map(json.dumps, rows))
    options = arrow_json.ParseOptions(explicit_schema=_SCHEMA)
    return arrow_json.read_json(pa.BufferReader(text.encode()), parse_options=options)
