"""How fast a run would train in another mode, and how old its responses would be: a simulation.

    files of a run ──> lengths of responses; seconds of sampling and of training, by their tokens
        ──> prompts are requested, sampled and trained on as `train.mode` does it, without a trainer

Sampling n rows for an iteration takes a + b n seconds, the rest of a step c + d m for m trained
tokens: a, b, c and d are fitted to the steps of the run by least squares. A response ends after as
many iterations as it has tokens. A trajectory of agents is taken to have turns of equal length,
and tools that take equally long after each but the last, whatever else happens. Servers take
requests as they come; profile `cpu` samples those of one step after those of another, and turns of
agents in waves: the next one begins when all responses of the last one are there. There, both are
slower while the other computes, if sampling and training, which needs the cores that it used in the
run (`rejuice/cores/update`), need more than there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...operators.agents.trajectory import TOOL_SECONDS
from ...operators.columns import numbers
from ...operators.errors import DataError
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ...pipelines.recipe.train import Train
from ..run import step_folder
from . import metrics

Sharing = Literal["turns", "beside"]
"""How sampling and training share the hardware: one of them at a time, or both at once."""
_LEAST = 4  # steps to fit
_FIRST = 2  # of a run, which warm up
_MOST = 40  # the last ones are simulated
_ROUNDS = 6
"""A fit to trajectories of agents takes so many: sampling overlaps with tools."""
_ON_HALF_THE_CORES = 0.75
"""Speed of sampling rows there, with profile `cpu`: fewer processes decode more rows in an
iteration. On one core of two, 0.67 to 0.84 were measured (docs/benchmarks.md, "Sampling ahead")."""
_NOTHING = 1e-9


TOKENS, TOOLS, TURNS = range(3)
"""Columns of the rows of a step: tokens of a turn, seconds of tools after it, and turns."""


class StoredStep(NamedTuple):
    """What a step of a run has sampled and trained on, and how long it took."""

    rows: Array  # float64[R, 3]: TOKENS, TOOLS and TURNS
    sizes: Array  # int64[G], rows of each group
    sources: tuple[str, ...]  # of each group
    trained: float  # tokens
    waiting: float  # seconds until it had its last response
    updating: float  # seconds of the update
    seconds: float  # of the whole step
    update_cores: float = float("nan")  # that were used after it had its responses

    @property
    def longest(self) -> float:
        """Tokens of its longest response."""
        return float((self.rows[:, TOKENS] * self.rows[:, TURNS]).max())

    @property
    def tokens(self) -> float:
        """Tokens of all responses."""
        return float(self.rows[:, TOKENS] @ self.rows[:, TURNS])


def step_rows(tokens_R: Array, turns_R: Array | None = None, tools_R: Array | None = None) -> Array:
    """Return the rows of a step, float64[R, 3].

    Args:
        tokens_R: of whole responses.
        turns_R: of trajectories, turns of the policy.
        tools_R: of trajectories, seconds of tools, those of all turns.
    """
    rows = np.zeros((len(tokens_R), 3))
    rows[:, TURNS] = 1 if turns_R is None else np.maximum(turns_R, 1)
    rows[:, TOKENS] = np.maximum(tokens_R, 1) / rows[:, TURNS]
    if tools_R is not None:
        # As if the last of several turns were an answer.
        rows[:, TOOLS] = tools_R / np.maximum(rows[:, TURNS] - 1, 1)
    return rows


class Costs(NamedTuple):
    """What sampling and training cost, in seconds."""

    iteration: float  # of sampling a token of each row, for any number of rows
    row: float  # and for each row
    step: float  # of a step beside its sampling and its update
    update: float  # of an update, for any number of tokens
    token: float  # and for each token

    @classmethod
    def of(cls, steps: Sequence[StoredStep], sync: SimulatedMode) -> Costs:
        """Fit them to the steps of a run.

        Args:
            steps: of the run.
            sync: its mode, `sync`.

        Raises:
            DataError: there are too few steps.
        """
        if len(steps) < _LEAST:
            found = f"{len(steps)} steps have rollouts and figures, besides the first {_FIRST}"
            raise DataError(found, f"give a run of at least {_FIRST + _LEAST} steps")
        longest, tokens, waiting, trained, updating = (
            np.array([getattr(step, name) for step in steps])
            for name in ("longest", "tokens", "waiting", "trained", "updating")
        )
        iteration, row = _fit(longest, tokens, waiting)
        of_agents = any((s.rows[:, TURNS] > 1).any() or s.rows[:, TOOLS].any() for s in steps)
        for _ in range(_ROUNDS if of_agents else 0):
            # What turns and tools add to the wait, by a simulation with the costs so far.
            costs = cls(iteration, row, 0.0, 0.0, 0.0)
            whole = [simulate([step], costs, sync).seconds for step in steps]
            tools = np.array(whole) - iteration * longest - row * tokens
            iteration, row = _fit(longest, tokens, waiting - tools)
        update, token = _fit(np.ones(len(steps)), trained, updating)
        rest = float(np.median([s.seconds - s.waiting - s.updating for s in steps]))
        return cls(iteration, row, max(0.0, rest), update, token)


def _fit(first: Array, second: Array, seconds: Array) -> tuple[float, float]:
    """Return what a unit of each costs, by least squares; neither is below 0."""
    both = np.column_stack([first, second])
    found = np.linalg.lstsq(both, seconds, rcond=None)[0]
    for below in np.flatnonzero(found < 0):
        own = both[:, 1 - below]
        found = np.zeros(2)
        found[1 - below] = max(0.0, own @ seconds / (own @ own))
    return float(found[0]), float(found[1])


class SimulatedMode(NamedTuple):
    """A mode and its hardware, relative to that of the run."""

    max_age: int  # 0: sync
    sharing: Sharing
    sampling: float = 1.0  # speed of sampling, relative to the run's
    training: float = 1.0  # and of training
    # how much longer each takes while both compute
    contention: float = 1.0
    # whether requests are sampled together with earlier ones, and turns with those of others
    joins: bool = True
    wait_for_slow: bool = True
    sync_every: int = 1


class Simulated(NamedTuple):
    """What a simulation has found, of the steps after the first ones."""

    seconds: float  # of a step, mean
    tokens_per_second: float  # trained
    waiting: float  # share of the time that training waits for responses
    ages: Array  # int64[G], of the groups that trained
    sources: tuple[str, ...]  # of each of them

    def of_sources(self) -> dict[str, float]:
        """Return the mean age of each source."""
        names = np.array(self.sources, object)
        return {each: float(self.ages[names == each].mean()) for each in sorted({*self.sources})}


def stored_steps(run: Path, config: Train) -> list[StoredStep]:
    """Return the last steps of a run whose rollouts were kept, and not its first ones.

    Steps whose trajectories do not say what their tools took are left out.

    Args:
        run: its folder.
        config: the `train:` section of its recipe.

    Raises:
        DataError: it was not trained in mode `sync`.
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
    return [*found]


