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
from pathlib import Path, PurePath
from threading import Lock
from typing import Any

import pyarrow as pa

from ...operators import OperatorError, RejuiceError
from ...operators.errors import NotReadyError, first_line
from ...operators.logs import redact
from ...operators.operator import merge_logged
from .catalogue import find
from .static_checks import Package

# --- On single rows -------------------------------------------------------------------
# Data-Juicer's operators log an exception and go on: an answer that did not come is an empty text,
# then a score of 0.0. Here the messages are collected, and the questions to a server that were not
# answered.
#
#     watching() ──> messages of the step, and the calls of each row:
#                        a question, asked again until it is answered or the operator gives up
#
# A question has failed if its last attempt has: the model gave an empty answer, as all of
# Data-Juicer's clients do for any error, or the operator logged an exception about the answer, such
# as JSON that it cannot read. So an attempt that succeeds after a warning is no failure, and a
# warning about something else is none.

_LONGEST_MESSAGE = 200
_LIBRARY = "data_juicer"
_WARNING = 30
_NEVER_SHOWN = -1
"""A level that no handler of loguru shows, as theirs are not negative."""
_UNREACHABLE = ("ConnectError", "ConnectTimeout", "UnsupportedProtocol", "InvalidURL", "gaierror")
"""Classes of httpx, of its successor, and of Python; `openai` and `litellm` wrap them."""
_REFUSED = (401, 403, 404)


class ServerLostError(BaseException):
    """The server cannot be reached, refuses every request, or answers none.

    No `Exception`, because Data-Juicer's operators catch those and go on.

    Args:
        found: what the server did, or what the connection failed with.
        status: that it refuses them with; None: it was not reached, or answers none.
        calls: how many calls it has not answered; 0: it was not reached.
    """

    def __init__(self, found: str, status: int | None, calls: int = 0) -> None:
        super().__init__(found, status, calls)
        self.found, self.status, self.calls = found, status, calls


class Calls:
    """The questions that were asked for one row, or for a whole batch."""

    def __init__(self) -> None:
        self._failed: dict[str, bool] = {}
        self._question: str | None = None
        self.error: BaseException | None = None

    def ask(self, question: str) -> None:
        """Begin an attempt; the same question again is another attempt at it."""
        self._question, self.error = question, None
        self._failed[question] = False

    def fail(self, error: BaseException | None = None) -> None:
        """Note that the last attempt has failed."""
        self.error = error or self.error
        if self._question is not None:
            self._failed[self._question] = True

    @property
    def failed(self) -> int:
        """How many questions were not answered."""
        return sum(self._failed.values())

    def check_answered(self) -> None:
        """Pass the questions of a batch, unless none of them was answered.

        Raises:
            ServerLostError: none was: what was made of the batch is no result.
        """
        if self._failed and self.failed == len(self._failed):
            found = _line(str(self.error or "")) or "its answers are empty"
            raise ServerLostError(found, None, self.failed)


