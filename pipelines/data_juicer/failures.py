"""What goes wrong in an operator of Data-Juicer's: on single rows, and so that the run ends."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from ...operators import OperatorError, RejuiceError
from ...operators.errors import NotReadyError, first_line
from ...operators.logs import redact
from ...operators.operator import merge_logged
from .catalogue import ForeignKind

# --- On single rows -------------------------------------------------------------------
# Data-Juicer's operators log an exception and go on: an answer that did not come is an empty text,
# then a score of 0.0. Here the messages are collected, and the questions to a server that were not
# answered: those whose last attempt gave an empty answer, as all of Data-Juicer's clients do for
# any error, or one about which the operator logged an exception, such as JSON that it cannot read.

_LONGEST_MESSAGE = 200
_LIBRARY = "data_juicer"
_WARNING = 30
_NEVER_SHOWN = -1
"""A level that no handler of loguru shows, as theirs are not negative."""
_UNREACHABLE = {"ConnectError", "ConnectTimeout", "UnsupportedProtocol", "InvalidURL", "gaierror"}
"""Classes of httpx, of its successor, and of Python; `openai` and `litellm` wrap them."""
_REFUSED = (401, 403, 404)


class ServerLostError(BaseException):
    """The server cannot be reached, refuses requests with a status, or answers none of some calls.

    No `Exception`, because Data-Juicer's operators catch those and go on.
    """

    def __init__(self, found: str, status: int | None, calls: int = 0) -> None:
        super().__init__(found, status, calls)
        self.found, self.status, self.calls = found, status, calls


class Calls:
    """The questions that were asked for one row, or for a whole batch."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self._failed: dict[str, bool] = {}
        self._question: str | None = None
        self.error: BaseException | None = None

    def ask(self, question: str) -> None:
        """Begin an attempt; the same question again is another attempt at it."""
        self._question, self.error = question, None
        self._failed[question] = False

    def fail(self, error: BaseException | None = None) -> None:
        self.error = error or self.error
        if self._question is not None:
            self._failed[self._question] = True

    @property
    def failed(self) -> int:
        return sum(self._failed.values())

    def check_answered(self) -> None:
        """Pass the questions of a batch, unless none of them was answered."""
        if self._failed and self.failed == len(self._failed):
            found = _line(str(self.error or "")) or "its answers are empty"
            raise ServerLostError(found, None, self.failed)


class Failures:
    """What went wrong on some rows, in any thread."""

    def __init__(self) -> None:
        self.calls = Calls(self)  # those that belong to no row
        self.failed: set[int] = set()  # rows with a question that was not answered
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._outer = sys.exc_info()[1]

    @property
    def logged(self) -> dict[str, int]:
        """One message of each kind, and how often it was logged."""
        return merge_logged([self._counts])

    def log(self, record: Any) -> None:
        """Count a record of loguru, and note the failed call that it is about."""
        with self._lock:
            self._counts[f"{record['level'].name} {_line(record['message'])}"] += 1
        # `logger.warning(f"Exception: {e}")`: it is the one that is being handled.
        error = record["exception"].value if record["exception"] else sys.exc_info()[1]
        calls = _calls.get()
        if error is not None and error is not self._outer and calls is not None:
            calls.fail(error)


_calls: ContextVar[Calls | None] = ContextVar("calls", default=None)


@contextmanager
def watching() -> Iterator[Failures]:
    """Collect what Data-Juicer logs in this context; none of it reaches a handler of loguru."""
    _listen()
    watch = Failures()
    before = _calls.set(watch.calls)
    try:
        yield watch
    finally:
        _calls.reset(before)


@contextmanager
def calls_of_row(number: int) -> Iterator[Calls]:
    """Collect the questions of one row, which has failed if one of them was not answered."""
    outer = _calls.get()
    calls = Calls(outer.failures if outer else Failures())
    before = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(before)
        if calls.failed:
            calls.failures.failed.add(number)


def watch_model(operator: Any) -> None:
    """Watch the calls of an operator that asks a server. Its client is made now, not in a row."""
    from data_juicer.utils.model_utils import get_model

    calls = _calls.get()
    if calls is not None and calls.error is not None:
        _check_not_lost(calls.error)
        raise calls.error
    operator.model_key = partial(_watched, operator.model_key)
    get_model(operator.model_key)


def _watched(make: Any, **kwargs: Any) -> Any:
    made = make(**kwargs)
    # With a processor beside it, such as a tokenizer, it is not there to be asked.
    return made if isinstance(made, Sequence) else _WatchedModel(made)


