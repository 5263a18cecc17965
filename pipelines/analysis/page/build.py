"""Write a page: one HTML file that loads nothing, and in which no text of a row can run.

The security policy of the page allows scripts by their hashes only: ours, plotly.js and DataTables.
The two libraries are packed like data, and inserted by our script under the same policy.
"""

from __future__ import annotations

import hashlib
import re
import webbrowser
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ....operators import DataError, RejuiceError
from ....operators.compute import pc
from ....operators.disk import temporary_path
from .content import (
    PageData,
    PageSet,
    PageSummary,
    drawn,
    embedded_json,
    excerpts,
    packed,
    packed_json,
    packed_numbers,
    packed_size,
    text_blocks,
    texts,
)

# --- Libraries ------------------------------------------------------------------------
# The libraries inside a page: plotly.js draws, DataTables lists. Both are files of PyPI packages.
#
# plotly.js is what the field's notebooks and panels are drawn with, and needs no network; of its
# traces only those are used that draw SVG, because WebGL traces compile code at run time, which the
# page's security policy forbids. DataTables comes with `itables`, which bundles it as a module.

_EXPORT = re.compile(r"export\s*\{([^}]*)\}")


@cache
def plotly_js() -> str:
    """The script of plotly.js: it defines `Plotly`.

    Raises:
        RejuiceError: the package is there without it.
    """
    return _read("plotly", "package_data/plotly.min.js")


@cache
def tables_js() -> str:
    """The module of DataTables as a plain script: it defines `dataTables`, with `jQuery`.

    Raises:
        RejuiceError: the package is there without it, or is not built as it was.
    """
    text = _read("itables", "html/dt_bundle.js")
    match = _EXPORT.search(text)
    if match is None or " as jQuery" not in match[1]:
        raise RejuiceError("the bundle of itables exports no jQuery", "install itables>=2.9,<3")
    names = [name.strip().split(" as ") for name in match[1].split(",")]
    given = ",".join(f'"{outer}":{inner}' for inner, outer in names)
    exported = f"globalThis.dataTables={{{given}}}"
    return f"(()=>{{{text[: match.start()]}{exported}{text[match.end() :]}\n}})();"


@cache
def tables_css() -> str:
    """The style of DataTables.

    Raises:
        RejuiceError: the package is there without it.
    """
    return _read("itables", "html/dt_bundle.css")


def _read(package: str, path: str) -> str:
    try:
        return files(package).joinpath(path).read_text("utf-8")
    except (OSError, ModuleNotFoundError) as error:
        raise RejuiceError(f"{package} has no {path}", f"install {package} again") from error


# --- Show a file in the browser of the desktop ----------------------------------------


def open_browser(page: Path) -> None:
    """Open a page; where there is no browser, nothing happens."""
    webbrowser.open(page.resolve().as_uri())


# --- Build ----------------------------------------------------------------------------

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
"""Texts may take more than a sample of them makes expect."""


def build_page(data: PageData, output: Path, *, most_bytes: int = 39_000_000) -> PageSummary:
    """Write the page of some sets.

    Raises:
        DataError: `output` is there and is no page.
    """
    if output.is_dir() or (output.exists() and not _is_page(output)):
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


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return MADE_BY.encode() in file.read(200)