class Failures:
    """What went wrong on some rows, in any thread.

    Attributes:
        calls: those that belong to no row.
        failed: numbers of the rows with a question that was not answered.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self.failed: set[int] = set()
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


_watch: ContextVar[Failures | None] = ContextVar("watch", default=None)
_calls: ContextVar[Calls | None] = ContextVar("calls", default=None)


@contextmanager
def watching() -> Iterator[Failures]:
    """Collect what Data-Juicer logs in this context; none of it reaches a handler of loguru."""
    _listen()
    watch = Failures()
    before = _watch.set(watch), _calls.set(watch.calls)
    try:
        yield watch
    finally:
        _watch.reset(before[0])
        _calls.reset(before[1])


@contextmanager
def calls_of_row() -> Iterator[Calls]:
    """Collect the questions of one row."""
    calls = Calls()
    before = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(before)


def note_failed_row(number: int) -> None:
    """Note a row with a question that was not answered."""
    watch = _watch.get()
    if watch is not None:
        watch.failed.add(number)


def watch_model(operator: Any) -> None:
    """Watch the calls of an operator that asks a server. Its client is made now, not in a row.

    Raises:
        Exception: what the operator has caught when it was made; some ask for embeddings then.
    """
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
        calls = _calls.get() or Calls()
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
    outermost, seen = error, set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(error, "status_code", None)
        if status in _REFUSED:
            raise ServerLostError(_line(str(outermost)), status) from None
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, ConnectionRefusedError) or names & set(_UNREACHABLE):
            raise ServerLostError(_line(str(error) or type(error).__name__), None) from None
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
    # private: loguru==0.7.3, tests/pipelines/data_juicer/test_failures.py::test_messages_are_counted_where_loguru_has_no_handler
    if core.min_level > _WARNING:
        # Without a handler that wants them, loguru makes no records.
        logger.add(lambda _: None, level="WARNING", format="", catch=False)


class _Patcher:
    """Counts what Data-Juicer logs within a step, and hides it from all handlers.

    Args:
        other: the patcher of the program, if it has one.
    """

    def __init__(self, other: Any) -> None:
        self._other = other

    def __call__(self, record: Any) -> None:
        if self._other is not None:
            self._other(record)
        watch = _watch.get()
        if watch is None or str(record["name"]).partition(".")[0] != _LIBRARY:
            return
        level = record["level"]
        if level.no >= _WARNING:
            watch.log(record)
        record["level"] = type(level)(level.name, _NEVER_SHOWN, level.icon)


def _line(message: str) -> str:
    line = redact(" ".join(message.split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} ..."


# --- Installs -------------------------------------------------------------------------
# Data-Juicer without its installers: a step must not change the environment that it runs in.
#
# Data-Juicer 1.6.1 installs in two ways. `LazyLoader._install_package` stands behind packages that
# are imported when they are used and behind `LazyLoader.check_packages`. Some operators and makers
# of models start `pip`, `uv` or `mim` themselves, and so does spaCy when it downloads a model.

_INSTALLERS = {"conda", "mim", "pip", "pip3", "pipenv", "poetry", "setup.py", "uv"}
_COMMANDS = {"add", "install", "sync", "uninstall"}
_OFFLINE = ("UV_OFFLINE", "PIP_NO_INDEX")
"""Variables that keep installers from the network."""


class NotInstalledError(ImportError):
    """A package that an operator uses is not there.

    Attributes:
        package: what `pip install` takes.
    """

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed")
        self.package = package


@contextmanager
def no_installs() -> Iterator[None]:
    """Fail where Data-Juicer would install what it misses, while the block runs.

    Raises:
        NotInstalledError: it tried to install a package, even where it went on without.
    """
    _forbid()
    with _lock:
        if not _at_work:
            # For what is started in a way that is not seen here.
            _set.update(name for name in _OFFLINE if name not in os.environ)
            os.environ.update(dict.fromkeys(_set, "1"))
        _at_work.append(None)
    try:
        yield
        if _refused:
            raise NotInstalledError(_refused[0])
    except Exception as error:
        if _refused and not isinstance(error, NotInstalledError):
            raise NotInstalledError(_refused[0]) from error
        raise
    finally:
        with _lock:
            _at_work.pop()
            _refused.clear()
            if not _at_work:
                # Who calls rejuice from Python may install what they like afterwards.
                while _set:
                    os.environ.pop(_set.pop(), None)


_lock = threading.Lock()
_at_work: list[None] = []
"""One for each operator of Data-Juicer's that works: what else this process starts is not ours."""
_set = set[str]()
"""Those of `_OFFLINE` that were set for them."""
_refused: list[str] = []
"""Packages that a working operator has tried to install by a command."""


@cache
def _forbid() -> None:
    from data_juicer.utils.lazy_loader import LazyLoader

    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_needs.py::test_a_package_that_is_missed_while_it_runs
    install = LazyLoader._install_package

    def install_or_refuse(_: type[Any], package: str, *options: Any, **named: Any) -> Any:
        if not _at_work:
            return install(package, *options, **named)
        # `check_packages` takes a package for missing that is imported by another name than pip's.
        if not Package("", package).is_installed():
            raise NotInstalledError(package)
        return True

    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_installs.py::test_who_uses_data_juicer_beside_rejuice_has_its_installer
    LazyLoader._install_package = classmethod(install_or_refuse)
    sys.addaudithook(_refuse_commands)


