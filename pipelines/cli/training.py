"""Commands that train: train, simulate and checkpoint."""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...operators import RejuiceError
from ...operators.errors import needs
from .shared import (
    EPILOG,
    RUNS,
    Debug,
    Json,
    Overwrite,
    Quiet,
    StoppedError,
    Trust,
    check_trusted,
    overrides_of,
    tell_of_credit,
    warn,
    warn_of_steps,
)

if TYPE_CHECKING:
    from ...trainer.cpu.fork_server import PreloadServer
    from ...trainer.run import TrainingRun
    from ..console import Console
    from ..recipe.recipe import Recipe
    from ..recipe.train import Train
    from ..recipe.trust import RecipeCode

_NEEDED = ("torch", "transformers", "ray", "verl", "transfer_queue", "matplotlib", "psutil")
_SHORT = {name: f"train.{name}" for name in ("steps", "profile", "schedule")}
TRAIN_EPILOG = (
    f"{EPILOG}; and any field of train, such as --train.learning_rate 1e-6. --steps N, --profile "
    "cpu|gpu and --schedule NAME set those of train. RECIPE may be the folder of a run."
)
_FAILED = 1
_AT_STEP = re.compile(r"step \d+: ")

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training run.")]


def train(
    context: typer.Context,
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in YAML.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder of the run; by default outputs/RECIPE."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the latest checkpoint.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the command, validate it with verl, and exit."),
    ] = False,
    trust: Trust = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a policy by GRPO on verl, by a recipe of prompts, rewards and filters.

    A run that was stopped resumes from its latest checkpoint with --resume. A finished one is
    shown again.
    """
    needs("training", "rejuice[train]", *_NEEDED)
    from ...trainer.launch.checks import check_training
    from ...trainer.launch.training import shell_script
    from ...trainer.launch.verl_config import validate
    from ...trainer.run import TrainingRun
    from ..console import Console
    from ..recipe.recipe import load

    path, folder = _found(recipe, output, resume, trust)
    given = {_SHORT.get(key, key): value for key, value in overrides_of(context).items()}
    loaded = load(path, given)
    run = TrainingRun.of(folder.resolve(), loaded)
    console, out = Console(stderr=True, quiet=quiet), Console(quiet=quiet)
    if not quiet:
        warn_of_steps(loaded, training=True)
    if dry_run:
        check_training(run, may_lack=True, resume=resume)
        typer.echo(shell_script(run, resume=resume))
        with console.status("verl is validating its configuration (about ten seconds)"):
            validate(run, resume=resume)
        console.print("verl accepts the configuration.", highlight=False)
    elif not _show_finished(run, folder, console, out):
        with ExitStack() as stack:
            run, server = _prepare(loaded, folder, resume, console, stack)
            tell_of_credit(loaded, console)
            _train(run, server, folder, resume, out)


def _code(recipe: Path, *, checkpoints: bool) -> RecipeCode:
    """The code of a training run, which verl's own loading of its checkpoints may run, too."""
    from ..recipe.trust import code_of

    others = ("its checkpoints, which verl unpickles",) if checkpoints else ()
    return code_of([recipe])._replace(others=others)


def _prepare(
    recipe: Recipe, folder: Path, resume: bool, console: Console, stack: ExitStack
) -> tuple[TrainingRun, PreloadServer | None]:
    """Write the folder of a run; on a CPU, its processes are made ready meanwhile."""
    from ...trainer.cpu.fork_server import PreloadServer, is_given, is_supported
    from ...trainer.launch.checkpoints import last
    from ...trainer.launch.checks import check_nodes, check_servers
    from ...trainer.launch.training import prepare, process_environment
    from ..recipe.trust import trust

    if recipe.head.train is not None:
        _need_for(recipe.head.train)
    server: PreloadServer | None = None
    with console.status("checking the recipe") as status:

        def preflight(run: TrainingRun) -> None:
            nonlocal server
            status.update("checking the servers of the recipe")
            check_servers(run)
            if run.config.profile == "cpu" and is_supported() and not is_given():
                server = stack.enter_context(PreloadServer(process_environment(run)))
            status.update("making the prompts")

        tell = (lambda _: None) if console.quiet else warn
        run = prepare(recipe, folder, resume=resume, preflight=preflight, tell=tell)
        if run.config.gpu.nodes > 1:
            status.update("checking what the nodes see")
        check_nodes(run)
    # Messages say how to resume it by its folder.
    trust(run.folder, _code(run.folder / "recipe.yaml", checkpoints=True))
    if resume and last(run.folder) is None:
        console.print("There is no checkpoint; training starts over.", highlight=False)
    return run, server


