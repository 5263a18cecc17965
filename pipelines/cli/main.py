"""The `rejuice` command."""

from __future__ import annotations

import atexit
import io
import re
import signal
import sys
import traceback
from copy import copy
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from ...operators import EmptyResultError, RejuiceError, __version__
from ...operators.errors import first_line, needs
from ...operators.workers import signals_interrupt
from ..dataset.remote import AnyPath
from ..safe_output import safe_output, shown
from .analysis import audit, diff, explain, preview, report, view, whatif
from .cache import app as cache
from .evaluation import evaluate
from .export import app as export
from .shared import (
    EPILOG,
    AllowEmpty,
    CacheDir,
    Debug,
    Json,
    OverridableCommand,
    Overwrite,
    Quiet,
    RecipePath,
    StoppedError,
    Trust,
    check_recipe_trusted,
    echo_lines,
    overrides_of,
    spelled,
    tell_of_credit,
    trust_made,
    warn,
    warn_of_steps,
)
from .training import TRAIN_EPILOG, checkpoint, simulate, train

if TYPE_CHECKING:
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
    context_settings={"token_normalize_func": spelled},
)
_MAKE, _LOOK, _TRAIN, _SHARE = "Make", "Look", "Train", "Share"
_OWN = "rejuice.operators."
_INTERRUPTED = 130  # Click's exit status after Ctrl-C.
_STATUS: dict[type[Exception], int] = {StoppedError: _INTERRUPTED, EmptyResultError: 1}

