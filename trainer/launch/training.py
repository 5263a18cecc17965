"""Prepare a training run, launch verl's own `main_ppo` on it, and show what came of it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from ...operators.agents.flow import build_flow, build_tools
from ...operators.errors import RejuiceError
from ...operators.filter.ngram_decontamination_filter import NgramDecontaminationFilter
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...operators.mapper.history_mapper import HistoryMapper
from ...operators.mapper.reward_model_mapper import RewardModelMapper
from ...operators.sampling.engines import EMBEDDED_POLICIES
from ...operators.sampling.rollout import RolloutMapper
from ...operators.workers import signals_interrupt
from ...pipelines.console import Console, path_text, print_lines
from ...pipelines.recipe.recipe import Recipe, dump
from .. import metrics
from ..cpu.fork_server import PYTHON, PreloadServer, is_given
from ..metrics import BEST, BEST_STEP, Point
from ..report.curves import draw, grouped
from ..report.watch import figures, left_out_lines, spell, validation_figures
from ..run import (
    AHEAD_FOLDER,
    ENDED_FILE,
    ERROR_FILE,
    PROMPTS,
    RUN_VARIABLE,
    TrainingRun,
    Weights,
    early_end,
    is_prepared,
    recorded_error,
)
from ..saved import folder_of, is_writing
from . import checkpoints, verl_config
from .checks import check_temporary_folder, check_training, shared_prompts
from .prompts import changed_datasets, write_prompts
from .verl_config import environment, overrides

_MAIN = ["-m", "verl.trainer.main_ppo"]
_END_OF_FILE = "END_OF_VERL_CONFIG"
_OUTPUTS = (
    "steps", "validations", "tensorboard", "verl.log", ERROR_FILE, ENDED_FILE, "metrics.jsonl",
    "metrics.earlier.jsonl", AHEAD_FOLDER, "prompts",
)  # fmt: skip
"""What a run writes; last the folder by which `is_prepared` recognises a run."""
_POLL_S = 0.25
_SAVE_S = 4.0  # in which the saving of a step begins after Ctrl-C
_WRITE_S = 12.0  # in which it ends, once begun
_SURE = 10  # right responses to be expected: that none is right is no chance


def prepare(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    preflight: Callable[[TrainingRun], object] = lambda _: None,
    tell: Callable[[str], object] = lambda _: None,
) -> TrainingRun:
    """Make the folder of a run: the resolved recipe, and the prompts.

    `preflight` is called once all that is quickly known is right, before anything is made: it may
    wait for a server. `tell` gets a line for each change that a resume takes up only in part, and
    for each validation set with prompts that train.
    """
    run = TrainingRun.of(folder.resolve(), recipe)
    check_training(run, resume=resume)
    _check_folder(run, resume)
    check_temporary_folder(run)
    preflight(run)
    replayed = run.config.replay is not None
    held_out = [each.path for each in run.held_out]
    of_training = [] if replayed else recipe.head.dataset_spec.paths
    recipe.head.write_missing(*of_training, *held_out)
    run.folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        _clear(run.folder)
    with restore_on_error(run.folder / "recipe.yaml"):
        document = dump(_absolute(recipe))
        if resume:
            before = yaml.safe_load((run.folder / "recipe.yaml").read_text("utf-8"))
            for line in changed_lines(before, yaml.safe_load(document)):
                tell(line)
            for name in changed_datasets(run):
                made = f"prompts/{name}.parquet"
                tell(f"the dataset has changed since {made} was made of it, which stays as it is")
        (run.folder / "recipe.yaml").write_text(document, "utf-8")
        run = TrainingRun.open(run.folder)  # As its processes will read it.
        write_prompts(run, overwrite=not resume)
    for line in [] if resume else shared_prompts(run):
        tell(line)
    if resume:
        checkpoints.fix_latest(run.folder)
        checkpoints.prune(run.folder, run.config, run.config.keep_checkpoints)
        metrics.keep(run.folder, checkpoints.last(run.folder) or 0)
    return run


@contextmanager
def restore_on_error(path: Path) -> Iterator[None]:
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)
        raise


def finished_at(run: TrainingRun) -> int | None:
    """The last step of a run that is in the folder already, and finished; None if none is.

    It has the same settings, but perhaps more steps, and its dataset has not changed since.
    """
    if not is_prepared(run.folder):
        return None
    trained, wanted = metrics.last_trained(run.folder), run.config.steps
    step = (checkpoints.last(run.folder) or 0) if run.config.save_every else trained
    if (end := early_end(run.folder)) is not None and end.steps >= wanted:
        wanted = min(wanted, end.step)
    if not trained or step < wanted or failure(run.folder) is not None:
        return None
    given = yaml.safe_load(dump(_absolute(run.recipe)))
    try:
        stored = yaml.safe_load((run.folder / "recipe.yaml").read_text("utf-8"))
        stored["train"]["steps"] = given["train"]["steps"]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return None
    return step if stored == given and not any(changed_datasets(run)) else None


def command(run: TrainingRun) -> list[str]:
    return [sys.executable, *_MAIN, *verl_config.arguments(run.folder)]


def process_environment(
    run: TrainingRun, fork_server: PreloadServer | None = None
) -> Mapping[str, str]:
    """By which variables the processes of a run differ from this one."""
    by_server = {} if fork_server is None else fork_server.variables
    return {**environment(run), RUN_VARIABLE: str(run.folder), **by_server}


def shell_command(run: TrainingRun) -> str:
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment(run).items()]
    return " \\\n  ".join([*variables, shlex.join(command(run))])


def shell_script(run: TrainingRun, *, resume: bool = False) -> str:
    """For a run of which nothing is written yet."""
    path = run.folder / f"{verl_config.NAME}.yaml"
    config = verl_config.config_yaml(overrides(run, resume))
    return "\n".join(
        [
            f"mkdir -p {shlex.quote(str(run.folder))}",
            f"cat > {shlex.quote(str(path))} <<'{_END_OF_FILE}'",
            f"{config}{_END_OF_FILE}",
            shell_command(run),
        ]
    )


def launch(
    run: TrainingRun,
    *,
    resume: bool = False,
    follow: Callable[[], None] = lambda: None,
    fork_server: PreloadServer | None = None,
) -> int:
    """Train; verl's output goes to RUN/verl.log, its exit status is returned.

    Whatever ends it, an exception or a signal included, no process of the run is left but the fork
    server, which may fork further ones. Without one, that which the environment names is used, or
    each process loads all libraries itself. `follow` is called several times a second.
    """
    verl_config.write_config(run.folder, overrides(run, resume))
    (run.folder / "command.txt").write_text(shell_command(run) + "\n", "utf-8")
    for path in (run.folder / ERROR_FILE, run.folder / ENDED_FILE, run.stop_file):
        path.unlink(missing_ok=True)
    _remove_weights(run)  # Of a process that was killed, they may be newer than its checkpoint.
    shared = run.config.profile == "cpu" and is_given()
    python = PYTHON if fork_server is not None or shared else [sys.executable]
    with (run.folder / "verl.log").open("ab") as log, signals_interrupt():
        child = subprocess.Popen(
            [*python, *command(run)[1:]],
            env={**os.environ, **process_environment(run, fork_server)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    status = child.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    follow()
                    continue
                if not status:  # Its last checkpoint has them.
                    shutil.rmtree(run.folder / AHEAD_FOLDER, ignore_errors=True)
                return status
        except KeyboardInterrupt:
            _save_last_step(run, child)
            raise
        finally:
            if child.poll() is None:
                child.terminate()  # Ray ends its processes then.
            end_all(run.folder, but=None if fork_server is None else fork_server.process.pid)
            child.wait()
            _remove_weights(run)
            checkpoints.prune(run.folder, run.config, run.config.keep_checkpoints)


def _save_last_step(run: TrainingRun, child: subprocess.Popen[bytes]) -> None:
    """Have the last step saved, if no checkpoint has it and that takes a few seconds at most."""
    last, begin = checkpoints.last(run.folder) or 0, time.monotonic()
    if run.config.save_every and metrics.last_trained(run.folder) > last:
        run.stop_file.touch()
        while child.poll() is None and (checkpoints.last(run.folder) or 0) <= last:
            if time.monotonic() > begin + (_WRITE_S if is_writing(run.folder) else _SAVE_S):
                return
            time.sleep(_POLL_S)


def _remove_weights(run: TrainingRun) -> None:
    for weights in Weights.all_in(run.folder):
        weights.file.unlink(missing_ok=True)


def _check_folder(run: TrainingRun, resume: bool) -> None:
    folder = run.folder
    busy = of_run(folder)
    if busy:
        raise RejuiceError(
            f"{folder} is being trained by process {busy[0].pid}", "wait for it, or end it"
        )
    there = is_prepared(folder)
    if resume and not there:
        raise RejuiceError(f"{folder} holds no run to resume", "leave --resume out")
    for name in () if there else ("recipe.yaml", "policy", "checkpoints", PROMPTS, *_OUTPUTS[:-1]):
        path = folder / name
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            found = f"{folder} holds {name}, and is no folder of a run"
            raise RejuiceError(found, "give another --output, or move it away")
    if resume and (checkpoints.last(folder) or 0) >= run.config.steps:
        raise RejuiceError(
            f"{folder} has trained its {run.config.steps} steps", "give --steps to train more"
        )
    begun = metrics.last_trained(folder) > 0 or checkpoints.last(folder) is not None
    if not resume and there and begun:  # To replace it would lose something.
        raise RejuiceError(
            f"{folder} holds a run already", "give --resume to continue it, or another --output"
        )


def _clear(folder: Path) -> None:
    if not is_prepared(folder):
        return
    for name in _OUTPUTS:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _absolute(recipe: Recipe) -> Mapping[str, Any]:
    document = recipe.absolute()
    train = document["train"]
    train["policy"] = train["policy"] and _found(train["policy"])
    for step, entry in zip(recipe.steps, document["process"], strict=True):
        ((_, fields),) = entry.items()
        if isinstance(step.operator, RolloutMapper):
            fields["model"] = _found(fields["model"])
        if isinstance(step.operator, RewardModelMapper):
            for name in ("folder", "tokenizer"):
                fields[name] = fields[name] and _found(fields[name])
        if isinstance(step.operator, HistoryMapper) and fields["run"]:
            fields["run"] = str(Path(fields["run"]).resolve())
        if isinstance(step.operator, NgramDecontaminationFilter):
            fields["against"] = {
                name: _with_absolute_path(each) for name, each in fields["against"].items()
            }
        if isinstance(step.operator, AgentRolloutMapper):
            _with_absolute_parts(step.operator, fields)
    return document


def _with_absolute_parts(agents: AgentRolloutMapper, fields: dict[str, Any]) -> None:
    files = agents.custom_operator_paths
    parts = (build_flow(agents.flow, files), *build_tools(agents.tools, files))
    for part, entry in zip(parts, (fields["flow"], *fields["tools"]), strict=True):
        values = {name: getattr(part, name) for name in type(part).model_fields}
        paths = {n: str(value.resolve()) for n, value in values.items() if isinstance(value, Path)}
        entry[part.name()] = {**entry[part.name()], **paths}
    if fields["tool_cache_path"] is not None:
        fields["tool_cache_path"] = str(Path(fields["tool_cache_path"]).resolve())


def _with_absolute_path(evaluation: Any) -> Any:
    fields = {"path": evaluation} if isinstance(evaluation, str) else evaluation
    path = Path(fields["path"])
    return {**fields, "path": str(path.resolve())} if path.exists() else evaluation


def _found(policy: str) -> str:
    is_folder = policy not in EMBEDDED_POLICIES and Path(policy).is_dir()
    return str(Path(policy).resolve()) if is_folder else policy


# --- What has changed since a run began, and does not take effect, or only in part, at a resume

_LINES = {
    "dataset_path": "the prompts stay those of the first start",
    "train.validation_path": "the validation prompts stay those of the first start",
    "train.validation": "prompts of sets that were there stay those of the first start",
    "train.max_prompt_tokens": "the prompts stay those that were short enough at the first start",
    "train.seed": "responses are sampled by the new one; the order of prompts stays",
    "train.policy": "weights come from the checkpoint; tokenizer and reference from the new one",
    "prompt_template_mapper": "the prompts stay those of the first start",
}
_OF_SAMPLER = {
    "model": _LINES["train.policy"],
    "n": "groups have the new size from the next step",
    "chat_template_kwargs": "prompts have the new form from the next step",
}
_SAMPLERS = ("policy_rollout_mapper", "agent_rollout_mapper")
_OF_MEGATRON = ("learning_rate", "warmup_steps", "weight_decay")


def changed_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A line for each field of two resolved recipes that differs and needs a word."""
    lines = _LINES | {f"{s}.{name}": x for s in _SAMPLERS for name, x in _OF_SAMPLER.items()}
    if now["train"]["gpu"]["strategy"] == "megatron" and now["train"]["profile"] == "gpu":
        stays = "Megatron may go on with what its checkpoint has"
        lines |= {f"train.{name}": stays for name in _OF_MEGATRON}
    old, new = _compared_fields(before), _compared_fields(now)
    for name, line in lines.items():
        if old.get(name) != new.get(name):
            yield f"{name} has changed since the run began: {line}"


