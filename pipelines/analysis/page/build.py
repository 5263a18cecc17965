"""Write a page: one HTML file that loads nothing, and in which no text of a row can run.

The security policy of the page allows scripts by their hashes only: ours, plotly.js and DataTables.
The two libraries are packed like data, and inserted by our script under the same policy.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from ....operators import DataError, RejuiceError
from ....operators.arrow_compute import pc
from ....operators.groups import Array, hash_each, mix, uniform_of
from ....operators.logs import redact_bytes
from ....operators.workers import usable_cores
from ...console import plain
from ...dataset.files import check_is_free, write_file
from ..written import text_of, texts


def last_text(prompt: Any) -> str:
    """A prompt's text, of the last message; one without a text under `content` is shown as JSON."""
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    if isinstance(last, Mapping) and isinstance(last.get("content"), str):
        return str(last["content"])
    return text_of(last if last != [] else None) or ""


# --- Blocks ---------------------------------------------------------------------------
# Data as text inside a script element: base64 of gzip, which a browser inflates by itself.

GROUPS_PER_BLOCK = 128
"""A block of texts is inflated as a whole when one of its groups is opened."""
_EXCERPT = 90
"""Characters of a prompt in the list of groups."""
_LEVEL = 5
_GZIP = 31  # zlib's window bits for a gzip header.


def packed(data: bytes, level: int = _LEVEL) -> bytes:
    """Base64 of gzip; equal data gives equal bytes."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return b64encode(packer.compress(data) + packer.flush())


def packed_numbers(values: Array) -> bytes:
    return packed(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes())


def packed_json(value: Any) -> bytes:
    """Texts as JSON, packed, without the secrets that are known: old runs may have stored some."""
    return packed(redact_bytes(orjson.dumps(value, default=str)))


def embedded_json(value: Any) -> bytes:
    """JSON that no HTML parser can leave: without `<`, `>` and `&`, and without U+2028 and 2029."""
    try:
        text = redact_bytes(orjson.dumps(value, plain, orjson.OPT_NON_STR_KEYS))
    except TypeError as error:  # Nobody's report has such a number, unless it was written by hand.
        raise DataError(
            f"the page cannot hold what the report says: {error}", "run it again"
        ) from None
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return text


def text_blocks(
    group_texts: pa.Table, row_texts: pa.Table, starts_G: Array, included_G: Array
) -> Iterator[tuple[int, int, bytes]]:
    """Yield texts of blocks of whole groups: the first group, how many groups, and the packed JSON.

    The JSON is a list of groups, each `{prompt_id, prompt, reference, rows: [{...}]}`; a group that
    is not included is null.
    """
    groups = len(starts_G)
    ends_G = np.append(starts_G[1:], row_texts.num_rows)
    firsts = range(0, groups, GROUPS_PER_BLOCK)

    def block(first: int) -> tuple[int, int, bytes]:
        last = min(first + GROUPS_PER_BLOCK, groups)
        of_groups = group_texts.slice(first, last - first).to_pylist()
        at, end = int(starts_G[first]), int(ends_G[last - 1])
        of_rows = row_texts.slice(at, end - at).to_pylist()
        found: list[Any] = []
        for group, own_texts in zip(range(first, last), of_groups, strict=True):
            own = of_rows[int(starts_G[group]) - at : int(ends_G[group]) - at]
            rows = [{k: v for k, v in row.items() if v is not None} for row in own]
            found.append({**own_texts, "rows": rows} if included_G[group] else None)
        return first, last - first, packed_json(found)

    with ThreadPoolExecutor(usable_cores()) as pool:  # zlib lets other threads run.
        yield from pool.map(block, firsts)


def drawn(prompt_ids: pa.ChunkedArray) -> Array:
    """A number in [0, 1) for each group, float64[G]: those with the least come first."""
    order = np.arange(len(prompt_ids), dtype=np.uint64)
    return np.asarray(uniform_of(mix(hash_each(prompt_ids) + order)))


def excerpts(prompts: pa.ChunkedArray) -> list[str]:
    """The beginning of each prompt on one line: of its last message, where it has messages."""
    found = []
    for prompt in prompts.to_pylist():
        # Cut before it is split: a prompt may be long.
        line = " ".join(last_text(prompt)[: 4 * _EXCERPT].split())
        found.append(line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…")
    return found


# --- What a page is made of: one plain structure, whatever it came from ---------------
# PageData ── sets ──> PageSet ── columns ──> PageColumn       one value per row
#                         ├────── groups_at                    the first row of each group
#                         ├────── group_texts, row_texts       Arrow tables of texts
#                         └────── figures                      `SetFigures`


class PageColumn(NamedTuple):
    """One value per row, or per group."""

    name: str  # of the column
    values: Array  # float64, int32, or uint8 and int32 places in `slugs`. NaN is an unknown number.
    # what the places stand for; the first is "", for null. Empty: the values are numbers.
    slugs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How the bytes are read: f64, i32 or u8, all little-endian."""
        return {"float64": "f64", "int32": "i32", "uint8": "u8"}[str(self.values.dtype)]


