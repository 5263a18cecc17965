"""What `rejuice report` and the end of a run print: the funnel, and why no group has a signal."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from ...operators import Change, RejuiceError
from ...operators.arrow_compute import pc
from ...operators.columns import (
    NOT_APPLICABLE,
    RIGHT,
    WRONG,
    flat,
    is_text,
    numbers,
    right_and_wrong,
)
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ..console import LOG_WIDTH, figures_table, listed, path_text, print_lines, widen_log
from ..dataset.files import run_folder
from ..dataset.remote import AnyPath, to_path
from ..engine.frame import Frame
from ..engine.match_log import unmatched_lines
from ..engine.report import (
    MISSING,
    NEW_ROW,
    Report,
    StepReport,
    decided_rows,
    masked_by,
)
from ..engine.steps import AppliedStep
from ..recipe.steps import gives_credit
from .figures import SetFigures, joined_sources, set_figures, source_figures, source_lines
from .rows import stored_rows
from .set_funnel import set_funnel, summed
from .stored import SetKind, Stored, StoredSet, open_stored

# --- Why no group of some rows has a signal: the likeliest cause, with an example -----
# steps on a part ──GradedPart.of──> rows as last graded ──add──> a signal: no other part is read
#                                                       └──> figures, which add up over parts
#
# A group has a signal where an advantage is not 0. Where no step computes advantages, two of its
# rewards must differ or, where there are none, two of its verdicts. The rows are those that a step
# has graded, dropped later or not. So the finding depends on neither chunks nor workers.

Cause = Literal[
    "missing",  # of rewards
    "group_of_one",
    "advantage",  # is 0, although rewards differ
    "weights",  # of the reward, which is the same for right and wrong
    "wrong_answer",
    "no_answer",
    "correct",
    "dropped",  # were groups that differ, before the decisive step
    "same_verdict",  # within groups
    "same_reward",  # within groups, and there are no verdicts
]
_DECISIVE = ("advantage", "reward", "verdict")
"""The columns that say whether there is a signal; the first that is written decides."""
_REWARD = "reward_"
_LOOKED_AT = 100
"""Wrong responses, the first in order, of which one is the example."""
_MARK = re.compile(r"####|\\boxed")
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}(?!\w)")
_MANY_WORDS = 6
"""So many words are no answer, wherever the answer of the response is."""
_Key = TypeVar("_Key", str, tuple[str, str])


class WrongExample(NamedTuple):
    """A wrong response: what it was compared with, and what was compared."""

    reference: str
    answer: str

    @property
    def holds_more(self) -> bool:
        """Whether the reference seems to hold more than an answer, such as a worked solution."""
        inside = rf"(?<!\w){re.escape(self.answer)}(?!\w)"
        is_inside = self.answer != self.reference and re.search(inside, self.reference)
        words = len(_WORD.findall(self.reference))
        return bool(_MARK.search(self.reference)) or words >= (2 if is_inside else _MANY_WORDS)


class NoSignal(NamedTuple):
    """Why no group has a signal.

    Attributes:
        cause: the likeliest.
        steps: by column (`advantage`, `reward`, `verdict`), the last step that wrote it.
        verdicts: how many rows have each, the commonest first.
        missing: component, reason and number of the commonest missing rewards; None: none is.
        all_right, all_wrong: groups by their verdicts.
        reward: that of all rows; None: it differs, or there is none.
        example: of a wrong response.
        response: the first without an answer; None: there is none.
        cut_off: how many responses without an answer end at the limit of tokens.
    """

    cause: Cause
    steps: Mapping[str, str]
    verdicts: Mapping[str, int]
    missing: tuple[str, str, int] | None
    all_right: int
    all_wrong: int
    reward: float | None
    example: WrongExample | None
    response: str | None
    cut_off: int


class GradedPart(NamedTuple):
    """Whole groups, as steps have graded them."""

    # by decisive column, rows with it: those of the last step that wrote it, with what that step
    # itself dropped
    frames: Mapping[str, Frame]
    steps: Mapping[str, str]  # the name of that step
    # by component, how many of its values are missing, by reason
    missing: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, applied: Iterable[AppliedStep]) -> GradedPart:
        """Return what steps made of a part; of a column, the last step that wrote it counts."""
        frames, steps = dict[str, Frame](), dict[str, str]()
        missing = dict[str, Mapping[str, int]]()
        for each in applied:
            rows = _with_dropped(each)
            for name, column in each.result.change.columns.items():
                is_known = _is_usable(name, column.type) and "prompt_id" in rows.column_names
                if name in _DECISIVE and is_known:
                    frames[name], steps[name] = rows, each.step.name
                elif (component := _component(name)) and is_text(column.type):
                    missing[component] = _counts(column)
        return cls(frames, steps, missing)


def no_signal(parts: Iterable[GradedPart]) -> NoSignal | None:
    """Return why no group has a signal; None: one has, or nothing decides it."""
    figures = _Figures()
    for part in parts:
        if figures.add(part):
            return None
    return figures.found()


def may_lack_signal(funnel: Sequence[StepReport]) -> bool:
    """Return whether the figures of a funnel leave open that no group has a signal."""
    written = {name: figures for step in funnel for name, figures in step.columns.items()}
    if "advantage" in written:
        advantage = written["advantage"]
        return not advantage.get("n") or advantage.get("min") == advantage.get("max") == 0
    return any(name in written for name in _DECISIVE)


def no_signal_of_funnel(funnel: Sequence[StepReport], rows: Frame | None) -> NoSignal | None:
    """Return why no group has a signal, where what steps did to each row is not on file."""
    last = {name: step for step in funnel for name in step.columns}
    if "advantage" not in last or not may_lack_signal(funnel):
        return None
    figures = _Figures()
    figures.steps = {name: last[name].step for name in _DECISIVE if name in last}
    for name, step in last.items():
        if component := _component(name):
            figures.count_missing({component: step.columns[name].get("counts", {})})
    if "verdict" in last:
        figures.verdicts.update(last["verdict"].columns["verdict"].get("counts", {}))
    reward = last["reward"].columns["reward"] if "reward" in last else {}
    if {"min", "max"} <= reward.keys():
        figures.low, figures.high = reward["min"], reward["max"]
    alone = last["advantage"].dropped.get("group_of_one", 0)
    size = 1 if alone and alone == last["advantage"].rows_in else 2
    if reward.get("n") or reward.get("null"):
        figures.largest["reward"] = size, size if reward["n"] else 0
    elif figures.verdicts:
        figures.largest["verdict"] = size, size
    if rows is not None and "verdict" in rows.column_names:
        figures.look(rows)
    return figures.found()


class _Spread(NamedTuple):
    """The values of a column by group: axis _N of rows, _G of groups; nan where there is none."""

    values_N: Array
    sizes_G: Array
    known_G: Array
    low_G: Array
    high_G: Array

    @classmethod
    def of(cls, frame: Frame, name: str) -> _Spread:
        table = frame.select(["prompt_id", name])
        groups, values_N = Groups.of(table), _values(table, name)
        known_N, starts_G = np.isfinite(values_N), groups.starts_G
        if not len(starts_G):  # `reduceat` takes no empty array.
            return cls(values_N, groups.sizes_G, groups.sizes_G, np.zeros(0), np.zeros(0))
        low_G = np.minimum.reduceat(np.where(known_N, values_N, np.inf), starts_G)
        high_G = np.maximum.reduceat(np.where(known_N, values_N, -np.inf), starts_G)
        return cls(values_N, groups.sizes_G, groups.sum(known_N), low_G, high_G)

    @property
    def differs(self) -> bool:
        """Whether two values of a group do."""
        return bool((self.low_G < self.high_G).any())


class _Figures:
    """What parts without a signal add up to.

    Attributes:
        steps: by column, the last step that wrote it.
        verdicts: how many rows have each.
        low, high: of all rewards.
        largest: by column, the most rows of a group, and the most values.
    """

    def __init__(self) -> None:
        self.steps: dict[str, str] = {}
        self.verdicts = Counter[str]()
        self.low, self.high = float("inf"), float("-inf")
        self.largest = dict[str, tuple[int, int]]()
        self._missing = Counter[tuple[str, str]]()
        self._differed, self._differing = set[str](), set[str]()
        self._all_right = self._all_wrong = 0
        self._looked_at = 0
        self._wrong = list[WrongExample]()
        self._response: str | None = None
        self._cut_off = 0

    def add(self, part: GradedPart) -> bool:
        """Add a part, unless one of its groups has a signal; return whether one has."""
        spreads = {n: _Spread.of(part.frames[n], n) for n in _DECISIVE if n in part.frames}
        if not spreads:
            return False
        decisive, first = next(iter(spreads.items()))
        given_N = np.nan_to_num(first.values_N)
        if given_N.any() if decisive == "advantage" else first.differs:
            return True
        self.steps.update(part.steps)
        left = part.frames[decisive]
        for name, spread in spreads.items():
            self._add_column(name, spread)
            if spread.differs:
                self._differed.add(name)
            if name in left.column_names and _Spread.of(left, name).differs:
                self._differing.add(name)
        self.count_missing(part.missing)
        if "verdict" in part.frames:
            self.verdicts.update(_counts(part.frames["verdict"].select(["verdict"])["verdict"]))
            self.look(part.frames["verdict"])
        return False

    def count_missing(self, missing: Mapping[str, Mapping[str, int]]) -> None:
        """Add why rewards are missing."""
        for component, counts in missing.items():
            found = {(component, reason): n for reason, n in counts.items()}
            self._missing.update(found)
            self._missing.pop((component, NOT_APPLICABLE), None)

    def look(self, frame: Frame) -> None:
        """Take examples from rows with verdicts; the first in order are wanted."""
        verdicts = frame.select(["verdict"])["verdict"]
        wrong = _rows_with(verdicts, "wrong_answer")[: _LOOKED_AT - self._looked_at]
        self._looked_at += len(wrong)
        self._wrong += _examples(frame, wrong)
        without = _rows_with(verdicts, "no_answer")
        if self._response is None:
            self._response = next(iter(_texts(frame, "response", without[:1])), None)
        ends = _texts(frame, "finish_reason", without)
        self._cut_off += sum(end == "length" for end in ends)

    def found(self) -> NoSignal | None:
        """Return the finding about all parts."""
        cause = self._cause()
        if cause is None:
            return None
        missing = next(iter(_commonest_first(self._missing).items()), None)
        examples = [each for each in self._wrong if each.holds_more] or self._wrong
        return NoSignal(
            cause,
            self.steps,
            _commonest_first(self.verdicts),
            None if missing is None else (*missing[0], missing[1]),
            self._all_right,
            self._all_wrong,
            self.low if self.low == self.high else None,
            examples[0] if examples else None,
            self._response,
            self._cut_off,
        )

    def _add_column(self, name: str, spread: _Spread) -> None:
        rows, values = self.largest.get(name, (0, 0))
        rows = max(rows, int(spread.sizes_G.max(initial=0)))
        self.largest[name] = rows, max(values, int(spread.known_G.max(initial=0)))
        if name == "reward":
            self.low = float(spread.low_G.min(initial=self.low))
            self.high = float(spread.high_G.max(initial=self.high))
        if name == "verdict":
            self._all_right += int((spread.low_G == 1).sum())
            self._all_wrong += int((spread.high_G == 0).sum())

    def _cause(self) -> Cause | None:
        """The likeliest cause: each that is looked for would remain if those below were fixed."""
        order = ("reward", "verdict", "advantage")
        largest = [self.largest[name] for name in order if self.largest.get(name, (0, 0))[0]]
        if not largest:
            return None  # Nothing was graded.
        most_rows, most_values = max(rows for rows, _ in largest), largest[0][1]
        if most_rows == 1 and "advantage" not in self.steps:
            return None  # Nothing is meant to be compared.
        if most_values < min(most_rows, 2):
            return "missing"
        if most_rows == 1:
            return "group_of_one"
        if self._differing:
            return "advantage" if "reward" in self._differing else "weights"
        return self._cause_by_verdicts()

    def _cause_by_verdicts(self) -> Cause:
        right, wrong = self.verdicts[RIGHT], sum(self.verdicts[name] for name in WRONG)
        if wrong and not right:
            none_found = self.verdicts["no_answer"] > self.verdicts["wrong_answer"]
            return "no_answer" if none_found else "wrong_answer"
        if right and not wrong:
            return "correct"
        if self._differed:
            return "dropped"
        return "same_verdict" if right else "same_reward"


def _with_dropped(applied: AppliedStep) -> Frame:
    """Return the rows of a step with what it wrote, those included that it dropped itself."""
    change = applied.result.change
    if change.parents is not None:
        return applied.after
    return applied.before.after(Change(change.columns))


def _component(name: str) -> str:
    """Return the component whose reasons for missing values a column has; empty: it has none."""
    is_reason = name.startswith(_REWARD) and name.endswith(MISSING)
    return name.removeprefix(_REWARD).removesuffix(MISSING) if is_reason else ""


def _is_usable(name: str, kind: pa.DataType) -> bool:
    """Return whether a column is what its name says: steps of users may have the same names."""
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return is_text(kind) if name == "verdict" else any(is_kind(kind) for is_kind in numeric)


def _values(table: pa.Table, name: str) -> Array:
    """float64[N]; of verdicts 1 is right and 0 wrong, and nan is neither."""
    if name != "verdict":
        return numbers(table, name)
    right_N, wrong_N = right_and_wrong(table[name])
    return np.where(right_N, 1.0, np.where(wrong_N, 0.0, np.nan))


def _counts(column: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    counts = flat(column).drop_null().value_counts().to_pylist()
    return {each["values"]: each["counts"] for each in counts}


def _commonest_first(counts: Mapping[_Key, int]) -> dict[_Key, int]:
    """In an order that does not depend on that of the rows."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _rows_with(verdicts: pa.ChunkedArray, verdict: str) -> pa.Array:
    equal = pc.is_in(verdicts.cast(pa.string()), pa.array([verdict]))
    return pa.array(np.flatnonzero(np.asarray(equal)))


