"""The page of stored runs: every set of them, from the values that steps wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....operators.arrow_compute import pc
from ....operators.columns import component_columns, flat, is_text
from ....operators.groups import Array, hash_each, mix
from ....operators.text.embedding import hashed_ngram
from ...dataset.remote import AnyPath
from ...engine.conditional_step import matching_rows
from ...engine.frame import Frame
from ...engine.report import StepReport
from ...engine.steps import AppliedStep
from ...recipe.steps import Step
from ..evidence import evidence, has_evidence, seen_by
from ..figures import column_values, set_figures
from ..reward_hacking import audit_signs
from ..rows import BY_TRAINING, Lines, RowTable, stored_rows
from ..set_funnel import TRAINING, set_funnel
from ..stored import Stored, StoredSet
from .build import PageColumn, PageCurves, PageData, PageSet, PageStep, drawn, joined, texts
from .facts import pair_facts, run_facts, sign_facts
from .tokens import COLUMN as TOKENS
from .tokens import MOST_SHADED, STORED, WEIGHTS, ShadedTokens, response_tokens

# --- Every value that steps wrote, also in rows that a later step dropped -------------

_ORIGIN = "row of the base"
"""The name of what lines have instead of the columns of the base, until a step writes them."""


class WrittenValues:
    """Rows of a base, then rows that steps added to it, with all that was written.

    Args:
        base: rows before the first step.

    Attributes:
        names: columns, in the order in which they appeared.
        written: those that a step wrote.
        inputs: by the number of a step, the places of its input rows.
    """

    def __init__(self, base: Frame) -> None:
        self._base, self._lines = base, Lines(base.num_rows)
        self._lines.write(np.arange(base.num_rows), _ORIGIN, pa.array(np.arange(base.num_rows)))
        self.names: list[str] = list(base.column_names)
        self.written = set[str]()
        self.inputs: dict[int, NDArray[np.int64]] = {}

    @classmethod
    def of(cls, base: Frame, applied: Iterable[AppliedStep]) -> WrittenValues:
        """Return the values after some steps."""
        values = cls(base)
        for each in applied:
            values.add(each)
        return values

    def add(self, applied: AppliedStep) -> None:
        """Record what a step did."""
        change, before = applied.result.change, self._lines.current_N
        self.inputs[applied.step.number] = before
        self._lines.follow(change)
        self._write(change.columns, before if change.parents is None else self._lines.current_N)

    def _write(self, columns: Mapping[str, Any], places: NDArray[np.int64]) -> None:
        for name, column in columns.items():
            if name not in self.names:
                self.names.append(name)
            elif name not in self._lines.names:
                self._lines.write(np.arange(self.num_rows), name, self._of_base(name))
            self._lines.write(places, name, column)
        self.written.update(columns)

    def numbers(self, first_row: int) -> NDArray[np.int32]:
        """Return the number of each row in the dataset, from 1; see `PageSet.columns`.

        Args:
            first_row: rows of the dataset before those of this part.
        """
        origin_N = np.asarray(pc.fill_null(self._lines.column(_ORIGIN, pa.int64()), -1))
        source_N = np.append(self._base.source_rows, -1)[origin_N]
        numbers = np.where(source_N < 0, 0, source_N + first_row + 1)
        numbers[self._base.num_rows :] *= -1
        return numbers.astype(np.int32)

    @property
    def sampled(self) -> int:
        """Rows of the base: those that were sampled, or read with their responses."""
        return self._base.num_rows

    @property
    def num_rows(self) -> int:
        """Rows of the base, and rows that were added."""
        return self._lines.rows

    def column(self, name: str) -> pa.ChunkedArray:
        """Return the last value of a column in each row; null where it has none.

        Raises:
            DataError: neither the base nor a step has it.
        """
        return self._lines.joined(name, joined) if name in self.written else self._of_base(name)

    def _of_base(self, name: str) -> pa.ChunkedArray:
        own = self._base.select([name])[name]
        if self.num_rows == len(own):
            return own
        return own.take(self._lines.column(_ORIGIN, pa.int64()))


# --- Evidence -------------------------------------------------------------------------
# The evidence of a seeded sample of the rows of a page: whole groups, those whose texts are first.
#
# applied steps ──> rows of the sample, as each step had them ──> `evidence` ──> a list for each row

COLUMN = "evidence of steps"
"""The name among the texts of a row; no column of a dataset is likely to have it."""
MOST_ROWS, MOST_CHARACTERS = 20_000, 3_000_000
"""The most responses with evidence: finding the rules of answers takes 0.2 us a character."""
_ENTRY = pa.struct([("step", pa.int32()), ("name", pa.string()), ("text", pa.string())])


class RowEvidence(NamedTuple):
    """The evidence of the rows of a set."""

    entries: pa.Array  # of each row a list of `{step, name, text}`; null where there are none
    rows: int  # so many rows were looked at

    def banner(self) -> str:
        """Return a sentence for the page, where it does not have the evidence of all rows."""
        if self.rows == len(self.entries):
            return ""
        return (
            f"Evidence is shown of {self.rows:,} of {len(self.entries):,} rows, whole groups "
            "that were drawn. "
        )


def evidence_of(
    parts: Sequence[Sequence[AppliedStep]],
    values: Sequence[WrittenValues],
    rows: RowTable,
    most_rows: int = MOST_ROWS,
) -> RowEvidence:
    """Return what the values of the rows of a set rest on.

    Raises:
        RejuiceError: what is on file does not fit the steps.
    """
    sampled_N = _rows_with_evidence(rows, _characters(values), most_rows)
    found: list[list[dict[str, Any]]] = [[] for _ in range(len(sampled_N))]
    starts = np.cumsum([0, *(part.num_rows for part in values)])
    for each in zip(*parts, strict=True):
        _add(found, each, values, starts, sampled_N)
    return RowEvidence(pa.array([e or None for e in found], pa.list_(_ENTRY)), int(sampled_N.sum()))


def _characters(values: Sequence[WrittenValues]) -> Array:
    """int64[N]: the length of each response."""
    found = []
    for part in values:
        column = part.column("response") if "response" in part.names else None
        known = column is not None and is_text(column.type)
        lengths = pc.fill_null(pc.utf8_length(column), 0) if known else np.zeros(part.num_rows)
        found.append(np.asarray(lengths).astype(np.int64))
    return np.concatenate([np.zeros(0, np.int64), *found])


def _rows_with_evidence(rows: RowTable, characters_N: Array, most_rows: int) -> Array:
    """bool[N]: rows of whole groups, in the order in which their texts go into the page."""
    sizes_G = rows.groups.sizes_G
    if not len(sizes_G):
        return np.zeros(0, bool)
    characters_G = rows.groups.sum(characters_N)
    ids = rows.table["prompt_id"].take(pa.array(rows.groups.starts_G))
    order = np.argsort(drawn(ids), kind="stable")
    within = np.cumsum(sizes_G[order]) <= most_rows
    within &= np.cumsum(characters_G[order]) <= MOST_CHARACTERS
    within[0] = True
    sampled_G = np.zeros(len(sizes_G), bool)
    sampled_G[order[within]] = True
    return np.asarray(sampled_G[rows.groups.codes_N])


def _add(
    found: list[list[dict[str, Any]]],
    parts: Sequence[AppliedStep],
    values: Sequence[WrittenValues],
    starts: Array,
    sampled_N: Array,
) -> None:
    """Add what a step has, from its input rows of all parts."""
    step, tables, reasons, places = parts[0].step, list[pa.Table](), list[Any](), list[Array]()
    if not all(has_evidence(step, each.before) for each in parts):
        return
    for each, part, start in zip(parts, values, starts, strict=False):
        places_I = part.inputs[step.number] + start
        own = matching_rows(step.operator, each.before)
        rows = np.intersect1d(np.flatnonzero(sampled_N[places_I]), own)
        if not len(rows):
            continue
        change = each.result.change
        tables.append(seen_by(each, rows))
        none = pa.nulls(len(rows), pa.string())
        dropped = change.reasons
        reasons.append(none if dropped is None else flat(dropped).take(pa.array(rows)))
        places.append(places_I[rows])
    if tables:
        table = pa.concat_tables(tables, promote_options="permissive")
        columns = evidence(step, table, pa.concat_arrays(reasons))
        _add_entries(found, step.number, columns, np.concatenate(places))


def _add_entries(
    found: list[list[dict[str, Any]]],
    number: int,
    columns: Mapping[str, pa.Array],
    places: Array,
) -> None:
    for name, column in columns.items():
        for place, value in zip(places.tolist(), column.to_pylist(), strict=True):
            if value is not None:
                text = f"{value:.3f}" if isinstance(value, float) else str(value)
                found[place].append({"step": number, "name": name, "text": text})


# --- Map of responses -----------------------------------------------------------------
# Where responses lie: their word n-grams, on the two directions in which they differ most.

MOST_POINTS = 1500
_AT_LEAST = 50
"""Points of each verdict, where it has so many."""
_SUBSPACE, _ITERATIONS = 6, 12
_CHARACTERS = 4000
"""The beginning of a response that is looked at."""


def map_columns(
    responses: pa.ChunkedArray, ids: pa.ChunkedArray, verdicts: pa.ChunkedArray
) -> tuple[PageColumn, ...]:
    """`map_x` and `map_y` of a seeded sample of the rows, stratified by verdict; NaN elsewhere.

    Principal components of the centred vectors of `hashed_ngram`; of each, the greatest coordinate
    by absolute value is positive. Empty with fewer than three responses.
    """
    present_N = np.asarray(pc.greater(pc.fill_null(pc.utf8_length(responses), 0), 0))
    rows = _sampled(present_N, ids, verdicts)
    if len(rows) < 3:
        return ()
    texts = [responses[row].as_py()[:_CHARACTERS] for row in rows.tolist()]
    found = _components(hashed_ngram(texts).astype(np.float64))
    columns = []
    for name, values in zip(("map_x", "map_y"), found.T, strict=True):
        column_N = np.full(len(responses), np.nan)
        column_N[rows] = values
        columns.append(PageColumn(name, column_N))
    return tuple(columns)


def _sampled(present_N: Array, ids: pa.ChunkedArray, verdicts: pa.ChunkedArray) -> Array:
    # Draws that depend on nothing but the id of the row, so that a page made again is the same.
    drawn_N = mix(hash_each(ids) + np.arange(len(ids), dtype=np.uint64))
    codes = np.asarray(verdicts.cast(pa.string()).combine_chunks().dictionary_encode().indices)
    codes_N = np.nan_to_num(codes.astype(float), nan=-1.0)
    total, chosen = max(1, int(present_N.sum())), list[Array]()
    for code in np.unique(codes_N[present_N]):
        own = np.flatnonzero(present_N & (codes_N == code))
        n = max(_AT_LEAST, round(MOST_POINTS * len(own) / total))
        chosen.append(own[np.argsort(drawn_N[own], kind="stable")[:n]])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def _components(vectors_NxD: Array) -> Array:
    """Return the first two principal components, float64[N, 2], rounded.

    By subspace iteration from a seeded start: the whole spectrum, of which two are wanted, would
    take seconds on busy cores.
    """
    centred = vectors_NxD - vectors_NxD.mean(0)
    start = np.random.default_rng(0).standard_normal((centred.shape[1], _SUBSPACE))
    basis = np.linalg.qr(start)[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    left, values, _ = np.linalg.svd(centred @ basis, full_matrices=False)
    found: Array = left[:, :2] * values[:2]
    peaks = found[np.argmax(np.abs(found), 0), [0, 1]]
    return np.round(found * np.where(peaks < 0, -1.0, 1.0), 4)


# --- A set of a page from the values that steps wrote ---------------------------------

_NAMED = ("response_id", "prompt_id", "prompt", "reference", "response", "extracted_answer")
_LEFT_OUT = frozenset({*_NAMED, "reward", "advantage", "sampling", "policy_version"})
_HEAVY = ("token_ids", "logprobs", "ids_and_logprobs", "token_weight")
_MANY_SLUGS = 256


def page_set(
    name: str,
    values: Sequence[WrittenValues],
    rows: RowTable,
    steps: Sequence[Step],
    funnel: Sequence[StepReport],
    *,
    numbers_N: Array,
    kind: str = "answers",
    step: int | None = None,
    banner: str = "",
    evidence: RowEvidence | None = None,
    tokens: ShadedTokens | None = None,
) -> PageSet:
    """Return the set of some parts of a run."""
    responses = texts(_of_all(values, "response"))
    figures = {
        **set_figures(rows, funnel).as_json(),
        "length_unit": rows.unit,
        "sampled": sum(part.sampled for part in values) if rows.with_dropped else None,
    }
    starts_G = rows.groups.starts_G
    row_texts = _with_evidence(_row_texts(values, rows, responses), evidence)
    if evidence is not None and COLUMN in row_texts.column_names:
        banner += evidence.banner()
    if tokens is not None and tokens.column is not None:
        row_texts = row_texts.append_column(TOKENS, tokens.column)
    return PageSet(
        name,
        kind,
        step,
        tuple(
            PageStep(each.number, each.name, each.operator.writes(), dict(each.operator.reasons))
            for each in steps
        ),
        figures,
        (PageColumn("row", numbers_N), *_columns(rows), *_map(rows, responses)),
        rows.components,
        starts_G.astype(np.int32),
        _group_texts(values, rows, starts_G),
        row_texts,
        banner,
        note="" if tokens is None else tokens.note,
    )


def _columns(rows: RowTable) -> list[PageColumn]:
    table = rows.table
    found = [
        PageColumn("fate", np.array(table["fate"], np.int32)),
        *(slug_column(name, table[name]) for name in ("reason", "verdict", "finish_reason")),
        PageColumn("length", rows.lengths_N),
        *(PageColumn(name, column_values(table, name)) for name in ("reward", "advantage")),
    ]
    for name in rows.components:
        missing = f"reward_{name}_missing"
        found += [
            PageColumn(f"reward_{name}", column_values(table, f"reward_{name}")),
            slug_column(missing, table[missing]),
            PageColumn(f"contribution_{name}", column_values(table, f"contribution_{name}")),
        ]
    return found


def _map(rows: RowTable, responses: pa.ChunkedArray) -> tuple[PageColumn, ...]:
    ids = pc.fill_null(rows.table["response_id"].cast(pa.string()), "")
    return map_columns(responses, ids, rows.table["verdict"].cast(pa.string()))


def slug_column(name: str, column: pa.ChunkedArray) -> PageColumn:
    """Return a column of few different texts; the first slug is "" and stands for null."""
    slugs = ("", *sorted(pc.unique(column.drop_null().cast(pa.string())).to_pylist()))
    places = pc.index_in(column.cast(pa.string()), pa.array(slugs[1:], pa.string()))
    kind = np.uint8 if len(slugs) < _MANY_SLUGS else np.int32
    return PageColumn(name, (np.asarray(pc.fill_null(places, -1)) + 1).astype(kind), slugs)


def _group_texts(values: Sequence[WrittenValues], rows: RowTable, starts_G: Array) -> pa.Table:
    at = pa.array(starts_G)
    return pa.table(
        {
            "prompt_id": rows.table["prompt_id"].take(at),
            "prompt": _of_all(values, "prompt").take(at),
            "reference": texts(_of_all(values, "reference")).take(at),
        }
    )


def _row_texts(
    values: Sequence[WrittenValues], rows: RowTable, responses: pa.ChunkedArray
) -> pa.Table:
    columns: dict[str, Any] = {
        "response_id": rows.table["response_id"],
        "response": responses,
        "extracted_answer": texts(_of_all(values, "extracted_answer")),
    }
    in_columns = {"verdict", "finish_reason", *chain(*map(component_columns, rows.components))}
    written = dict.fromkeys(name for part in values for name in part.names)
    for name in written:
        shown = name not in _LEFT_OUT and name not in in_columns and not name.endswith(_HEAVY)
        # Without responses, what is looked at are the texts of the dataset.
        wanted = "response" not in written or any(name in part.written for part in values)
        if shown and wanted:
            columns[name] = _shown(_of_all(values, name))
    if "turns" in written:
        columns["turns"] = _turns(_of_all(values, "turns"))
    return pa.table(columns)


def _with_evidence(texts: pa.Table, evidence: RowEvidence | None) -> pa.Table:
    if evidence is None or evidence.entries.null_count == len(evidence.entries):
        return texts
    kept = [name for name in texts.column_names if name != COLUMN]
    return texts.select(kept).append_column(COLUMN, evidence.entries)


def _of_all(values: Sequence[WrittenValues], name: str) -> pa.ChunkedArray:
    """Return a column of all parts; nulls where a part has none."""
    return joined(
        [
            each.column(name) if name in each.names else pa.chunked_array([pa.nulls(each.num_rows)])
            for each in values
        ]
    )


def _shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as they are where JSON has them, else as text."""
    kind = column.type
    plain = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    return column if any(of_kind(kind) for of_kind in plain) else texts(column)