class _Writer:
    """First all figures, then texts: the same share of each set where not all of them fit."""

    def __init__(self, data: PageData, most_bytes: int) -> None:
        self._data = data
        self._most_bytes = most_bytes
        self._blocks: list[bytes] = []
        self._prompts = _numbered(data.sets)
        self.with_texts = 0

    def page(self) -> bytes:
        own = "\n".join(_asset(name) for name in _SCRIPTS)
        plotly, tables = packed(plotly_js().encode(), 9), packed(tables_js().encode(), 9)
        parts = {
            b"{{POLICY}}": " ".join(map(_hashed, (own, plotly_js(), tables_js()))).encode(),
            b"{{STYLE}}": f"{tables_css()}\n{_asset('page.css')}".encode(),
            b"{{LIBRARIES}}": _script("plotly", plotly) + _script("tables", tables),
            b"{{SCRIPT}}": own.encode(),
        }
        heads = [self._figures(each) for each in self._data.sets]
        size = sum(map(len, [*parts.values(), *self._blocks, self._head(heads)]))
        share = self._share(max(self._most_bytes - size, 0))
        for head, each in zip(heads, self._data.sets, strict=True):
            self._add_texts(head, each, share)
        parts[b"{{HEAD}}"] = self._head(heads)
        parts[b"{{BLOCKS}}"] = b"".join(self._blocks)
        template = _asset("page.html").encode()
        # Cut once, and joined: what was put in is never searched again.
        for mark in parts:
            assert template.count(mark) == 1, mark
        pieces = [template]
        for mark, text in parts.items():
            at = next(i for i, piece in enumerate(pieces) if i % 2 == 0 and mark in piece)
            before, after = pieces[at].split(mark)
            pieces[at : at + 1] = [before, text, after]
        return _MAKER + b"".join(pieces)

    def _head(self, sets: Sequence[Mapping[str, Any]]) -> bytes:
        data = self._data
        head = {
            "version": 2,
            "title": data.title,
            "made_by": "rejuice",
            "sets": sets,
            "curves": data.curves,
            "signs": data.signs,
            "recipe": data.recipe,
        }
        return embedded_json(head)

    def _figures(self, each: PageSet) -> dict[str, Any]:
        """The head of a set, whose columns are added; without texts."""
        columns = [
            {
                "name": column.name,
                "type": column.kind,
                "block": self._add(packed_numbers(column.values)),
                "slugs": column.slugs,
            }
            for column in each.columns
        ]
        prompts_G = pc.index_in(texts(each.group_texts["prompt_id"]), self._prompts)
        return {
            "name": each.name,
            "kind": each.kind,
            "step": each.step,
            "run": each.run,
            "rows": each.rows,
            "groups": len(each.groups_at),
            "steps": each.steps,
            "components": each.components,
            "figures": each.figures,
            "columns": columns,
            "groups_at": self._add(packed_numbers(each.groups_at.astype(np.int32))),
            "prompts": self._add(packed_numbers(np.asarray(prompts_G, np.int32))),
            "excerpts": self._add(packed_json(excerpts(each.group_texts["prompt"]))),
            "banner": each.banner,
        }

    def _share(self, left: int) -> float:
        """The share of the groups whose texts fit into so many bytes."""
        expected = sum(
            packed_size(each.group_texts, each.row_texts, each.groups_at)
            for each in self._data.sets
        )
        return left / (_MARGIN * expected) if expected else 1.0

    def _add_texts(self, head: dict[str, Any], each: PageSet, share: float) -> None:
        """Texts of whole groups, in a seeded random order."""
        starts_G = each.groups_at.astype(np.int32)
        included_G = np.asarray(drawn(each.group_texts["prompt_id"]) < share)
        head["texts"] = [
            {"first_group": first, "groups": n, "block": self._add(block)}
            for first, n, block in text_blocks(
                each.group_texts, each.row_texts, starts_G, included_G
            )
        ]
        sizes_G = np.diff(starts_G, append=each.rows)
        head["with_texts"] = shown = int(sizes_G[included_G].sum())
        self.with_texts += shown
        if shown < each.rows:
            head["banner"] += (
                f"The texts of {shown:,} of {each.rows:,} responses are in this page (--most_mb); "
                "figures are those of all. Of the others: rejuice explain PATH ID. "
            )

    def _add(self, block: bytes) -> int:
        number = len(self._blocks)
        self._blocks.append(_script(f"b{number}", block))
        return number


def _numbered(sets: Sequence[PageSet]) -> pa.Array:
    """The prompt_ids of all sets: a prompt has the same place in each."""
    ids = [texts(each.group_texts["prompt_id"]) for each in sets]
    return pc.unique(
        pa.chunked_array([c for column in ids for c in column.chunks], pa.large_string())
    )


def _script(name: str, block: bytes) -> bytes:
    return f'<script type="text/plain" id="{name}">'.encode() + block + b"</script>\n"


def _hashed(script: str) -> str:
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")