def _examples(frame: Frame, rows: pa.Array) -> list[WrongExample]:
    """Return those of some wrong responses that have both a reference and an answer."""
    references, answers = (_texts(frame, name, rows) for name in ("reference", "extracted_answer"))
    both = zip(references, answers, strict=False)  # A column may be absent.
    return [WrongExample(reference, answer) for reference, answer in both if reference and answer]


def _texts(frame: Frame, name: str, rows: pa.Array) -> list[str]:
    """Return a column as text, empty where it is null; nothing where there is no such column."""
    if name not in frame.column_names:
        return []
    column = frame.select([name])[name].take(rows)
    if pa.types.is_nested(column.type):
        return []
    return [text or "" for text in column.cast(pa.string()).to_pylist()]


# --- One line where no group of a run has a signal ------------------------------------

_MOST_CHARACTERS = 60


def no_signal_of_report(report: Report, path: AnyPath) -> Iterator[str]:
    """Yield a line about a run where none of its groups has a signal; else nothing."""
    if not may_lack_signal(report.steps):
        return  # Nothing of the run needs to be read.
    rows = None
    try:
        (one,) = open_stored(path).sets
        if not one.incomplete:
            yield from no_signal_of_sets([one])
            return
        rows = Frame.of(one.final())
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
        pass
    found = no_signal_of_funnel(report.steps, rows)
    if found is not None:
        yield no_signal_line(found)


