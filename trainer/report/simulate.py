"""How fast a run would train in another mode, and how old its responses would be.

A step of a run waits w = a l + b n + t seconds for its responses: l tokens of the longest one, n
of all, and t seconds of the slowest one's tools. a and b are fitted to the steps by least squares.
More GPUs share b n among them; the rest of w takes as long on any. With T seconds of training, the
update and what else a step does, and k steps that are sampled ahead, a step takes

    sync                         w + T
    colocate_async               (w - b n) / (k + 1) + b n + T: responses of k + 1 steps together
    separate_async, on GPUs      max(T, b n, (w + T) / (k + 1)), as they are sampled while it trains
    separate_async, on cores     max(w, T) + (c - 1) min(w - t, T), as those of one step are sampled
                                 after those of another

c is how much longer both take at once, if sampling and training, which needs the cores that it used
in the run (`rejuice/cores/update`), need more than there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

from ...operators.agents.trajectory import TOOL_SECONDS
from ...operators.columns import numbers
from ...operators.errors import DataError
from ...operators.groups import Array
from ...pipelines.console import figures_table
from ...pipelines.recipe.train import Train
from .. import metrics
from ..run import step_folder

_LEAST = 4  # steps to fit
_FIRST = 2  # of a run, which warm up
_MOST = 40  # the last ones count
_ON_HALF_THE_CORES = 0.75
"""Speed of sampling rows there, with profile `cpu`: fewer processes decode more rows in an
iteration. On one core of two, 0.67 to 0.84 were measured (docs/benchmarks.md, "Sampling ahead")."""


class StoredStep(NamedTuple):
    longest: float  # tokens of its longest response
    tokens: float  # of all its responses
    tools: float  # seconds of the tools of a trajectory, the greatest
    trained: float  # tokens
    waiting: float  # seconds until it had its last response
    updating: float  # seconds of the update
    seconds: float  # of the whole step
    update_cores: float = float("nan")  # that were used after it had its responses


def stored_steps(run: Path, config: Train) -> list[StoredStep]:
    """The last steps of a run whose rollouts were kept, and not its first ones.

    Steps whose trajectories do not say what their tools took are left out.
    """
    right = "give a run of mode sync, without replay: it waits for sampling alone"
    if config.samples_ahead or config.replay is not None:
        what = "replays" if config.replay is not None else "samples ahead"
        raise DataError(f"{run} {what}", right)
    found = deque[StoredStep](maxlen=_MOST)
    for point in metrics.read(run):
        file = step_folder(run, point.step) / "rollouts.parquet"
        # A step that had nothing to train on has no update.
        updated = "timing_s/update_actor" in point.figures
        if updated and point.step > _FIRST and file.is_file():
            step = _stored(file, point)
            found += [] if step is None else [step]
    if len(found) < _LEAST:
        few = f"{len(found)} steps have rollouts and figures, besides the first {_FIRST}"
        raise DataError(few, f"give a run of at least {_FIRST + _LEAST} steps")
    return [*found]


def _stored(file: Path, point: metrics.Point) -> StoredStep | None:
    schema = pq.read_schema(file).names
    columns = [name for name in ("response_token_ids", TOOL_SECONDS) if name in schema]
    table = pq.read_table(file, columns=columns)
    if not table.num_rows:
        return None
    tools = 0.0
    if TOOL_SECONDS in columns:  # Trajectories of agents.
        seconds_N = numbers(table, TOOL_SECONDS)
        if not np.isfinite(seconds_N).any():
            return None
        tools = float(np.nanmax(seconds_N))
    tokens_N = np.asarray(pc.fill_null(pc.list_value_length(table["response_token_ids"]), 0))
    figures = point.figures
    share = figures.get("rejuice/rows_trained", len(tokens_N)) / len(tokens_N)
    return StoredStep(
        float(tokens_N.max()),
        float(tokens_N.sum()),
        tools,
        float(tokens_N.sum() * share),
        # The recipe's steps on the last responses are no sampling.
        figures["timing_s/gen"] - figures.get("rejuice/seconds/after_sampling", 0.0),
        figures["timing_s/update_actor"],
        figures["timing_s/step"],
        figures.get("rejuice/cores/update", float("nan")),
    )


class SimulatedMode(NamedTuple):
    """A mode and its hardware, relative to that of the run."""

    mode: str
    max_age: int  # 0: sync
    sampling: float = 1.0  # speed of sampling rows
    training: float = 1.0  # and of updates
    contention: float = 1.0  # how much longer each takes while both compute
    on_cores: bool = False  # profile `cpu`


class Simulated(NamedTuple):
    setup: SimulatedMode
    seconds: float  # of a step, mean
    tokens_per_second: float  # trained
    waiting: float  # share of the time that training waits for responses
    age: float  # of the groups that train, mean


def simulate(steps: Sequence[StoredStep], setup: SimulatedMode) -> Simulated:
    longest_S, tokens_S, tools_S, trained_S, waiting_S, updating_S, seconds_S, _ = np.array(steps).T
    tools_S = np.minimum(tools_S, waiting_S)
    rest = max(0.0, float(np.median(seconds_S - waiting_S - updating_S)))
    training_S = rest + updating_S / setup.training
    of_rows_S = _seconds_a_token(longest_S, tokens_S, waiting_S - tools_S) * tokens_S
    of_rows_S = np.minimum(of_rows_S, waiting_S - tools_S)
    others_S, of_rows_S = waiting_S - of_rows_S, of_rows_S / setup.sampling
    sampling_S, ahead = others_S + of_rows_S, setup.max_age
    age = float(ahead)
    if setup.mode != "separate_async":
        step_S = training_S + others_S / (ahead + 1) + of_rows_S
        age = (ahead + 1) / 2 if ahead else 0.0  # From 1 to k: requests wait for training to end.
    elif setup.on_cores:
        slower_S = (setup.contention - 1) * np.minimum(sampling_S - tools_S, training_S)
        sampling_S, training_S = sampling_S + slower_S, training_S + slower_S
        step_S = np.maximum(sampling_S, training_S)
        if sampling_S.mean() > training_S.mean():
            age = 1.0  # Each is sampled while the one before it trains.
    else:
        latest_S = (sampling_S + training_S) / (ahead + 1)
        step_S = np.maximum.reduce([training_S, of_rows_S, latest_S])
    seconds = float(step_S.mean())
    waiting = 1 - float(training_S.mean()) / seconds
    return Simulated(setup, seconds, float(trained_S.mean()) / seconds, waiting, age)


def _seconds_a_token(longest_S: Array, tokens_S: Array, seconds_S: Array) -> float:
    """B of a l + b n seconds of sampling, by least squares; neither a nor b is below 0."""
    both = np.column_stack([longest_S, tokens_S])
    of_longest, of_token = np.linalg.lstsq(both, seconds_S, rcond=None)[0]
    if of_longest < 0:
        of_token = tokens_S @ seconds_S / (tokens_S @ tokens_S)
    return max(0.0, float(of_token))


def setups(
    config: Train,
    ages: Sequence[int],
    steps: Sequence[StoredStep],
    *,
    cores: int,
    gpus: int | None = None,
    rollout_gpus: int | None = None,
) -> list[SimulatedMode]:
    """The modes that a run could be trained in, `sync` first.

    `gpus` of each node train in mode `separate_async`, by default as many as the run has, and
    `rollout_gpus` sample; without these the mode is left out.
    """
    found = [SimulatedMode("sync", 0)]
    if config.profile == "cpu":
        used = np.array([each.update_cores for each in steps])
        used = used[np.isfinite(used)]
        training = min(float(used.mean()), cores) if len(used) else cores
        slower = max(1.0, (training + max(1, cores // 2)) / cores)
        speed = _ON_HALF_THE_CORES if cores > 1 else 1.0
        ahead = SimulatedMode("separate_async", 0, speed, contention=slower, on_cores=True)
        return found + [ahead._replace(max_age=age) for age in ages]
    found += [SimulatedMode("colocate_async", age) for age in ages]
    if rollout_gpus is None:
        return found
    of_run = config.gpu.gpus
    speeds = rollout_gpus / of_run, (gpus or of_run) / of_run
    return found + [SimulatedMode("separate_async", age, *speeds) for age in ages]


def show_simulated(found: Sequence[Simulated], console: Console) -> None:
    """The first is what the others are compared to."""
    others = ("max_age", "s a step", "tokens/s", "of sync", "waits", "mean age")
    table = figures_table("mode", *others)
    for each in found:
        table.add_row(
            each.setup.mode,
            str(each.setup.max_age or ""),
            f"{each.seconds:.3g}",
            f"{each.tokens_per_second:,.0f}",
            f"{each.tokens_per_second / found[0].tokens_per_second:.2f}",
            f"{each.waiting:.0%}",
            f"{each.age:.2f}",
        )
    console.print(table)
