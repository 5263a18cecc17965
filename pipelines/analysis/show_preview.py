"""Print what training on a recipe would get."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..recipe.train import Train
from .cost import StepCost
from .preview import NORMALISATIONS, Preview

_WIDTH = 140
_ROUNDING = 0.005
_HEADINGS = {"std": "GRPO", "none": "without std", "leave_one_out": "leave-one-out"}


def show_preview(
    title: str,
    found: Preview,
    train: Train | None,
    cost: StepCost | None,
    console: Console,
    *,
    sampled: bool = False,
) -> None:
    """Print a preview.

    Args:
        title: of the run whose responses they are.
        found: its figures.
        train: the recipe's `train:`; None: it has none.
        cost: of a step of training, where there is `train:`.
        console: where to print.
        sampled: whether the responses were sampled for it.
    """
    if not console.is_terminal:
        console.width = _WIDTH
    responses, prompts = f"{found.responses:,} responses", f"{found.prompts:,} prompts"
    how = "sampled for this preview" if sampled else "nothing is sampled or judged"
    console.print(Text(f"{title}: {responses} to {prompts}; {how}."), soft_wrap=True)
    console.print(_advantages(found))
    lines = [*_lines(found), *(_training(cost, train) if train and cost else [_each(found)])]
    for line in lines:
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


def _lines(found: Preview) -> list[str]:
    left, signal = found.groups_left, found.without_signal
    mass = dict(found.component_mass)
    if mass and abs(rest := 1 - sum(mass.values())) > _ROUNDING:
        mass["summed before sampling"] = rest  # Rewards that came with the responses.
    components = ", ".join(f"{name} {share:.0%}" for name, share in mass.items())
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
        lines.append(f"refill                 {prompts}")
    return lines


def _training(cost: StepCost, train: Train) -> list[str]:
    """What a step of training takes, and all of them."""
    own, *more = cost.refills
    tried = [f"{own.short:.0%} of steps with train.refill {own.refills}"]
    tried += [f"{each.short:.0%} with {each.refills}" for each in more]
    short = ", ".join(tried)
    seconds = [
        f"{_time(each)} {what}"
        for each, what in (
            (cost.sampling_s, "to sample"),
            (cost.steps_s, "in the recipe's steps"),
            (cost.training_s, "in all"),
        )
        if each is not None
    ]
    total = cost.training_s
    taken = "time unknown until a step was trained"
    if total is not None:
        taken = _time(train.steps * total)
    return [
        f"  of {train.prompts_per_step:<18,}too few groups are left in {short}",
        f"each step              {_counts(cost, 1)}",
        f"  time                 {', '.join(seconds) or 'unknown: the responses were recorded'}",
        f"{f'all {train.steps:,} steps':<23}{_counts(cost, train.steps)}; {taken}",
    ]


def _counts(cost: StepCost, steps: int) -> str:
    tokens = "tokens unknown" if cost.tokens is None else f"{steps * cost.tokens:,.0f} tokens"
    sampled = f"{steps * cost.prompts:,.0f} prompts, {steps * cost.responses:,.0f} responses"
    return f"{sampled}, {tokens}, {steps * cost.judge_calls:,.0f} judge calls"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _each(found: Preview) -> str:
    tokens = "tokens unknown" if found.tokens is None else f"{found.tokens:,.0f} tokens"
    seconds = "" if found.seconds is None else f", {1000 * found.seconds:.2f} ms in the steps"
    return f"for each response      {tokens}, {found.judge_calls:.2f} judge calls{seconds}"