def no_signal_of_sets(sets: Sequence[StoredSet]) -> Iterator[str]:
    """Yield a line about sets of which it is on file what steps did; else nothing.

    Raises:
        RejuiceError: files are gone or damaged.
    """
    parts = ((one, part) for one in sets for part in range(one.parts))
    found = no_signal(GradedPart.of(one.applied(part)) for one, part in parts)
    if found is not None:
        yield no_signal_line(found)


def no_signal_line(found: NoSignal) -> str:
    """Return the line: what is the same, why, and what helps."""
    return f"No group has a signal: {_why(found)}"


def _why(found: NoSignal) -> str:
    counts, steps = listed(found.verdicts), found.steps
    reward, advantage = steps.get("reward", "the reward"), steps.get("advantage", "the advantage")
    if found.cause == "wrong_answer":
        return f"no response is correct ({counts}){_with_example(found)}"
    if found.cause == "no_answer":
        return f"no response is correct ({counts}){_without_answer(found)}"
    if found.cause == "missing":
        return f"no group has two rewards{_missing(found)}."
    return {
        "group_of_one": "each group has one response, which is compared with nothing: sample n: 2 "
        "or more, or sort recorded rows by prompt.",
        "advantage": f"rewards differ within groups, but {advantage} gives each row 0 or nothing.",
        "weights": "right and wrong responses to a prompt have the same reward: see the weights of "
        f"{reward}.",
        "correct": f"every graded response is correct ({counts}): the prompts are too easy.",
        "dropped": "groups whose responses differ were dropped before "
        f"{steps.get('advantage', reward)}.",
        "same_verdict": "all responses to a prompt have the same verdict "
        f"(of the groups, {found.all_right:,} all right, {found.all_wrong:,} all wrong): more "
        "responses to each, or a higher temperature, may differ.",
        "same_reward": f"all responses to a prompt have the same reward{_reward(found)}.",
    }[found.cause]


