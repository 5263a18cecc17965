"""What the head of a page says of a run, and the commands that a reader can copy from it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....operators import DataError, RejuiceError
from ...dataset.remote import AnyPath
from ...recipe.steps import is_sampling
from ..diff import by_chance, pairs
from ..figures import row_figures
from ..reward_hacking import SignResult
from ..rows import RowTable, stored_rows
from ..stored import Stored
from .build import PageRun


def run_facts(path: AnyPath | None, stored: Stored) -> PageRun:
    """What is not on file is empty."""
    return PageRun(
        path="" if path is None else str(path),
        recipe=Path(stored.recipe if stored.report is None else stored.report.recipe).name,
        model=", ".join(_models(stored)),
        date=_date(stored),
    )


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


# --- Two runs side by side ------------------------------------------------------------


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