def _refuse_commands(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("subprocess.Popen", "os.system") or not _at_work:
        return
    command = arguments[1] if event == "subprocess.Popen" else arguments[0]
    package = _installed_by(_words(command))
    if package:
        _refused.append(package)
        raise NotInstalledError(package)


def _words(command: Any) -> list[str]:
    """Return the words of a command, or of the shell's command."""
    if isinstance(command, str | bytes | os.PathLike):
        command = [command]
    words = [os.fsdecode(word) for word in command]
    # A shell's command is one word: `sh -c "pip install x"`.
    return [each for word in words for each in _split(word)]


def _split(word: str) -> list[str]:
    try:
        return shlex.split(word) if " " in word else [word]
    except ValueError:
        return word.split()


def _installed_by(words: Sequence[str]) -> str:
    """Return what a command would install or take away; empty: nothing."""
    for at, word in enumerate(words):
        if word in _COMMANDS and any(_is_installer(each) for each in words[:at]):
            named = [each for each in words[at + 1 :] if not each.startswith("-")]
            return " ".join(named) or " ".join(words)
    return ""


def _is_installer(word: str) -> bool:
    return re.sub(r"\.exe$", "", PurePath(word).name) in _INSTALLERS


# --- What ends a run ------------------------------------------------------------------

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NETWORK = {"aiohttp", "httpcore", "httpx", "huggingface_hub", "requests", "urllib", "urllib3"}
"""Packages whose errors are about something that could not be fetched."""


@contextmanager
def described(
    name: str,
    fields: Mapping[str, Any],
    table: pa.Table | None,
    *,
    is_made: Callable[[], bool],
) -> Iterator[None]:
    """Turn whatever an operator raises into one line.

    Raises:
        OperatorError: it failed on the rows.
        NotReadyError: it cannot be made, or misses a package or something from the network.
    """
    try:
        yield
    except (RejuiceError, MemoryError):
        raise
    except NotInstalledError as error:
        found = f"needs {error.package}, which is not installed"
        raise NotReadyError(found, f"pip install {shlex.quote(error.package)}") from error
    except Exception as error:
        # A full disk is not the operator's failure, and the runner knows what to say.
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        if _is_network(error):
            found = f"could not fetch {_wanted(name, fields, error)}: {_summary(error)}"
            right = "it has to be reached, or named by a path on this disk"
            raise NotReadyError(found, right) from error
        kind = OperatorError if is_made() else NotReadyError
        note, hint = _hint(name, fields, table, error)
        raise kind(f"failed with {_summary(error)}{note}", hint) from error


def _summary(error: Exception) -> str:
    """Return its type and the first line of its message, or where it was raised."""
    first = first_line(error)
    if not first:
        at = traceback.extract_tb(error.__traceback__)[-1]
        first = f"no message, at {Path(at.filename).name}:{at.lineno}"
    return f"{type(error).__name__}: {first}"


def _is_network(error: BaseException | None) -> bool:
    """Return whether it, or what it came from, is about a connection."""
    while error is not None:
        package = type(error).__module__.split(".")[0]
        if isinstance(error, ConnectionError | TimeoutError) or package in _NETWORK:
            return True
        error = error.__cause__ or error.__context__
    return False


def _wanted(name: str, fields: Mapping[str, Any], error: BaseException) -> str:
    """Return what could not be fetched: an address, or the model that a field names."""
    texts = list[str]()
    each: BaseException | None = error
    while each is not None:
        texts.append(str(getattr(getattr(each, "request", None), "url", "") or ""))
        each = each.__cause__ or each.__context__
    address = next(filter(None, texts), "")
    models = {
        field: value
        for field, value in _values(name, fields).items()
        if re.search("model|tokenizer", field) and "/" in value
    }
    if not models:
        return address or "something that it needs"
    return " or ".join(f"{value} ({field})" for field, value in models.items())


def _values(name: str, fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an operator that have a text, with their defaults."""
    found = find(name)
    values = {field.name: field.value for field in found.fields} if found else {}
    return {key: value for key, value in {**values, **fields}.items() if isinstance(value, str)}


def _hint(
    name: str, fields: Mapping[str, Any], table: pa.Table | None, error: Exception
) -> tuple[str, str]:
    """Return what else the rows show, and what would be right."""
    if table is None:
        return "", ""
    text_key = fields.get("text_key", "text")
    if text_key not in table.column_names:
        return "", f"it may need column '{text_key}': set text_keys or text_key"
    keys = {value for key, value in _values(name, fields).items() if key.endswith("_key")}
    # Columns that it may not read at all have to be named by more than their nulls.
    others = keys - {text_key} if "NoneType" in str(error) else ()
    for column in (text_key, *sorted(others)):
        if column in table.column_names and table[column].null_count:
            return f" (column '{column}' is null)", "drop rows in which it is null"
    return "", ""
