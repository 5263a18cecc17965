"""Data-Juicer's operators as steps of ours. The first one that is made imports Data-Juicer."""

from __future__ import annotations

import hashlib
import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict

from ...operators import ALL, Change, Columns, Kind, Operator, RecipeError, Scope, build
from ...operators.cache_key import cache_key_json
from ...operators.columns import find_path
from ...operators.operator import CALL_FAILED, COMMON_FIELDS
from ..dataset.write import META, STATS
from . import catalogue
from .catalogue import ForeignKind
from .run_operator import (
    HOW_FAST,
    asks_server,
    client_of,
    model_field,
    prepare,
    run_operator,
    server,
)
from .settings import check_fields, texts
from .tables import CALLS_FAILED, ROW, change, change_without, named, put_back, without_own

_SCOPES = {
    "mapper": Scope.ROW,
    "filter": Scope.ROW,
    "deduplicator": Scope.DATASET,
    "selector": Scope.DATASET,
}
_OF_BATCHES = ("nlpaug_en_mapper", "nlpcda_zh_mapper")
"""Mappers that make new texts of the first row of a batch."""
_OF_FUNCTIONS = ("python_file_mapper", "python_lambda_mapper")


def step(name: str, fields: Mapping[str, Any], text_key: str = "text") -> Operator:
    found = catalogue.get(name)
    common = {field: fields[field] for field in COMMON_FIELDS if field in fields}
    fields = {field: value for field, value in fields.items() if field not in common}
    check_fields(found, fields)
    if found.kind == "filter" and (STATS, "") in named(fields):
        raise RecipeError(
            f"a field names {STATS} as a whole, of which a filter gets what its fields name",
            f"name the statistic, as in {STATS}.text_len",
        )
    given = dict(fields)
    if text_key != "text":
        given.setdefault("text_key", text_key)
    # `index_key` numbers the rows of the dataset, and batches are cut from it, not from a chunk.
    is_of_batch = name in _OF_BATCHES or (name in _OF_FUNCTIONS and bool(fields.get("batched")))
    sees_all = given.get("index_key") is not None or found.needs_ray or is_of_batch
    scope = Scope.DATASET if sees_all else _SCOPES[found.kind]
    return build(_kind(name, found.kind, scope), {**given, **common})


