"""Print what training on a recipe would get."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..compare.preview import NORMALISATIONS, Preview
from ..recipe.train import Train

_WIDTH = 140
_HEADINGS = {"std": "GRPO", "none": "without std", "leave_one_out": "leave-one-out"}


def show_preview(title: str, found: Preview, train: Train | None, console: Console) -> None:
    """Print a preview.

    Args:
        title: of the run whose responses they are.
        found: its figures.
        train: the recipe's `train:`; None: it has none.
        console: where to print.
    """
    if not console.is_terminal:
        console.width = _WIDTH
    responses, prompts = f"{found.responses:,} responses", f"{found.prompts:,} prompts"
    console.print(Text(f"{title}: {responses} to {prompts}; nothing is sampled or judged."))
    console.print(_advantages(found))
    for line in _lines(found, train):
        console.print(Text(line), soft_wrap=True)


def _advantages(found: Preview) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("advantages")
    for name in NORMALISATIONS:
        table.add_column(_HEADINGS[name], justify="right")
    columns = [found.advantages[name] for name in NORMALISATIONS]
    for at, heading in enumerate(("mean |advantage|", "largest", "smallest")):
        table.add_row(heading, *(f"{column[at]:.3f}" for column in columns))
    return table


def _lines(found: Preview, train: Train | None) -> list[str]:
    left, signal = found.groups_left, found.without_signal
    components = ", ".join(f"{name} {mass:.0%}" for name, mass in found.component_mass.items())
    quarters = ", ".join(f"{mass:.0%}" for mass in found.length_mass)
    unit = "tokens" if found.tokens is not None else "characters: there are no token ids"
    factor, low, high = found.refill
    lines = [
        f"rows left              {found.kept:,} of {found.responses:,}, in {left:,} groups",
        f"groups without signal  {signal:,} of the {left:,} left",
        f"gradient mass          {components or 'none: all advantages are 0'}",
    ]
    if quarters:
        lines.append(f"  by length            {quarters} (quarters, the shortest first; {unit})")
    if math.isfinite(factor):
        prompts = f"{factor:.2f} prompts for each one left (95% {low:.2f} to {high:.2f})"
        wanted = train.prompts_per_step if train else 0
        step = f": a step of {wanted} needs {math.ceil(factor * wanted)}" if wanted else ""
        lines.append(f"refill                 {prompts}{step}")
    lines.append(f"for each response      {_cost(found)}")
    return lines


def _cost(found: Preview) -> str:
    tokens = "tokens unknown" if found.tokens is None else f"{found.tokens:,.0f} tokens"
    seconds = "" if found.seconds is None else f", {1000 * found.seconds:.2f} ms in the steps"
    return f"{tokens}, {found.judge_calls:.2f} judge calls{seconds}"
