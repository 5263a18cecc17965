"""The page of stored runs: every set of them, from the values that steps wrote."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ....operators import DataError, RejuiceError
from ....operators.arrow_compute import pc
from ....operators.columns import component_columns, is_text, numbers
from ....operators.groups import Array
from ...dataset.remote import AnyPath
from ...engine.conditional_step import matching_rows
from ...engine.report import StepReport
from ...engine.steps import AppliedStep
from ...recipe.steps import is_sampling
from ..diff import by_chance, pairs
from ..evidence import evidence_of_rows
from ..figures import row_figures, set_figures
from ..funnel import TRAINING, set_funnel
from ..reward_hacking import SignResult, audit_signs
from ..rows import BY_TRAINING, RowTable, stored_rows, written_values
from ..stored import Stored, StoredSet
from ..written import WrittenValues, joined, texts
from .build import PageColumn, PageCurves, PageData, PageRun, PageSet, PageStep
from .tokens import COLUMN as TOKENS
from .tokens import STORED, WEIGHTS, ShadedTokens, response_tokens

COLUMN = "evidence of steps"
"""The name among the texts of a row; no column of a dataset is likely to have it."""
MOST_DETAILED = 10_000
"""Rows above which there is neither evidence nor a shaded token: the page would double in size."""
_ENTRY = pa.struct([("step", pa.int32()), ("name", pa.string()), ("text", pa.string())])


def evidence_of(
    parts: Sequence[Sequence[AppliedStep]], values: Sequence[WrittenValues]
) -> pa.Array:
    """What the values of a set rest on, of each row a list of `{step, name, text}` or null."""
    found: list[list[dict[str, Any]]] = [[] for part in values for _ in range(part.rows)]
    starts = np.cumsum([0, *(part.rows for part in values[:-1])])
    for each in zip(*parts, strict=True):
        number = each[0].step.number
        rows = [matching_rows(applied.step.operator, applied.before) for applied in each]
        places = [
            part.inputs[number][own] + start
            for part, own, start in zip(values, rows, starts, strict=True)
        ]
        for name, column in evidence_of_rows(each, rows).items():
            pairs = zip(np.concatenate(places).tolist(), column.to_pylist(), strict=True)
            for place, value in pairs:
                if value is not None:
                    text = f"{value:.3f}" if isinstance(value, float) else str(value)
                    found[place].append({"step": number, "name": name, "text": text})
    return pa.array([each or None for each in found], pa.list_(_ENTRY))


_NAMED = ("response_id", "prompt_id", "prompt", "reference", "response", "extracted_answer")
_LEFT_OUT = frozenset({*_NAMED, "reward", "advantage", "sampling", "policy_version"})
_HEAVY = ("token_ids", "logprobs", "ids_and_logprobs", "token_weight")
_MANY_SLUGS = 256


def _columns(rows: RowTable) -> list[PageColumn]:
    table = rows.table
    found = [
        PageColumn("fate", np.array(table["fate"], np.int32)),
        *(slug_column(name, table[name]) for name in ("reason", "verdict", "finish_reason")),
        PageColumn("length", rows.lengths_N),
        *(PageColumn(name, numbers(table, name)) for name in ("reward", "advantage")),
    ]
    for name in rows.components:
        missing = f"reward_{name}_missing"
        found += [
            PageColumn(f"reward_{name}", numbers(table, f"reward_{name}")),
            slug_column(missing, table[missing]),
            PageColumn(f"contribution_{name}", numbers(table, f"contribution_{name}")),
        ]
    return found


def _own_columns(
    values: Sequence[WrittenValues], known: Sequence[PageColumn]
) -> Iterator[PageColumn]:
    """Yield what else there is of each row to filter by: numbers, and texts of which few differ."""
    taken = {"row", *(each.name for each in known), *_NAMED, *_LEFT_OUT} - {"extracted_answer"}
    for name in dict.fromkeys(name for part in values for name in part.columns):
        if name in taken or name.endswith(_HEAVY):
            continue
        column = _of_all(values, name)
        if column.null_count == len(column) or pa.types.is_nested(column.type):
            continue
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            numbers_N = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan)
            yield PageColumn(name, np.array(numbers_N))
            continue
        is_word = is_text(column.type) or pa.types.is_boolean(column.type)
        if is_word and len(pc.unique(column)) < min(_MANY_SLUGS, len(column)):
            yield slug_column(name, column)


def slug_column(name: str, column: pa.ChunkedArray) -> PageColumn:
    """A column of few different texts; the first slug is "" and stands for null."""
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


def _row_texts(values: Sequence[WrittenValues], rows: RowTable) -> pa.Table:
    columns: dict[str, Any] = {
        "response_id": rows.table["response_id"],
        "response": texts(_of_all(values, "response")),
        "extracted_answer": texts(_of_all(values, "extracted_answer")),
    }
    in_columns = {"verdict", "finish_reason", *chain(*map(component_columns, rows.components))}
    written = dict.fromkeys(name for part in values for name in part.columns)
    for name in written:
        shown = name not in _LEFT_OUT and name not in in_columns and not name.endswith(_HEAVY)
        # Without responses, what is looked at are the texts of the dataset.
        wanted = "response" not in written or any(name in part.written for part in values)
        if shown and wanted:
            columns[name] = _shown(_of_all(values, name))
    if "turns" in written:
        columns["turns"] = _turns(_of_all(values, "turns"))
    return pa.table(columns)


def _of_all(values: Sequence[WrittenValues], name: str) -> pa.ChunkedArray:
    """A column of all parts; nulls where a part has none."""
    return joined([each.last(name) for each in values])


def _shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    return column if any(of_kind(column.type) for of_kind in plain) else texts(column)


def _turns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without token ids and log-probabilities."""
    wanted = ("role", "text", "tool", "arguments", "observation", "status", "finish_reason")
    slim = [
        [[(k, str(turn[k])) for k in wanted if turn.get(k) is not None] for turn in turns]
        if isinstance(turns, list) and all(isinstance(turn, Mapping) for turn in turns)
        else None
        for turns in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(slim, pa.list_(pa.map_(pa.string(), pa.string())))])


