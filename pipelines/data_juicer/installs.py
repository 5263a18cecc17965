"""Data-Juicer without its installers: a step must not change the environment that it runs in.

Data-Juicer 1.6.1 installs in two ways. `LazyLoader._install_package` stands behind packages that
are imported when they are used and behind `LazyLoader.check_packages`. Some operators and makers of
models start `pip`, `uv` or `mim` themselves, and so does spaCy when it downloads a model.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from typing import Any

from .needs import Package

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