class PageStep(NamedTuple):
    number: int
    name: str
    writes: tuple[str, ...]
    reasons: Mapping[str, str]


class PageSet(NamedTuple):
    name: str  # shown in the list of sets
    kind: str  # `answers` or `judgements`
    step: int | None  # the training step, None for an export
    steps: tuple[PageStep, ...]  # the steps after sampling, in order
    # `SetFigures`; `length_unit`, `tokens` or `characters`; `sampled`, how many of the
    # rows no later step added, None where only rows that are left are on file
    figures: Mapping[str, Any]
    # at least `row` (int32, from 1: of the dataset, as `rejuice explain PATH 'row 4'` counts; below
    # 0 where a step made the row from that one, 0 where from none), `fate` (int32), `reason`,
    # `verdict`, `length`, `reward`, `advantage`; for each component c also `reward_c`,
    # `reward_c_missing` and `contribution_c`
    columns: tuple[PageColumn, ...]
    components: tuple[str, ...]  # names
    groups_at: Array  # int32[G], the first row of each group
    # one row per group: `prompt_id`, `prompt` (messages or text), `reference`
    group_texts: pa.Table
    # one row per row: `response_id`, `response`, `extracted_answer`, and any other texts that steps
    # wrote, by the names of their columns
    row_texts: pa.Table
    banner: str = ""  # what of the set is not in the page; empty if nothing
    run: str = ""  # of training; empty where the page has only one
    note: str = ""  # of its samples, what is stored and not shown; empty if nothing

    @property
    def rows(self) -> int:
        return len(self.row_texts)


class PageCurves(NamedTuple):
    run: str  # empty where there is only one
    # per training step, verl's metrics by name, each with `step`
    points: tuple[Mapping[str, float], ...]


class PageRun(NamedTuple):
    """What the head of the page says of a run; empty texts for what is not known."""

    path: str  # as it was given; empty for a result in memory
    recipe: str  # name of the file
    model: str  # the policy that was sampled
    date: str  # when it was written, UTC


