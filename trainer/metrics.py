"""The metrics that verl logged: RUN/metrics.jsonl, a line for each step.

verl overwrites the file whenever it starts: its lines from before a resume are kept beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..operators import DataError
from ..operators.json_text import parse_json
from ..pipelines.recipe.train import ONE_SET
from .run import UPDATE

LOGGED, EARLIER = "metrics.jsonl", "metrics.earlier.jsonl"
_VALIDATION = re.compile(r"val-core/.*/(?:acc|reward)/mean@\d+")
_SETS = "rejuice/validation/"
_OF_SET = re.compile(rf"{_SETS}([^/]+)/((mean|pass|maj)@\d+)")
_MISSING = re.compile(r"rejuice/(?:verify/)?missing/.+/scorer_[^/]*")
_REWARD = "rejuice/reward"
BEST_STEP, BEST = "rejuice/best/step", "rejuice/best/accuracy"
"""Figures of a validation, where `train.keep` is best: of the best one so far."""
_ROUNDING = 1e-6  # a divergence below it is rounding error


class _Logged:
    """A property of a step: the first of some metrics that was logged; None where none was."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, point: Point, kind: type[Point]) -> float | None:
        return point.get(*self._names)


@dataclass(frozen=True)
class Point:
    """The metrics of a step; a property is None if its metric was not logged."""

    step: int  # its number; 0 is the validation before the first step
    figures: Mapping[str, float]  # verl's names to values

    reward = _Logged("rejuice/reward", "critic/score/mean")  # mean; of stored ones in replay mode
    pass_rate = _Logged("rejuice/pass_rate")  # share of correct responses among all sampled
    # Share of right answers that are only equal to a number, as the question's formula is; None
    # also where `math_verify_mapper` asks for numbers.
    not_worked_out = _Logged("rejuice/not_worked_out")
    # Share of the groups of answers, and of judgements, whose advantages are all 0 or null.
    without_signal = _Logged("rejuice/groups_without_signal")
    judged_without_signal = _Logged("rejuice/verify/groups_without_signal")
    # Share of right judgements: the mean of the shares for right and for wrong answers.
    judged = _Logged("rejuice/verify/accuracy")
    tokens = _Logged("rejuice/response_tokens", "response_length/mean")  # of a response, on average
    turns = _Logged("rejuice/agent/turns")  # of an agent's trajectory, on average
    tool_calls = _Logged("rejuice/agent/tool_calls")  # of a trajectory, on average
    tool_errors = _Logged("rejuice/agent/tool_errors")  # share of calls, malformed actions included
    entropy = _Logged("actor/entropy", "actor/entropy_loss")  # nats, over tokens as in the loss
    grad_norm = _Logged("actor/grad_norm")  # before clipping

    def get(self, *names: str) -> float | None:
        """The first of these metrics that was logged."""
        return next((self.figures[name] for name in names if name in self.figures), None)

    @property
    def trained(self) -> bool:
        """Whether the step was trained, and not only validated."""
        return "timing_s/step" in self.figures

    @property
    def validation(self) -> float | None:
        """Accuracy on held-out prompts: of the first set, where there are several."""
        return next(iter(self.validations.values()), None)

    @property
    def validations(self) -> dict[str, float]:
        """Accuracy on each validation set; that of verl where ours was not logged."""
        found = {name: value for name, kind, value in self._of_sets() if kind.startswith("mean@")}
        verls = self.get(*(name for name in self.figures if _VALIDATION.fullmatch(name)))
        return found or ({} if verls is None else {ONE_SET: verls})

    def interval(self, name: str) -> tuple[float, float] | None:
        """Where the accuracy on a validation set is with 95% confidence, by its prompts."""
        low, high = (self.get(f"{_SETS}{name}/mean_{end}") for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def votes(self, name: str) -> dict[str, float]:
        """pass@k and maj@k on a validation set, by these names."""
        return {k: value for each, k, value in self._of_sets() if each == name and k[:5] != "mean@"}

    def _of_sets(self) -> Iterator[tuple[str, str, float]]:
        """Sets, figures of them such as `pass@8`, and their values."""
        for name, value in self.figures.items():
            if match := _OF_SET.fullmatch(name):
                yield match[1], match[2], value

    @property
    def components(self) -> dict[str, float]:
        """Mean of each reward component, before its weight."""
        start = f"{_REWARD}_"
        return {k.removeprefix(start): v for k, v in self.figures.items() if k.startswith(start)}

    @property
    def judge_failures(self) -> int:
        """Rewards that are missing because a judge has failed, each for a reason `scorer_...`."""
        found = (_MISSING.fullmatch(name) for name in self.figures)
        return int(sum(self.figures[each[0]] for each in found if each))

    @property
    def failed_trajectories(self) -> int:
        """Trajectories that a tool, a model or a time limit ended."""
        start = "rejuice/agent/failed/"
        return int(sum(value for name, value in self.figures.items() if name.startswith(start)))

    @property
    def kl(self) -> float | None:
        """KL divergence from the reference policy; without one, from the policy that sampled."""
        value = self.get("actor/kl_loss", "actor/ppo_kl")
        return 0.0 if value is not None and abs(value) < _ROUNDING else value

    @property
    def destroyed(self) -> bool:
        """Whether the gradient or the loss was nan or infinite: verl leaves the update out then."""
        return any(not math.isfinite(self.figures.get(name, 0.0)) for name in UPDATE)

    @property
    def idle(self) -> bool:
        """Whether nothing that was sampled had a signal, and nothing was replayed."""
        known = [x for x in (self.without_signal, self.judged_without_signal) if x is not None]
        return bool(known) and min(known) == 1.0 and not self.get("rejuice/replayed/rows_trained")

    @property
    def sampled(self) -> int:
        """Rows that were sampled, answers and judgements."""
        return sum(int(self.get(f"rejuice/{part}rows_sampled") or 0) for part in ("", "verify/"))

    @property
    def dropped(self) -> int | None:
        """Rows that were sampled for training and dropped, for whatever reason."""
        kept = self.get("rejuice/rows_trained")
        if kept is None:
            return None
        judged = self.get("rejuice/verify/rows_sampled") is not None
        only_judged = judged and self.get("rejuice/groups") == 0
        untrained = self.get("rejuice/rows_sampled") or 0 if only_judged else 0
        replayed = self.get("rejuice/replayed/rows_trained") or 0
        return self.sampled - int(untrained) - int(kept - replayed)

    @property
    def failed(self) -> int:
        """Prompts that could not be sampled."""
        return int(self.get("rejuice/failed_prompts") or 0)

    @property
    def failed_responses(self) -> int:
        """Responses whose sampling failed, and whose group has others."""
        parts = ("", "verify/")
        return sum(int(self.get(f"rejuice/{part}failed_responses") or 0) for part in parts)

    @property
    def generated(self) -> float:
        """Tokens that were generated to train on, dropped rows included."""
        counted = self.get("rejuice/tokens_sampled")
        return self.sampled * (self.tokens or 0.0) if counted is None else counted

    @property
    def seconds(self) -> float:
        """Seconds that the step took, with its validation and checkpoint."""
        return sum(self.figures.get(f"timing_s/{part}", 0.0) for part in ("step", "testing"))


def validation(name: str, kind: str = "") -> Callable[[Point], float | None]:
    """The accuracy on a validation set, or its pass@k or maj@k, as a function of a step."""
    return lambda point: (point.votes(name) if kind else point.validations).get(kind or name)


def component(name: str) -> Callable[[Point], float | None]:
    return lambda point: point.components.get(name)


def best(points: Iterable[Point]) -> Point | None:
    """The first of those with the best accuracy on the first validation set, if any has one."""
    known = [p for p in points if p.validation is not None and not math.isnan(p.validation)]
    return max(known, key=lambda point: point.validation or 0.0, default=None)


def collapsed(point: Point, known: Point) -> bool:
    """Whether the accuracy on the first set is less than half of what it was, beyond chance."""
    name, value = next(iter(known.validations.items()))
    now, was = point.interval(name), known.interval(name)
    return bool(now and was and now[1] < was[0]) and (point.validation or 0.0) < value / 2


class Reader:
    """Reads a file while it is written."""

    def __init__(self, path: Path, at: int = 0) -> None:
        self._path, self._at = path, at

    def lines(self) -> list[bytes]:
        """The whole lines that were written since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.splitlines()

    def fresh(self) -> list[Point]:
        """The points that were logged in these, if it is a file of metrics."""
        return [_point(line, self._path) for line in self.lines()]


def read(folder: Path) -> list[Point]:
    """All points of a run, by step."""
    merged: dict[int, dict[str, float]] = {}
    for name in (EARLIER, LOGGED):
        for point in Reader(folder / name).fresh():
            merged.setdefault(point.step, {}).update(point.figures)
    return [Point(step, merged[step]) for step in sorted(merged)]


def last_trained(folder: Path) -> int:
    """0: none was."""
    return max((point.step for point in read(folder) if point.trained), default=0)


def keep(folder: Path, until: int) -> None:
    """Before verl starts again: set aside the metrics of the steps that it will not repeat."""
    points = [point for point in read(folder) if point.step <= until]
    lines = [json.dumps({"step": p.step, "data": json_figures(p)}) + "\n" for p in points]
    beside = folder / f"{EARLIER}.new"
    beside.write_text("".join(lines), "utf-8")
    beside.replace(folder / EARLIER)
    (folder / LOGGED).unlink(missing_ok=True)


def json_figures(point: Point) -> dict[str, float | None]:
    """As JSON has them: null for what is no number."""
    return {name: v if math.isfinite(v) else None for name, v in point.figures.items()}


def _point(text: bytes, path: Path) -> Point:
    try:
        line = parse_json(text)
        # verl writes null for what is nan or infinite.
        values = {k: math.nan if v is None else v for k, v in line["data"].items()}
        numbers = {k: v for k, v in values.items() if isinstance(v, (int, float))}
        return Point(int(line["step"]), numbers)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise DataError(f"{path} has a line that is no metrics", "remove the line") from None
