"""Print what other settings would change."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..compare.ablate import AblationResult
from ..compare.comparison import KINDS, Comparison

_WIDTH = 140


def comparison_lines(path: Path, changed: Sequence[str], found: Comparison) -> Iterator[str]:
    """The figures of a comparison, each on its line.

    Args:
        path: of the run.
        changed: fields that differ, see `changed_fields`.
        found: the comparison.
    """
    before, after, gained, lost = found.groups
    yield f"{path}: {found.rows.num_rows:,} stored rows; nothing is sampled or judged."
    yield f"changed      {'; '.join(changed) or 'nothing: RECIPE and the run are the same'}"
    counts = {kind: f"{found.count(kind):,}" for kind in KINDS}
    why = {kind: _listed(found.reasons(kind)) for kind in ("gained", "lost")}
    yield (
        f"rows         {found.kept_in_both:,} kept in both, "
        f"{counts['gained']} gained{why['gained']}, {counts['lost']} lost{why['lost']}, "
        f"{counts['unknown']} unknown"
    )
    yield f"groups       {before:,} before, {after:,} after: {gained:,} gained, {lost:,} lost"
    one, two = found.mean_reward
    yield f"mean reward  {_number(one)} -> {_number(two)}"
    yield (
        f"advantages   of {found.kept_in_both:,} rows {counts['flipped']} change sign, "
        f"{counts['silenced']} become 0, {counts['woken']} are 0 no longer"
    )
    yield f"rank         correlation of rewards within groups {_number(found.rank)}"
    shares = [f"{name} {_number(a)} -> {_number(b)}" for name, (a, b) in found.variance.items()]
    yield f"variance     {', '.join(shares) or 'no advantages'}{_dominant(found.variance)}"
    if found.count("unknown"):
        yield "unknown      a model would have to be asked: these groups are left out"
    if any(found.count(kind) for kind in KINDS):
        yield f"rows behind  add --rows {'|'.join(kind for kind in KINDS if found.count(kind))}"


def json_lines(found: Comparison, kind: str) -> Iterator[str]:
    """The rows of one of `KINDS`, as JSON lines."""
    table = found.rows.filter(found.rows[kind]).drop_columns(list(KINDS))
    for row in table.to_pylist():
        known = {name: None if _is_nan(value) else value for name, value in row.items()}
        yield json.dumps(known, ensure_ascii=True)


def show_ablations(results: Sequence[AblationResult], console: Console) -> None:
    """Print a line for each part that was left out."""
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table(box=None, pad_edge=False)
    table.add_column("left out", no_wrap=True)
    for heading in ("rows kept", "groups", "mean reward", "sign flips", "rank"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("shares of the advantages' variance", overflow="fold")
    for ablation, found in results:
        name = Text(ablation.left_out or "nothing")
        if found is None:
            needed = Text(f"needed by {', '.join(ablation.needed_by)}")
            table.add_row(name, "", "", "", "", "", needed)
            continue
        kept = found.kept_in_both + found.count("gained")
        shares = [f"{component} {_number(b)}" for component, (_, b) in found.variance.items()]
        table.add_row(
            name,
            f"{kept:,}",
            f"{found.groups[1]:,}",
            _number(found.mean_reward[1]),
            f"{found.count('flipped'):,}",
            _number(found.rank),
            Text(", ".join(shares)),
        )
    console.print(table)


def _dominant(variance: Mapping[str, tuple[float, float]]) -> str:
    tops = []
    for side in (0, 1):
        shares = {name: both[side] for name, both in variance.items() if not math.isnan(both[side])}
        ordered = sorted(shares, key=shares.__getitem__)
        tops.append(ordered[-1] if ordered else None)
    return f": {tops[1]} is dominant now" if tops[1] and tops[0] != tops[1] else ""


def _listed(reasons: Mapping[str, int]) -> str:
    listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({listed})" if listed else ""


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