class PageData(NamedTuple):
    title: str  # shown at its top, and in the browser's tab
    sets: tuple[PageSet, ...]  # at least one, unless there are curves
    curves: tuple[PageCurves, ...] = ()  # of training runs
    signs: tuple[Mapping[str, Any], ...] = ()  # of reward hacking, as `audit` finds them
    recipe: str = ""  # as YAML
    runs: tuple[PageRun, ...] = ()
    # of two runs side by side, see `pair_facts`; else None
    pair: Mapping[str, Any] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether it is of a result in memory, which has no file that a command could name."""
        return any(not run.path for run in self.runs)


class PageSummary(NamedTuple):
    bytes: int
    sets: int
    rows: int
    groups: int
    with_texts: int


# --- Libraries ------------------------------------------------------------------------
# plotly.js draws, DataTables lists. Of plotly's traces only those are used that draw SVG: WebGL
# traces compile code at run time, which the page's security policy forbids.

_EXPORT = re.compile(r"export\s*\{([^}]*)\}")


@cache
def plotly_js() -> str:
    """The script, which defines `Plotly`."""
    return _read("plotly", "package_data/plotly.min.js")


@cache
def tables_js() -> str:
    """The module of DataTables as a plain script: it defines `dataTables`, with `jQuery`."""
    text = _read("itables", "html/dt_bundle.js")
    match = _EXPORT.search(text)
    if match is None or " as jQuery" not in match[1]:
        raise RejuiceError("the bundle of itables exports no jQuery", "install itables>=2.9,<3")
    names = [name.strip().split(" as ") for name in match[1].split(",")]
    given = ",".join(f'"{outer}":{inner}' for inner, outer in names)
    exported = f"globalThis.dataTables={{{given}}}"
    return f"(()=>{{{text[: match.start()]}{exported}{text[match.end() :]}\n}})();"


def _read(package: str, path: str) -> str:
    try:
        return files(package).joinpath(path).read_text("utf-8")
    except (OSError, ModuleNotFoundError) as error:
        raise RejuiceError(f"{package} has no {path}", f"install {package} again") from error


MADE_BY = "A page of rejuice"
_MAKER = f"<!doctype html>\n<!-- {MADE_BY} -->\n".encode()
_SCRIPTS = (
    "text.js",
    "data.js",
    "plots.js",
    "overview.js",
    "samples.js",
    "header.js",
    "cards.js",
    "turns.js",
    "pair.js",
    "training.js",
    "page.js",
)
_LIVE = "live.js"
"""The script of a page that is served while its run goes on."""
_MARGIN = 1.04
"""Groups that are drawn may be longer than others."""


def page_bytes(data: PageData, live: str, *, most_bytes: int = 39_000_000) -> bytes:
    """For `trainer.report.live`; `live` is the version that it shows."""
    return _Writer(data, most_bytes, live).page()


def build_page(
    data: PageData, output: Path, *, most_bytes: int = 39_000_000, overwrite: bool = False
) -> PageSummary:
    """Write the page of some sets; a file that is no page is replaced only with `overwrite`."""
    check_is_free(output, overwrite=overwrite or _is_page(output))
    writer = _Writer(data, most_bytes)
    write_file(output, writer.page())
    rows = sum(each.rows for each in data.sets)
    groups = sum(len(each.groups_at) for each in data.sets)
    return PageSummary(output.stat().st_size, len(data.sets), rows, groups, writer.with_texts)


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MADE_BY.encode() in file.read(200)


class _Writer:
    """First all figures, then texts: the same share of each set where not all of them fit."""

    def __init__(self, data: PageData, most_bytes: int, live: str = "") -> None:
        self._data = data
        self._live = live
        self._most_bytes = most_bytes
        self._blocks: list[bytes] = []
        self._prompts = _numbered(data.sets)
        self.with_texts = 0

    def page(self) -> bytes:
        own = "\n".join(_asset(name) for name in (*_SCRIPTS, *([_LIVE] if self._live else [])))
        plotly, tables = packed(plotly_js().encode(), 9), packed(tables_js().encode(), 9)
        policy = " ".join(map(_hashed, (own, plotly_js(), tables_js())))
        if self._live:
            policy += "; connect-src 'self'"
        parts = {
            "POLICY": policy.encode(),
            "STYLE": f"{_read('itables', 'html/dt_bundle.css')}\n{_asset('page.css')}".encode(),
            "LIBRARIES": _script("plotly", plotly) + _script("tables", tables),
            "SCRIPT": own.encode(),
        }
        heads = [self._figures(each) for each in self._data.sets]
        size = sum(map(len, [*parts.values(), *self._blocks, self._head(heads)]))
        left = max(self._most_bytes - size, 0)
        texts_of = [self._texts(each, 1.0) for each in self._data.sets]
        whole = sum(len(block) for _, blocks in texts_of for *_, block in blocks)
        if whole > left:
            share = left / (_MARGIN * whole)
            texts_of = [self._texts(each, share) for each in self._data.sets]
        for head, each, found in zip(heads, self._data.sets, texts_of, strict=True):
            self._add_texts(head, each, *found)
        parts |= {"HEAD": self._head(heads), "BLOCKS": b"".join(self._blocks)}
        # In one pass: what is put in is not searched for marks.
        template = _asset("page.html").encode()
        return _MAKER + re.sub(rb"{{(\w+)}}", lambda mark: parts[mark[1].decode()], template)

    def _head(self, sets: Sequence[Mapping[str, Any]]) -> bytes:
        data = self._data
        head = {
            "version": 3,
            "title": data.title,
            "sets": sets,
            "opens_at": _opens_at(data.sets),
            "curves": data.curves,
            "signs": data.signs,
            "recipe": data.recipe,
            "runs": data.runs,
            "pair": data.pair,
            **({"live": self._live} if self._live else {}),
        }
        return embedded_json(head)

    def _figures(self, each: PageSet) -> dict[str, Any]:
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
            "note": each.note,
        }

    def _texts(self, each: PageSet, share: float) -> tuple[Array, list[tuple[int, int, bytes]]]:
        included_G = np.asarray(drawn(each.group_texts["prompt_id"]) < share)
        starts_G = each.groups_at.astype(np.int32)
        blocks = text_blocks(each.group_texts, each.row_texts, starts_G, included_G)
        return included_G, list(blocks)

    def _add_texts(
        self,
        head: dict[str, Any],
        each: PageSet,
        included_G: Array,
        blocks: Sequence[tuple[int, int, bytes]],
    ) -> None:
        head["texts"] = [
            {"first_group": first, "groups": n, "block": self._add(block)}
            for first, n, block in blocks
        ]
        starts_G = each.groups_at.astype(np.int32)
        sizes_G = np.diff(starts_G, append=each.rows)
        head["with_texts"] = shown = int(sizes_G[included_G].sum())
        self.with_texts += shown
        if shown < each.rows:
            others = (
                " (--most_mb); figures are those of all. Of the others: rejuice explain PATH ID. "
            )
            if self._data.in_memory:
                others = "; figures are those of all. Of the others: result.explain(ID). "
            head["banner"] += (
                f"The texts of {shown:,} of {each.rows:,} rows are in this page{others}"
            )

    def _add(self, block: bytes) -> int:
        number = len(self._blocks)
        self._blocks.append(_script(f"b{number}", block))
        return number


def _opens_at(sets: Sequence[PageSet]) -> int:
    """The place of the set that is shown first: the last answers of the first run, if it trains."""
    own = [at for at, each in enumerate(sets) if each.run == sets[0].run]
    answers = [at for at in own if sets[at].step is not None and sets[at].kind == "answers"]
    return answers[-1] if answers else 0


def _numbered(sets: Sequence[PageSet]) -> pa.Array:
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
