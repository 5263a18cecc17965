"""A value and the unit after it, in any language."""

from __future__ import annotations

from . import measures
from .measures import Measure


def split_unit(text: str) -> tuple[str, Measure | None]:
    """A value without the unit after it, and the unit, as `measures.split_unit`."""
    if not text.isascii():
        from .counters import split_foreign_unit  # compiled where a text needs it

        value, unit = split_foreign_unit(text)
        if value != text:
            return value, unit
    return measures.split_unit(text)