def _turns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turns without token ids and log-probabilities."""
    lists = column.to_pylist()
    wanted = ("role", "text", "tool", "arguments", "observation", "status", "finish_reason")
    slim = [_slim(turns, wanted) for turns in lists]
    return pa.chunked_array([pa.array(slim, pa.list_(pa.map_(pa.string(), pa.string())))])


def _slim(turns: Any, wanted: Sequence[str]) -> Any:
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        return None
    return [[(k, str(turn[k])) for k in wanted if turn.get(k) is not None] for turn in turns]


# --- The page of a stored run ---------------------------------------------------------


def page_of_stored(path: AnyPath | None, stored: Stored) -> PageData:
    """Return the page of a stored run.

    Args:
        path: as it was given; None: its files are those of a result in memory, which no command is
            to name.
        stored: what is there.

    Raises:
        RejuiceError: its files are damaged.
    """
    funnel = None if stored.report is None else stored.report.steps
    facts = run_facts(path, stored)
    rows = sum(len(one.ids(part)) for one in stored.sets for part in range(one.parts))
    shaded = facts.model if rows <= MOST_SHADED else None
    sets = tuple(_set(one, funnel, shaded) for one in stored.sets)
    text = stored.recipe.read_text("utf-8") if stored.recipe.is_file() else ""
    curves = (PageCurves("", stored.points),) if stored.points else ()
    signs = tuple(sign_facts(path, sign) for sign in audit_signs(stored, seed=0))
    return PageData(stored.title, sets, curves, signs, text, (facts,))


def _set(one: StoredSet, funnel: Sequence[StepReport] | None, shaded: str | None) -> PageSet:
    """Return the page's set of a stored one; `shaded`: the policy whose tokens are shaded."""
    rows = stored_rows(one)
    steps, evidence, banner = one.steps, None, ""
    if one.incomplete:
        values = [WrittenValues(Frame.of(one.final()))]
        numbers_N, steps = np.zeros(values[0].num_rows, np.int32), ()
        banner = f"Only rows that are left are here, without their way: {one.incomplete}. "
    else:
        parts = [(one.base(part), list(one.applied(part))) for part in range(one.parts)]
        values = [WrittenValues.of(base, applied) for base, applied in parts]
        numbers_N = _numbers(one, values)
        evidence = evidence_of([applied for _, applied in parts], values, rows)
        if funnel is None:
            funnel = set_funnel(rows, (each for _, applied in parts for each in applied))
    found = page_set(
        one.name,
        values,
        rows,
        steps,
        funnel or (),
        numbers_N=numbers_N,
        kind=one.kind,
        step=one.training_step,
        banner=banner,
        evidence=evidence,
        tokens=None if shaded is None else _tokens(values, shaded),
    )
    own = [step for step in funnel or () if step.step == TRAINING]
    if not own:
        return found
    last = PageStep(BY_TRAINING, TRAINING, (), dict.fromkeys(own[0].dropped, "training's own"))
    return found._replace(steps=(*found.steps, last))


