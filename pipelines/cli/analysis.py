"""Commands that look at finished runs: audit, diff, explain, whatif, preview, report, view.

Each opens what it was given by `open_run`, and has the rest done by `pipelines/analysis`.
"""

from __future__ import annotations

import shlex
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...operators import EmptyResultError, RejuiceError
from ...operators.errors import needs
from ..dataset.remote import to_path
from .shared import (
    RUNS,
    AllowEmpty,
    Debug,
    Json,
    Overwrite,
    TrainingSteps,
    Trust,
    check_recipe_trusted,
    echo_lines,
    found_run,
    open_run,
    open_with_code,
    open_with_recipe,
    overrides_of,
    range_of_steps,
    warn,
)

if TYPE_CHECKING:
    from ..analysis.stored import Stored
    from ..dataset.remote import AnyPath


# Paths may be those of an object store, for which typer knows no type.
_STORED = (
    "An export, its run folder or recipe, the folder of a training run, or one of its steps, such "
    "as RUN/steps/000012."
)


def audit(
    path: Annotated[Path, typer.Argument(metavar="PATH", parser=to_path, help=_STORED)],
    sample: Annotated[
        int, typer.Option("--sample", min=1, help="How many rows to draw for a person to label.")
    ] = 200,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file of the sample and of failing pairs, as JSON lines; by default "
            "audit.jsonl in the folder of the run, and none where labels are read.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="An audit.jsonl with labels: state error rates by them."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", metavar="SIGN", help="Print the rows of a sign, as JSON lines."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other rows.")] = 0,
    steps: TrainingSteps = None,
    overwrite: Overwrite = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the verdicts of a run with those of a second verifier, and sample rows to label.

    Without labels only agreement is stated, never an error rate. Answers are also rewritten in ways
    that must leave a verdict or change it, and assertions run on programs that solve nothing. Signs
    of reward hacking come last, with a stated rate of false alarms.
    """
    from ..analysis import audit as found
    from ..analysis.reward_hacking import audit_signs
    from ..analysis.verdicts import graded_rows
    from ..console import as_json

    stored = open_run(path, range_of_steps(steps))
    if rows is not None:
        echo_lines(found.sign_row_lines(audit_signs(stored, seed), rows))
        return
    graded = graded_rows(stored)
    if output is None and labels is None and graded is not None:
        output = _sample_file(stored)
    if output is not None and not overwrite:
        found.check_replaceable(output)
    verdicts, weak = None, list[str]()
    if graded is None:
        warn(f"no verdict in {path}: no verifier graded, so only signs that need none are computed")
    else:
        verdicts = found.audit_verdicts(graded, sample, output, labels, seed)
        weak = list(found.weak_test_lines(stored, seed))
    signs = audit_signs(stored, seed)
    if json:
        typer.echo(as_json({"verdicts": verdicts, "tests": weak, "signs": signs}, pretty=True))
        return
    lines = [] if verdicts is None else found.verdict_lines(path, verdicts)
    echo_lines([*lines, *weak, *found.sign_lines(signs)])


def _sample_file(stored: Stored) -> Path:
    """Return where the sample of a run goes: its folder, or that of a step which was given.

    That of an export in an object store goes to the working directory.
    """
    from ..dataset.files import AUDIT

    if stored.kind == "training step":
        return Path(str(stored.path)) / AUDIT
    if stored.report is not None and not isinstance(to_path(stored.report.export_path), Path):
        return Path(AUDIT)
    return stored.folder / AUDIT


def diff(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            parser=to_path,
            help="A recipe, an export, the folder of a training run, or a step of it.",
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", parser=to_path, help="Another one.")],
    steps: TrainingSteps = None,
    rows: Annotated[
        Literal["gained", "lost", "flipped", "silenced", "woken", "prompts", "new"] | None,
        typer.Option("--rows", help="Print what a figure is made of, as JSON lines."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare two recipes in words and, where both have been run, two runs on data.

    Two steps of one training run show why the reward rose or fell from one to the other:
    `rejuice diff RUN/steps/000038 RUN/steps/000040`.
    """
    from ..analysis.diff import Side, diff_facts
    from ..analysis.diff_words import show_diff, show_diff_rows
    from ..console import Console, as_json
    from ..recipe.recipe import RECIPES
    from ..recipe.trust import read_to_show

    def side(path: Path) -> Side:
        stored = found_run(path, range_of_steps(steps))
        # A recipe may have changed since it was run: in words it is as it is now.
        is_recipe = path.suffix in RECIPES
        recipe = read_to_show(path) if is_recipe or stored is None else stored.read_recipe()
        return Side(path, recipe, stored)

    if rows is not None:
        show_diff_rows(side(a), side(b), rows)
    elif json:
        typer.echo(as_json(diff_facts(side(a), side(b)), pretty=True))
    else:
        show_diff(side(a), side(b), f"rejuice {shlex.join(sys.argv[1:])}", Console())


def explain(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            parser=to_path,
            help="A recipe in YAML; with ROW also an export, its run folder, the folder of a "
            "training run or one of its steps.",
        ),
    ],
    row: Annotated[
        str | None,
        typer.Argument(metavar="ROW", help="A response_id or prompt_id, or a prefix; or 'row 5'."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All rows, values and lines, whatever their length.")
    ] = False,
    steps: TrainingSteps = None,
    json: Json = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Explain what a recipe does; with ROW, what a finished run did to that row and why.

    Of a run its own recipe counts, as it ran, whatever became of the file since. Of operators of
    its own, what they wrote is shown; what they say about it, with --trust only.
    """
    from ..analysis.comparison import changed_fields
    from ..analysis.explain import explain_facts, explain_recipe, explain_row, recipe_facts
    from ..console import as_json
    from ..recipe.recipe import RECIPES
    from ..recipe.trust import read_to_show

    if trust:
        check_recipe_trusted(path, trust)
    overrides = overrides_of(context)
    recipe = read_to_show(path, overrides) if path.suffix in RECIPES else None
    if row is None:
        if recipe is None:
            stored = open_with_code(path, None, path, trust, needs_code=False)
            recipe = stored.read_recipe(overrides)
        if json:
            typer.echo(as_json(recipe_facts(recipe), pretty=True))
        else:
            typer.echo(explain_recipe(recipe), nl=False)
        return
    if recipe is None and overrides:
        raise RejuiceError(f"--{next(iter(overrides))} is of a recipe, not a run", "leave it out")
    other: AnyPath = recipe.head.export_path if recipe and "export_path" in overrides else path
    stored = open_with_code(other, range_of_steps(steps), path, trust, needs_code=False)
    if recipe is not None and changed_fields(stored.read_recipe().steps, recipe.steps):
        found = f"{recipe.path} and the recipe of the run differ"
        warn(f"{found}: this explains {stored.recipe}")
    if json:
        typer.echo(as_json(explain_facts(stored, row), pretty=True))
    else:
        typer.echo(explain_row(stored, row, everything=everything), nl=False)


RecipeOrRun = Annotated[
    Path,
    typer.Argument(
        metavar="RECIPE",
        parser=to_path,
        help="A recipe in YAML, or a stored run, whose own recipe it is then.",
    ),
]
OfRun = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="The export, or the folder of a training run or step; by default that of RECIPE.",
    ),
]


def whatif(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    steps: TrainingSteps = None,
    rows: Annotated[
        Literal["gained", "lost", "flipped", "silenced", "woken", "unknown"] | None,
        typer.Option("--rows", help="Print the rows of a figure, as JSON lines."),
    ] = None,
    each: Annotated[
        bool,
        typer.Option(
            "--each",
            help="What each step is worth: leave out each one after sampling, and each reward "
            "weight, one at a time.",
        ),
    ] = False,
    json: Json = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Apply a recipe, or other fields of it, to the responses of a finished run, and compare.

    Nothing is sampled or judged again:
    `rejuice whatif recipe.yaml --reward_sum_mapper.weights.format 0.3`.
    """
    from ..analysis import whatif as others
    from ..console import Console, as_json, tracked
    from ..recipe.steps import weight_warnings

    if each and rows:
        raise RejuiceError("--rows are of one comparison", "leave --each out")

    stored, other = open_with_recipe(
        recipe, run, overrides_of(context), range_of_steps(steps), trust
    )
    together = other.in_training() if stored.kind == "training run" else other.offline()
    for line in weight_warnings(together.steps, other.where):
        warn(line)
    if each:
        parts = list(tracked(others.whatif_each(stored, other)))
        if json:
            worth = {part.name: one or {"needed_by": part.needed_by} for part, one in parts}
            typer.echo(as_json(worth, pretty=True))
        else:
            others.show_each(parts, Console())
        return
    found = list(tracked(others.whatif_of_sets(stored, other)))
    if rows is not None:
        others.show_rows(found, rows)
        return
    changes = others.changes_of(stored, other)
    if json:
        typer.echo(as_json({"changed": changes, **others.facts(found)}, pretty=True))
        return
    command = f"rejuice {shlex.join(sys.argv[1:])}"
    others.show_whatif(stored.path, changes, found, command, Console())


def preview(
    context: typer.Context,
    recipe: RecipeOrRun,
    run: OfRun = None,
    prompts: Annotated[
        int,
        typer.Option("--prompts", min=2, help="How many prompts to sample where nothing was run."),
    ] = 64,
    allow_empty: AllowEmpty = False,
    json: Json = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Show what training on a recipe would get: advantages, signal, gradient mass, refill.

    The responses are those of a finished run, of training those of the last step; nothing is
    sampled or judged again. Of a recipe that has not been run, a sample of prompts is run first.
    Where the recipe chooses the prompts of each training step, those of the next one are shown.
    """
    from ..analysis.preview import preview as previewed
    from ..analysis.preview import run_on_some, show_preview, trained
    from ..analysis.replay import SetSamples
    from ..console import Console, as_json, path_text
    from ..engine.progress import Progress

    overrides = overrides_of(context)
    sampled = run is None and found_run(recipe) is None
    if sampled:
        check_recipe_trusted(recipe, trust)
        run = run_on_some(recipe, overrides, prompts, Progress(Console(stderr=True)))
    stored, wanted = open_with_recipe(recipe, run, overrides, None, trust)
    console, facts = Console(), list[dict[str, object]]()
    empty = list[EmptyResultError]()
    for one in trained(stored, wanted):
        found = previewed(SetSamples.of(one), one.fit(wanted))
        title = path_text(stored.path)
        title = title if stored.kind == "export" else f"{title}, {one.name}"
        facts.append({"of": title, **found._asdict()})
        if not json:
            show_preview(title, found, console, sampled=sampled)
        if not found.figures.kept and not allow_empty:
            what = f"no row is left of {found.figures.rows:,} responses"
            right = "change the filters, or accept it with --allow_empty"
            empty.append(EmptyResultError(what, right))
    following = None
    if stored.kind == "training run" and wanted.head.train is not None:
        from ...trainer.report.next_step import next_step_of, show_next_step

        if not json:
            show_next_step(stored.folder, wanted, console)
        elif step := next_step_of(stored.folder, wanted):
            following = {**step._asdict(), "taken": step.taken.to_pylist()}
    if json:
        typer.echo(as_json({"sets": facts, "next_step": following}, pretty=True))
    for error in empty:
        raise error


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", parser=to_path, help=_STORED)],
    steps: TrainingSteps = None,
    curves: Annotated[
        Path | None,
        typer.Option(
            "--curves",
            help="Of training runs: draw their curves, those of runs that differ only in their "
            "seeds as one; the file ends in .png, .svg or .pdf.",
        ),
    ] = None,
    against: Annotated[
        Literal["step", "tokens"], typer.Option("--against", help="The x axis of the curves.")
    ] = "step",
    allow_empty: AllowEmpty = False,
    overwrite: Overwrite = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the funnel of a finished run and why rewards are missing; metrics of training, too."""
    from ..console import as_json, path_text
    from ..dataset.files import check_is_free

    if curves is not None:
        needs("drawing curves", "matplotlib", "matplotlib")
        from ...trainer.report.curves import draw, grouped

        if curves.suffix not in (".png", ".svg", ".pdf"):
            raise RejuiceError(f"{curves} has no known format", "end it in .png, .svg or .pdf")
        check_is_free(curves, overwrite=overwrite)
        groups = grouped(paths)
    elif against != "step":
        raise RejuiceError("--against is an option of --curves", "add --curves")
    found = [_report(path, range_of_steps(steps), json) for path in paths]
    if json:
        facts = [each for each, _ in found]
        typer.echo(as_json(facts if len(facts) > 1 else facts[0], pretty=True))
    if curves is not None:
        draw(groups, curves, against=against)
        if not json:
            typer.echo(f"curves: {path_text(curves)}")
    for _, error in found:
        if error is not None and not allow_empty:
            raise error


def _report(path: AnyPath, steps: range | None, json: bool) -> tuple[Any, EmptyResultError | None]:
    """Show a run; or, for JSON, give its facts. The error is for one of which no row is left."""
    from ..analysis.funnel import report_facts, show_funnel, show_sources, show_training
    from ..console import Console
    from ..dataset.files import run_folder
    from ..engine.report import Report

    facts: Any = None
    console, found = Console(), None
    if (run_folder(path) / "report.json").is_file():  # Whatever else of the run may be gone.
        found = Report.read(path)
    stored = None if found is not None else open_run(path, steps)
    found = found if stored is None else stored.report
    if json:
        facts = found or (stored and report_facts(stored))
        rows = facts["rows_out"] if found is None else found.rows_out
    elif found is not None:
        show_funnel(found, console, path)
        show_sources(path, console)
        rows = found.rows_out
    else:
        assert stored is not None
        if stored.kind == "training run":
            from ...trainer.launch.training import show

            show(Path(str(stored.path)), stored.title, console)
        rows = show_training(stored, console)
    if rows != 0:  # None: nothing is known of them.
        return facts, None
    what, right = f"no row is left in {path}", "change the filters"
    if found is None:  # The funnel above says which steps of the recipe dropped them.
        what, right = f"no row was left to train on in {path}", "change what dropped them"
    return facts, EmptyResultError(what, f"{right}, or accept it with --allow_empty")


def view(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", parser=to_path, help=_STORED)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write; by default that of the run with .html."
        ),
    ] = None,
    steps: TrainingSteps = None,
    most_mb: Annotated[
        int, typer.Option("--most_mb", min=4, help="Leave texts out above this size.")
    ] = 39,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Follow a training run while it goes on: the page is served on this machine, and "
            "written when the run has ended.",
        ),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port of --live; 0: any free one.")
    ] = 0,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Write one HTML file to look at a run: figures, plots, and every sample with its path.

    The file loads nothing from a network. It is opened in the browser where stdout is a terminal.
    Two runs are shown side by side: their figures, and their responses to the same prompts.
    """
    from ..analysis.page.build import build_page
    from ..analysis.page.rows import page_of
    from ..console import path_text

    opened = sys.stdout.isatty() and not no_open
    if live:
        _follow(paths, port, most_mb * 1_000_000, opened=opened)
        opened = False  # The browser has a tab of it already.
    elif port:
        raise RejuiceError("--port is an option of --live", "add --live")
    target = output or _page_of(paths)
    runs = [(path, open_run(path, range_of_steps(steps))) for path in paths]
    summary = build_page(page_of(runs), target, most_bytes=most_mb * 1_000_000, overwrite=overwrite)
    sets = f"{summary.sets} {'set' if summary.sets == 1 else 'sets'}"
    size = f"{summary.bytes / 1e6:.1f} MB"
    counted = f"{summary.rows:,} rows, {summary.groups:,} groups, {sets}; {size}"
    typer.echo(f"{path_text(target)}: {counted}. Open it in a browser.")
    if opened:
        webbrowser.open(target.resolve().as_uri())


def _follow(paths: Sequence[AnyPath], port: int, most_bytes: int, *, opened: bool) -> None:
    """Serve the page of a training run until the run has ended."""
    from ...trainer.launch.failure import why_ended
    from ...trainer.launch.training import of_run
    from ...trainer.report.live import RunSoFar, serve

    if len(paths) > 1:
        raise RejuiceError(f"--live follows one run, not {len(paths)}", "give one of them")
    stored = open_run(paths[0], range(0))  # Its steps are opened as they are shown.
    if stored.kind != "training run":
        found = f"{paths[0]} is {'an' if stored.kind == 'export' else 'a'} {stored.kind}"
        raise RejuiceError(f"--live follows a training run: {found}", "leave --live out")

    def tell(address: str) -> None:
        typer.echo(f"Open {address} in a browser; Ctrl-C ends it, and not the run.")
        if opened:
            webbrowser.open(address)

    serve(RunSoFar(stored.folder, of_run, why_ended, most_bytes=most_bytes), port, tell)
    typer.echo(f"{paths[0]} has ended.")


def _page_of(paths: Sequence[AnyPath]) -> Path:
    """Return the page of some runs, beside the first; in an object store, the working directory.

    The page of an export is that of its run folder. That of two runs has both names.
    """
    runs = [_run_of(path) for path in paths]
    runs = [path.resolve() if path.is_dir() else path for path in runs]
    names = [path.name.removesuffix(".run") if path.is_dir() else path.stem for path in runs]
    name = f"{'-and-'.join(names)}.html"
    return runs[0].with_name(name) if isinstance(runs[0], Path) else Path(name)


def _run_of(path: AnyPath) -> AnyPath:
    """What a page is named after; of a recipe, its export or the folder of its training run."""
    from ..analysis.stored import export_of
    from ..recipe.recipe import RECIPES

    if path.suffix not in RECIPES or not isinstance(path, Path):
        return path
    own = path.resolve().parent
    in_folder = own if (own / "steps").is_dir() else RUNS / path.stem  # A run keeps its recipe.
    return export_of(path) or in_folder