def _with_example(found: NoSignal) -> str:
    example = found.example
    if example is None:
        return "."
    reference, answer = _quoted(example.reference, from_end=True), _quoted(example.answer)
    shown = f": for example, reference {reference} against extracted answer {answer}."
    if not example.holds_more:
        return shown
    return (
        f"{shown} That reference seems to hold more than an answer: reference_pattern or "
        "reference_form may be missing in prompt_template_mapper."
    )


def _without_answer(found: NoSignal) -> str:
    begins = "."
    if found.response is not None:
        empty = "that is empty" if not found.response.strip() else ""
        which = empty or f"that begins {_quoted(found.response)}"
        begins = f": for example, no answer was found in one {which}."
    if 2 * found.cut_off >= found.verdicts["no_answer"]:
        return f"{begins} Of them, {found.cut_off:,} ended at max_tokens, which may be too few."
    step = found.steps.get("verdict", "the verifier")
    return f"{begins} The prompt may not ask for the form of answers that {step} reads."


def _missing(found: NoSignal) -> str:
    if found.missing is None:
        return ""
    component, reason, n = found.missing
    return f": most often {component} is missing ({reason} {n:,})"


def _reward(found: NoSignal) -> str:
    return "" if found.reward is None else f" ({found.reward + 0.0:.3f} in all rows)"