def _stored(file: Path, point: metrics.Point) -> StoredStep | None:
    schema = pq.read_schema(file).names
    wanted = ("prompt_id", "response_token_ids", "data_source", "turn_count", TOOL_SECONDS)
    columns = [name for name in wanted if name in schema]
    table = pq.read_table(file, columns=columns)
    if not table.num_rows:
        return None
    groups = Groups.of(table)
    tokens_N = np.asarray(pc.fill_null(pc.list_value_length(table["response_token_ids"]), 0))
    rows = step_rows(tokens_N)
    if TOOL_SECONDS in columns:  # Trajectories of agents.
        seconds_N = numbers(table, TOOL_SECONDS)
        known_N = np.isfinite(seconds_N)
        if not known_N.any():
            return None
        tools_N = np.where(known_N, seconds_N, seconds_N[known_N].mean())
        rows = step_rows(tokens_N, np.asarray(table["turn_count"]), tools_N)
    sources = ("",) * len(groups.sizes_G)
    if "data_source" in columns:
        named = table["data_source"].take(groups.starts_G).to_pylist()
        sources = tuple(str(each) for each in named)
    figures = point.figures
    share = figures.get("rejuice/rows_trained", len(tokens_N)) / len(tokens_N)
    return StoredStep(
        rows,
        groups.sizes_G,
        sources,
        float(tokens_N.sum() * share),
        # The recipe's steps on the last responses are no sampling.
        figures["timing_s/gen"] - figures.get("rejuice/seconds/after_sampling", 0.0),
        figures["timing_s/update_actor"],
        figures["timing_s/step"],
        figures.get("rejuice/cores/update", float("nan")),
    )


