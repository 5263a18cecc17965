r"""Rows and cells of matrices and of definitions by cases."""

from __future__ import annotations

import re

from .lists import split_items

Cells = list[list[str]]

ENVIRONMENT = "\\begin"
_MATRIX = re.compile(
    r"\\begin\{([pbBv]?)(?:small)?(?:matrix|array)\}(?:\{[lcr|]*\})?(.*?)\\end\{[a-zA-Z]*\}$",
    re.DOTALL,
)
_CASES = re.compile(r"\\begin\{[dr]?cases\}(.*?)\\end\{[dr]?cases\}$", re.DOTALL)
_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?")
_CONDITION = re.compile(r"^(?:if|when|where|for)(?![a-z])|[,.;]+$")
_SIDE_BY_SIDE = re.compile(r"&|,(?=\s*(?:if|when|where|for)\b)")


def read_matrix(text: str) -> Cells | None:
    """The cells of a matrix; None for anything else, such as a product of two."""
    text = text.strip()
    if text[:1] in ("[", "(") and text[1:].lstrip().startswith(ENVIRONMENT):
        text = text[1:-1].strip()
    found = _MATRIX.match(text)
    if not found or found[1] == "v" or ENVIRONMENT in found[2]:
        return None  # bars denote a determinant: a number, left to the symbolic tier
    rows = _rows(found[2].replace("\\hline", ""), re.compile("&"))
    # As one cell, `1, 2` would be a list, whose order is free.
    return [[item for cell in row for item in split_items(cell)] for row in rows]


def read_cases(text: str) -> Cells | None:
    """The cases of a definition, each a value and its condition without `if`."""
    found = _CASES.match(text.removeprefix("\\{").strip())
    if not found or ENVIRONMENT in found[1]:
        return None
    rows = _rows(found[1], _SIDE_BY_SIDE)
    return [[_bare(cell) for cell in row] for row in rows]


def _rows(inside: str, separator: re.Pattern[str]) -> Cells:
    rows = [row for row in _ROW.split(inside) if row.strip()]
    return [[cell.strip() for cell in separator.split(row)] for row in rows]


def _bare(cell: str) -> str:
    while (bare := _CONDITION.sub("", cell).strip()) != cell:
        cell = bare
    return cell