def _quoted(text: str, *, from_end: bool = False) -> str:
    """Return a text of whomever in one short line; of a long solution, the end has the answer."""
    line = " ".join(text.split())
    if len(line) > _MOST_CHARACTERS:
        most = _MOST_CHARACTERS - 3
        line = f"...{line[-most:]}" if from_end else f"{line[:most]}..."
    return f"'{visible(line, one_line=True)}'"


# --- Print the funnel of a run: rows in, dropped and out, step by step ----------------

_GRADED = ("verdict", "reward", "advantage")
"""Columns that are shown even if they are the same in all rows, as each component is: GRPO learns
nothing then."""
_MOST_MESSAGES = 3
"""Lines about what Data-Juicer has logged, for each step."""


def show_end_of_run(report: Report, console: Console) -> None:
    """Print what a run prints when it has ended."""
    if not console.quiet:
        show_funnel(report, console)
        show_sources(to_path(report.export_path), console)


def show_funnel(report: Report, console: Console, path: AnyPath | None = None) -> None:
    """Print how many rows reached each step, how many remained, and why the others were dropped."""
    widen_log(console)
    print_steps(report.project_name, report.steps, console)
    lines = (*missing_line(_missing_counts(report)), *_closing(report))
    signal = no_signal_of_report(report, path or to_path(report.export_path))
    print_lines((*lines, *signal), console)


def show_sources(path: AnyPath, console: Console) -> None:
    """Print the pass rate and the reward of each `data_source` of a run, where it has several."""
    try:
        sets = open_stored(path).sets
        bases = [one.base(0).column_names for one in sets if one.parts]
        if not any("data_source" in names for names in bases):
            return  # No row needs to be read.
        found = joined_sources([source_figures(stored_rows(one)) for one in sets])
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
        return
    print_lines(map(visible, source_lines(found)), console)