def simulate(
    steps: Sequence[StoredStep], costs: Costs, setup: SimulatedMode, repeats: int = 1
) -> Simulated:
    """Return what training on these prompts would take with a setup.

    Args:
        steps: whose groups are requested, in this order.
        costs: of sampling and training.
        setup: the mode.
        repeats: how often the steps are requested; longer runs settle.
    """
    return _Simulation([*steps] * repeats, costs, setup).run()


class _Requests:
    """Requests that are sampled: a row samples its turns, and waits for tools between them."""

    def __init__(self, steps: Sequence[StoredStep], costs: Costs, setup: SimulatedMode) -> None:
        self._steps, self._costs, self._setup = steps, costs, setup
        self._calls = deque[tuple[int, int]]()  # steps, and the first number of their requests
        self._numbers = 0
        # of each row: the request it belongs to; what a step has of it, where TURNS are those that
        # are left; tokens that are left of this turn, and seconds of its tools; whether its next
        # turn is due
        self._number_R, self._row_R = np.zeros(0, np.int64), np.zeros((0, 3))
        self._left_R, self._tools_R = np.zeros(0), np.zeros(0)
        self._due_R = np.zeros(0, bool)
        self._open: dict[int, int] = {}  # rows that are left of each request
        self._version_of: dict[int, int] = {}
        self.finished: dict[int, int] = {}  # by number of the request, the version of its policy

    def request(self, index: int) -> None:
        """Request the groups of a step."""
        self._calls.append((index, self._numbers))
        self._numbers += len(self._steps[index].sizes)

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(len(self._left_R) or self._calls)

    def admit(self, version: int) -> bool:
        """Begin with what can begin now; return whether any row samples, and not all wait."""
        while self._calls and (self._setup.joins or not len(self._left_R)):
            self._admit(*self._calls.popleft(), version)
        if self._setup.joins or not (self._left_R > 0).any():
            self._left_R[self._due_R] = self._row_R[self._due_R, TOKENS]
            self._tools_R[self._due_R] = self._row_R[self._due_R, TOOLS]
            self._due_R[:] = False
        return bool((self._left_R > 0).any())

    def advance(self, most: float = np.inf, slower: float = 1.0) -> float:
        """Sample until the next turn or tool has ended, or for some seconds; return the seconds.

        Args:
            most: the seconds.
            slower: how much longer one of them takes, as something else computes.
        """
        samples_R, costs = self._left_R > 0, self._costs
        rate = costs.iteration + costs.row * samples_R.sum() / self._setup.sampling
        ends_R = np.where(samples_R, self._left_R * rate, self._tools_R / slower)
        ends_R[self._due_R] = np.inf
        seconds = min(float(ends_R.min()), most)
        share = seconds / rate if rate else np.inf
        self._left_R = np.where(samples_R, np.maximum(self._left_R - share, 0), 0)
        self._left_R[self._left_R <= _NOTHING] = 0
        self._run_tools(~samples_R, seconds * slower)
        ended_R = (self._left_R == 0) & (self._tools_R <= _NOTHING) & ~self._due_R
        self._row_R[ended_R, TURNS] -= 1
        self._row_R[ended_R & (self._row_R[:, TURNS] == 1), TOOLS] = 0
        done_R = ended_R & (self._row_R[:, TURNS] <= 0)
        self._due_R |= ended_R
        for number in self._number_R[done_R].tolist():
            self._open[number] -= 1
            if not self._open[number]:
                self.finished[number] = self._version_of[number]
        self._keep(~done_R)
        return seconds

    def pause(self, seconds: float) -> None:
        """Sample nothing for some seconds; tools go on."""
        self._run_tools(self._left_R == 0, seconds)

    def _run_tools(self, which_R: Array, seconds: float) -> None:
        self._tools_R = np.where(which_R, np.maximum(self._tools_R - seconds, 0), self._tools_R)

    def _keep(self, kept_R: Array) -> None:
        self._number_R, self._row_R = self._number_R[kept_R], self._row_R[kept_R]
        self._left_R, self._tools_R = self._left_R[kept_R], self._tools_R[kept_R]
        self._due_R = self._due_R[kept_R]

    def _admit(self, index: int, first: int, version: int) -> None:
        rows, sizes = self._steps[index].rows, self._steps[index].sizes
        numbers = range(first, first + len(sizes))
        self._open |= dict(zip(numbers, sizes.tolist(), strict=True))
        self._version_of |= dict.fromkeys(numbers, version)
        none = np.zeros(len(rows))
        self._row_R = np.concatenate([self._row_R, rows])
        self._left_R = np.concatenate([self._left_R, none])
        self._tools_R = np.concatenate([self._tools_R, none])
        self._due_R = np.concatenate([self._due_R, np.ones(len(rows), bool)])
        self._number_R = np.concatenate([self._number_R, np.repeat(numbers, sizes)])


