"""Data-Juicer without its installer: a step must not change the environment that it runs in."""

from __future__ import annotations

import os
from typing import Any, NoReturn


class NotInstalledError(ImportError):
    """A package that an operator uses is not there.

    Attributes:
        package: what `pip install` takes.
    """

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed")
        self.package = package


def forbid_installs() -> None:
    """Let Data-Juicer fail at once where it would install what it misses, and then go on."""
    # For the few of its operators that call pip themselves.
    os.environ.setdefault("UV_OFFLINE", "1")
    os.environ.setdefault("PIP_NO_INDEX", "1")
    from data_juicer.utils.lazy_loader import LazyLoader

    # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_needs.py::test_a_package_that_is_missed_while_it_runs
    LazyLoader._install_package = classmethod(_refuse)


def _refuse(cls: type[Any], package: str, *_: Any) -> NoReturn:
    raise NotInstalledError(package)