class ForeignOperator(Operator):
    """One of Data-Juicer's operators, with the fields that the recipe gives it."""

    model_config = ConfigDict(extra="allow")

    foreign_name: ClassVar[str]
    gil_bound: ClassVar[bool] = True
    depends_on: ClassVar[tuple[str, ...]] = ("py-data-juicer",)

    @classmethod
    def name(cls) -> str:
        return cls.foreign_name

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so a worker has to make it, too.
        common = {field: getattr(self, field) for field in COMMON_FIELDS}
        return step, (self.name(), {**self.fields, **common})

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_extra or {}

    @property
    def found(self) -> ForeignKind:
        return catalogue.get(self.name())

    @property
    def asks_server(self) -> bool:
        return asks_server(self.found, self.fields)

    def check_files(self) -> None:
        package = client_of(self.fields) if self.asks_server else "ray"
        if (self.asks_server or self.found.needs_ray) and find_spec(package) is None:
            found = f"it needs {package}, which is not installed"
            raise RecipeError(found, f"pip install {shlex.quote(package)}")

    def preflight(self) -> None:
        self.check_files()
        asked = server(self.found, self.fields) if self.asks_server else None
        if asked is not None:
            asked.check()
        # One for Ray is made for its rows only: with `backend: redis` it empties that database.
        if not self.found.needs_ray:
            prepare(self.found, self.fields)

    def cache_key_fields(self) -> Mapping[str, Any]:
        every = super().cache_key_fields()
        fields = {name: each for name, each in every.items() if name not in HOW_FAST}
        files = named_files(fields)
        cls = self.found.cls
        if cls.__module__.partition(".")[0] != "data_juicer":  # It is of a plug-in.
            files[cls.__module__] = _state(Path(inspect.getfile(cls)))
        return {**fields, **({"named files": files} if files else {})}

    def reads(self) -> Columns:
        return ALL

    @property
    def text_column(self) -> str | None:
        """The column that its texts are in; None where it may do without one."""
        return str(self.fields.get("text_key") or "text") if self.found.reads_only_text else None

    def digest(self, table: pa.Table) -> pa.Table:
        return table

    def apply(self, table: pa.Table) -> Change:
        if table.num_rows == 0:
            return Change()
        has_statistics = self.found.writes_statistics
        seen = without_own(table, self.kind, self.fields, has_statistics=has_statistics)
        numbered = seen.append_column(ROW, pa.array(np.arange(table.num_rows)))
        key = str(self.fields.get("text_key", ""))
        text = find_path(table, key) if key not in table.column_names else None
        if text is not None:  # Data-Juicer finds `meta.text` among columns, but not within `meta`.
            numbered = numbered.append_column(key, text)
        out, failures = run_operator(self.found, cache_key_json(self), self.fields, numbered)
        out = put_back(table, seen, out, has_statistics=has_statistics)
        if text is not None and self.kind is not Kind.MAPPER:
            out = out.drop_columns([key])
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
        """The statistics and tags that its fields name; see `tables.named`."""
        return named(self.fields)

    def may_write(self, column: str, entry: str) -> bool:
        """Whether it may write a statistic or a tag of that name, or any if the name is empty."""
        from data_juicer.ops import TAGGING_OPS

        if column == META:
            return self.kind is Kind.MAPPER or self.name() in TAGGING_OPS.modules
        # Filters of a field call their statistic as the field that they are given.
        known = f"StatsKeys.{entry}" in self.found.source or entry in texts(self.fields)
        return self.found.writes_statistics and (not entry or known)


@cache
def _kind(name: str, kind: str, scope: Scope) -> type[ForeignOperator]:
    slug = name.lower()
    reasons = {slug: f"Data-Juicer's {name} did not keep the row"}
    if kind == "filter" and model_field(catalogue.get(name)):
        reasons[CALL_FAILED] = "the server gave no answer for the row that it could use"
    members = {"foreign_name": name, "kind": Kind(kind), "scope": scope, "reasons": reasons}
    types = dict.fromkeys(members, "ClassVar[Any]")
    docs = {"__module__": __name__, "__doc__": f"Data-Juicer's `{name}`."}
    return type(name, (ForeignOperator,), {**docs, "__annotations__": types, **members})


# --- Named files ----------------------------------------------------------------------
# Data-Juicer's fields are texts, whatever they mean, so every text that names something on this
# disk counts: after an edit the step runs again.

_WHOLE_BYTES = 64 * 2**20
_NOT_READ = re.compile(
    r"(^|_)(keys?|columns|save|output|export|visualization|temp|work)(_|$)"
    "|^(frame_dir|face_track_bbox_path|point_cloud_dir_for_metric)$"
)
"""Names of fields that name columns, or what the operator writes."""


def named_files(fields: Mapping[str, Any]) -> dict[str, str]:
    """The state of each file that a field names, or that is in a folder that one names."""
    named = [t for n, value in fields.items() if not _NOT_READ.search(n) for t in texts(value)]
    return {str(file): _state(file) for text in named for file in _files(text)}


def _state(file: Path) -> str:
    """A digest; of a large file, whose reading takes longer than the step, size and time."""
    found = file.stat()
    if found.st_size > _WHOLE_BYTES:
        return f"{found.st_size} bytes of {found.st_mtime_ns}"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _files(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        # No name: an empty text would be the working directory, and "/" may be a separator.
        is_folder = any(map(str.isalnum, text)) and path.is_dir()
    except (OSError, ValueError):
        return []  # Too long for a path, such as a prompt, or with a null character.
    return sorted(file for file in path.rglob("*") if file.is_file()) if is_folder else []