def _compared_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    found = {"dataset_path": document["dataset_path"]}
    found |= {f"train.{name}": value for name, value in document["train"].items()}
    for entry in document["process"]:
        for step, fields in entry.items():
            found.setdefault(step, fields)  # Of several, those of answers come first.
            if step in _SAMPLERS:
                for name, value in fields.items():
                    found.setdefault(f"{step}.{name}", value)
    return found


# --- The processes of a run, known by their environment -------------------------------
# If the process that started them is killed, Ray's processes outlive it, and then have no parent
# that would show to which run they belong.

_PATIENCE_S = 2.0  # Ray takes some seconds to end its workers.


def of_run(folder: Path) -> list[Any]:
    """The processes of a run but this one, as psutil's objects."""
    import psutil

    found, wanted = [], str(folder)
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == wanted:
                found.append(process)
        except psutil.Error:
            continue  # It has ended, or belongs to another user.
    return found


def end_all(folder: Path, *, but: int | None = None) -> None:
    """Wait for the processes of a run to end, then terminate those that do not."""
    import psutil

    def found() -> list[Any]:
        return [process for process in of_run(folder) if process.pid != but]

    try:
        _, left = psutil.wait_procs(found(), timeout=_PATIENCE_S)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(left, timeout=_PATIENCE_S)
    finally:
        for process in found():
            with suppress(psutil.NoSuchProcess):
                process.kill()


