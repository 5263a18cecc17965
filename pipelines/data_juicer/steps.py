"""Data-Juicer's operators as steps of ours. The first one that is applied imports Data-Juicer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict
from typing_extensions import Self

from ...operators import ALL, Change, Columns, Kind, Operator, RecipeError, Scope
from ...operators.cache_key import cache_key_json
from ...operators.errors import suggest
from .catalogue import OTHER_KINDS, find, names
from .columns import keeps_columns, may_write, reads_text, statistics
from .constructor import check_constructor
from .credentials import refuse_credentials
from .fields import PROCESS_FIELDS, arguments, check_fields
from .named_files import digests
from .needs import needs
from .plugins import Plugin
from .result import CALL_FAILED, CALLS_FAILED, ROW, change, change_without
from .run_columns import named, put_back, without_own
from .run_operator import prepare, run_operator
from .servers import model_field, server
from .with_ray import PACKAGE as RAY
from .with_ray import needs_ray

_SCOPES = {
    "mapper": Scope.ROW,
    "filter": Scope.ROW,
    "deduplicator": Scope.DATASET,
    "selector": Scope.DATASET,
}


class MissingPackageError(RecipeError):
    """A step needs packages that are not installed.

    Attributes:
        packages: what `pip install` takes, of each.
    """

    packages: tuple[str, ...] = ()

    @classmethod
    def of(cls, packages: Sequence[str], subject: str = "it needs") -> Self:
        """The error about some packages, which may be named twice."""
        *most, last = names = tuple(dict.fromkeys(packages))
        listed = f"{', '.join(most)} and {last}" if most else last
        found = f"{subject} {listed}, which {'are' if most else 'is'} not installed"
        error = cls(found, f"pip install {shlex.join(names)}")
        error.packages = names
        return error

    def at(self, where: str) -> MissingPackageError:
        error = MissingPackageError(self.found, self.right, where=super().at(where).where)
        error.packages = self.packages
        return error


def step(name: str, fields: Mapping[str, Any], text_key: str = "text") -> Operator:
    """An operator of Data-Juicer as one of ours.

    Args:
        name: its name, for which `exists` is true.
        fields: its fields in the recipe.
        text_key: its text column, where `fields` does not name one.

    Raises:
        RecipeError: it cannot run here, or a field is unknown or missing.
        MissingPackageError: a package that it needs with these fields is not installed.
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
    check_fields(found, fields)
    refuse_credentials(fields)
    check_constructor(found.defined, arguments(fields))
    on_ray, missing = needs_ray(found.defined), needs(found.defined, arguments(fields)).missing
    if on_ray and find_spec(RAY) is None:
        missing = (RAY, *missing)
    if missing:
        raise MissingPackageError.of(missing)
    given = dict(fields)
    if text_key != "text":
        given.setdefault("text_key", text_key)
    # The rows that `index_key` numbers are those of the dataset, not those of a chunk.
    is_numbered = given.get("index_key") is not None
    sees_all = is_numbered or on_ray or _sees_batch(name, fields)
    scope = Scope.DATASET if sees_all else _SCOPES[found.kind]
    return _kind(name, found.kind, scope, found.plugin)(**given)


class ForeignOperator(Operator):
    """One of Data-Juicer's operators, with the fields that the recipe gives it."""

    model_config = ConfigDict(extra="allow")

    foreign_name: ClassVar[str]
    plugin: ClassVar[Plugin | None] = None
    """The plug-in for Data-Juicer that brings it."""
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

    def preflight(self) -> None:
        """Try the server that it asks, if it asks one, and make it, unless that takes a model.

        Raises:
            OperatorError: it cannot be made.
            EngineError: the server is not up, or will answer no request.
        """
        found, fields = find(self.name()), self.model_extra or {}
        if found is None:
            return
        asked = server(found, fields) if self.asks_server else None
        if asked is not None:
            asked.check()
        # One for Ray is made for its rows only: with `backend: redis` it empties that database.
        loads = needs(found.defined, arguments(fields)).loads_when_made
        if not loads and not needs_ray(found.defined):
            prepare(self.name(), cache_key_json(self), fields)

    def cache_key_fields(self) -> Mapping[str, Any]:
        every = super().cache_key_fields()
        fields = {name: each for name, each in every.items() if name not in PROCESS_FIELDS}
        files = digests(fields)
        if files:
            fields["named files"] = files
        if self.plugin is not None:
            fields["plug-in"] = self.plugin.digest()
        return fields

    def reads(self) -> Columns:
        return ALL

    @property
    def text_column(self) -> str | None:
        """The column that its texts are in; None where it may do without one."""
        text_key = (self.model_extra or {}).get("text_key") or "text"
        return str(text_key) if reads_text(self.name()) else None

    @property
    def keeps_columns(self) -> bool:
        """Whether the table has the same columns after it, as far as that can be known."""
        return keeps_columns(self.name())

    def digest(self, table: pa.Table) -> pa.Table:
        return table

    def apply(self, table: pa.Table) -> Change:
        if table.num_rows == 0:
            return Change()
        fields, found = self.model_extra or {}, find(self.name())
        own = None if found is None else statistics(found)
        seen = without_own(table, self.kind.value, fields, own)
        numbered = seen.append_column(ROW, pa.array(np.arange(table.num_rows)))
        out, failures = run_operator(self.name(), cache_key_json(self), fields, numbered)
        out = put_back(table, seen, out, own)
        slug, failed = self.name().lower(), np.array(sorted(failures.failed), np.int64)
        if len(failed) and self.kind is Kind.FILTER:
            made = change_without(table, out, slug, failed)
        else:
            made = change(table, out, slug)
        is_mapper = self.kind is Kind.MAPPER
        counts = {CALL_FAILED: len(failed) * is_mapper, CALLS_FAILED: failures.calls.failed}
        notes = {name: float(n) for name, n in counts.items() if n}
        return made._replace(
            notes=notes, logged=failures.logged, failed=failed if len(failed) else None
        )

    @property
    def named_entries(self) -> Sequence[tuple[str, str]]:
        """The statistics and tags that its fields name; see `helper_columns.named`."""
        return named(self.model_extra or {})

    def may_write(self, column: str, entry: str) -> bool:
        """Whether it may write a statistic or a tag; see `columns.may_write`."""
        found = find(self.name())
        return found is None or may_write(found, self.model_extra or {}, column, entry)


def unchecked(name: str, kind: str, **fields: Any) -> ForeignOperator:
    """An operator of Data-Juicer that Data-Juicer itself runs, and has checked."""
    return _kind(name, kind, _SCOPES[kind], None)(**fields)


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
def _kind(name: str, kind: str, scope: Scope, plugin: Plugin | None) -> type[ForeignOperator]:
    found, slug = find(name), name.lower()
    own = ForeignOperator.depends_on
    reasons = {slug: f"Data-Juicer's {name} did not keep the row"}
    if kind == "filter" and found is not None and model_field(found):
        reasons[CALL_FAILED] = "the server gave no answer for the row that it could use"
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
                "plugin": "ClassVar[Plugin | None]",
                "depends_on": "ClassVar[tuple[str, ...]]",
            },
            "foreign_name": name,
            "kind": Kind(kind),
            "scope": scope,
            "plugin": plugin,
            "depends_on": own if plugin is None else (*own, plugin.distribution),
            "reasons": reasons,
        },
    )
