"""The `rejuice` command."""

from __future__ import annotations

import atexit
import io
import signal
import sys
import traceback
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from ...operators import EmptyResultError, RejuiceError, __version__
from ...operators.errors import first_line, needs
from ...operators.workers import signals_interrupt
from ..safe_output import safe_output, shown
from .analysis import audit, diff, explain, preview, report, view, whatif
from .cache import app as cache
from .evaluation import evaluate
from .export import app as export
from .options import (
    EPILOG,
    AllowEmpty,
    CacheDir,
    ChunkRows,
    CustomFiles,
    DatasetPath,
    Debug,
    EngineOption,
    ExportPath,
    OverridableCommand,
    Overwrite,
    RayAddress,
    RecipePath,
    RetryMissing,
    StoppedError,
    Verify,
    overrides_of,
    tell_of_credit,
    warn,
    warn_of_steps,
)
from .runs import Trust, check_recipe_trusted, trust_made
from .training import TRAIN_EPILOG, checkpoint, simulate, train

if TYPE_CHECKING:
    from ..dataset.read import Dataset
    from ..recipe.recipe import Recipe

app = typer.Typer(
    name="rejuice",
    help=(
        "Turns the rollouts of a language model into training data for GRPO: a recipe of operators "
        "samples, verifies, rewards, filters and balances them, and the same recipe trains the "
        "model on verl."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_MAKE, _LOOK, _TRAIN, _SHARE = "Make", "Look", "Train", "Share"
_RENAMED = {
    "schema": "ops --schema",
    "download": "data download",
    "checkpoint": "export policy",
    "push": "export hub",
    "ablate": "whatif --each",
    "curves": "report --curves FILE",
}

_EMPTY = 1
_INTERRUPTED = 130  # Click's exit status after Ctrl-C.


@app.command(cls=OverridableCommand, epilog=EPILOG, rich_help_panel=_MAKE)
def run(
    context: typer.Context,
    recipe: RecipePath,
    dataset_path: DatasetPath = None,
    export_path: ExportPath = None,
    np: Annotated[int | None, typer.Option("--np", min=1, help="Number of workers.")] = None,
    overwrite: Overwrite = False,
    retry_dropped: Annotated[
        bool,
        typer.Option("--retry_dropped", help="Retry rows that an earlier run dropped as failed."),
    ] = False,
    allow_empty: AllowEmpty = False,
    retry_missing: RetryMissing = None,
    chunk_rows: ChunkRows = None,
    cache_dir: CacheDir = None,
    verify: Verify = False,
    engine: EngineOption = None,
    ray: RayAddress = None,
    trust: Trust = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    debug: Debug = False,
) -> None:
    """Run a recipe: write the curated rows, the audit log and a report.

    A run that was stopped continues where it stopped. Steps whose input, config and code have not
    changed are not run again. A run that leaves no row, or in which a step fails on every row, ends
    with status 1.
    """
    from ..analysis.funnel import show_end_of_run
    from ..console import Console
    from ..engine.progress import Progress
    from ..engine.report import check_not_empty, retry_hints
    from ..engine.run import cluster_of
    from ..engine.run import run as run_recipe
    from ..recipe.recipe import load

    check_recipe_trusted(recipe, trust)
    loaded = load(recipe, _overrides(context, dataset_path, export_path, np)).offline()
    if cluster_of(loaded, engine, ray) is not None:
        needs("engine ray", "rejuice[ray]", "ray")
    report = run_recipe(
        loaded,
        overwrite=overwrite,
        retry_dropped=retry_dropped,
        retry_missing=retry_missing,
        chunk_rows=chunk_rows,
        cache=cache_dir,
        verify=verify,
        progress=Progress(Console(stderr=True, quiet=quiet), quiet=quiet),
        warn=(lambda _: None) if quiet else warn,
        engine=engine,
        ray_address=ray,
    )
    trust_made(report.export_path)
    show_end_of_run(report, Console(quiet=quiet))
    tell_of_credit(loaded, quiet=quiet)
    for line in [] if quiet else retry_hints(loaded, report):
        typer.echo(line)
    if not allow_empty:
        check_not_empty(loaded, report)


@app.command(cls=OverridableCommand, epilog=EPILOG, rich_help_panel=_MAKE)
def check(
    context: typer.Context,
    recipe: RecipePath,
    dataset_path: DatasetPath = None,
    export_path: ExportPath = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Check a recipe without running it: operators, fields, columns, dataset, training."""
    from ..recipe.columns import checked_schema
    from ..recipe.recipe import load
    from ..recipe.steps import credit_line, place_lines

    check_recipe_trusted(recipe, trust)
    loaded = load(recipe, _overrides(context, dataset_path, export_path, None))
    _check_files(loaded)
    head, training = loaded.head, loaded.head.train
    offline, dataset = loaded.offline(), loaded.opened()
    left_out = [*_check_training(loaded, dataset), *place_lines(loaded.steps)]
    right, columns = "fields", list[str]()
    if dataset.spec.exists() or head.generated_part():
        try:
            columns = checked_schema(offline, dataset).names
            if training is None and loaded.in_training() is not offline:
                checked_schema(loaded.in_training(), dataset)
            right = "fields and columns"
            if not head.generated_part():
                from ..engine.trial import tried

                left_out += tried(offline, dataset)
        except RejuiceError as error:
            if training is None or training.replay is None:
                raise
            line = f"{dataset.spec} is not read in training, but `rejuice run` refuses it: {error}"
            left_out.insert(0, line)
    else:
        left_out.insert(0, f"{dataset.spec} does not exist yet, so columns were not checked.")
    for line in loaded.setting_warnings():
        warn(line)
    warn_of_steps(offline if training is None else loaded.in_training(), columns)
    typer.echo(f"{recipe}: {len(loaded.steps)} steps, all {right} are right.")
    if line := credit_line(loaded.in_training().steps, training):
        typer.echo(line)
    for line in left_out:
        typer.echo(line)


def _check_files(recipe: Recipe) -> None:
    """Check that folders which steps name, and packages, are there."""
    if recipe.head.executor_type != "default":
        needs("executor_type ray", "rejuice[ray]", "ray")
    for step in recipe.steps:
        try:
            step.operator.check_files()
        except RejuiceError as error:
            raise error.at(recipe.where(step)) from None


def _check_training(recipe: Recipe, dataset: Dataset) -> list[str]:
    """Check a recipe that has a `train:` section; return a line for what could not be checked."""
    if recipe.head.train is None:
        return []
    from ...trainer.launch.checks import check_training
    from ...trainer.run import TrainingRun

    return check_training(TrainingRun.of(Path(), recipe), dataset, may_lack=True)


@app.command(rich_help_panel=_MAKE)
def ops(
    name: Annotated[str | None, typer.Argument(help="Show one of them in full.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of them as one Markdown page.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a recipe, for editors.")
    ] = False,
    custom: CustomFiles = None,
) -> None:
    """List operators, flows and tools, or show one with its fields, columns and reasons."""
    from ..analysis import reference

    files = custom or ()
    if schema:
        import json

        from ...operators.registry import load_files

        text = json.dumps(reference.recipe_schema(load_files(files)), indent=2) + "\n"
    elif markdown:
        text = reference.page(files)
    else:
        text = reference.listing(files) if name is None else reference.entry(name, files)
    typer.echo(text, nl=False)


class _Data(TyperGroup):
    """`rejuice data PATH` is `rejuice data generate PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_path = bool(args) and args[0] not in (*self.commands, "--help")
        return super().parse_args(ctx, ["generate", *args] if is_path else args)


data = typer.Typer(cls=_Data, help="Write synthetic rollouts, or download a dataset.")
app.add_typer(data, name="data", no_args_is_help=True, rich_help_panel=_MAKE)


@data.command()
def generate(
    path: Annotated[Path, typer.Argument(help="The file to write: .jsonl, .parquet or .arrow.")],
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Number of problems.")] = 200,
    responses: Annotated[
        int,
        typer.Option("--responses", min=0, help="Responses per problem; 0 writes prompts only."),
    ] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Each seed gives other problems.")] = 0,
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option("--split", help="No two splits share a problem."),
    ] = "train",
    levels: Annotated[
        str, typer.Option("--levels", help="Numbers of steps that a problem may take, from 1 to 4.")
    ] = "1,2,3",
    overwrite: Overwrite = False,
) -> None:
    """Write synthetic arithmetic rollouts to try recipes on."""
    from ..dataset.files import check_is_free
    from ..demo.datasets import write_dataset
    from ..demo.problems import DemoOptions, parse_levels

    check_is_free(path, overwrite=overwrite)
    options = DemoOptions(prompts, split, parse_levels(levels), seed, responses)
    write_dataset(path, "recorded" if responses else "arithmetic", options)
    typer.echo(f"{path}: {prompts:,} problems, {responses} responses each, seed {seed}.")


@data.command()
def download(
    name: Annotated[
        str, typer.Argument(help="A dataset on the Hugging Face hub, such as openai/gsm8k.")
    ],
    path: Annotated[Path, typer.Argument(help="The file to write: .parquet or .jsonl.")],
    config: Annotated[
        str | None, typer.Option("--config", help="The configuration to read, such as main.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="The split to read.")] = "train",
    overwrite: Overwrite = False,
) -> None:
    """Download a dataset from the Hugging Face hub to a file that recipes read."""
    from ..dataset.files import check_is_free
    from ..dataset.spec import HubDataset
    from ..dataset.spec import download as write

    check_is_free(path, overwrite=overwrite)
    rows = write(HubDataset(name, config, split), path)
    typer.echo(f"{path}: {rows:,} rows of {name}, split {split}.")


for command in (explain, report, view, whatif, diff, preview, audit):
    takes_fields = command in (explain, whatif, preview)
    options: Any = {"cls": OverridableCommand, "epilog": EPILOG} if takes_fields else {}
    app.command(rich_help_panel=_LOOK, **options)(command)
app.command(cls=OverridableCommand, epilog=TRAIN_EPILOG, rich_help_panel=_TRAIN)(train)
app.command("eval", cls=OverridableCommand, epilog=EPILOG, rich_help_panel=_TRAIN)(evaluate)
app.command(rich_help_panel=_TRAIN)(simulate)
export.command("policy")(checkpoint)
app.add_typer(export, name="export", no_args_is_help=True, rich_help_panel=_SHARE)
app.add_typer(cache, name="cache", no_args_is_help=True, rich_help_panel=_SHARE)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command; a user error is one line on stderr and exit status 2.

    The status is 1 where the work was done and its result is empty.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # Names of files may not be UTF-8.
            stream.reconfigure(errors="backslashreplace")
    if any(shown(word) != word for word in sys.argv):
        # Typer repeats a wrong argument in a panel, which a console of its own prints.
        from typer import rich_utils

        from ..console import Console

        rich_utils.Console = Console  # type: ignore[attr-defined]
    with safe_output():
        try:
            with signals_interrupt():
                for word in _RENAMED.keys() & {*sys.argv[1:2]}:
                    raise RejuiceError(f"rejuice {word} is now rejuice {_RENAMED[word]}")
                _chosen(sys.argv[1:2])(standalone_mode=True)
        except RejuiceError as error:
            if "--debug" in sys.argv:
                traceback.print_exception(error.__cause__ or error)
            typer.echo(f"rejuice: {error}", err=True)
            if isinstance(error, StoppedError):
                sys.exit(_INTERRUPTED)
            if isinstance(error, EmptyResultError):
                sys.exit(_EMPTY)
        except OSError as error:  # Whatever is read or written where nobody has looked before.
            if "--debug" in sys.argv:
                traceback.print_exception(error)
            named = "" if error.filename is None else f"{error.filename!s:.200}: "
            typer.echo(f"rejuice: {named}{first_line(error.strerror or str(error))}", err=True)
        except (SystemExit, KeyboardInterrupt) as end:  # The second before Click handles it.
            if getattr(end, "code", _INTERRUPTED) != _INTERRUPTED:
                raise
            resumes = sys.argv[1:2] in (["run"], ["eval"])
            again = "; run it again to continue where it stopped" if resumes else ""
            typer.echo(f"rejuice: stopped{again}", err=True)
            sys.exit(_INTERRUPTED)
        except Exception:
            traceback.print_exc()  # Here, and not by the interpreter: no secret may be in it.
            sys.exit(1)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # All is done, but for the unloading.
                atexit.register(signal.signal, number, signal.SIG_IGN)
        sys.exit(2)


def _chosen(first_word: list[str]) -> typer.Typer:
    """The command line with only the command that is called: Typer reads all options of each."""
    commands = app.registered_commands
    named = {each.name or getattr(each.callback, "__name__", ""): each for each in commands}
    chosen = copy(app)
    if called := [named[word] for word in first_word if word in named]:
        chosen.registered_commands, chosen.registered_groups = called, []
    return chosen


def _overrides(
    context: typer.Context, dataset_path: str | None, export_path: str | None, np: int | None
) -> dict[str, str]:
    named = {"dataset_path": dataset_path, "export_path": export_path, "np": np}
    given = {key: str(value) for key, value in named.items() if value is not None}
    return {**given, **overrides_of(context)}
