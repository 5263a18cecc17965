"""Generated datasets by name: the rows of each, and one writer for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from ...operators import RejuiceError
from ...operators.columns import ROW_CONTRACT
from ..dataset.write import writer
from .code_problems import CodeProblem, code_problems, programs
from .problems import DemoOptions, Problem, lookup_tasks, number_questions, problems
from .solvers import respond, solver_of

DemoRow: TypeAlias = dict[str, Any]
Name = Literal["arithmetic", "code", "lookup", "mixed", "numbers", "recorded", "trajectories"]

SOURCES = ("arithmetic", "code", "explanation")
"""The tasks of `mixed`, in turn: a worded problem, whose answer is compared with a reference; a
programming problem, whose tests are run; a worded problem of which the solution is to be judged,
and not the answer. A row lacks what its task does not have."""

_FORMATS = (".jsonl", ".parquet", ".arrow")
_BATCH = 1_000


# --- Rows -----------------------------------------------------------------------------


def _arithmetic(options: DemoOptions) -> Iterator[DemoRow]:
    for each in problems(options.seed, options.split, options.prompts, options.levels):
        yield {"question": each.question, "answer": each.answer, "level": each.level}


def _recorded(options: DemoOptions) -> Iterator[DemoRow]:
    for each in problems(options.seed, options.split, options.prompts, options.levels):
        row = {"question": each.question, "answer": each.answer, "level": each.level}
        yield {**row, "responses": _solved(each, options)}


def _numbers(options: DemoOptions) -> Iterator[DemoRow]:
    for each in number_questions(options.seed, options.split, options.prompts, options.levels):
        yield each._asdict()


def _lookups(options: DemoOptions) -> Iterator[DemoRow]:
    for each in lookup_tasks(options.seed, options.split, options.prompts):
        row = {"question": each.question, "answer": str(each.answer)}
        yield {**row, "documents": list(each.documents), "kind": each.kind}


def _code(options: DemoOptions) -> Iterator[DemoRow]:
    for each in code_problems(options.seed, options.split, options.prompts):
        row = {"question": each.question, "code": each.code, "test_list": each.assertions}
        yield {**row, "tests": each.inputs, "responses": _programmed(each, options)}


def _mixed(options: DemoOptions) -> Iterator[DemoRow]:
    code = len(range(1, options.prompts, len(SOURCES)))
    worded = problems(options.seed, options.split, options.prompts - code, options.levels)
    programming = code_problems(options.seed, options.split, code)
    for number in range(options.prompts):
        row: DemoRow = {"data_source": SOURCES[number % len(SOURCES)]}
        if row["data_source"] == "code":
            program = next(programming)
            written = [each | {"finish_reason": "stop"} for each in _programmed(program, options)]
            row |= {"question": program.question, "answer": None, "test_list": program.assertions}
        else:
            problem = next(worded)
            written = _solved(problem, options)
            row |= {"question": problem.question, "answer": problem.answer, "test_list": None}
        yield row | {"responses": written}


def _trajectories(options: DemoOptions) -> Iterator[DemoRow]:
    from .agents import trajectories  # With agents and their tools, which others do not need.

    return trajectories(options)


def _solved(problem: Problem, options: DemoOptions) -> list[dict[str, str]]:
    return [
        respond(problem, solver_of(problem, options.seed, k), options.seed, k)._asdict()
        for k in range(options.responses)
    ]


def _programmed(problem: CodeProblem, options: DemoOptions) -> list[dict[str, str]]:
    written = programs(problem, options.seed, options.responses)
    return [{"text": text, "student": student} for text, student in written]


# --- Datasets -------------------------------------------------------------------------


class _Demo(NamedTuple):
    rows: Callable[[DemoOptions], Iterator[DemoRow]]
    schema: pa.Schema


_TEXT = pa.string()
_PROMPT = {"question": _TEXT, "answer": _TEXT, "level": pa.int64()}
_TEXTS = pa.list_(_TEXT)
_CASES = pa.list_(pa.struct({"input": _TEXT, "output": _TEXT}))
_PROGRAMS = pa.list_(pa.struct({"text": _TEXT, "student": _TEXT}))
_RESPONSES = pa.list_(pa.struct({"text": _TEXT, "finish_reason": _TEXT, "student": _TEXT}))
_PLAYED = ("prompt", "response", "finish_reason", "turns", "turn_count", "tool_calls",
           "tool_errors", "response_id", "policy")  # fmt: skip

_DATASETS: Mapping[Name, _Demo] = {
    "arithmetic": _Demo(_arithmetic, pa.schema(_PROMPT)),
    "recorded": _Demo(_recorded, pa.schema({**_PROMPT, "responses": _RESPONSES})),
    "numbers": _Demo(_numbers, pa.schema(_PROMPT)),
    "lookup": _Demo(
        _lookups,
        pa.schema({"question": _TEXT, "answer": _TEXT, "documents": _TEXTS, "kind": _TEXT}),
    ),
    "code": _Demo(
        _code,
        pa.schema({"question": _TEXT, "code": _TEXT, "test_list": _TEXTS, "tests": _CASES,
                   "responses": _PROGRAMS}),
    ),
    "mixed": _Demo(
        _mixed,
        pa.schema({"data_source": _TEXT, "question": _TEXT, "answer": _TEXT, "test_list": _TEXTS,
                   "responses": _RESPONSES}),
    ),
    "trajectories": _Demo(_trajectories, pa.schema([(n, ROW_CONTRACT[n]) for n in _PLAYED])),
}  # fmt: skip


def check_format(path: Path) -> None:
    if path.suffix not in _FORMATS:
        raise RejuiceError(f"{path} has no known format", f"end it in {', '.join(_FORMATS)}")


def write_dataset(path: Path, name: Name, options: DemoOptions) -> None:
    """Write a row per problem, or per trajectory, to a file, whose suffix is the format."""
    check_format(path)
    rows, schema = _DATASETS[name].rows(options), _DATASETS[name].schema
    with writer(path, schema) as write:
        while batch := list(islice(rows, _BATCH)):
            write(pa.Table.from_pylist(batch, schema))


def first_rows(name: Name, options: DemoOptions, most: int = 100) -> pa.Table:
    """The first rows that `write_dataset` would write, at most `most` of them.

    It makes no array from Python's values, for which Arrow loads pandas.
    """
    from pyarrow import json as arrow_json

    rows, schema = _DATASETS[name]
    fewer = options._replace(prompts=min(options.prompts, most))
    text = "\n".join(map(json.dumps, islice(rows(fewer), most)))
    typed = arrow_json.ParseOptions(explicit_schema=schema)
    return arrow_json.read_json(pa.BufferReader(text.encode()), parse_options=typed)