# --- The end of a run: write its policy and curves, and print a short table -----------


def finish(
    run: TrainingRun, *, quiet: bool = False, variables: Mapping[str, str] | None = None
) -> None:
    policy = run.folder / "policy"
    (run.folder / "curves.png").unlink(missing_ok=True)  # Written last: with it, all is there.
    if checkpoints.last(run.folder) is not None:
        shutil.rmtree(policy, ignore_errors=True)  # It was written before a resume.
        with Console(stderr=True, quiet=quiet).status("writing the policy"):
            # It was made by this very run.
            checkpoints.export(run.folder, policy, variables=variables, trusted=True)
    draw(grouped([run.folder]), run.folder / "curves.png")


def failure(folder: Path) -> str | None:
    """Why a run that has ended is no success; None: it is one."""
    points = metrics.read(folder)
    trained = [point for point in points if point.trained]
    if not trained:
        return None
    last = trained[-1]
    if last.destroyed:
        return f"step {last.step}: the gradient or the loss is nan or infinite at the last step"
    if all(point.idle for point in trained):
        return f"step {last.step}: no group of any step had a signal, so nothing was trained"
    if last.idle and (lost := _collapse(points)):
        return f"{lost}; learning_rate may be too large, or the reward may pay for something else"
    return None


def _collapse(points: Sequence[Point]) -> str | None:
    """Where a run whose last step had no signal lost its accuracy, and has not won it back."""
    validated = [point for point in points if point.validation is not None]
    highest = metrics.best(validated)
    if highest and metrics.collapsed(validated[-1], highest):
        later = (point for point in validated if point.step > highest.step)
        at = next(point for point in later if metrics.collapsed(point, highest))
        was = f"{highest.validation:.3f} at step {highest.step}"
        return f"step {at.step}: the validation has collapsed to {at.validation:.3f}, from {was}"
    trained = [point for point in points if point.trained]
    wrong = [*takewhile(lambda point: point.idle and not point.pass_rate, reversed(trained))]
    share = fmean(point.pass_rate or 0.0 for point in trained[: len(trained) - len(wrong)])
    expected = share * sum(point.sampled for point in wrong)
    if expected < _SURE or "rejuice/choice/eligible" in trained[-1].figures:  # Perhaps of others.
        return None
    return f"step {wrong[-1].step}: no response is right any more, of which {share:.0%} were before"


