"""`rejuice eval`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...operators import RejuiceError
from .shared import RUNS, Debug, Json, Overwrite, Trust, check_recipe_trusted, overrides_of, warn

if TYPE_CHECKING:
    from ...trainer.evaluation import Evaluation, Evaluator, PairedDifference
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
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The folder to write; by default outputs/eval/POLICY."),
]
Opponent = Annotated[
    Path | None, typer.Option("--against", metavar="DIR", help="Compare with another evaluation.")
]
Responses = Annotated[
    list[str] | None,
    typer.Option(
        "--responses",
        metavar="NAME=FILE",
        help="Grade stored responses to a set, and sample none.",
    ),
]

ResponseCount = Annotated[
    int | None, typer.Option("--n", min=1, help="How many responses to each prompt.")
]


def evaluate(
    context: typer.Context,
    recipe: Evaluated,
    policy: PolicyOption = None,
    sets: Sets = None,
    n: ResponseCount = None,
    responses: Responses = None,
    output: Output = None,
    against: Opponent = None,
    overwrite: Overwrite = False,
    trust: Trust = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the table only.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate a policy: mean@n with its 95% interval, pass@k and maj@n, by set and data_source.

    Prompts, sampling settings and grading are those of validation in training; the engine is that
    of the recipe. The responses are kept, and what is there is not sampled again. The last column
    says how many questions of a set also occur in the training data.
    """
    from ...trainer.evaluation import Evaluator
    from ..console import Console, as_json, path_text
    from ..recipe.recipe import load

    path = recipe / "recipe.yaml" if (of_run := recipe.is_dir()) else recipe
    check_recipe_trusted(path, trust)
    evaluator = Evaluator(load(path, overrides_of(context)), _sets(_pairs(sets, "--set"), n))
    console = Console(stderr=True, quiet=quiet)
    if responses and output is None:
        raise RejuiceError("stored responses need a folder for what is graded", "give --output DIR")
    policy = policy or (_trained(recipe) if of_run and not responses else evaluator.policy)
    folder = output or RUNS / "eval" / _name(policy)
    evaluator.replaced = _replaced(folder, against, evaluator, overwrite)
    if responses:
        stored = {name: Path(file) for name, file in _pairs(responses, "--responses").items()}
        made = evaluator.grade(folder, stored, progress=not quiet)
    else:
        console.print(f"policy: {path_text(policy)}, engine: {evaluator.engine}", highlight=False)
        made = evaluator.evaluate(folder, policy, progress=not quiet)
    made.write(folder)
    known: dict[str, Any] = {}
    compared: dict[str, PairedDifference] = {}
    lacking = None
    try:  # What was paid for is shown, whatever it cannot be compared with.
        trained_on = recipe / "prompts" / "train.arrow" if of_run else None
        known = evaluator.contaminated(folder, made.figures, trained_on)
    except RejuiceError as error:
        warn(f"the training data was not compared: {error}")
    try:
        compared = {} if against is None else _compared(made, folder, against)
    except RejuiceError as error:
        lacking = error
    if json:
        typer.echo(as_json({**made._asdict(), "in_training": known, "against": compared}))
    else:
        _show(made, known, compared, path_text(against))
    console.print(f"responses and figures: {path_text(folder)}", highlight=False)
    if lacking is not None:
        raise lacking


def _trained(run: Path) -> str:
    if not (run / "policy").is_dir():
        raise RejuiceError(
            f"{run} has not written its policy yet",
            "write that of a checkpoint by `rejuice export policy RUN DIR`, and give --policy DIR",
        )
    return str(run / "policy")


def _replaced(
    folder: Path, against: Path | None, evaluator: Evaluator, overwrite: bool
) -> Collection[str]:
    """The sets whose files may be replaced: those of an earlier evaluation, whose figures go."""
    from ...trainer.evaluation import FIGURES
    from ..dataset.files import check_is_free

    if against is not None and folder.resolve() == against.resolve():
        raise RejuiceError(f"{folder} would be replaced", "give another --output")
    earlier = _figures(folder)
    check_is_free(folder / FIGURES, overwrite=overwrite or bool(earlier))
    (folder / FIGURES).unlink(missing_ok=True)
    return [each.name for each in evaluator.sets] if overwrite else earlier


def _figures(folder: Path) -> Mapping[str, Any]:
    from ...operators.json_text import parse_json
    from ...trainer.evaluation import FIGURES

    try:
        return dict(parse_json((folder / FIGURES).read_text("utf-8"))["figures"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _compared(found: Evaluation, folder: Path, against: Path) -> dict[str, PairedDifference]:
    from ...trainer.evaluation import compare
    from ..console import path_text
    from ..dataset.read import read_all

    theirs = _figures(against)
    names = [name for name in found.figures if name in theirs]
    if not names:
        lacking = f"{path_text(against)} has none of the sets {', '.join(found.figures)}"
        raise RejuiceError(lacking, "give the --output of an evaluation")
    files = {name: [read_all(x / f"{name}.parquet") for x in (folder, against)] for name in names}
    return {name: compare(*both) for name, both in files.items()}


def _pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    found = dict[str, str]()
    for word in words or ():
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise RejuiceError(f"{option} {word} names no set", f"write {option} NAME=PATH")
        if name in found:
            raise RejuiceError(f"{option} names '{name}' twice", "give each set its own name")
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
    """The name of a file for a policy: `grpo` for `outputs/grpo/policy`."""
    if Path(policy).is_dir():
        folder = Path(policy).resolve()
        policy = folder.parent.name if folder.name == "policy" else folder.name
    return re.sub(r"[^\w.-]+", "_", policy).strip("._") or "policy"


def _show(
    found: Evaluation,
    known: Mapping[str, int],
    compared: Mapping[str, PairedDifference],
    other: str,
) -> None:
    from ..console import Console, figures_table

    figures = dict.fromkeys(name for each in found.figures.values() for name in each if "@" in name)
    table = figures_table("set", "prompts", *figures, "95%", "ungraded", "in training")

    def add(name: str, own: Mapping[str, float], contained: str = "") -> None:
        shown = [f"{own[each]:.3f}" if each in own else "" for each in figures]
        interval = f"{own['mean_low']:.3f} to {own['mean_high']:.3f}"
        counts = f"{own['prompts']:,.0f}", *shown, interval, f"{own['ungraded']:,.0f}"
        table.add_row(name, *counts, contained)

    for name, own in found.figures.items():
        add(name, own, f"{known[name]:,}" if name in known else "")
        for source, of_source in found.sources[name].items():
            add(f"  {source}", of_source)
        for figure, what in (("failed_prompts", "failed"), ("dropped_prompts", "were dropped")):
            if count := int(own.get(figure, 0)):
                warn(f"{name}: {count:,} prompts {what}, and count in no figure")
    Console(soft_wrap=True).print(table)
    for name, pair in compared.items():
        interval = f"{pair.low:+.3f} to {pair.high:+.3f}, " if pair.low == pair.low else ""
        typer.echo(
            f"{name}: {pair.mean:+.3f} ({interval}p = {pair.p:.3g}) against {other}, on "
            f"{pair.prompts:,} {'prompt' if pair.prompts == 1 else 'prompts'} of both"
        )