class _Simulation:
    def __init__(self, steps: Sequence[StoredStep], costs: Costs, setup: SimulatedMode) -> None:
        self._steps, self._costs, self._setup = steps, costs, setup
        self._now, self._version = 0.0, 0
        self._sampler = _Requests(steps, costs, setup)

    def run(self) -> Simulated:
        setup, steps, sampler = self._setup, self._steps, self._sampler
        source_of = [source for step in steps for source in step.sources]
        for index in range(min(setup.max_age, len(steps))):
            sampler.request(index)
        took, waited = list[float](), list[float]()
        ages, sources = list[int](), list[str]()
        taken = 0
        for number, step in enumerate(steps):
            if number + setup.max_age < len(steps):
                sampler.request(number + setup.max_age)
            began, wanted = self._now, len(step.sizes)
            while not (turn := self._turn(taken, wanted)):
                sampler.admit(self._version)
                self._now += sampler.advance()
            waited.append(self._now - began)
            ages += [number - sampler.finished.pop(each) for each in turn]
            sources += [source_of[each] for each in turn]
            taken += wanted
            self._train(step)
            if (number + 1) % setup.sync_every == 0:
                self._version = number + 1
            took.append(self._now - began)
        # At first it catches up, and at last nothing is sampled.
        first = min(len(steps) - 1, setup.max_age + 1)
        kept = slice(first, max(first + 1, len(steps) - setup.max_age))
        ends = np.cumsum([0, *(len(step.sizes) for step in steps)])
        groups = slice(ends[kept.start], ends[kept.stop])
        seconds, trained = np.array(took[kept]), sum(step.trained for step in steps[kept])
        return Simulated(
            float(seconds.mean()),
            float(trained / seconds.sum()),
            float(sum(waited[kept]) / seconds.sum()),
            np.array(ages[groups], np.int64),
            tuple(sources[groups]),
        )

    def _turn(self, taken: int, wanted: int) -> list[int]:
        """Return the requests that a step takes, once they are finished."""
        finished = self._sampler.finished
        if not self._setup.wait_for_slow:
            return sorted(finished)[:wanted] if len(finished) >= wanted else []
        numbers = list(range(taken, taken + wanted))
        return numbers if finished.keys() >= {*numbers} else []

    def _train(self, step: StoredStep) -> None:
        """Train, while others are sampled, if both can be done at once."""
        costs, setup = self._costs, self._setup
        update = (costs.update + costs.token * step.trained) / setup.training
        work = costs.step + update
        if setup.sharing == "turns":
            self._now += work
            self._sampler.pause(work)
        else:
            self._beside(work)

    def _beside(self, work: float) -> None:
        """Do some seconds of work, which take longer while something is sampled, as that does."""
        while work > _NOTHING:
            if not self._sampler.busy:
                self._now += work
                return
            # Waiting for tools takes nothing from the update.
            slower = self._setup.contention if self._sampler.admit(self._version) else 1.0
            seconds = self._sampler.advance(work, slower)
            work -= seconds
            self._now += seconds * slower


