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
    from ...trainer.evaluation import Evaluation, PairedDifference
    from ..recipe.train import ValidationSet


Evaluated = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a training run.")
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="MODEL",
        help="A folder or a name; by default what the run has trained, or the recipe's model.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=PATH",
        help="A set of prompts with their answers; by default those of train.validation.",
    ),
]
Responses = Annotated[
    list[str] | None,
    typer.Option(
        "--responses",
        metavar="NAME=FILE",
        help="Grade stored responses to a set, and sample none.",
    ),
]


def evaluate(
    context: typer.Context,
    recipe: Evaluated,
    policy: PolicyOption = None,
    sets: Sets = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="How many responses to each prompt.")
    ] = None,
    responses: Responses = None,
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
    from ...trainer.evaluation import Evaluator
    from ..console import Console, path_text
    from ..recipe.recipe import load

    of_run = recipe.is_dir()
    path, trained = recipe / "recipe.yaml" if of_run else recipe, recipe / "policy"
    check_recipe_trusted(path, trust)
    evaluator = Evaluator(load(path, overrides_of(context)), _sets(_pairs(sets, "--set"), n))
    if policy is None and of_run and trained.exists():
        policy = str(trained)
    console = Console(stderr=True, quiet=quiet)
    if responses:
        if output is None:
            raise RejuiceError(
                "stored responses need a folder for what is graded", "give --output DIR"
            )
        folder = output
        stored = {name: Path(file) for name, file in _pairs(responses, "--responses").items()}
        found = evaluator.grade(folder, stored, progress=not quiet)
    else:
        folder = output or RUNS / "eval" / _name(policy or evaluator.policy)
        found = evaluator.evaluate(folder, policy, progress=not quiet)
    found.write(folder)
    Console(soft_wrap=True).print(_table(found))
    if against is not None:
        _compare(found, folder, against)
    console.print(f"responses and figures: {path_text(folder)}", highlight=False)


def _compare(found: Evaluation, folder: Path, against: Path) -> None:
    """Print how the sets of two evaluations differ, those that both have."""
    from ...trainer.evaluation import compare
    from ..console import path_text
    from ..dataset.read import read_all

    names = [name for name in found.figures if (against / f"{name}.parquet").exists()]
    if not names:
        lacking = f"{path_text(against)} has none of the sets {', '.join(found.figures)}"
        raise RejuiceError(lacking, "give the --output of an evaluation")
    for name in names:
        ours, theirs = (read_all(each / f"{name}.parquet") for each in (folder, against))
        typer.echo(_line(name, compare(ours, theirs), path_text(against)))


def _pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return `NAME=PATH` as names and paths."""
    found = dict[str, str]()
    for word in words or ():
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise RejuiceError(f"{option} {word} names no set", f"write {option} NAME=PATH")
        found[name] = path
    return found


def _sets(paths: Mapping[str, str], n: int | None) -> dict[str, ValidationSet]:
    from ..recipe.train import ValidationSet, check_names

    if n is not None and not paths:
        found = "n is given, and no set"
        raise RejuiceError(found, "give --set NAME=PATH, or set n in train.validation")
    try:
        check_names(paths)
    except ValueError as error:
        raise RejuiceError(str(error), "give the set another name") from None
    own = {} if n is None else {"n": n}
    return {
        name: ValidationSet.model_validate({"path": path, **own}) for name, path in paths.items()
    }


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


def _line(name: str, found: PairedDifference, other: str) -> str:
    return (
        f"{name}: {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f}, p = {found.p:.3g}) "
        f"against {other}, on {found.prompts:,} prompts of both"
    )
