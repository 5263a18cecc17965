"""Why no group of a run has a signal: what most of its groups lack, and what may help.

A group has a signal where an advantage is not 0. Where no step computes advantages, two of its
rewards must differ or, where there are none, two of its verdicts. A row that a step has dropped
counts with what it had by then, so that the finding depends on neither chunks nor workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import RejuiceError
from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, component_columns, right_and_wrong
from ...operators.groups import Array, Groups
from ...operators.logs import visible
from ..console import listed
from ..dataset.remote import AnyPath
from ..engine.report import ColumnFigures, Report
from .figures import column_values
from .rows import RowTable, row_table
from .stored import StoredSet, open_stored
from .verdicts import as_graded

_CAUSES = ("unused", "wrong", "right", "missing", "same", "alone")
"""What a group lacks: `unused` has responses that differ; `same`, no verdicts but equal rewards."""
_DECISIVE = ("advantage", "reward", "verdict")
"""The columns that say whether there is a signal; the first that a step writes decides."""
_MOST_CHARACTERS = 60
_LIMITS = {"context_full": "max_prompt_tokens", "length": "max_tokens"}
"""By how a response ended, the field that may be too small."""


def no_signal_of_report(report: Report, path: AnyPath) -> Iterator[str]:
    """Yield a line about a run where none of its groups has a signal; else nothing."""
    written: dict[str, ColumnFigures] = {}
    for step in report.steps:
        written |= step.columns
    advantage = written.get("advantage", {})
    silent = not advantage.get("n") or advantage.get("min") == advantage.get("max") == 0
    if not silent or written.keys().isdisjoint(_DECISIVE):
        return  # Nothing of the run needs to be read.
    try:
        (one,) = open_stored(path).sets
        if one.incomplete and "advantage" not in written:
            return  # Of the rows that are left, two may not differ because others were dropped.
        yield from no_signal_of_sets([one])
    except (RejuiceError, OSError):  # Whatever of the run is gone: its report is not.
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
    if decisive is None:
        return
    found = _Counts(Counter(), Counter(), Counter(), Counter())
    for one in sets:
        for part in _parts(one):
            rows = row_table(one.base(part), () if one.incomplete else one.applied(part))
            if not found.add(rows, decisive):
                return
    cause = max(_CAUSES, key=lambda each: found.causes[each])
    # Where each prompt has one response and no step compares them, nothing is amiss.
    if found.causes[cause] and (cause != "alone" or decisive == "advantage"):
        groups, of_all = found.causes[cause], found.causes.total()
        some = "" if groups == of_all else f"in {groups:,} of {of_all:,} groups "
        yield f"No group has a signal: {some}{_why(cause, found, writers, sets)}"


def _parts(one: StoredSet) -> range:
    return range(1 if one.incomplete else one.parts)


class _Counts(NamedTuple):
    """What groups without a signal add up to."""

    causes: Counter[str]  # groups
    verdicts: Counter[str]  # rows
    missing: Counter[str]  # rows, by component and reason
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
        if {"advantage": advantage_N, "reward": reward_G, "verdict": verdict_G}[decisive].any():
            return False
        known_N = np.isfinite(reward_N) | np.isfinite(verdict_N)
        for name in rows.components:
            reasons = table[component_columns(name)[1]].cast(pa.string())
            is_missing = pc.fill_null(pc.not_equal(reasons, NOT_APPLICABLE), False)
            known_N &= ~np.asarray(is_missing) | np.isfinite(reward_N)
            self.missing.update(f"{name} ({x})" for x in reasons.filter(is_missing).to_pylist())
        sizes_G, known_G = groups.sum(rows.has_response_N), groups.sum(known_N)
        right_G, wrong_G = groups.sum(right_N), groups.sum(wrong_N)
        missing_G = known_G < np.minimum(sizes_G, 2)
        conditions = {
            "alone": (sizes_G == 1) & ~missing_G,
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


def _differs(groups: Groups, values_N: Array) -> Array:
    """bool[G]: whether two known values of a group do."""
    if not len(values_N):  # `reduceat` takes no empty array.
        return np.zeros(0, bool)
    low_N, high_N = (np.where(np.isfinite(values_N), values_N, each) for each in (np.inf, -np.inf))
    low_G = np.minimum.reduceat(low_N, groups.starts_G)
    differs_G: Array = low_G < np.maximum.reduceat(high_N, groups.starts_G)
    return differs_G


def _why(cause: str, found: _Counts, writers: Mapping[str, str], sets: Sequence[StoredSet]) -> str:
    ordered = sorted(found.verdicts.items(), key=lambda each: (-each[1], each[0]))
    counts = f"({listed(dict(ordered))})"
    last = next(writers[name] for name in _DECISIVE if name in writers)
    end = max(_LIMITS, key=lambda each: found.ends[each])
    if cause in ("wrong", "same") and 2 * found.ends[end] >= max(1, found.ends.total()):
        cut = f"{found.ends[end]:,} of {found.ends.total():,} responses ended by {end}"
        return f"{cut} {counts}: {_LIMITS[end]} may be too small."
    missing = min(found.missing.items(), key=lambda each: (-each[1], each[0]), default=None)
    most = f": {missing[0]} is missing in {missing[1]:,} rows" if missing else ""
    return {
        "wrong": f"no response is correct {counts}{_example(sets)}",
        "right": f"every graded response is correct {counts}: the prompts are too easy.",
        "missing": f"fewer than two responses have a reward{most}.",
        "same": "all responses to a prompt have the same reward.",
        "unused": f"responses to a prompt differ, but {last} does not see it: see the weights, and "
        f"what is dropped before {last}.",
        "alone": "there is one response, which is compared with nothing: sample n: 2 or more, or "
        "sort recorded rows by prompt.",
    }[cause]


def _example(sets: Sequence[StoredSet]) -> str:
    """With what the first response that is not right was compared, and what may be amiss."""
    for one in sets:
        for part in _parts(one):
            frame = one.base(part) if one.incomplete else as_graded(one, part)
            names = ["extracted_answer", "reference", "response", "verdict"]
            if not {*names} <= {*frame.column_names}:
                continue
            table = frame.select(names)
            is_wrong = pa.array(right_and_wrong(table["verdict"])[1])
            for row in table.filter(is_wrong).slice(0, 1).to_pylist():
                answer, reference, response, _ = (_quoted(value) for value in row.values())
                if row["extracted_answer"] is None:
                    return (
                        f": for example, {response} has no answer in a form that the verifier "
                        "reads: the prompt may not ask for one."
                    )
                return (
                    f": for example, reference {reference} against extracted answer {answer}: if "
                    "that reference holds more than an answer, set reference_pattern or "
                    "reference_form of prompt_template_mapper."
                )
    return "."


def _quoted(text: object) -> str:
    """A text of whomever in one short line; of a long one, both ends."""
    line = " ".join(str(text).split())
    if len(line) > _MOST_CHARACTERS:
        line = f"{line[: _MOST_CHARACTERS // 2]}...{line[-_MOST_CHARACTERS // 2 :]}"
    return f"'{visible(line, one_line=True)}'"
