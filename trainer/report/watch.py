"""Progress of training while it runs: a line for each step."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from rich.console import Console
from typing_extensions import Self

from ...operators import RejuiceError
from ...pipelines.analysis.no_signal import no_signal_of_sets
from ...pipelines.console import path_text
from ...pipelines.recipe.train import ONE_SET
from ..metrics import BEST_STEP, LOGGED, Point, Reader, best, collapsed, component, read, validation
from .stored import open_training

# --- Left out -------------------------------------------------------------------------
# Rows of datasets that became no prompt of a run: a line for each set, with the reasons.

_TRAIN, _ENDING = "train", "-decisions.parquet"
_REPEATED = "repeated_prompt"


def left_out_lines(folder: Path) -> Iterator[str]:
    """Yield which rows were left out as the prompts of a run were made; nothing where none was."""
    for path in sorted((folder / "prompts").glob(f"*{_ENDING}")):
        with suppress(OSError, pa.ArrowInvalid):  # Whatever is damaged: a report is of what is not.
            yield from _of_set(path.parent, path.name.removesuffix(_ENDING))


def _of_set(folder: Path, split: str) -> Iterator[str]:
    decisions, prompts = pq.read_table(folder / f"{split}{_ENDING}"), _kept(folder, split)
    if not decisions.num_rows or prompts is None:
        return
    rows = prompts.num_rows + decisions.num_rows
    reasons = Counter[str](decisions["reason"].to_pylist())
    if split != _TRAIN and (repeated := reasons.pop(_REPEATED, 0)):
        yield repeats_line(split, repeated, f"{rows:,}")
    if reasons:
        listed = ", ".join(f"{reason} {n:,}" for reason, n in reasons.most_common())
        stage = "training" if split == _TRAIN else shown_set(split)
        yield f"dropped before {stage}: {reasons.total():,} of {rows:,} rows ({listed})"


def repeats_line(split: str, repeated: int, rows: str) -> str:
    """What to do about a validation set in which prompts repeat, as in AIME's sets for verl."""
    name = split.removeprefix(f"{ONE_SET}-")
    field = "validation_n" if name == ONE_SET else f"n of train.validation.{name}"
    found = f"{repeated:,} of {rows} rows repeat an earlier prompt and are left out"
    return f"{shown_set(split)}: {found}; {field} says how many responses each prompt gets"


def _kept(folder: Path, split: str) -> pa.Table | None:
    replayed = folder / "replay.arrow"
    path = replayed if split == _TRAIN and replayed.is_file() else folder / f"{split}.arrow"
    return feather.read_table(path, memory_map=True) if path.is_file() else None


def shown_set(split: str) -> str:
    """As in `validation aime`, of `validation-aime`."""
    return split.replace("-", " ", 1)


# --- Progress of training while it runs: a line for each step --------------------------

_STAGES = {
    "Started a local Ray instance": "starting the trainer",
    "Connected to Ray cluster": "starting the trainer",
    "dataloader initialized": "loading the policy",
    "ready to fit": "validating before the first step",
}
"""Lines of verl's log, and what verl is doing when it prints them."""
_SHOWN = re.compile(
    r"waiting for https?://.* \(.*\): \d+ s of [\d.e+]+ s"
    r"|step \d+: warning: .*|a trajectory failed with \w+: .*"
)
"""What is logged while a server is waited for, warnings, and the first failure of each kind."""
RECENT = 20  # steps from which the remaining time is estimated
_CORRECT, _GROUPS, _AGENT = "share correct", "share of groups", "per trajectory, mean"
_MOST_FORMULAS = 0.5  # of the right answers of a step


class Figure(NamedTuple):
    name: str
    of: Callable[[Point], float | None]
    form: str = ".3f"
    interval: Callable[[Point], tuple[float, float] | None] = lambda _: None
    unit: str = ""

    def text(self, point: Point) -> str:
        """Its value at a point, with its interval if it has one; a dash where there is none."""
        value = self.of(point)
        if value is None:
            return "-"
        ends = self.interval(point)
        shown = format(value, self.form)
        return shown if ends is None else f"{shown} [{ends[0]:.3f}, {ends[1]:.3f}]"


def validation_figures(points: Sequence[Point]) -> list[Figure]:
    found = list[Figure]()
    for name in {name: None for point in points for name in point.validations}:
        title = "validation accuracy" if name == ONE_SET else f"validation {name}"
        interval = partial(Point.interval, name=name)
        found.append(Figure(title, validation(name), interval=interval, unit=_CORRECT))
        kinds = {kind: None for point in points for kind in point.votes(name)}
        found += [Figure(f"  {kind}", validation(name, kind)) for kind in kinds]
    return found


