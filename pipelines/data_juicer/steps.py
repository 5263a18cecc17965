"""Data-Juicer's operators as steps of ours. The first one that is made imports Data-Juicer."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict
from typing_extensions import Self

from ...operators import ALL, Change, Columns, Kind, Operator, RecipeError, Scope, build
from ...operators.cache_key import cache_key_json
from ...operators.errors import suggest
from ...operators.logs import SHORTEST
from ...operators.operator import CALL_FAILED, COMMON_FIELDS
from ..dataset.write import META, STATS
from .catalogue import KINDS, OF_ALL, OTHER_KINDS, ForeignKind, Plugin, find, names
from .run_operator import PACKAGE as RAY
from .run_operator import model_field, prepare, run_operator, server
from .settings import PROCESS_FIELDS, arguments, check_fields, texts
from .static_checks import check, definition, parsed
from .tables import CALLS_FAILED, ROW, change, change_without, named, put_back, without_own

# --- What an operator reads and writes, as far as its source says ---------------------
#     reads_text              whether it fails without its text column
#     keeps_columns           whether it leaves the columns of the rows as they are
#     statistics, may_write   what it writes to the helper columns
#
# Each errs on one side: a text counts as read only where every row comes to it, columns count as
# kept only where nothing else can be done to them, and any tag may be written by one that writes
# tags.

_OF_ROWS = (
    "compute_stats_single", "compute_stats_batched", "compute_hash", "process_single",
    "process_batched",
)  # fmt: skip
"""Methods that get a row, or a batch of rows as lists."""
_DONE_BEFORE = {"Fields", "HashKeys", "MetaKeys", "StatsKeys"}
"""What a method asks for that returns early where statistics, hashes or tags are there."""
_CLASSES = ("Fields", "StatsKeys", "TAGGING_OPS", "NON_STATS_FILTERS")
"""What Data-Juicer names statistics and tags by, and registers operators with."""


@cache
def reads_text(name: str) -> bool:
    """Whether the operator fails on a row that lacks its text column, whatever its fields say."""
    found = find(name)
    return found is not None and any(
        _is_text(node, function.args.args[1].arg)
        for function in _methods(found)
        for part in _run_for_each_row(function.body)
        for node in _evaluated(part)
    )


@cache
def keeps_columns(name: str) -> bool:
    """Return whether it leaves the names of the columns as they are, helper columns aside."""
    found = find(name)
    if found is None or found.kind not in KINDS:
        return False
    return found.kind != "mapper" or all(map(_only_text, _methods(found)))


def may_write(found: ForeignKind, fields: Mapping[str, Any], column: str, name: str) -> bool:
    """Return whether an operator may write a statistic or a tag."""
    if column == STATS:
        own = statistics(found)
        # Filters of a field call their statistic as the field that they are given.
        return own is not None and (not name or name in {*own, *texts(fields)})
    # Tags are named by constants, by fields and by models: any tag may be there.
    used = _used(found)
    return column == META and not used.isdisjoint({"Fields.meta", "TAGGING_OPS.register_module"})


def statistics(found: ForeignKind) -> frozenset[str] | None:
    """The statistics that a filter computes, as far as its source names them; None: it has none.

    Data-Juicer gives a statistic the name of the constant that holds its name.
    """
    used = _used(found)
    if found.kind != "filter" or "NON_STATS_FILTERS.register_module" in used:
        return None
    return frozenset(name.partition(".")[2] for name in used if name.startswith("StatsKeys."))


def _methods(found: ForeignKind) -> list[ast.FunctionDef]:
    """Return the nearest definition of each method that gets rows."""
    methods = [getattr(found.cls, name, None) for name in _OF_ROWS]
    own = [each for each in methods if each is not None and each.__module__ != OF_ALL]
    nodes = [node for node in map(definition, own) if isinstance(node, ast.FunctionDef)]
    return [node for node in nodes if len(node.args.args) > 1]


def _is_text(node: ast.AST, rows: str) -> bool:
    """Return whether it is `rows[self.text_key]`, and read."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=name),
            slice=ast.Attribute(value=ast.Name(id="self"), attr="text_key"),
            ctx=ast.Load(),
        ):
            return name == rows
    return False