# --- For the command line -------------------------------------------------------------


_HEADINGS = (
    "mode", "max_age", "s a step", "tokens/s", "of sync", "waits", "mean age", "oldest",
)  # fmt: skip


class ModeLine(NamedTuple):
    """A line of the table: a mode, and what was found."""

    mode: str
    max_age: int
    found: Simulated


class Hardware(NamedTuple):
    """What a run could be trained on, in other modes.

    Attributes:
        gpus: of each node that train in mode `separate_async`; None: as many as the run has.
        rollout_gpus: of each node that sample there; None: mode `separate_async` is left out.
        cores: that it may use, with profile `cpu`: as many as the run.
    """

    gpus: int | None
    rollout_gpus: int | None
    cores: int


def setups(
    config: Train, ages: Sequence[int], hardware: Hardware, steps: Sequence[StoredStep]
) -> list[tuple[str, SimulatedMode]]:
    """Return the modes that a run could be trained in.

    Args:
        config: the `train:` section of the run.
        ages: the values of `max_age`.
        hardware: what it would be trained on.
        steps: of the run.
    """
    joins = config.profile != "cpu"
    found = [("sync", SimulatedMode(0, "turns", joins=joins))]
    if config.profile == "cpu":
        cores = hardware.cores
        used = np.array([each.update_cores for each in steps])
        used = used[np.isfinite(used)]
        training = min(float(used.mean()), cores) if len(used) else cores
        slower = max(1.0, (training + max(1, cores // 2)) / cores)
        speed = _ON_HALF_THE_CORES if cores > 1 else 1.0
        setup = SimulatedMode(0, "beside", speed, contention=slower, joins=joins)
        return found + [("separate_async", setup._replace(max_age=age)) for age in ages]
    found += [("colocate_async", SimulatedMode(age, "turns")) for age in ages]
    if hardware.rollout_gpus is None:
        return found
    of_run = config.gpu.gpus
    speeds = hardware.rollout_gpus / of_run, (hardware.gpus or of_run) / of_run
    return found + [("separate_async", SimulatedMode(age, "beside", *speeds)) for age in ages]


def lines(
    steps: Sequence[StoredStep], modes: Sequence[tuple[str, SimulatedMode]], repeats: int
) -> list[ModeLine]:
    """Simulate the steps of a run in some modes.

    Raises:
        DataError: as `Costs.of`.
    """
    costs = Costs.of(steps, modes[0][1])
    found = ((mode, setup, simulate(steps, costs, setup, repeats)) for mode, setup in modes)
    return [ModeLine(mode, setup.max_age, each) for mode, setup, each in found]


def show_lines(found: Sequence[ModeLine], console: Console) -> None:
    """Print what was simulated, in a table; the first line is what others are compared to."""
    table = Table(box=None, pad_edge=False)
    for name in _HEADINGS:
        table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
    first = found[0].found.tokens_per_second
    for mode, max_age, each in found:
        table.add_row(
            mode,
            str(max_age) if max_age else "",
            f"{each.seconds:.3g}",
            f"{each.tokens_per_second:,.0f}",
            f"{each.tokens_per_second / first:.2f}",
            f"{each.waiting:.0%}",
            f"{each.ages.mean():.2f}",
            str(int(each.ages.max())),
        )
    console.print(table)
    for mode, max_age, each in found:
        sources = each.of_sources()
        if len(sources) > 1 and max_age:
            ages = ", ".join(f"{visible(name)} {age:.2f}" for name, age in sources.items())
            console.print(Text(f"mean age in {mode}, max_age {max_age}: {ages}"))