RetryDropped = Annotated[
    bool, typer.Option("--retry_dropped", help="Retry rows that an earlier run dropped as failed.")
]
RetryMissing = Annotated[
    str | None,
    typer.Option(
        "--retry_missing",
        metavar="STEP",
        help="Compute again what failed in this step, given by name or number: rewards that are "
        "missing because of a timeout, a malformed verdict and the like.",
    ),
]
ChunkRows = Annotated[
    int | None,
    typer.Option(
        "--chunk_rows",
        min=1,
        help="Rows per chunk; by default 65,536, or 2,048 if a step is resumable, or 256 if a step "
        "of Data-Juicer's asks a server.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Read the bytes of the dataset, the export and its run folder, even if they seem "
        "unchanged.",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"] | None,
    typer.Option(
        "--engine",
        help="Where chunks are run: on this machine, or on Ray; by default as executor_type says.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="The Ray cluster, HOST:PORT, or local, to start Ray on this machine for the run; by "
        "default ray_address.",
    ),
]
CustomFiles = Annotated[
    list[Path] | None,
    typer.Option("--custom", help="A Python file, or a folder of them, with your operators."),
]


@app.command(cls=OverridableCommand, epilog=EPILOG, rich_help_panel=_MAKE)
def run(
    context: typer.Context,
    recipe: RecipePath,
    overwrite: Overwrite = False,
    retry_dropped: RetryDropped = False,
    allow_empty: AllowEmpty = False,
    retry_missing: RetryMissing = None,
    chunk_rows: ChunkRows = None,
    cache_dir: CacheDir = None,
    verify: Verify = False,
    engine: EngineOption = None,
    ray: RayAddress = None,
    trust: Trust = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a recipe: write the curated rows, the audit log and a report.

    A run that was stopped continues where it stopped. Steps whose input, config and code have not
    changed are not run again. A run that leaves no row, or in which a step fails on every row, ends
    with status 1.
    """
    from ..analysis.funnel import show_end_of_run
    from ..console import Console, as_json, print_lines
    from ..engine.progress import Progress
    from ..engine.report import check_not_empty, retry_hints
    from ..engine.run import cluster_of
    from ..engine.run import run as run_recipe
    from ..recipe.recipe import load

    check_recipe_trusted(recipe, trust)
    loaded = load(recipe, overrides_of(context)).offline()
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
    if json:
        typer.echo(as_json(report, pretty=True))
    else:
        console = Console(quiet=quiet)
        show_end_of_run(report, console)
        tell_of_credit(loaded, console)
        print_lines(retry_hints(loaded, report), console)
    if not allow_empty:
        check_not_empty(loaded, report)


@app.command(cls=OverridableCommand, epilog=EPILOG, rich_help_panel=_MAKE)
def check(
    context: typer.Context,
    recipe: RecipePath,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Check a recipe without running it: operators, fields, columns, dataset, training."""
    from ..recipe.columns import checked_schema
    from ..recipe.recipe import load
    from ..recipe.steps import credit_line, place_lines

    check_recipe_trusted(recipe, trust)
    loaded = load(recipe, overrides_of(context))
    _leave_pandas_out(loaded)
    _check_files(loaded)
    head, training = loaded.head, loaded.head.train
    offline, trained, dataset = loaded.offline(), loaded.in_training(), loaded.opened()
    lines = place_lines(loaded.steps)
    if training is not None:
        from ...trainer.launch.checks import check_training
        from ...trainer.run import TrainingRun

        lines = [*check_training(TrainingRun.of(Path(), loaded), dataset, may_lack=True), *lines]
    right, columns = "fields", list[str]()
    if dataset.spec.exists() or head.generated_part():
        try:
            columns = checked_schema(offline, dataset).names
            if training is None and trained is not offline:
                checked_schema(trained, dataset)
            right = "fields and columns"
            if not head.generated_part():
                from ..engine.trial import tried

                lines += tried(offline, dataset)
        except RejuiceError as error:
            if training is None or training.replay is None:
                raise
            line = f"{dataset.spec} is not read in training, but `rejuice run` refuses it: {error}"
            lines.insert(0, line)
    else:
        lines.insert(0, f"{dataset.spec} does not exist yet, so columns were not checked.")
    warn_of_steps(offline if training is None else trained, columns)
    typer.echo(f"{recipe}: {len(loaded.steps)} steps, all {right} are right.")
    echo_lines(filter(None, [credit_line(trained.steps, training), *lines]))


def _leave_pandas_out(recipe: Recipe) -> None:
    """Let pyarrow not find pandas, of which it takes 0.4 s to see whether its first value is one.

    Not where another library reads the dataset or is a step. `to_pandas` looks again.
    """
    import pyarrow as pa

    own = (type(step.operator).__module__.startswith(_OWN) for step in recipe.steps)
    if all(own) and all(isinstance(each, AnyPath) for each in recipe.dataset_spec().paths):
        found, sys.path = sys.path, []
        try:
            pa.scalar(0)
        finally:
            sys.path = found


def _check_files(recipe: Recipe) -> None:
    if recipe.head.executor_type != "default":
        needs("executor_type ray", "rejuice[ray]", "ray")
    for step in recipe.steps:
        try:
            step.operator.check_files()
        except RejuiceError as error:
            raise error.at(recipe.where(step)) from None


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
    json: Json = False,
) -> None:
    """List operators, flows and tools, or show one with its fields, columns and reasons."""
    from json import dumps

    from ...operators.registry import load_files
    from ..analysis import reference

    files = custom or ()
    if schema:
        text = dumps(reference.recipe_schema(load_files(files)), indent=2) + "\n"
    elif markdown:
        text = reference.page(files)
    elif name is not None:
        text = reference.entry(name, files)
    elif json:
        text = dumps(reference.sections(files), indent=2, ensure_ascii=False) + "\n"
    else:
        text = reference.listing(files)
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


for group in (app, data, export, cache):
    for info in group.registered_commands:  # A terminal breaks the lines of a paragraph itself.
        info.help = re.sub(r"(?<!\n)\n(?!\s)", " ", getdoc(info.callback) or "")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command; a user error is one line on stderr and exit status 2."""
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
                _chosen(sys.argv[1:2])(standalone_mode=True)
        except (RejuiceError, OSError) as error:
            if "--debug" in sys.argv:
                traceback.print_exception(error.__cause__ or error)
            typer.echo(f"rejuice: {_line(error)}", err=True)
            sys.exit(_STATUS.get(type(error), 2))
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
        raise AssertionError("a command ends by SystemExit")


def _line(error: RejuiceError | OSError) -> str:
    if isinstance(error, RejuiceError):
        return str(error)
    named = "" if error.filename is None else f"{error.filename!s:.200}: "
    return f"{named}{first_line(error.strerror or str(error))}"


def _chosen(first_word: list[str]) -> typer.Typer:
    """The command line with only the command that is called: Typer reads all options of each."""
    chosen = copy(app)
    for each in app.registered_commands:
        if first_word == [each.name or getattr(each.callback, "__name__", "")]:
            chosen.registered_commands, chosen.registered_groups = [each], []
    return chosen
