"""Read responses that are already in the dataset, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import ROW_CONTRACT, content_ids, is_list, is_text
from ..compute import pc
from ..errors import DataError, suggest
from ..groups import Groups
from ..operator import Change, Columns, Operator, Scope, drop

_OWN = ("prompt_id", "response_id", "response")


class RecordedRolloutMapper(Operator):
    """Make one row per recorded response, however the responses of a prompt are stored.

    - Several columns (one per model): each cell is a response; its policy is the column's name.
    - One list column: each item is a response.
    - One column of strings, with one row per response already: only the ids are new.

    Cells and items are strings, or structs with the response in the field `text`. Responses of a
    prompt keep their order: by row, then by `columns`, then by position in the list. A null
    response counts as a rollout: it keeps its row, with a null `response`.

    The columns that contained the responses are removed.
    """

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    """Columns with the responses."""
    text: str | None = None
    """Field of the structs that contains the response."""
    keep_fields: dict[str, str] = Field({})
    """Other fields of the structs to keep, each with its new column, such as
    `{model: policy, is_correct: is_correct}`. A field that becomes a reward component, such as
    `{score: reward_judge}`, is missing as `no_value` if it is null."""
    policy: str | None = None
    """Name of the policy of all these responses. Null: the policy of `keep_fields`, else the
    column's name if there are several columns."""

    # Ids contain the index within the group, so the group must be complete.
    scope: ClassVar[Scope] = Scope.GROUP
    gil_bound: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "no_responses": "the list of responses is null or empty",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("columns names a column twice")
        if self.keep_fields and self.text is None:
            raise ValueError("keep_fields needs text, the field that contains the response")
        targets = list(self.keep_fields.values())
        for target in targets:
            if target in _OWN or targets.count(target) > 1:
                raise ValueError(f"keep_fields must not write '{target}' a second time")
        if self.policy is not None and "policy" in targets:
            raise ValueError("policy is given by keep_fields already")
        return self

    def reads(self) -> Columns:
        return ("prompt_id", *self.columns)

    def writes(self) -> Columns:
        named = self.policy is not None or len(self.columns) > 1
        policy = ["policy"] if named and "policy" not in self.keep_fields.values() else []
        missing = [f"{name}_missing" for name in self._rewards()]
        return ("response_id", "response", *policy, *self.keep_fields.values(), *missing)

    def _rewards(self) -> list[str]:
        """Kept fields that are reward components, each of which needs a `_missing` column."""
        targets = self.keep_fields.values()
        named = [t for t in targets if t.startswith("reward_") and not t.endswith("_missing")]
        return [name for name in named if f"{name}_missing" not in targets]

    def removes(self) -> Columns:
        return tuple(name for name in self.columns if name not in self.writes())

    def apply(self, table: pa.Table) -> Change:
        found = self._found(table)
        parents = np.asarray(found["row"]).astype(np.int64)
        ids = table["prompt_id"].take(pa.array(parents))
        index_N = Groups.of_column(ids).position()
        written = {name: found[name].combine_chunks() for name in found.column_names[1:]}
        for name in self._rewards():
            written[f"{name}_missing"] = drop({"no_value": written[name].is_null()})
        written["response_id"] = content_ids(
            zip(ids.to_pylist(), map(str, index_N), written["response"].to_pylist(), strict=True)
        )
        childless_N = np.bincount(parents, minlength=table.num_rows) == 0
        return Change(
            written,
            drop({"no_responses": childless_N}),
            parents,
            without=self.removes(),
        )

    def _found(self, table: pa.Table) -> pa.Table:
        """One row per response, in order: `row`, the input row, and the columns of `writes`."""
        parts = [self._of_column(name, table[name].combine_chunks()) for name in self.columns]
        try:
            found = pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise DataError(
                f"columns {', '.join(self.columns)} differ in type: {error}",
                "leave the field out of keep_fields",
            ) from None
        # Stable: within a row, by column and then by position in the list.
        return found.take(pa.array(np.argsort(np.asarray(found["row"]), kind="stable")))

    def _of_column(self, name: str, cells: pa.Array) -> pa.Table:
        rows = pa.array(np.arange(len(cells)))
        kind = cells.type
        if is_list(kind):
            rows = pc.list_parent_indices(cells).cast(pa.int64())
            cells = pc.list_flatten(cells)
        columns = {"row": rows, "response": self._text(name, cells)}
        for field, target in self.keep_fields.items():
            columns[target] = self._typed(name, field, target, self._field(name, cells, field))
        if "policy" in self.writes() and "policy" not in columns:
            columns["policy"] = pa.repeat(pa.scalar(self.policy or name), len(cells))
        return pa.table(columns)

    def _text(self, name: str, cells: pa.Array) -> pa.Array:
        if pa.types.is_struct(cells.type):
            if self.text is None:
                fields = ", ".join(field.name for field in cells.type)
                raise DataError(
                    f"column '{name}' contains structs of {fields}",
                    "set `text` to the field that contains the response",
                )
            cells = self._field(name, cells, self.text)
        elif self.text is not None and not pa.types.is_null(cells.type):
            raise DataError(
                f"column '{name}' has no fields, it is {cells.type}", "leave out `text`"
            )
        kind = cells.type
        if not (is_text(kind) or pa.types.is_null(kind)):
            raise DataError(
                f"responses in column '{name}' are {kind}", "name columns or a field of strings"
            )
        return cells.cast(pa.string())

    def _field(self, name: str, cells: pa.Array, field: str) -> pa.Array:
        if pa.types.is_null(cells.type):
            return cells
        known = [each.name for each in cells.type]
        if field not in known:
            right = suggest(field, known) or f"its fields are: {', '.join(known)}"
            raise DataError(f"column '{name}' has no field '{field}'", right)
        return pc.struct_field(cells, field)

    def _typed(self, name: str, field: str, target: str, values: pa.Array) -> pa.Array:
        wanted = ROW_CONTRACT.get(target, values.type)
        try:
            return values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"field '{field}' of column '{name}' is {values.type}",
                f"'{target}' is {wanted}: give the column another name",
            ) from None
