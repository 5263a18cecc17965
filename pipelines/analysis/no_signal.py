"""Why no group of a run has a signal: what most of its groups lack, and what may help.

A group has a signal where an advantage is not 0. Where no step computes advantages, two of its
rewards must differ or, where there are none, two of its verdicts. A row that a step has dropped
counts with what it had by then, so that the finding depends on neither chunks nor workers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import RejuiceError
from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, component_columns, is_text, right_and_wrong
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ..console import listed
from ..dataset.remote import AnyPath
from ..engine.report import ColumnFigures, Report, StepReport
from .figures import column_values
from .rows import RowTable, row_table
from .stored import StoredSet, open_stored
from .verdicts import as_graded

Cause = Literal["unused", "wrong", "right", "missing", "same", "alone"]
"""What a group lacks: `unused` has responses that differ; `same`, no verdicts but equal rewards."""
_CAUSES: tuple[Cause, ...] = ("unused", "wrong", "right", "missing", "same", "alone")
_DECISIVE = ("advantage", "reward", "verdict")
"""The columns that say whether there is a signal; the first that a step writes decides."""
_MARK = re.compile(r"####|\\boxed")
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}(?!\w)")
_MANY_WORDS = 6
"""So many words are no answer, wherever the answer of the response is."""
_MOST_CHARACTERS = 60
_REPEATED = (
    " All responses to a prompt are equal, to the byte: greedy decoding, a server that ignores "
    "`seed` or answers from a cache, or a policy with one answer left."
)
_FUNCTION = "reward_function_mapper"
_ALONE = f" {_FUNCTION} gives its function one response a call, to compare with none."


def no_signal_of_report(report: Report, path: AnyPath) -> Iterator[str]:
    """Yield a line about a run where none of its groups has a signal; else nothing."""
    written = _written(report.steps)
    advantage = written.get("advantage", {})
    silent = not advantage.get("n") or advantage.get("min") == advantage.get("max") == 0
    if not silent or written.keys().isdisjoint(_DECISIVE):
        return  # Nothing of the run needs to be read.
    try:
        (one,) = open_stored(path).sets
        if one.incomplete and "advantage" not in written:
            return  # Of the rows that are left, two may not differ because others were dropped.
        lines = list(no_signal_of_sets([one]))
        if lines or not one.incomplete:
            yield from lines
            return
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
        pass
    if "advantage" in written:
        counts = listed(written.get("verdict", {}).get("counts", {}))
        yield f"No group has a signal: all advantages are 0{counts and f' ({counts})'}."


def no_signal_of_sets(sets: Sequence[StoredSet]) -> Iterator[str]:
    """Yield a line about sets; of those without what steps did on file, the rows left count.

    Raises:
        RejuiceError: files are gone or damaged.
    """
    steps = [step for one in sets for step in one.steps]
    writers = {name: step.name for step in steps for name in step.operator.writes()}
    decisive = next((name for name in _DECISIVE if name in writers), None)
    found = _Counts(Counter(), Counter(), Counter(), Counter())
    if decisive is None:
        return
    for one in sets:
        for part in _parts(one):
            rows = row_table(one.base(part), () if one.incomplete else one.applied(part))
            if not found.add(rows, decisive):
                return
    cause = found.cause()
    # Where each prompt has one response and no step compares them, nothing is amiss.
    if cause is not None and (cause != "alone" or decisive == "advantage"):
        repeats = cause in ("wrong", "right", "same") and _repeats(sets)
        alone = cause == "same" and any(name.startswith(_FUNCTION) for name in writers.values())
        more = _REPEATED if repeats else _ALONE if alone else ""
        yield f"No group has a signal: {_why(cause, found, writers, sets)}{more}"


def _repeats(sets: Sequence[StoredSet]) -> bool:
    """Whether all responses to each prompt are equal."""
    for frame in (one.base(part) for one in sets for part in _parts(one)):
        texts = frame.select({"prompt_id", "response"}.intersection(frame.column_names))
        if texts.num_columns < 2 or not is_text(texts["response"].type):
            return False
        counted = texts.group_by("prompt_id").aggregate([("response", "count_distinct")])
        if pc.any(pc.greater(counted["response_count_distinct"], 1)).as_py():
            return False
    return True


def _parts(one: StoredSet) -> range:
    return range(1 if one.incomplete else one.parts)


class _Counts(NamedTuple):
    """What groups without a signal add up to."""

    causes: Counter[Cause]  # groups
    verdicts: Counter[str]  # rows
    missing: Counter[tuple[str, str]]  # rows, by component and reason
    ends: Counter[str]  # `finish_reason` of responses that are not right

    def add(self, rows: RowTable, decisive: str) -> bool:
        """Add groups, unless one has a signal; return whether none has."""
        table, groups = rows.table, rows.groups
        verdicts = table["verdict"].cast(pa.string())
        right_N, wrong_N = right_and_wrong(verdicts)
        verdict_N = np.where(right_N, 1.0, np.where(wrong_N, 0.0, np.nan))
        reward_N, advantage_N = (column_values(table, name) for name in ("reward", "advantage"))
        reward_G, verdict_G = _differs(groups, reward_N), _differs(groups, verdict_N)
        advantage_N = np.nan_to_num(advantage_N)
        signal = {"advantage": advantage_N, "reward": reward_G, "verdict": verdict_G}[decisive]
        if signal.any():
            return False
        known_N = np.isfinite(reward_N) | np.isfinite(verdict_N)
        known_N &= ~(self._count_missing(rows) & np.isnan(reward_N))
        sizes_G, known_G = groups.sum(rows.has_response_N), groups.sum(known_N)
        right_G, wrong_G = groups.sum(right_N), groups.sum(wrong_N)
        alone_G, missing_G = sizes_G == 1, known_G < np.minimum(sizes_G, 2)
        conditions: dict[Cause, Array] = {
            "alone": alone_G & ~missing_G,
            "missing": missing_G,
            "unused": reward_G | verdict_G,
            "wrong": (wrong_G > 0) & (right_G == 0),
            "right": right_G > 0,
        }
        cause_G = np.select([*conditions.values()], [*conditions], "same")
        self.causes.update(cause_G[sizes_G > 0].tolist())
        self.verdicts.update(verdicts.drop_null().to_pylist())
        ends = table["finish_reason"].cast(pa.string()).filter(pa.array(~right_N))
        self.ends.update(ends.drop_null().to_pylist())
        return True

    def _count_missing(self, rows: RowTable) -> Array:
        """Count why rewards are missing; return in which rows one is, bool[N]."""
        found_N = np.zeros(rows.table.num_rows, bool)
        for name in rows.components:
            reasons = rows.table[component_columns(name)[1]].cast(pa.string())
            missing = pc.fill_null(pc.not_equal(reasons, NOT_APPLICABLE), False)
            self.missing.update((name, reason) for reason in reasons.filter(missing).to_pylist())
            found_N |= np.asarray(missing)
        return found_N

    def cause(self) -> Cause | None:
        """What most groups lack; None: there is no group."""
        most = max(_CAUSES, key=lambda each: self.causes[each])
        return most if self.causes[most] else None


def _differs(groups: Groups, values_N: Array) -> Array:
    """bool[G]: whether two known values of a group do."""
    if not len(values_N):  # `reduceat` takes no empty array.
        return np.zeros(0, bool)
    low_N, high_N = (np.where(np.isfinite(values_N), values_N, each) for each in (np.inf, -np.inf))
    low_G = np.minimum.reduceat(low_N, groups.starts_G)
    differs_G: Array = low_G < np.maximum.reduceat(high_N, groups.starts_G)
    return differs_G


def _why(cause: Cause, found: _Counts, writers: dict[str, str], sets: Sequence[StoredSet]) -> str:
    groups, of_all = found.causes[cause], found.causes.total()
    some = "" if groups == of_all else f"in {groups:,} of {of_all:,} groups "
    counts = listed(dict(sorted(found.verdicts.items(), key=lambda each: (-each[1], each[0]))))
    last = next(writers[name] for name in _DECISIVE if name in writers)
    cut = "".join(_cut(found)) if cause in ("wrong", "same") else ""
    if cut:
        return f"{some}{cut}{f' ({counts})' if counts else ''}."
    if cause == "wrong":
        wrong, unanswered = (found.verdicts[name] for name in ("wrong_answer", "no_answer"))
        help_ = _unanswered(found, writers, sets) if unanswered > wrong else _compared(sets)
        return f"{some}no response is correct ({counts}){help_}"
    missing = ""
    if found.missing:
        (name, reason), n = min(found.missing.items(), key=lambda each: (-each[1], each[0]))
        missing = f": most often {name} is missing ({reason} {n:,})"
    return {
        "right": f"{some}every graded response is correct ({counts}): the prompts are too easy.",
        "missing": f"{some}fewer than two responses have a reward{missing}.",
        "same": f"{some}all responses to a prompt have the same reward.",
        "unused": f"{some}responses to a prompt differ, but {last} does not see it: see the "
        f"weights, and what is dropped before {last}.",
        "alone": f"{some}there is one response, which is compared with nothing: sample n: 2 or "
        "more, or sort recorded rows by prompt.",
    }[cause]


def _cut(found: _Counts) -> Iterator[str]:
    """Yield by which limit most responses that are not right were cut off; else nothing."""
    fields = {"context_full": "max_prompt_tokens", "length": "max_tokens"}
    end = max(fields, key=lambda each: found.ends[each])
    if found.ends[end] and 2 * found.ends[end] >= found.ends.total():
        which = f"{found.ends[end]:,} of {found.ends.total():,} responses"
        at = "as context_full" if end == "context_full" else f"at {fields[end]}"
        yield f"{which} ended {at}: {fields[end]} may be too small"


def _compared(sets: Sequence[StoredSet]) -> str:
    """With what the first wrong response was compared."""
    texts = _first(sets, "wrong_answer")
    answer, reference = (texts.get(name, "") for name in ("extracted_answer", "reference"))
    if not answer or not reference:
        return "."
    shown = f"reference {_quoted(reference, from_end=True)} against extracted answer"
    shown = f": for example, {shown} {_quoted(answer)}."
    if not _holds_more(reference, answer):
        return shown
    return (
        f"{shown} That reference seems to hold more than an answer: reference_pattern or "
        "reference_form may be missing in prompt_template_mapper."
    )


def _holds_more(reference: str, answer: str) -> bool:
    """Whether a reference seems to hold more than an answer, such as a worked solution."""
    inside = answer != reference and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", reference)
    words = len(_WORD.findall(reference))
    return bool(_MARK.search(reference)) or words >= (2 if inside else _MANY_WORDS)


def _unanswered(found: _Counts, writers: dict[str, str], sets: Sequence[StoredSet]) -> str:
    """What the first response without an answer begins with."""
    response, begins = _first(sets, "no_answer").get("response"), "."
    if response is not None:
        which = f"begins {_quoted(response)}" if response.strip() else "is empty"
        begins = f": for example, no answer was found in one that {which}."
    step = writers.get("verdict", "the verifier")
    return f"{begins} The prompt may not ask for the form of answers that {step} reads."


def _first(sets: Sequence[StoredSet], verdict: str) -> dict[str, str]:
    """The texts of the first row with a verdict."""
    for one in sets:
        for part in _parts(one):
            frame = one.base(part) if one.incomplete else as_graded(one, part)
            there = frame.column_names
            names = [x for x in ("extracted_answer", "reference", "response") if x in there]
            if "verdict" not in there:
                continue
            is_own = pc.equal(frame.select(["verdict"])["verdict"].cast(pa.string()), verdict)
            rows = frame.select(names).filter(is_own).slice(0, 1).to_pylist()
            if rows:
                return {name: text for name, text in rows[0].items() if isinstance(text, str)}
    return {}


def _quoted(text: str, *, from_end: bool = False) -> str:
    """A text of whomever in one short line; of a long solution, the end has the answer."""
    line = " ".join(text.split())
    if len(line) > _MOST_CHARACTERS:
        most = _MOST_CHARACTERS - 3
        line = f"...{line[-most:]}" if from_end else f"{line[:most]}..."
    return f"'{visible(line, one_line=True)}'"


def _written(funnel: Sequence[StepReport]) -> dict[str, ColumnFigures]:
    """The figures of columns; of one that several steps wrote, the last one's."""
    return {name: figures for step in funnel for name, figures in step.columns.items()}
