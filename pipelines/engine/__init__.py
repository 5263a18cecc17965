"""A recipe over chunks: commits, resume, workers, export."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Lazy: `rejuice check` imports modules of this package and needs no engine.
    if name == "run":
        from .run import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
