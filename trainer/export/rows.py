"""Rows to export, and the prompts of these rows: one row for each prompt that is left."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators import DataError
from ...operators.columns import (
    MESSAGES,
    ROW_CONTRACT,
    SHARED_IN_GROUP,
    content_ids,
    flat,
    is_list,
    is_text,
    of_task,
)
from ...operators.groups import Array, Groups
from ...pipelines.dataset.files import check_finished
from ...pipelines.dataset.read import read_all
from ...pipelines.dataset.write import with_column, written_columns
from ..verl.curation import group_rows_by_prompt

_OF_RESPONSES = frozenset(ROW_CONTRACT) - SHARED_IN_GROUP - {"task", "label"}


def read_rows(dataset: Path) -> pa.Table:
    """The rows of an export that is finished, or of any other file or folder."""
    if not dataset.exists():
        raise DataError(f"{dataset} does not exist", "give a file or a folder of rows")
    check_finished(dataset)
    return read_all(dataset)


def check_columns(table: pa.Table, *names: str) -> None:
    for name in names:
        if name not in table.column_names:
            raise DataError(
                f"column '{name}' is missing", f"there are: {', '.join(table.column_names)}"
            )


def without_prompt(prompt: pa.ChunkedArray) -> Array:
    """Which rows have no prompt, bool[N]."""
    absent = pc.is_null(prompt)
    if is_list(prompt.type):
        absent = pc.or_kleene(absent, pc.equal(pc.list_value_length(prompt), 0))
    elif not is_text(prompt.type):
        raise DataError(f"column 'prompt' is {prompt.type}", "give chats or texts")
    return np.array(absent)


def as_chats(prompt: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A text is the message of a user."""
    return messages_of(prompt, "user") if is_text(prompt.type) else prompt


def messages_of(texts: pa.ChunkedArray, role: str) -> pa.Array:
    contents = flat(texts).cast(pa.string())
    roles = pa.repeat(pa.scalar(role), len(contents))
    messages = pa.StructArray.from_arrays([roles, contents], fields=list(MESSAGES.value_type))
    return pa.ListArray.from_arrays(np.arange(len(contents) + 1, dtype=np.int32), messages)


class Prompts(NamedTuple):
    table: pa.Table  # a row for each prompt, in the order in which they first occur
    rows: int  # how many rows there were
    of_responses: tuple[str, ...] = ()  # columns left out because they describe a response
    varying: tuple[str, ...] = ()  # columns left out because rows of one prompt differ in them
    judgements: int = 0  # rows left out because they ask whether an answer is right
    without_prompt: int = 0  # rows left out because they have no prompt

    def sentences(self) -> Iterator[str]:
        why = {"of single responses": self.of_responses, "not the same for a prompt": self.varying}
        found = [f"{reason}: {', '.join(names)}" for reason, names in why.items() if names]
        if found:
            yield f"Columns left out: {'; '.join(found)}."
        counts = {"verification prompts": self.judgements, "without a prompt": self.without_prompt}
        lost = [f"{reason} {count:,}" for reason, count in counts.items() if count]
        if lost:
            yield f"Rows left out: {', '.join(lost)}."


def prompts_of(rows: pa.Table, written: Collection[str] = ()) -> Prompts:
    """The prompts of rows, with all columns that describe a prompt.

    These are the columns that have one value for all rows of a prompt, except those that the row
    contract gives to responses, as far as they are `written` by runs: a column of the user is kept,
    whatever its name. Rows without `prompt_id` are grouped by prompt and reference.
    """
    check_columns(rows, "prompt")
    judges_N = np.zeros(rows.num_rows, bool)
    if "task" in written:
        judges_N = of_task(rows, "verify")
    absent_N = without_prompt(rows["prompt"]) & ~judges_N
    if "prompt_id" in rows.column_names:
        absent_N |= np.array(pc.is_null(rows["prompt_id"])) & ~judges_N
    left = rows.filter(pa.array(~judges_N & ~absent_N))
    if not left.num_rows:
        raise DataError(f"no prompt is left of {rows.num_rows:,} rows", "change the filters")
    left = group_rows_by_prompt(_with_prompt_id(left))
    groups = Groups.of(left)
    alike = {name for name in left.column_names if _is_shared(left[name], groups)}
    if "prompt" not in alike:
        what = "rows with the same 'prompt_id' have different prompts"
        raise DataError(what, "leave the column 'prompt_id' out, or make it that of the prompt")
    responses = [n for n in left.column_names if _is_of_response(n, left.column_names, written)]
    varying = [n for n in left.column_names if n not in alike and n not in responses]
    table = left.take(pa.array(groups.starts_G)).drop_columns([*responses, *varying])
    counts = int(judges_N.sum()), int(absent_N.sum())
    return Prompts(table, rows.num_rows, tuple(responses), tuple(varying), *counts)


def prompts_of_dataset(dataset: Path) -> Prompts:
    rows = read_rows(dataset)
    try:
        return prompts_of(rows, written_columns(dataset))
    except DataError as error:
        raise error.at(str(dataset)) from None


def _with_prompt_id(rows: pa.Table) -> pa.Table:
    if "prompt_id" in rows.column_names:
        return with_column(rows, "prompt_id", rows["prompt_id"].cast(pa.string()))
    nothing = pa.nulls(rows.num_rows)
    reference = rows["reference"] if "reference" in rows.column_names else nothing
    parts = zip(rows["prompt"].to_pylist(), reference.to_pylist(), strict=True)
    ids = content_ids((json.dumps(prompt), json.dumps(right)) for prompt, right in parts)
    return rows.append_column("prompt_id", ids)


def _is_shared(column: pa.ChunkedArray, groups: Groups) -> bool:
    if pa.types.is_floating(column.type):  # Not a number does not equal itself.
        column = pc.if_else(pc.is_nan(column), None, column)
    elif pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return bool(np.isin(Groups.of_column(column).starts_G, groups.starts_G).all())


def _is_of_response(name: str, names: Collection[str], written: Collection[str]) -> bool:
    if written and name not in written:
        return False
    value = name.removesuffix("_missing")
    component = value.startswith("reward_") and {value, f"{value}_missing"} <= set(names)
    return "response" in names and (component or name in _OF_RESPONSES)
