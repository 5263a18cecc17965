"""Data-Juicer's operators as steps of ours. The first one that is made imports Data-Juicer."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict

from ...operators import (
    ALL,
    Change,
    Columns,
    EngineError,
    Kind,
    Operator,
    OperatorError,
    RecipeError,
    RejuiceError,
    Scope,
    build,
)
from ...operators.cache_key import cache_key_json
from ...operators.columns import find_path
from ...operators.operator import CALL_FAILED, COMMON_FIELDS
from ..dataset.write import META, STATS
from ..ray_session import LOCAL, connected_to_ray
from . import catalogue
from .catalogue import ForeignKind
from .failures import (
    Failures,
    ServerLostError,
    calls_of_row,
    described,
    no_installs,
    watch_model,
    watching,
)
from .settings import check_fields, texts
from .tables import (
    CALLS_FAILED,
    ROW,
    change,
    change_without,
    named,
    nested,
    put_back,
    rows_of,
    without_own,
)

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
    sees_all = sees_all or found.kind in ("deduplicator", "selector")
    scope = Scope.DATASET if sees_all else Scope.ROW
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


# --- Operators that ask a server: many requests at once instead of one ----------------
# Data-Juicer works through the rows one after the other and waits for each answer; only more
# processes, each with all of its imports, would send more requests. Threads wait as well.

REQUESTS = 16
"""Requests at once, unless the step's `num_proc` says otherwise."""

Rows = Mapping[str, list[Any]]


def concurrent(kind: type[Any], most: int) -> tuple[type[Any], dict[str, Any]]:
    """A class that asks for so many rows at once, and what it has to be made with.

    A mapper or filter that works on batches decides itself how it asks, and is given back as it is.
    """
    from data_juicer.ops.base_op import Filter, Mapper

    base, name, method = Mapper, "process_batched", _process_batched
    if issubclass(kind, Filter):
        base, name, method = Filter, "compute_stats_batched", _compute_stats_batched
    if getattr(kind, name, None) is not getattr(base, name):
        return kind, {}
    members = {name: method, "_requests": most, "__module__": kind.__module__}
    # All rows that Data-Juicer hands over at once are asked for together.
    return type(kind.__name__, (kind,), members), {"batch_mode": True, "batch_size": 1000}


def _process_batched(self: Any, samples: Rows, *args: Any, **kwargs: Any) -> dict[str, list[Any]]:
    def process(row: Any) -> Any:
        before = deepcopy(row)
        with calls_of_row(row[ROW]) as calls:
            after = self.process_single(row, *args, **kwargs)
        # What the operator makes of an answer that did not come is no result: an empty text, [].
        return before if calls.failed else after

    rows = _each(self, process, samples)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _compute_stats_batched(self: Any, samples: Any, *args: Any, **kwargs: Any) -> Any:
    from data_juicer.utils.constant import Fields

    def compute(row: Any) -> Any:
        known = set(row[Fields.stats])
        with calls_of_row(row[ROW]) as calls:
            after = self.compute_stats_single(row, *args, **kwargs)
            found = {k: value for k, value in after[Fields.stats].items() if k not in known}
            # A filter that keeps an answer as `..._record` keeps nothing of one it cannot read.
            if any(name.endswith("_record") and not value for name, value in found.items()):
                calls.ask("")
                calls.fail()
        return after

    rows = _each(self, compute, samples)
    samples[Fields.stats] = [row[Fields.stats] for row in rows]
    return samples


def _each(self: Any, work: Callable[[Any], Any], samples: Rows) -> list[Any]:
    """What `work` makes of each row, in their order; the first error ends the waiting."""
    from data_juicer.core.data.dj_dataset import nested_obj_factory

    columns = list(samples)
    rows = [
        nested_obj_factory(dict(zip(columns, row, strict=True)))
        for row in zip(*(samples[name] for name in columns), strict=True)
    ]
    with ThreadPoolExecutor(self._requests) as pool:
        # Each row in a context of its own: what is logged about it is counted with its step.
        futures = [pool.submit(copy_context().run, work, row) for row in rows]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# --- Operators that are written for Ray, such as `ray_document_deduplicator` ----------


