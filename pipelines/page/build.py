"""Write a page: one HTML file that loads nothing, and in which no text of a row can run.

The security policy of the page allows scripts by their hashes only: ours, plotly.js and DataTables.
The two libraries are packed like data, and inserted by our script under the same policy.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ...operators import DataError
from ...operators.groups import Array
from ..dataset.arrow_files import temporary_path
from .blocks import (
    drawn,
    embedded_json,
    excerpts,
    packed,
    packed_numbers,
    packed_size,
    text_blocks,
)
from .content import PageData, PageSet, PageSummary
from .libraries import plotly_js, tables_css, tables_js

MADE_BY = "A page of rejuice"
_MAKER = f"<!doctype html>\n<!-- {MADE_BY} -->\n".encode()
_SCRIPTS = (
    "text.js",
    "data.js",
    "plots.js",
    "overview.js",
    "samples.js",
    "cards.js",
    "training.js",
    "page.js",
)
_MARGIN = 1.04
"""The texts of a set may take more than a sample of them makes expect."""


def build_page(data: PageData, output: Path, *, most_bytes: int = 39_000_000) -> PageSummary:
    """Write the page of some sets.

    Args:
        data: what is on it.
        output: the file; it appears when all is written.
        most_bytes: of the file. Above, texts of some groups are left out, all figures stay.

    Raises:
        DataError: `output` is there and is no page.
    """
    if output.exists() and MADE_BY.encode() not in output.read_bytes()[:200]:
        right = "give another --output"
        raise DataError(f"{output} exists and is no page of rejuice", right)
    writer = _Writer(data, most_bytes)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(output)
    try:
        temporary.write_bytes(writer.page())
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    rows = sum(each.rows for each in data.sets)
    groups = sum(len(each.groups_at) for each in data.sets)
    return PageSummary(output.stat().st_size, len(data.sets), rows, groups, writer.with_texts)


class _Writer:
    def __init__(self, data: PageData, most_bytes: int) -> None:
        self._data = data
        self._blocks: list[bytes] = []
        self._own = "\n".join(_asset(name) for name in _SCRIPTS)
        self._libraries = packed(plotly_js().encode(), 9), packed(tables_js().encode(), 9)
        self._budget = most_bytes - sum(map(len, self._libraries)) - len(self._own)
        self.with_texts = 0

    def page(self) -> bytes:
        heads = [self._set(each) for each in self._data.sets]
        head = {
            "version": 1,
            "title": self._data.title,
            "made_by": "rejuice",
            "sets": heads,
            "points": self._data.points,
            "changes": self._data.changes,
            "signs": self._data.signs,
            "recipe": self._data.recipe,
        }
        template = _asset("page.html").encode()
        scripts = (self._own, plotly_js(), tables_js())
        plotly, tables = self._libraries
        parts = {
            b"{{POLICY}}": " ".join(map(_hashed, scripts)).encode(),
            b"{{STYLE}}": f"{tables_css()}\n{_asset('page.css')}".encode(),
            b"{{HEAD}}": embedded_json(head),
            b"{{LIBRARIES}}": _script("plotly", plotly) + _script("tables", tables),
            b"{{BLOCKS}}": b"".join(self._blocks),
            b"{{SCRIPT}}": self._own.encode(),
        }
        # Cut once, and joined: what was put in is never searched again.
        for mark in parts:
            assert template.count(mark) == 1, mark
        pieces = [template]
        for mark, text in parts.items():
            at = next(i for i, piece in enumerate(pieces) if i % 2 == 0 and mark in piece)
            before, after = pieces[at].split(mark)
            pieces[at : at + 1] = [before, text, after]
        return _MAKER + b"".join(pieces)

    def _set(self, each: PageSet) -> dict[str, Any]:
        columns = [
            {
                "name": column.name,
                "type": column.kind,
                "block": self._add(packed_numbers(column.values)),
                "slugs": column.slugs,
            }
            for column in each.columns
        ]
        starts_G = each.groups_at.astype(np.int32)
        included_G = self._included(each)
        texts = [
            {"first_group": first, "groups": n, "block": self._add(block)}
            for first, n, block in text_blocks(
                each.group_texts, each.row_texts, starts_G, included_G
            )
        ]
        sizes_G = np.diff(starts_G, append=each.rows)
        shown = int(sizes_G[included_G].sum())
        self.with_texts += shown
        banner = each.banner
        if shown < each.rows:
            banner += (
                f"The texts of {shown:,} of {each.rows:,} responses are in this page (--most_mb); "
                "figures are those of all. Of the others: rejuice explain PATH ID. "
            )
        return {
            "name": each.name,
            "kind": each.kind,
            "step": each.step,
            "rows": each.rows,
            "groups": len(starts_G),
            "steps": each.steps,
            "components": each.components,
            "figures": each.figures,
            "columns": columns,
            "groups_at": self._add(packed_numbers(starts_G)),
            "excerpts": self._add(packed(orjson.dumps(excerpts(each.group_texts["prompt"])))),
            "texts": texts,
            "banner": banner,
        }

    def _included(self, each: PageSet) -> Array:
        """Groups whose texts fit, bool[G]: whole groups, in a seeded random order."""
        left = max(self._budget - sum(map(len, self._blocks)), 0)
        expected = _MARGIN * packed_size(each.group_texts, each.row_texts, each.groups_at)
        groups = len(each.groups_at)
        if expected <= left:
            return np.ones(groups, bool)
        return np.asarray(drawn(each.group_texts["prompt_id"]) < left / expected)

    def _add(self, block: bytes) -> int:
        number = len(self._blocks)
        self._blocks.append(_script(f"b{number}", block))
        return number


def _script(name: str, block: bytes) -> bytes:
    return f'<script type="text/plain" id="{name}">'.encode() + block + b"</script>\n"


def _hashed(script: str) -> str:
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")
