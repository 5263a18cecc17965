"""Data-Juicer's operators as steps of ours. The first one that is applied imports Data-Juicer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict

from ...operators import (
    ALL,
    Change,
    Columns,
    Kind,
    Operator,
    RecipeError,
    Scope,
)
from ...operators.cache_key import cache_key_json
from ...operators.errors import suggest
from .catalogue import OTHER_KINDS, find, names
from .fields import PROCESS_FIELDS, arguments, check_fields
from .needs import needs
from .result import ROW, change
from .run_operator import run_operator

_SCOPES = {
    "mapper": Scope.ROW,
    "filter": Scope.ROW,
    "deduplicator": Scope.DATASET,
    "selector": Scope.DATASET,
}


def step(name: str, fields: Mapping[str, Any], text_key: str = "text") -> Operator:
    """An operator of Data-Juicer as one of ours.

    Args:
        name: its name, for which `exists` is true.
        fields: its fields in the recipe.
        text_key: its text column, where `fields` does not name one.

    Raises:
        RecipeError: it cannot run here, or a field is unknown or missing, or a package that it
            needs with these fields is not installed.
    """
    found = find(name)
    if found is None:
        near = suggest(name, names())
        raise RecipeError(f"Data-Juicer has no operator '{name}'", near)
    if found.kind in OTHER_KINDS:
        raise RecipeError(
            f"it is of Data-Juicer's kind {found.kind}, whose rows come from several rows each",
            "run this recipe with dj-process",
        )
    if name.startswith("ray_"):
        raise RecipeError("it needs Ray", "run this recipe with dj-process, executor_type: ray")
    check_fields(found, fields)
    missing = needs(found.defined, arguments(fields)).missing
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RecipeError(
            f"it needs {' and '.join(missing)}, which {verb} not installed",
            f"pip install {shlex.join(missing)}",
        )
    given = dict(fields)
    if text_key != "text":
        given.setdefault("text_key", text_key)
    scope = Scope.DATASET if _sees_batch(name, fields) else _SCOPES[found.kind]
    return _kind(name, found.kind, scope)(**given)


class ForeignOperator(Operator):
    """One of Data-Juicer's operators, with the fields that the recipe gives it."""

    model_config = ConfigDict(extra="allow")

    foreign_name: ClassVar[str]
    gil_bound: ClassVar[bool] = True
    depends_on: ClassVar[tuple[str, ...]] = ("py-data-juicer",)

    @classmethod
    def name(cls) -> str:
        """The name Data-Juicer registered it under."""
        return cls.foreign_name

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so a worker has to make it, too.
        return step, (self.name(), self.model_extra)

    @property
    def asks_server(self) -> bool:
        """Whether it sends requests to a model's server, row by row."""
        found = find(self.name())
        fields = arguments(self.model_extra or {})
        return found is not None and needs(found.defined, fields).asks_server

    def cache_key_fields(self) -> Mapping[str, Any]:
        every = super().cache_key_fields()
        return {name: each for name, each in every.items() if name not in PROCESS_FIELDS}

    def reads(self) -> Columns:
        return ALL

    def digest(self, table: pa.Table) -> pa.Table:
        return table

    def apply(self, table: pa.Table) -> Change:
        if table.num_rows == 0:
            return Change()
        numbered = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
        out = run_operator(self.name(), cache_key_json(self), self.model_extra or {}, numbered)
        return change(table, out, self.name().lower())


def asks_server(operator: Operator) -> bool:
    """Whether a step is one of Data-Juicer's that sends requests to a model's server."""
    return isinstance(operator, ForeignOperator) and operator.asks_server


def _sees_batch(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether what a mapper makes of a row depends on the rows that it gets with it.

    Data-Juicer cuts all rows into batches of `batch_size`; chunks would be cut elsewhere.
    """
    if name in ("nlpaug_en_mapper", "nlpcda_zh_mapper"):
        return True  # They make new texts of the first one of a batch.
    return name in ("python_file_mapper", "python_lambda_mapper") and bool(fields.get("batched"))


@cache
def _kind(name: str, kind: str, scope: Scope) -> type[ForeignOperator]:
    slug = name.lower()
    return type(
        name,
        (ForeignOperator,),
        {
            "__module__": __name__,
            "__doc__": f"Data-Juicer's `{name}`.",
            "__annotations__": {
                "foreign_name": "ClassVar[str]",
                "kind": "ClassVar[Kind]",
                "scope": "ClassVar[Scope]",
            },
            "foreign_name": name,
            "kind": Kind(kind),
            "scope": scope,
            "reasons": {slug: f"Data-Juicer's {name} did not keep the row"},
        },
    )