def print_steps(title: str, steps: Sequence[StepReport], console: Console) -> None:
    """Print a line for each step; in a narrow terminal drop reasons are below the table."""
    is_narrow = console.width < LOG_WIDTH
    # Names and values are the user's: in a `Text`, brackets are not rich's markup.
    headings = ("rows in", "added", "dropped", "rows out", "seconds")
    table = figures_table("step", *headings, title=Text(title))
    for heading in () if is_narrow else ("drop reasons", "details"):
        table.add_column(heading, overflow="fold")
    for step in steps:
        cells = (
            Text(step.step),
            f"{step.rows_in:,}",
            f"{step.added:,}" if step.added else "",
            f"{sum(step.dropped.values()):,}" if step.dropped else "",
            f"{step.rows_out:,}",
            "cached" if step.cached else f"{step.seconds:.2f}",
            Text(listed(step.dropped)),
            Text(_details(step)),
        )
        table.add_row(*cells[: len(table.columns)])
    console.print(table)
    if is_narrow:
        dropped = [f"{x.step} dropped: {listed(x.dropped)}" for x in steps if x.dropped]
        print_lines(dropped, console)
        console.print(Text(f"(a terminal of {LOG_WIDTH} columns shows the details of each step)"))


def missing_line(missing: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield why rewards are missing, if any is: by component, how many for each reason."""
    by_component = [f"{name}: {listed(counts)}" for name, counts in missing.items()]
    if by_component:
        yield f"missing rewards: {'; '.join(by_component)}"


def _missing_counts(report: Report) -> dict[str, dict[str, int]]:
    """By component; of a column that several steps write, the last one counts."""
    found = dict[str, dict[str, int]]()
    for step in report.steps:
        for name, figures in step.columns.items():
            if (component := _component(name)) and figures.get("counts"):
                found[component] = figures["counts"]
    return found


def _closing(report: Report) -> Iterator[str]:
    folder = run_folder(to_path(report.export_path))
    if not report.rows_out:
        last = next(step for step in report.steps if not step.rows_out)
        yield f"No row is left: {last.step} dropped the last ones."
    export = path_text(report.export_path)
    yield f"{report.rows_out:,} rows in {export}"
    yield f"audit log and report: {path_text(folder)}"
    for line in unmatched_lines((step.step, step.unmatched) for step in report.steps):
        yield f"warning: {line}"
    for step in report.steps:
        yield from _logged(step)
    row = next(_traceable(folder), None) if report.cache and report.dropped else None
    if row is not None:
        words = [export, *(["--"] if row.startswith("-") else []), row]
        yield f"to trace one dropped row: rejuice explain {shlex.join(words)}"


def _logged(step: StepReport) -> Iterator[str]:
    """What Data-Juicer has logged while it did the work of a step, a line for each message."""
    for message, n in list(step.logged.items())[:_MOST_MESSAGES]:
        times = "once" if n == 1 else f"{n:,} times"
        yield f"{step.step}: Data-Juicer logged {times}: {message}"
    more = len(step.logged) - _MOST_MESSAGES
    if more > 0:
        messages = "message is" if more == 1 else "messages are"
        yield f"{step.step}: {more} more {messages} in report.json"


def _traceable(folder: AnyPath) -> Iterator[str]:
    """Return the ids of dropped rows; a row that an operator made without one cannot be named."""
    return (row for row in decided_rows(folder) if row and row != NEW_ROW)


def _details(step: StepReport) -> str:
    """Return how many rows a step is about, what was retried, the columns written, and its notes.

    Columns with a single value are left out, unless they are what a row is graded by.
    """
    where = step.matched is not None
    parts = [f"applied to {step.matched:,} of {step.rows_in:,} rows"] if where else []
    parts += [f"retried: {step.retried:,}"] if step.retried else []
    for name, figures in step.columns.items():
        component = name.startswith(_REWARD) and not name.endswith(MISSING)
        if weight := masked_by(name):
            if masked := figures.get("mean"):
                parts.append(f"{weight} masks {masked:.1%} of the tokens of a response")
        elif shown := _figures(figures, with_single=component or name in _GRADED):
            parts.append(f"{name}: {shown}")
    parts += [f"{note}: {value:g}" for note, value in step.notes.items() if value]
    return "; ".join(parts)


def _figures(figures: Mapping[str, Any], *, with_single: bool) -> str:
    """The figures of a column; empty where it has a single value that is left out, or none."""
    counts = figures.get("counts", {})
    if counts:
        return listed(counts) if with_single or len(counts) > 1 else ""
    if {"mean", "std", "min", "max"} <= figures.keys():
        mean = f"{round(figures['mean'], 3) + 0.0:.3f}"  # No -0.000.
        if figures["min"] != figures["max"]:
            return f"{mean} (sd {figures['std']:.3f})"
        return mean if with_single else ""
    null = figures.get("null", 0)
    return f"missing {null:,}" if with_single and null else ""


# --- Print what became of the rows of a training run, or of one of its steps ----------


class _SetReport(NamedTuple):
    figures: SetFigures
    rows: int
    kept: int
    has_credit: bool  # whether a step of its recipe computes advantages


def show_training(stored: Stored, console: Console) -> int:
    """Print the funnel, groups, components and missing rewards of all sets of each kind together.

    Returns:
        How many rows are left.
    """
    widen_log(console)
    kept = 0
    for kind in get_args(SetKind):
        sets = [one for one in stored.sets if one.kind == kind]
        if sets:
            kept += _show_kind(kind, sets, console)
    if not stored.sets:
        console.print(Text(f"{stored.path} keeps no rollouts (train.keep_rollouts: false)"))
        return 1  # Nothing is known of its rows.
    return kept


def _show_kind(kind: SetKind, sets: Sequence[StoredSet], console: Console) -> int:
    known = [one for one in sets if not one.incomplete]
    reports = [_report(one) for one in known]
    if known:
        names = known[0].name if len(known) == 1 else f"{known[0].name} to {known[-1].name}"
        print_steps(names, summed(each.figures.funnel for each in reports), console)
        print_lines((*_lines(kind, reports), *no_signal_of_sets(known)), console)
    unknown = [one for one in sets if one.incomplete]
    print_lines([f"left out: {one.incomplete}" for one in unknown], console)
    others = sum(int(one.final().num_rows) for one in unknown)
    return others + sum(each.kept for each in reports)


def _report(one: StoredSet) -> _SetReport:
    rows = stored_rows(one)
    funnel = set_funnel(rows, [list(one.applied(part)) for part in range(one.parts)])
    figures = set_figures(rows, funnel)
    has_credit = any(gives_credit(step.operator) for step in one.recipe.steps)
    return _SetReport(figures, rows.table.num_rows, int(rows.kept_N.sum()), has_credit)


def _lines(kind: SetKind, reports: Sequence[_SetReport]) -> Iterator[str]:
    """Groups, and each component: its mean, its share of the advantages, and why it is missing."""
    kept, rows = sum(each.kept for each in reports), sum(each.rows for each in reports)
    yield f"{kept:,} of {rows:,} {kind} left"
    groups = [each.figures.groups for each in reports]
    total = [sum(of_all) for of_all in zip(*(each[:6] for each in groups), strict=True)]
    signal = f"{total[5]:,} without signal"
    if not any(sum(each.figures.advantages.counts) for each in reports):
        has_credit = any(each.has_credit for each in reports)
        signal = "no row has an advantage" if has_credit else "no step computes advantages"
    yield (
        f"groups       {total[0]:,}: {total[1]:,} all right, {total[3]:,} mixed, "
        f"{total[2]:,} all wrong, {total[4]:,} not graded; {signal}"
    )
    names = dict.fromkeys(name for each in reports for name in each.figures.components)
    for name in names:
        found = [x.figures.components[name] for x in reports if name in x.figures.components]
        n = sum(each.n for each in found)
        mean = sum(each.mean * each.n for each in found if each.n) / n if n else float("nan")
        shares = [each.variance_share for each in found if np.isfinite(each.variance_share)]
        share = f"; {np.mean(shares):.0%} of the advantages' variance" if shares else ""
        mean_text = f"{mean:.3f}" if n else "-"
        yield f"{name:<12} mean {mean_text} of {n:,}{share}"
    missing = {name: Counter[str]() for name in names}
    for each in reports:
        for name, component in each.figures.components.items():
            missing[name].update(component.missing)
    masked = sum(x.figures.masked * x.kept for x in reports if x.kept)
    if masked:
        yield f"masked       {masked / kept:.1%} of the tokens of a response, on average"
    yield from missing_line({name: dict(counts) for name, counts in missing.items() if counts})
    yield from map(visible, source_lines(joined_sources([x.figures.sources for x in reports])))