def show(folder: Path, name: str, console: Console) -> None:
    """Print the first and last metrics of a run, its time, what it left out, and its files."""
    points = metrics.read(folder)
    trained, lines = [point for point in points if point.trained], list[str]()
    if (error := recorded_error(folder)) is not None:
        when = f"after step {trained[-1].step}" if trained else "before its first step ended"
        lines.append(f"{name}: training failed {when}: {error.message}")
        lines.append(f"{'log':<12}{path_text(folder / 'verl.log')}")
    if not trained:
        print_lines(lines or [f"{name}: no step was trained yet"], console)
        return
    seconds = sum(point.seconds for point in trained)
    tokens = sum(point.generated for point in trained)
    steps = f"{name}: {len(trained)} steps in {spell(seconds)}, {seconds / len(trained):.1f} s"
    print_lines([*lines, f"{steps} per step; {tokens:,.0f} tokens generated"], console)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for head in ("first", "last"):
        table.add_column(head, justify="right")
    for figure in (*validation_figures(points), *figures(points)):
        known = [point for point in points if figure.of(point) is not None]
        if known:
            table.add_row(Text(figure.name), *(Text(figure.text(known[at])) for at in (0, -1)))
    console.print(table)
    print_lines([*_ends(folder, points), *left_out_lines(folder), *_places(folder)], console)


def _ends(folder: Path, points: Sequence[Point]) -> Iterator[str]:
    if (end := early_end(folder)) is not None:
        yield f"ended after step {end.step} of {end.steps}: {end.why}"
    for point in [each for each in points if BEST_STEP in each.figures][-1:]:
        step, accuracy = (point.figures[name] for name in (BEST_STEP, BEST))
        found = f"the policy is that of step {step:.0f}, the best validation: {accuracy:.3f}"
        first = points[0].validation if points[0].step == 0 else None
        better = f"; before training it was {first:.3f}" if first and first > accuracy else ""
        yield found + better


def _places(folder: Path) -> Iterator[str]:
    places = {
        "policy": folder / "policy",
        "checkpoint": folder_of(folder, checkpoints.last(folder) or 0),  # Step 0 has none.
        "curves": folder / "curves.png",
        "steps": folder / "steps",
        "verl's log": folder / "verl.log",
    }
    return (f"{what:<12}{path_text(path)}" for what, path in places.items() if path.exists())
