"""`rejuice eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...operators import RejuiceError
from .options import Debug, overrides_of
from .runs import RUNS, Trust, check_recipe_trusted

if TYPE_CHECKING:
    from ...trainer.evaluation import Difference, Evaluation
    from ..recipe.train import ValidationSet


def evaluate(
    context: typer.Context,
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a training run.")
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="MODEL",
            help="A folder or a name; by default what the run has trained, or the recipe's model.",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=PATH",
            help="A set of prompts with their answers; by default those of train.validation.",
        ),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Responses to each prompt of --set.")
    ] = None,
    responses: Annotated[
        list[str] | None,
        typer.Option(
            "--responses",
            metavar="NAME=FILE",
            help="Grade stored responses to a set, and sample none.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder to write; by default outputs/eval/POLICY."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="DIR", help="Compare with another evaluation."),
    ] = None,
    trust: Trust = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the table only.")] = False,
    debug: Debug = False,
) -> None:
    """Evaluate a policy: mean@n with its 95% interval, pass@k and maj@n, by set and data_source.

    Prompts, sampling and grading are those of validation in training. The responses are kept, and
    what is there is not sampled again. The last column says how many questions of a set are in the
    training data of the recipe, too, by ngram_decontamination_filter.
    """
    from ...trainer.evaluation import Evaluator, compare
    from ..console import Console, path_text
    from ..dataset.read import read_all
    from ..recipe.recipe import load

    path, trained = recipe, None
    if recipe.is_dir():
        path, trained = recipe / "recipe.yaml", recipe / "policy"
    check_recipe_trusted(path, trust)
    if n is not None and not sets:
        raise RejuiceError("--n is of --set", "set n in train.validation of the recipe")
    own = {} if n is None else {"n": n}
    named = {name: {"path": value, **own} for name, value in _pairs(sets, "--set").items()}
    loaded = load(path, overrides_of(context))
    evaluator = Evaluator(loaded, _checked(named))
    stored = {name: Path(value) for name, value in _pairs(responses, "--responses").items()}
    if policy is None and trained is not None and trained.exists():
        policy = str(trained)
    if stored and output is None:
        raise RejuiceError("--responses needs --output", "give the folder to write")
    folder = output or RUNS / "eval" / _name(policy or evaluator.policy)
    console = Console(stderr=True, quiet=quiet)
    if stored:
        found = evaluator.grade(folder, stored, progress=not quiet)
    else:
        found = evaluator.evaluate(folder, policy, progress=not quiet)
    found.write(folder)
    Console(soft_wrap=True).print(_table(found))
    console.print(f"responses and figures: {path_text(folder)}", highlight=False)
    if against is not None:
        for name in found.figures:
            other = against / f"{name}.parquet"
            if other.exists():
                ours = read_all(folder / f"{name}.parquet")
                typer.echo(_line(name, compare(ours, read_all(other)), path_text(against)))


def _pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return `NAME=PATH` as names and paths."""
    found = dict[str, str]()
    for word in words or ():
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise RejuiceError(f"{option} {word} names no set", f"write {option} NAME=PATH")
        found[name] = path
    return found


def _checked(sets: Mapping[str, Mapping[str, object]]) -> dict[str, ValidationSet]:
    from ..recipe.train import ValidationSet, check_names

    try:
        check_names(sets)
    except ValueError as error:
        raise RejuiceError(str(error), "give the set another name") from None
    return {name: ValidationSet.model_validate(fields) for name, fields in sets.items()}


def _name(policy: str) -> str:
    """Return a folder's name for a policy: of `outputs/grpo/policy` it is `grpo`."""
    parts = Path(policy).parts
    return parts[-2] if parts[-1] == "policy" and len(parts) > 1 else parts[-1]


def _table(found: Evaluation) -> object:
    from rich.table import Table

    figures = dict.fromkeys(name for each in found.figures.values() for name in each if "@" in name)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("set", "prompts", *figures, "95%", "ungraded", "in training"):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    for name, own in found.figures.items():
        known = found.contaminated[name]
        table.add_row(*_cells(name, own, figures), "" if known is None else f"{known:,}")
        for source, of_source in found.sources[name].items():
            table.add_row(*_cells(f"  {source}", of_source, figures), "")
    return table


def _cells(name: str, own: Mapping[str, float], figures: Mapping[str, None]) -> list[str]:
    shown = [f"{own[each]:.3f}" if each in own else "" for each in figures]
    interval = f"{own['mean_low']:.3f} to {own['mean_high']:.3f}"
    return [name, f"{own['prompts']:,.0f}", *shown, interval, f"{own['ungraded']:,.0f}"]


def _line(name: str, found: Difference, other: str) -> str:
    return (
        f"{name}: {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f}, p = {found.p:.3g}) "
        f"against {other}, on {found.prompts:,} prompts of both"
    )