def _run_for_each_row(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the expressions and statements of a method that are run for each row or batch."""
    for node in body:
        match node:
            case ast.If():
                yield node.test
                ends = any(isinstance(each, ast.Return | ast.Raise) for each in ast.walk(node))
                names = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
                if names & _DONE_BEFORE:  # Nothing of it is there yet.
                    yield from _run_for_each_row(node.orelse)
                elif ends:
                    return
            case ast.For():
                yield node.iter
                yield from _run_for_each_row(node.body)
            case ast.With():
                yield from (item.context_expr for item in node.items)
                yield from _run_for_each_row(node.body)
            case ast.Try() | ast.While():
                if any(isinstance(each, ast.Return) for each in ast.walk(node)):
                    return
            case ast.FunctionDef() | ast.ClassDef():
                continue
            case ast.Return() | ast.Raise():
                yield node
                return
            case ast.Continue() | ast.Break():
                return
            case _:
                yield node


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression that are evaluated whatever the values are."""
    yield node
    match node:
        case ast.Lambda():
            return
        case ast.IfExp():
            yield from _evaluated(node.test)
        case ast.BoolOp():
            yield from _evaluated(node.values[0])
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from _evaluated(node.generators[0].iter)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _evaluated(child)


def _only_text(function: ast.FunctionDef) -> bool:
    """Return whether a method of a mapper uses its rows for the text alone, and returns them."""
    rows = function.args.args[1].arg
    used = sum(isinstance(node, ast.Name) and node.id == rows for node in ast.walk(function))
    for node in ast.walk(function):
        match node:
            case ast.Subscript(
                value=ast.Name(id=name),
                slice=ast.Attribute(value=ast.Name(id="self"), attr="text_key"),
            ) if name == rows:
                used -= 1
            case ast.Return(value=ast.Name(id=name)) if name == rows:
                used -= 1
    return used == 0


def _used(found: ForeignKind) -> frozenset[str]:
    """Return what the files of its class and of its bases use, but for those of all operators.

    Of what Data-Juicer names statistics and tags by, and registers operators with.
    """
    bases = (base for base in found.cls.__mro__[:-1] if base.__module__ != OF_ALL)
    files = set(map(inspect.getsourcefile, bases))
    return frozenset[str]().union(*(_names(file) for file in files if file))


@cache
def _names(file: str) -> frozenset[str]:
    """Return what a file uses of the classes of names, and of the registries of operators."""
    return frozenset(
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(parsed(Path(file).read_text("utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in _CLASSES
    )


# --- Keys of servers in a recipe, which belong in the environment ---------------------

_NAMES = frozenset(
    {"access_key", "access_token", "api_key", "auth_token", "authorization", "hf_token"}
    | {"password", "secret", "secret_key", "x_api_key"}
)
"""Fields of Data-Juicer's operators and of the clients that they make, and headers."""

_WITH_PASSWORD = re.compile(r"https?://[^/?#]*:[^/?#]*@")


def refuse_credentials(fields: Any, where: str = "") -> None:
    """Pass fields without a key in them: a run stores its recipe.

    One that is too short for a secret passes: a server of one's own takes any value.

    Raises:
        RecipeError: there is one.
    """
    for name, value in fields.items() if isinstance(fields, dict) else ():
        place = f"{where}.{name}" if where else str(name)
        is_named = str(name).lower().replace("-", "_") in _NAMES
        is_key = is_named and isinstance(value, str) and len(value) >= SHORTEST
        if is_key or (isinstance(value, str) and _WITH_PASSWORD.match(value)):
            right = "take it out, and set OPENAI_API_KEY or the variable that the library reads"
            raise RecipeError(f"{place} has a key in it, and a run stores its recipe", right)
        refuse_credentials(value, place)


# --- Named files ----------------------------------------------------------------------
# Files and folders that the fields of an operator of Data-Juicer's name: they decide its result.
#
# Data-Juicer's fields are texts, whatever they mean, so every text that names something on this
# disk counts. A value that is no path and happens to be the name of a file costs at most a
# computation that was not needed; a file that does not count would give old results after an edit.

WHOLE_BYTES = 64 * 2**20
"""Bytes of a file up to which its content counts; of a larger one, size and time of the last
change, as the weights of a model take longer to read than the step to run."""
_NOT_READ = re.compile(
    r"(^|_)(keys?|columns|save|output|export|visualization|temp|work)(_|$)"
    "|^(frame_dir|face_track_bbox_path|point_cloud_dir_for_metric)$"
)
"""Names of fields that name columns, or what the operator writes."""


def digests(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each file and folder that exists and is named by a field, by its path.

    Relative paths are those of the working directory, as in Data-Juicer.
    """
    named = {
        text
        for name, value in fields.items()
        if not _NOT_READ.search(name)
        for text in texts(value)
        if _exists(text)
    }
    return {text: _digest(Path(text)) for text in sorted(named)}


def _exists(text: str) -> bool:
    try:
        # No name: an empty text would be the working directory, and "/" may be a separator.
        return any(map(str.isalnum, text)) and Path(text).exists()
    except (OSError, ValueError):
        return False  # Too long for a path, such as a prompt, or with a null character.


def _digest(path: Path) -> str:
    if path.is_file():
        return _file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(path).as_posix()} {_file_digest(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _file_digest(file: Path) -> str:
    found = file.stat()
    return _state_digest(file.resolve(), found.st_size, found.st_mtime_ns)


@cache
def _state_digest(file: Path, size: int, changed_ns: int) -> str:
    """Return each state of a file is read once: keys are computed for every chunk."""
    if size > WHOLE_BYTES:
        return f"{size} bytes of {changed_ns}"
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# --- Steps ----------------------------------------------------------------------------

_SCOPES = {
    "mapper": Scope.ROW,
    "filter": Scope.ROW,
    "deduplicator": Scope.DATASET,
    "selector": Scope.DATASET,
}


class MissingPackageError(RecipeError):
    """A step needs packages that are not installed."""

    packages: tuple[str, ...] = ()  # what `pip install` takes, of each

    @classmethod
    def of(cls, packages: Sequence[str], subject: str = "it needs") -> Self:
        """Return the error about some packages, which may be named twice."""
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
    """Return an operator of Data-Juicer as one of ours.

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
    common = {field: fields[field] for field in COMMON_FIELDS if field in fields}
    fields = {field: value for field, value in fields.items() if field not in common}
    check_fields(found, fields)
    refuse_credentials(fields)
    checked = check(found.cls, arguments(fields))
    if checked.refusal is not None:
        raise checked.refusal
    on_ray, missing = found.needs_ray, checked.missing
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
    return build(_kind(name, found.kind, scope, found.plugin), {**given, **common})


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
        """Return the name Data-Juicer registered it under."""
        return cls.foreign_name

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so a worker has to make it, too.
        common = {field: getattr(self, field) for field in COMMON_FIELDS}
        return step, (self.name(), {**(self.model_extra or {}), **common})

    @property
    def asks_server(self) -> bool:
        found = find(self.name())
        fields = arguments(self.model_extra or {})
        return found is not None and check(found.cls, fields).asks_server

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
        loads = check(found.cls, arguments(fields)).loads_when_made
        if not loads and not found.needs_ray:
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
        """The statistics and tags that its fields name; see `tables.named`."""
        return named(self.model_extra or {})

    def may_write(self, column: str, entry: str) -> bool:
        """Return whether it may write a statistic or a tag; see `may_write`."""
        found = find(self.name())
        return found is None or may_write(found, self.model_extra or {}, column, entry)


def unchecked(name: str, kind: str, **fields: Any) -> ForeignOperator:
    """Return an operator of Data-Juicer that Data-Juicer itself runs, and has checked."""
    return _kind(name, kind, _SCOPES[kind], None)(**fields)


def _sees_batch(name: str, fields: Mapping[str, Any]) -> bool:
    """Return whether what a mapper makes of a row depends on the rows that it gets with it.

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
