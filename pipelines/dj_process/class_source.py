"""Where Data-Juicer's tools find the source of a class that stands for an operator of ours."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import data_juicer

from ...operators import Operator


def class_source(kind: type[Operator]) -> dict[str, str]:
    """`__module__` and `__qualname__` with which `inspect` finds the operator's source.

    `OPSearcher`, and so `dj-mcp`, reads the source of every registered class, and fails for all of
    them where one class has none, lies outside the folder that Data-Juicer is installed in, or is
    in a module whose name has fewer than three parts. The operator's own module may be any of
    these: an editable install, a file on disk, a notebook. So its class gets a module to itself,
    with the operator's file as a path from that folder.
    """
    documented = next(_with_source(kind))
    name = f"{__name__}.{kind.name()}"
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_upstream_tools.py::test_the_searcher_lists_every_operator
    root = Path(data_juicer.__file__).resolve().parent.parent
    file = os.path.relpath(Path(inspect.getfile(documented)).resolve(), root)
    # No module object: `inspect` would take it for the module of everything in the file.
    sys.modules[name] = SimpleNamespace(__file__=str(root / file))  # type: ignore[assignment]
    return {"__module__": name, "__qualname__": documented.__qualname__}


def _with_source(kind: type[Operator]) -> Iterator[type]:
    """The class and its bases, as far as their source can be read."""
    for base in kind.__mro__:
        try:
            inspect.getsource(base)
        except (OSError, TypeError):  # A class of a console, or one that no `class` statement made.
            continue
        yield base