def _tokens(values: Sequence[WrittenValues], policy: str) -> ShadedTokens:
    if not all(name in part.names for part in values for name in (*STORED, "response")):
        return ShadedTokens(None)
    ids, logprobs, responses = (_of_all(values, name) for name in (*STORED, "response"))
    weighed = all(WEIGHTS in part.names for part in values)
    weights = _of_all(values, WEIGHTS) if weighed else None
    return response_tokens(ids, logprobs, responses, policy, weights)


def _numbers(one: StoredSet, values: Sequence[WrittenValues]) -> Array:
    """int32[N]: the numbers of rows, as `rejuice explain` counts them, over all parts."""
    first_rows = np.cumsum([0, *(one.source(part).num_rows for part in range(one.parts - 1))])
    pairs = zip(values, first_rows.tolist(), strict=True)
    return np.concatenate([each.numbers(first) for each, first in pairs])


def page_of(runs: Sequence[tuple[AnyPath | None, Stored]]) -> PageData:
    """Return one page of one or more stored runs, each with the path that was given for it.

    Only where there is a single one, its path may be None, see `page_of_stored`.

    Raises:
        RejuiceError: files of a run are damaged.
    """
    pages = [page_of_stored(path, stored) for path, stored in runs]
    if len(pages) == 1:
        return pages[0]
    named = [_named(page, str(path)) for (path, _), page in zip(runs, pages, strict=True)]
    return PageData(
        " | ".join(page.title for page in named),
        tuple(each for page in named for each in page.sets),
        curves=tuple(each for page in named for each in page.curves),
        signs=tuple(each for page in named for each in page.signs),
        recipe="\n".join(page.recipe for page in named),
        runs=tuple(each for page in named for each in page.runs),
        pair=_pair(runs),
    )


def _pair(runs: Sequence[tuple[AnyPath | None, Stored]]) -> Mapping[str, Any] | None:
    if len(runs) != 2:
        return None
    (a, one), (b, two) = runs
    return None if a is None or b is None else pair_facts(a, b, (one, two))


def _named(page: PageData, path: str) -> PageData:
    """Return one of several pages, with its path wherever more than one may be seen."""

    def name(own: str) -> str:
        return f"{path} {own}".rstrip()

    return page._replace(
        sets=tuple(each._replace(name=name(each.name), run=path) for each in page.sets),
        curves=tuple(each._replace(run=path) for each in page.curves),
        signs=tuple({**sign, "set": name(sign["set"])} for sign in page.signs),
        recipe=f"# {path}\n{page.recipe}",
    )
