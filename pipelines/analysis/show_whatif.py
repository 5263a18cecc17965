"""Print what other settings would change."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import typer
from rich.table import Table
from rich.text import Text

from ...operators import DataError
from ..console import Console
from ..dataset.remote import AnyPath
from .stored import StoredSet
from .whatif import KINDS, AblationResult, Comparison, combined

# --- Progress bars on stderr, where it is a terminal ----------------------------------

Item = TypeVar("Item")


def tracked(items: Iterable[Item], total: int, what: str = "steps") -> Iterator[Item]:
    """The same items, with a progress bar."""
    from rich.progress import track

    console = Console(stderr=True)
    quiet = not console.is_terminal
    yield from track(items, what, total, console=console, transient=True, disable=quiet)


# --- Print what other settings would change -------------------------------------------

_WIDTH = 140
_MOST_LINES = 20
_OFF_POLICY = "a policy trained this way would have sampled other responses from the second step on"


Found = Sequence[tuple[StoredSet, Comparison | DataError]]
"""By set; an error is why one could not be compared."""


def show_whatif(
    path: AnyPath, changed: Sequence[str], found: Found, command: str, console: Console
) -> None:
    """Print what other settings change."""
    if not console.is_terminal:
        console.width = _WIDTH
    known = [(one, each) for one, each in found if isinstance(each, Comparison)]
    whole = combined([each for _, each in known])
    found_rows = f"{path}: {whole.rows.num_rows:,} stored rows"
    console.print(Text(f"{found_rows}; nothing is sampled or judged."), soft_wrap=True)
    changes = "; ".join(changed) or "nothing: RECIPE and the run are the same"
    console.print(Text(f"changed      {changes}"), soft_wrap=True)
    if len(known) > 1:
        console.print(_steps_table(known))
    for line in comparison_lines(whole, command):
        console.print(Text(line), soft_wrap=True)
    left_out = dict[str, list[str]]()
    for one, error in found:
        if isinstance(error, DataError):
            left_out.setdefault(error.found, []).append(one.name)
    for why, names in left_out.items():
        which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        console.print(Text(f"left out     {which}: {why}"), soft_wrap=True)
    if any(one.training_step is not None for one, _ in known):
        console.print(_OFF_POLICY)


def show_rows(found: Found, kind: str) -> None:
    """Print the rows of one of `KINDS` as JSON lines, those of training with their set."""
    for one, each in found:
        if isinstance(each, Comparison):
            for line in json_lines(each, kind, one.name):
                typer.echo(line)


def _steps_table(found: Sequence[tuple[StoredSet, Comparison]]) -> Table:
    """A line for each set, or for each of as many pieces of the run as fit on a screen."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("kept in both", *KINDS, "mean reward", "rank"):
        table.add_column(heading, justify="right", no_wrap=True)
    per_line = math.ceil(len(found) / _MOST_LINES)
    for at in range(0, len(found), per_line):
        some = found[at : at + per_line]
        name = some[0][0].name if len(some) == 1 else f"{some[0][0].name} to {some[-1][0].name}"
        one = combined([each for _, each in some])
        reward = " -> ".join(map(_number, one.mean_reward))
        kinds = (f"{one.count(kind):,}" for kind in KINDS)
        table.add_row(Text(name), f"{one.kept_in_both:,}", *kinds, reward, _number(one.rank))
    return table


def comparison_lines(found: Comparison, command: str) -> Iterator[str]:
    """The figures of a comparison, each on its line."""
    before, after, gained, lost = found.groups
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
    shown = [kind for kind in KINDS if found.count(kind)]
    if shown:
        others = f", or {', '.join(shown[1:])}" if shown[1:] else ""
        yield f"details      {command} --rows {shown[0]}{others}"


def json_lines(found: Comparison, kind: str, name: str = "") -> Iterator[str]:
    """The rows of one of `KINDS`, as JSON lines, with the name of their set if it has one."""
    table = found.rows.filter(found.rows[kind]).drop_columns(list(KINDS))
    for row in table.to_pylist():
        known = {key: None if _is_nan(value) else value for key, value in row.items()}
        yield json.dumps({"set": name, **known} if name else known, ensure_ascii=True)


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
