"""What went wrong in an operator of Data-Juicer's, in one line."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from ...operators import OperatorError, RejuiceError
from ...operators.errors import NotReadyError, first_line
from .catalogue import find
from .static_checks import Package

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
    """The words of a command, or of the shell's command."""
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
    """What a command would install or take away; empty: nothing."""
    for at, word in enumerate(words):
        if word in _COMMANDS and any(_is_installer(each) for each in words[:at]):
            named = [each for each in words[at + 1 :] if not each.startswith("-")]
            return " ".join(named) or " ".join(words)
    return ""


def _is_installer(word: str) -> bool:
    return re.sub(r"\.exe$", "", PurePath(word).name) in _INSTALLERS


# --- What went wrong in an operator of Data-Juicer's, in one line ---------------------

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
    """Its type and the first line of its message, or where it was raised."""
    first = first_line(error)
    if not first:
        at = traceback.extract_tb(error.__traceback__)[-1]
        first = f"no message, at {Path(at.filename).name}:{at.lineno}"
    return f"{type(error).__name__}: {first}"


def _is_network(error: BaseException | None) -> bool:
    """Whether it, or what it came from, is about a connection."""
    while error is not None:
        package = type(error).__module__.split(".")[0]
        if isinstance(error, ConnectionError | TimeoutError) or package in _NETWORK:
            return True
        error = error.__cause__ or error.__context__
    return False


def _wanted(name: str, fields: Mapping[str, Any], error: BaseException) -> str:
    """What could not be fetched: an address, or the model that a field names."""
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
    """The fields of an operator that have a text, with their defaults."""
    found = find(name)
    values = {field.name: field.value for field in found.fields} if found else {}
    return {key: value for key, value in {**values, **fields}.items() if isinstance(value, str)}


def _hint(
    name: str, fields: Mapping[str, Any], table: pa.Table | None, error: Exception
) -> tuple[str, str]:
    """What else the rows show, and what would be right."""
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