# --- What the head of a page says of a run, and commands to copy from it ----------------


def _models(stored: Stored) -> Sequence[str]:
    try:
        recipe = stored.sets[0].recipe if stored.kind == "export" else stored.read_recipe()
    except RejuiceError:  # The sets say what is wrong with the files.
        return ()
    if recipe.head.train is not None and recipe.head.train.policy:
        return [recipe.head.train.policy]
    operators = [step.operator for step in recipe.steps if is_sampling(step.operator)]
    names = [name for each in operators if (name := getattr(each, "model", None))]
    base = stored.sets[0].base(0) if stored.sets else None
    if not names and base is not None and "policy" in base.column_names:
        names = base.select(["policy"])["policy"].drop_null().unique().to_pylist()
    return list(dict.fromkeys(str(name) for name in names if name))


def _date(stored: Stored) -> str:
    """When the run was written, by its files; empty where they are not on this machine."""
    report = stored.folder / "report.json"
    file = report if stored.kind == "export" else stored.recipe
    if not file.is_file():
        return ""
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")


def sign_facts(path: AnyPath | None, sign: SignResult) -> Mapping[str, Any]:
    """A sign, with the command that prints its rows; empty where the run has no path."""
    command = "" if path is None else f"rejuice audit {shlex.quote(str(path))}"
    if path is not None and sign.rows:
        command += f" --rows {shlex.quote(sign.name.replace(' ', '_'))}"
    effect = None if math.isnan(sign.effect) else sign.effect
    return {**sign._asdict(), "effect": effect, "rows": len(sign.rows), "command": command}


def pair_facts(runs: Sequence[tuple[AnyPath | None, Stored]]) -> Mapping[str, Any] | None:
    """The sets of two runs that `rejuice diff` compares, with figures; None: there are none.

    `sets` are their places among the sets of both runs; `prompts` those with responses in both,
    only in the first, only in the second; `change` has the interval of their difference, too.
    """
    if len(runs) != 2:
        return None
    (a, former), (b, latter) = runs
    try:
        one, two = pairs(former, latter)[0]
    except DataError:  # Two training runs without a common step.
        return None
    first, second = ([each.name for each in run.sets] for run in (former, latter))
    places = [first.index(one.name), len(first) + second.index(two.name)]
    both = stored_rows(one), stored_rows(two)
    x, y = map(_answered, both)
    figures = row_figures(both[0]), row_figures(both[1])
    change = {name: [getattr(x, name) for x in figures] for name in ("reward", "kept", "length")}
    return {
        "sets": places,
        "prompts": [len(x & y), len(x - y), len(y - x)],
        "change": {**change, "by_chance": by_chance(figures)},
        "command": f"rejuice diff {shlex.quote(str(a))} {shlex.quote(str(b))}",
    }


def _answered(rows: RowTable) -> set[str]:
    return set(rows.table["prompt_id"].filter(pa.array(rows.lengths_N >= 0)).to_pylist())