def _run_with_ray(operator: Any, table: pa.Table) -> pa.Table:
    """The rows that an operator for Ray leaves of a table, as they are.

    The table is one block, so that the rows come to the operator in their order: of duplicates,
    the first stays. What the operator adds, such as `__dj__is_unique`, is not kept.
    """
    import ray
    from data_juicer.core.data.ray_dataset import RayDataset

    kept = np.zeros(table.num_rows, bool)
    with warnings.catch_warnings(), connected_to_ray(LOCAL), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # Ray's own, about how Data-Juicer calls it.
        operator.work_dir = folder  # Where one of them keeps its hashes meanwhile.
        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = RayDataset(ray.data.from_arrow(table), auto_op_parallelism=False)
        try:
            blocks = ray.get(dataset.process([operator]).data.to_arrow_refs())
        except ray.exceptions.RayTaskError as error:
            # Of the exception in a task, Ray has only the traceback.
            first = str(error).partition("\n\nThe above exception")[0].rstrip()
            cause = first.splitlines()[-1].strip()
            raise OperatorError(f"failed under Ray with {cause}") from None
        for block in blocks:
            if block.num_rows:
                kept[np.asarray(block[ROW])] = True
    return table.filter(pa.array(kept))


# --- The server that an operator asks, from its fields and the environment ------------

