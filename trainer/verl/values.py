"""What the recipe's steps wrote to the rollouts of a training step: values.parquet.

curated.parquet has the rows that are left. A judge's score of a row that a filter drops later was
paid for as well, and explains why it was dropped: here every row as sampled has what every step
wrote to it.

    response_id, prompt_id     of each row of rollouts.parquet, in that order
    COLUMN                     what the last step that wrote it has written
    STEP/COLUMN                what an earlier step has written, where several write one column

Token ids and logprobs are in rollouts.parquet only. The metadata of the schema lists the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators import Change
from ...operators.columns import flat
from ...operators.json_text import parse_json
from ...pipelines.analysis.rows import Lines
from ...pipelines.engine.frame import Frame
from ...pipelines.recipe.steps import Step

IDS = ("response_id", "prompt_id")
_STEPS = b"rejuice.steps"
_TOKENS = frozenset({"prompt_token_ids", "response_token_ids", "response_logprobs", "turns"})


class StepValues(NamedTuple):
    """What a step wrote to some rows."""

    step: str  # its name
    response_ids: pa.ChunkedArray  # string[N], of the rows that it saw
    columns: Mapping[str, Any]  # what it wrote, each of N rows
    without: tuple[str, ...]  # columns that it took away
    added_rows: bool  # whether it made rows; then its columns are those of rows that no file has

    @classmethod
    def of(cls, step: str, before: Frame, change: Change) -> StepValues | None:
        """What a change writes; None for rows that are no responses, such as prompts."""
        if "response_id" not in before.column_names:
            return None
        ids = before.select(["response_id"])["response_id"]
        columns = {name: each for name, each in change.columns.items() if name not in _TOKENS}
        return cls(step, ids, columns, change.without, change.parents is not None)


class RecordedStep(NamedTuple):
    """What is on file of a step."""

    name: str  # of the step, as the decisions have it
    columns: Mapping[str, str]  # what it wrote, and the column of the file in which that is
    without: Sequence[str]  # columns that it took away


def values_table(
    rollouts: pa.Table, steps: Sequence[Step], written: Iterable[StepValues]
) -> pa.Table:
    """The table of values.parquet."""
    # Where nothing was sampled, rollouts have no columns.
    none = pa.nulls(rollouts.num_rows, pa.string())
    ids = {name: flat(rollouts[name]) if name in rollouts.column_names else none for name in IDS}
    known, lines = ids["response_id"], Lines(rollouts.num_rows)
    pieces_of: dict[str, list[StepValues]] = {step.name: [] for step in steps}
    for each in written:
        pieces_of[each.step].append(each)
    recorded: list[dict[str, Any] | None] = []
    for name, pieces in pieces_of.items():
        if any(piece.added_rows for piece in pieces):
            break  # Neither it nor what follows is about the rows as sampled only.
        own = dict.fromkeys(column for piece in pieces for column in piece.columns)
        rest = list(pieces_of.values())[len(recorded) + 1 :]
        later = {column for each in rest for piece in each for column in piece.columns}
        columns = {each: f"{name}/{each}" if each in later else each for each in own}
        for piece in pieces:
            line_N = np.asarray(pc.index_in(flat(piece.response_ids), value_set=known))
            for column, values in piece.columns.items():
                for target in {column, columns[column]}:
                    lines.write(line_N.astype(np.int64), target, values)
        without = sorted({column for piece in pieces for column in piece.without})
        recorded.append({"name": name, "columns": columns, "without": without})
    recorded += [None] * (len(steps) - len(recorded))
    found = {name: lines.column(name) for name in lines.names if name not in ids}
    return pa.table({**ids, **found}).replace_schema_metadata({_STEPS: json.dumps(recorded)})


def recorded_steps(schema: pa.Schema) -> list[RecordedStep | None]:
    """The steps of values.parquet, in order; None for one that made rows, and for all after it."""
    found = parse_json((schema.metadata or {}).get(_STEPS, b"[]"))
    return [None if each is None else RecordedStep(**each) for each in found]