class _WatchedModel:
    """A client of Data-Juicer's for a server, each call of which is noted."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calls = _calls.get() or Calls(Failures())
        calls.ask(repr(args))
        try:
            answer = self._model(*args, **kwargs)
        except Exception as error:
            calls.fail(error)
            _check_not_lost(error)
            raise
        if not answer:
            calls.fail()
            _check_not_lost(calls.error)
        return redact(answer) if isinstance(answer, str) else answer


def _check_not_lost(error: BaseException | None) -> None:
    """Raise for an error that every other request would meet, too."""
    for each in _causes(error):
        status = getattr(each, "status_code", None)
        if status in _REFUSED:
            raise ServerLostError(_line(str(error)), status) from None
        names = {kind.__name__ for kind in type(each).__mro__}
        if isinstance(each, ConnectionRefusedError) or names & _UNREACHABLE:
            raise ServerLostError(_line(str(each) or type(each).__name__), None) from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _listen() -> None:
    """Let loguru show us every record first."""
    from loguru import logger as shared

    logger: Any = shared
    logger.enable(_LIBRARY)
    # private: loguru==0.7.3, tests/pipelines/data_juicer/test_failures.py::test_a_handler_of_the_users_sees_only_what_is_logged_outside_of_steps
    core = logger._core
    if not isinstance(core.patcher, _Patcher):
        logger.configure(patcher=_Patcher(core.patcher))
    if core.min_level > _WARNING:
        # Without a handler that wants them, loguru makes no records.
        logger.add(lambda _: None, level="WARNING", format="", catch=False)


class _Patcher:
    """Counts what Data-Juicer logs within a step, and hides it from all handlers."""

    def __init__(self, other: Any) -> None:
        self._other = other  # the patcher of the program, if it has one

    def __call__(self, record: Any) -> None:
        if self._other is not None:
            self._other(record)
        calls = _calls.get()
        if calls is None or str(record["name"]).partition(".")[0] != _LIBRARY:
            return
        level = record["level"]
        if level.no >= _WARNING:
            calls.failures.log(record)
        record["level"] = type(level)(level.name, _NEVER_SHOWN, level.icon)


def _line(message: str) -> str:
    line = redact(" ".join(message.split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} ..."


# --- Installs -------------------------------------------------------------------------

_OFFLINE = ("UV_OFFLINE", "PIP_NO_INDEX")
"""Variables that keep from the network what an operator starts to install something."""
_lock = threading.Lock()
_at_work: list[None] = []
"""One for each operator of Data-Juicer's that works."""
_set = set[str]()
"""Those of `_OFFLINE` that were set for them."""


@contextmanager
def no_installs() -> Iterator[None]:
    """Data-Juicer installs nothing while the block runs: a missing package is an ImportError.

    Who calls rejuice from Python may install what they like before and after.
    """
    _forbid()
    with _lock:
        if not _at_work:
            _set.update(name for name in _OFFLINE if name not in os.environ)
            os.environ.update(dict.fromkeys(_set, "1"))
        _at_work.append(None)
    try:
        yield
    finally:
        with _lock:
            _at_work.pop()
            while _set and not _at_work:
                os.environ.pop(_set.pop(), None)


@cache
def _forbid() -> None:
    from data_juicer.utils.lazy_loader import LazyLoader

    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_ready.py::test_a_missing_package_is_one_line_and_nothing_is_installed
    install = LazyLoader._install_package

    def install_or_refuse(_: type[Any], package: str, *options: Any, **named: Any) -> Any:
        if not _at_work:
            return install(package, *options, **named)
        try:
            # `check_packages` misses a package that is imported by another name than pip's.
            distribution(re.split(r"[^\w.-]", package.strip(), maxsplit=1)[0])
        except (PackageNotFoundError, ValueError):
            raise ImportError(f"{package} is not installed", name=package) from None
        return True

    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_ready.py::test_a_missing_package_is_one_line_and_nothing_is_installed
    LazyLoader._install_package = classmethod(install_or_refuse)


# --- What ends a run ------------------------------------------------------------------

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NETWORK = {"aiohttp", "httpcore", "httpx", "huggingface_hub", "requests", "urllib", "urllib3"}
"""Packages whose errors are about something that could not be fetched."""


@contextmanager
def described(
    kind: ForeignKind,
    fields: Mapping[str, Any],
    table: pa.Table | None,
    *,
    is_made: Callable[[], bool],
) -> Iterator[None]:
    """Turn whatever an operator raises into one line."""
    try:
        yield
    except (RejuiceError, MemoryError):
        raise
    except Exception as error:
        # A full disk is not the operator's failure, and the runner knows what to say.
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        if isinstance(error, ImportError) and error.name:
            found = f"needs {error.name}, which is not installed"
            raise NotReadyError(found, f"pip install {shlex.quote(error.name)}") from error
        every = {name: field.default for name, field in kind.fields.items()} | {**fields}
        values = {name: value for name, value in every.items() if isinstance(value, str)}
        if any(
            isinstance(each, ConnectionError | TimeoutError)
            or type(each).__module__.partition(".")[0] in _NETWORK
            for each in _causes(error)
        ):
            names = (k for k, v in values.items() if re.search("model|tokenizer", k) and "/" in v)
            wanted = " or ".join(f"{values[k]} ({k})" for k in names) or "what it needs"
            right = "it has to be reached, or named by a path on this disk"
            raise NotReadyError(f"could not fetch {wanted}: {_summary(error)}", right) from error
        if not is_made():
            raise NotReadyError(f"failed with {_summary(error)}") from error
        note, hint = ("", "") if table is None else _hint(values, table, error)
        raise OperatorError(f"failed with {_summary(error)}{note}", hint) from error


def _summary(error: Exception) -> str:
    """Its type and the first line of its message, or where it was raised."""
    first = first_line(error)
    if not first:
        at = traceback.extract_tb(error.__traceback__)[-1]
        first = f"no message, at {Path(at.filename).name}:{at.lineno}"
    return f"{type(error).__name__}: {first}"


def _hint(values: Mapping[str, str], table: pa.Table, error: Exception) -> tuple[str, str]:
    text_key = values.get("text_key", "text")
    if text_key not in table.column_names:
        return "", f"it may need column '{text_key}': set text_keys or text_key"
    keys = {value for name, value in values.items() if name.endswith("_key")}
    # Columns that it may not read at all have to be named by more than their nulls.
    others = keys - {text_key} if "NoneType" in str(error) else ()
    for column in (text_key, *sorted(others)):
        if column in table.column_names and table[column].null_count:
            return f" (column '{column}' is null)", "drop rows in which it is null"
    return "", ""