_DEFAULT_URL = "https://api.openai.com/v1"
# As data_juicer.utils.model_utils reads them, in its order.
_URLS = ("OPENAI_BASE_URL", "OPENAI_API_URL", "DASHSCOPE_BASE_URL")
_KEYS = ("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "SK")
_MODELS = ("api_or_hf_model", "api_model")
_WHICH_URL = "model_params: {base_url: ...} or OPENAI_BASE_URL"
_WHICH_KEY = "OPENAI_API_KEY"


class Server(NamedTuple):
    url: str  # up to and with `/v1`
    key: str  # empty where none is set
    model: str | None  # that it is asked for; None: the first that it has
    is_chat: bool = True  # whether it is asked for chat completions

    def check(self) -> None:
        """Try its address once, and whether it has the model and takes the key.

        Nothing is tried where there is a proxy between, which Data-Juicer's clients use.
        """
        from ...operators.servers.client import check_server
        from ...operators.servers.options import ServerOptions

        if not self.url.startswith(("http://", "https://")):
            found = f"the address of its server is '{self.url}'"
            raise EngineError(found, f"it must begin with http:// or https://; see {_WHICH_URL}")
        if not self.key:
            found = f"it has no key for {self.url}"
            raise EngineError(found, f"give {_WHICH_KEY}; a server of your own takes any value")
        if _is_beyond_proxy(self.url):
            return
        # Only of a chat is it known how to ask for the model, and Alibaba's has other names for it.
        model = self.model if self.is_chat and "dashscope" not in self.url else None
        try:
            check_server(ServerOptions(base_url=self.url, patience_s=0), model, key=self.key)
        except RejuiceError as error:
            right = error.right.replace("api_key_env", _WHICH_KEY).replace("base_url", _WHICH_URL)
            raise type(error)(error.found, right) from error.__cause__

    def lost(self, error: ServerLostError) -> EngineError:
        if error.status == 404:
            model = f"does it have the model '{self.model}', and " if self.model else ""
            what, right = "refuses requests", f"{model}is its address right? see {_WHICH_URL}"
        elif error.status is not None:
            what, right = "refuses requests", f"is the key right? see {_WHICH_KEY}"
        elif error.calls:
            what, right = f"answered none of {error.calls:,} calls", "its log may say why"
        else:
            what = "could not be reached"
            right = "is the server up? then run again: finished chunks are kept"
        return EngineError(f"{self.url} {what}: {error.found}", right)


def model_field(kind: ForeignKind) -> str | None:
    """The field of an operator that names a model which may be behind a server."""
    return next((name for name in _MODELS if name in kind.fields), None)


def asks_server(kind: ForeignKind, fields: Mapping[str, Any]) -> bool:
    def is_set(name: str, *, otherwise: bool) -> bool:
        default = kind.fields[name].default if name in kind.fields else otherwise
        return bool(fields.get(name, default))

    is_local = is_set("is_hf_model", otherwise=False) or is_set("enable_vllm", otherwise=False)
    is_api = is_set("is_api_model", otherwise=True)
    return model_field(kind) is not None and is_api and not is_local


def client_of(fields: Mapping[str, Any]) -> str:
    return (fields.get("model_params") or {}).get("api_backend") or "openai"


def server(kind: ForeignKind, fields: Mapping[str, Any]) -> Server | None:
    """The server that an operator asks; None where it is not known, as with `litellm`."""
    params, name = fields.get("model_params") or {}, model_field(kind)
    if name is None or client_of(fields) == "litellm":
        return None
    url = params.get("base_url") or _first(_URLS) or _DEFAULT_URL
    model, endpoint = (
        fields.get(field, kind.fields[field].default if field in kind.fields else None)
        for field in (name, "api_endpoint")
    )
    key = str(params.get("api_key") or _first(_KEYS))
    return Server(str(url).rstrip("/"), key, model, "chat" in (endpoint or "chat"))


def _is_beyond_proxy(url: str) -> bool:
    from urllib.request import getproxies, proxy_bypass  # `rejuice check` asks no server.

    parts = urlsplit(url)
    proxies = {parts.scheme, "all"} & set(getproxies())
    return bool(proxies) and not proxy_bypass(parts.hostname or "")


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


# --- Run an operator ------------------------------------------------------------------


def run_operator(
    kind: ForeignKind, key: str, fields: Mapping[str, Any], table: pa.Table
) -> tuple[pa.Table, Failures]:
    """The rows that an operator makes of a table with the column `ROW`, and what went wrong.

    For each key, its name and fields, an instance is made once.
    """
    with described(kind, fields, table, is_made=lambda: key in _instances), no_installs():
        try:
            with watching() as failures:
                if kind.needs_ray:
                    # Made anew: it holds actors of Ray's, which remember an earlier table.
                    rows = _run_with_ray(_load(kind, fields), table)
                else:
                    if key not in _instances:
                        _instances[key] = _load(kind, fields)
                    rows = _run(_instances[key], table)
                failures.calls.check_answered()
                return rows, failures
        except ServerLostError as error:
            asked = server(kind, fields)
            raise EngineError(error.found) if asked is None else asked.lost(error) from None


def prepare(kind: ForeignKind, fields: Mapping[str, Any]) -> None:
    """Make an operator, whose constructor checks its fields; workers make their own."""
    with described(kind, fields, None, is_made=lambda: False), no_installs(), watching():
        try:
            _load(kind, fields)
        except ServerLostError as error:
            raise EngineError(error.found) from None


def _run(operator: Any, table: pa.Table) -> pa.Table:
    from data_juicer.ops.base_op import Mapper

    rows = table[ROW]
    one_of_each = isinstance(operator, Mapper) and not operator.is_batched_op()
    if one_of_each:
        # A function of the user's sees the columns that the dataset has, and no other.
        table = table.drop_columns([ROW])
    out = operator.run(nested(table))
    if one_of_each:
        return rows_of(out).append_column(ROW, rows)
    if ROW not in out.column_names:
        found = "Data-Juicer's operator removed the column that numbers the rows"
        raise OperatorError(found, "run this recipe with dj-process")
    return rows_of(out)


_instances: dict[str, Any] = {}
"""This process's instances, by name and fields: some operators load a model when built."""


def _load(kind: ForeignKind, fields: Mapping[str, Any]) -> Any:
    import datasets

    datasets.disable_progress_bars()
    cls, given = kind.cls, {name: each for name, each in fields.items() if name not in HOW_FAST}
    asks = asks_server(kind, fields)
    if asks:
        most = fields.get("num_proc")
        cls, more = concurrent(cls, most if isinstance(most, int) and most > 0 else REQUESTS)
        given = {**more, **given}
    # It works in this process, and hides no error.
    given |= {"skip_op_error": False, "auto_op_parallelism": False, "num_proc": None}
    operator = cls(**given)
    if asks:
        watch_model(operator)
    return operator


HOW_FAST = frozenset({"auto_op_parallelism", "num_proc"})
"""Fields for `dj-process`: `rejuice run` has workers of its own."""