def simulate(
    run: RunPath,
    max_age: Annotated[
        list[int] | None,
        typer.Option("--max-age", min=1, help="Steps that are sampled ahead; again for others."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="GPUs of a node that train, apart.")
    ] = None,
    rollout_gpus: Annotated[
        int | None, typer.Option("--rollout-gpus", min=1, help="GPUs of a node that sample, apart.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict how fast a run would train, had it sampled ahead (`train.mode`).

    By the responses of a run of mode sync, and the time that sampling and training took in it.
    """
    from ...operators.workers import usable_cores
    from ...trainer.report.simulate import setups, show_simulated, simulate, stored_steps
    from ..console import Console, as_json
    from ..recipe.recipe import load_without_code

    # Its own operators and tools are not needed.
    config = load_without_code(run / "recipe.yaml").head.train
    if config is None:
        raise RejuiceError(f"{run} trains no policy", "give the folder of a training run")
    steps = stored_steps(run, config)
    ages, apart = max_age or [1, 2, 4], {"gpus": gpus, "rollout_gpus": rollout_gpus}
    modes = setups(config, ages, steps, cores=usable_cores(), **apart)
    found = [simulate(steps, mode) for mode in modes]
    if json:
        typer.echo(as_json(found, pretty=True))
    else:
        show_simulated(found, Console())


def checkpoint(
    run: RunPath,
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            help="The step of the checkpoint; by default the latest, or the best by train.keep.",
        ),
    ] = None,
    trust: Trust = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the policy of a checkpoint as a Hugging Face model folder.

    Tensors are read without running code; a checkpoint of other objects needs --trust.
    """
    needs("training", "rejuice[train]", *_NEEDED)
    from ...trainer.launch.checkpoints import NeedsTrustError
    from ...trainer.launch.checkpoints import export as write
    from ..console import Console, path_text
    from ..recipe.trust import RecipeCode

    console = Console(stderr=True)
    try:
        with console.status("writing the policy"):
            found = write(run, path, step, overwrite=overwrite)
    except NeedsTrustError as error:
        check_trusted(run, RecipeCode((), error.files, ("a checkpoint of pickled objects",)), trust)
        with console.status("writing the policy"):
            found = write(run, path, step, trusted=True, overwrite=overwrite)
    written = path_text(path)
    recipe = f"policy_rollout_mapper: {{model: {written}}}"
    typer.echo(f"{written}: the policy after step {found}; {recipe}")


def _train(
    run: TrainingRun, server: PreloadServer | None, folder: Path, resume: bool, out: Console
) -> None:
    from ...trainer.launch import training
    from ...trainer.launch.training import launch, process_environment
    from ...trainer.report.watch import Watch
    from ..console import Console, path_text

    log = run.folder / "verl.log"
    begin = log.stat().st_size if log.exists() else 0
    watch = Watch(run.folder, run.config.steps, Console(stderr=True), quiet=out.quiet)
    least_free = shutil.disk_usage(run.folder).free

    def follow() -> None:
        nonlocal least_free  # Once verl has ended, some may be free again.
        least_free = min(least_free, shutil.disk_usage(run.folder).free)
        watch.poll()

    try:
        with watch:
            status = launch(run, resume=resume, follow=follow, fork_server=server)
    except KeyboardInterrupt:
        raise StoppedError("stopped", _how_to_resume(folder)) from None
    if status:
        from ...trainer.launch.failure import cause
        from ...trainer.run import record_failure

        with log.open("rb") as file:
            file.seek(begin)
            text = file.read().decode("utf-8", "replace")
        failed: str | None = cause(text, status, run.folder, least_free)
        record_failure(run.folder, str(failed))
    else:
        failed = training.failure(run.folder)
    if failed is not None:
        # Do not repeat the training step; "step 4 name: ..." is a step of the recipe.
        at = f" at step {watch.step + 1}" if watch.step and not _AT_STEP.match(failed) else ""
        typer.echo(f"rejuice: training failed{at}: {failed}", err=True)
        typer.echo(f"verl's log is {path_text(log)}; {_how_to_resume(folder)}", err=True)
        raise typer.Exit(_FAILED)
    unfinished = None
    try:
        variables = None if server is None else process_environment(run, server)
        training.finish(run, quiet=out.quiet, variables=variables)
    except (RejuiceError, OSError) as error:
        unfinished = error
    training.show(run.folder, run.recipe.head.project_name, out)
    if unfinished is not None:
        found = "training finished, but the policy or curves could not be written"
        typer.echo(f"rejuice: {found}: {unfinished}", err=True)
        path = shlex.quote(str(folder))
        commands = f"`rejuice export policy {path} DIR` and `rejuice report {path} --curves FILE`"
        typer.echo(f"to write them: {commands}", err=True)
        raise typer.Exit(_FAILED)


def _show_finished(run: TrainingRun, folder: Path, console: Console, out: Console) -> bool:
    from ...trainer.launch import training
    from ...trainer.launch.training import finished_at
    from ..console import path_text

    step = finished_at(run)
    if step is None:
        return False
    if not (run.folder / "curves.png").exists():
        training.finish(run, quiet=console.quiet)  # A signal has stopped it.
    console.print(
        f"nothing to do: {path_text(folder)} has trained {step} steps; "
        "--steps with --resume trains more, another --output starts anew",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    training.show(run.folder, run.recipe.head.project_name, out)
    return True


def _found(recipe: Path, output: Path | None, resume: bool, trusted: bool) -> tuple[Path, Path]:
    """The recipe, whose code is trusted, and the folder of its run: its own if a run is in it."""
    if recipe.is_dir():
        if not (recipe / "recipe.yaml").exists():
            found = f"{recipe} is not the folder of a run"
            raise RejuiceError(found, "give a recipe or the folder of a run")
        recipe = recipe / "recipe.yaml"
    from ...trainer.launch.checkpoints import last
    from ...trainer.run import is_prepared
    from ..recipe.trust import run_folder_of

    if (of := run_folder_of(recipe)) is not None:
        code = _code(recipe, checkpoints=resume and last(of) is not None)
        check_trusted(of, code, trusted)
    of_run = recipe.name == "recipe.yaml" and is_prepared(recipe.parent)
    return recipe, output or (recipe.parent if of_run else RUNS / recipe.stem)


def _how_to_resume(folder: Path) -> str:
    from ...trainer import metrics
    from ...trainer.launch.checkpoints import last

    step, command = last(folder), f"`rejuice train {shlex.quote(str(folder))} --resume`"
    if step is None:
        return f"no checkpoint was saved; {command} starts over"
    lost = metrics.last_trained(folder) - step
    again = f", and repeats {lost} that {'was' if lost == 1 else 'were'} not saved"
    return f"{command} resumes from step {step}{again if lost > 0 else ''}"


def _need_for(config: Train) -> None:
    """Check for the other packages of this run, before verl takes a minute to miss one."""
    for logger in config.loggers:
        needs(f"logger {logger}", logger, logger)
    if config.profile == "gpu":
        needs("profile gpu", f"verl[{config.gpu.rollout}]==0.9.1", config.gpu.rollout)
        if config.gpu.strategy == "megatron":
            needs("strategy megatron", "verl[mcore]==0.9.1 megatron-bridge", "megatron")