def page_of_stored(path: AnyPath | None, stored: Stored) -> PageData:
    """Without a path its files are those of a result in memory, which no command is to name."""
    funnel = None if stored.report is None else stored.report.steps
    recipe = Path(stored.recipe if stored.report is None else stored.report.recipe).name
    models = ", ".join(_models(stored))
    facts = PageRun("" if path is None else str(path), recipe, models, _date(stored))
    rows = sum(len(one.ids(part)) for one in stored.sets for part in range(one.parts))
    policy = facts.model if rows <= MOST_DETAILED else None
    sets = tuple(_set(one, funnel, policy) for one in stored.sets)
    text = stored.recipe.read_text("utf-8") if stored.recipe.is_file() else ""
    curves = (PageCurves("", stored.points),) if stored.points else ()
    signs = tuple(sign_facts(path, sign) for sign in audit_signs(stored, seed=0))
    return PageData(stored.title, sets, curves, signs, text, (facts,))


def _set(one: StoredSet, funnel: Sequence[StepReport] | None, policy: str | None) -> PageSet:
    values, banner = written_values(one), ""
    rows = stored_rows(one, values)
    parts = [list(one.applied(part)) for part in range(0 if one.incomplete else one.parts)]
    if one.incomplete:
        numbers_N = np.zeros(values[0].rows, np.int32)
        banner = f"Only rows that are left are here, without their way: {one.incomplete}. "
    else:
        numbers_N = _numbers(one, values)
        funnel = funnel or set_funnel(rows, chain.from_iterable(parts))
    row_texts, note = _row_texts(values, rows), ""
    if policy is None:
        limit = f"Evidence and log-probabilities are of runs of up to {MOST_DETAILED:,} responses"
        banner += f"{limit}; of a row: rejuice explain PATH ID. "
    else:
        entries = evidence_of(parts, values)
        if entries.null_count < len(entries):
            row_texts = row_texts.append_column(COLUMN, entries)
        column, note = _tokens(values, policy)
        row_texts = row_texts if column is None else row_texts.append_column(TOKENS, column)
    figures = {
        **set_figures(rows, funnel or ())._asdict(),
        "length_unit": rows.unit,
        "sampled": sum(part.base.num_rows for part in values) if rows.with_dropped else None,
    }
    steps = [
        PageStep(each.number, each.name, each.operator.writes(), dict(each.operator.reasons))
        for each in (() if one.incomplete else one.steps)
    ]
    for own in (each for each in funnel or () if each.step == TRAINING):
        reasons = dict.fromkeys(own.dropped, "training's own")
        steps.append(PageStep(BY_TRAINING, TRAINING, (), reasons))
    starts_G, known = rows.groups.starts_G, _columns(rows)
    return PageSet(
        name=one.name,
        kind=one.kind,
        step=one.training_step,
        steps=tuple(steps),
        figures=figures,
        columns=(PageColumn("row", numbers_N), *known, *_own_columns(values, known)),
        components=rows.components,
        groups_at=starts_G.astype(np.int32),
        group_texts=_group_texts(values, rows, starts_G),
        row_texts=row_texts,
        banner=banner,
        note=note,
    )


def _tokens(values: Sequence[WrittenValues], policy: str) -> ShadedTokens:
    if not all(name in part.columns for part in values for name in (*STORED, "response")):
        return ShadedTokens(None)
    ids, logprobs, responses = (_of_all(values, name) for name in (*STORED, "response"))
    weighed = all(WEIGHTS in part.columns for part in values)
    weights = _of_all(values, WEIGHTS) if weighed else None
    return response_tokens(ids, logprobs, responses, policy, weights)


def _numbers(one: StoredSet, values: Sequence[WrittenValues]) -> Array:
    """int32[N]: the numbers of rows, as `rejuice explain` counts them, over all parts."""
    first_rows = np.cumsum([0, *(one.source(part).num_rows for part in range(one.parts - 1))])
    pairs = zip(values, first_rows.tolist(), strict=True)
    return np.concatenate([each.numbers(first) for each, first in pairs])


def page_of(runs: Sequence[tuple[AnyPath | None, Stored]]) -> PageData:
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
        pair=pair_facts(runs),
    )


def _named(page: PageData, path: str) -> PageData:
    def name(own: str) -> str:
        return f"{path} {own}".rstrip()

    return page._replace(
        sets=tuple(each._replace(name=name(each.name), run=path) for each in page.sets),
        curves=tuple(each._replace(run=path) for each in page.curves),
        signs=tuple({**sign, "set": name(sign["set"])} for sign in page.signs),
        recipe=f"# {path}\n{page.recipe}",
    )