def figures(points: Sequence[Point]) -> list[Figure]:
    names = {name: None for point in points for name in point.components}
    found = [
        Figure("reward", lambda p: p.reward, unit="mean; components before weights"),
        *(Figure(f"  {name}", component(name)) for name in names),
        Figure("pass rate", lambda p: p.pass_rate, unit=_CORRECT),
        Figure("not worked out", lambda p: p.not_worked_out, unit="share of right answers"),
        Figure("groups without signal", lambda p: p.without_signal, unit=_GROUPS),
        Figure("judgement accuracy", lambda p: p.judged, unit="share right, balanced"),
        Figure("judgements without signal", lambda p: p.judged_without_signal, unit=_GROUPS),
        Figure("response tokens", lambda p: p.tokens, ".1f", unit="tokens, mean"),
        Figure("turns", lambda p: p.turns, ".2f", unit=_AGENT),
        Figure("tool calls", lambda p: p.tool_calls, ".2f", unit=_AGENT),
        Figure("tool errors", lambda p: p.tool_errors, unit="share of tool calls"),
        Figure("entropy", lambda p: p.entropy, unit="nats, as the loss aggregates"),
        Figure("KL", lambda p: p.kl, ".2g", unit="nats"),
        Figure("gradient norm", lambda p: p.grad_norm if p.destroyed else None, ".2g"),
        Figure("rows dropped", lambda p: p.dropped, ",d"),
        Figure("judge failures", lambda p: p.judge_failures or None, ",d"),
        Figure("prompts failed", lambda p: p.failed or None, ",d"),
        Figure("responses failed", lambda p: p.failed_responses or None, ",d"),
        Figure("trajectories failed", lambda p: p.failed_trajectories or None, ",d"),
    ]
    return [f for f in found if any(f.of(point) is not None for point in points)]


class Watch:
    """Shows a run of so many steps from its files; shows nothing if `quiet`."""

    def __init__(self, folder: Path, steps: int, console: Console, *, quiet: bool = False) -> None:
        self._folder, self._steps = folder, steps
        self._console, self._quiet = console, quiet
        self._reader = Reader(folder / LOGGED)
        self._log = folder / "verl.log"
        self._logged = Reader(self._log, self._log.stat().st_size if self._log.exists() else 0)
        earlier = read(folder)  # From before a resume.
        self._validations = [point for point in earlier if point.validation is not None]
        # verl logs a validation again, after us: this is the step of the last that was shown.
        self._validated: int | None = None
        self.step: int | None = None  # the last one that was trained since the start
        self._warned = set[str]()  # of what is reported once
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._stage = ""

    def __enter__(self) -> Self:
        for line in left_out_lines(self._folder):  # While it is early enough to stop.
            self._print(line)
        self._print(f"starting verl (about a minute); its output is in {path_text(self._log)}")
        return self

    def __exit__(self, *_: object) -> None:
        self.poll()

    def poll(self) -> None:
        self._look_at_log()
        for point in self._reader.fresh():
            validated = point.validation is not None and point.step != self._validated
            if validated:
                self._validations.append(point)
                self._validated = point.step
            if point.trained:
                if self.step is not None:  # The first step is slower than the others.
                    self._seconds.append(point.seconds)
                self.step = point.step
            if validated or point.trained:
                self._print(self._line(point, validated))
            for line in self._reasons(point, validated=validated):
                self._print(f"step {point.step}: {line}")

    def _reasons(self, point: Point, *, validated: bool) -> Iterator[str]:
        formulas, highest = point.not_worked_out or 0.0, best(self._validations)
        if formulas > _MOST_FORMULAS and "formulas" not in self._warned:
            self._warned.add("formulas")
            yield (
                f"warning: {formulas:.0%} of the right answers are only equal to the reference, as "
                "the question's own formula is; worked_out: true of math_verify_mapper asks for a "
                "number"
            )
        if point.get("rejuice/truncated") == 1.0 and not (point.idle or "cut" in self._warned):
            self._warned.add("cut")
            yield "warning: every response ended at max_tokens, which may be too small"
        if validated and highest is not None and collapsed(point, highest):
            yield (
                f"warning: the validation has collapsed to {point.validation:.3f}, from "
                f"{highest.validation:.3f} at step {highest.step}; learning_rate may be too large, "
                "or the reward may pay for something else"
            )
        if point.destroyed:
            yield (
                "warning: the gradient or the loss is nan or infinite, so there was no update; "
                "learning_rate, rewards or weights may be too large"
            )
        if point.get(BEST_STEP) == point.step and not point.trained:
            yield "the best validation so far, so its checkpoint is kept"
        if not (point.trained and point.idle):
            return
        try:
            stored = open_training(self._folder, range(point.step, point.step + 1))
            sets = stored.sets if stored is not None else ()
            known = [one for one in sets if one.kind == "answers" and not one.incomplete]
            yield from no_signal_of_sets(known)
        except (RejuiceError, OSError):
            return  # The share of such groups is among the figures in any case.

    def _print(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _look_at_log(self) -> None:
        text = b"\n".join(self._logged.lines()).decode("utf-8", "replace")
        for word, stage in _STAGES.items():
            if word in text and stage != self._stage:
                self._stage = stage
                self._print(stage)
        for shown in _SHOWN.findall(text):
            self._print(shown)

    def _line(self, point: Point, validated: bool) -> str:
        parts = []
        if point.trained:
            parts = [f"{f.name.strip()} {f.text(point)}" for f in figures([point])]
            left = (self._steps - point.step) * fmean(self._seconds or [point.seconds])
            parts += [f"{point.seconds:.1f} s", f"{spell(left)} left"]
        if validated:
            shown = validation_figures([point])
            parts = [*(f"{f.name.strip()} {f.text(point)}" for f in shown), *parts]
        return f"step {point.step}/{self._steps}: {', '.join(parts)}"


def spell(seconds: float) -> str:
    """A time in words.

    >>> spell(42.4), spell(83), spell(7000), spell(math.nan)
    ('42 s', '1 min 23 s', '1 h 57 min', 'an unknown time')
    """
    if not math.isfinite(seconds):  # As a file of metrics may have it.
        return "an unknown time"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
