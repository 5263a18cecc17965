"""Why no group of a run has a signal: what most of its groups lack, and what may help.

A group has a signal where an advantage is not 0. Where no step computes advantages, two of its
rewards must differ or, where there are none, two of its verdicts. A row that a step has dropped
counts with what it had by then, so that the finding depends on neither chunks nor workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...operators.arrow_compute import pc
from ...operators.columns import NOT_APPLICABLE, component_columns, numbers, right_and_wrong
from ...operators.logs import visible
from ..console import listed
from .figures import value_counts
from .rows import RowTable, joined_rows, stored_rows, written_values
from .stored import StoredSet

_CAUSES = ("unused", "wrong", "right", "missing", "same", "alone")
"""What a group lacks: `unused` has responses that differ; `same`, no verdicts but equal rewards."""
DECISIVE = ("advantage", "reward", "verdict")
"""The columns that say whether there is a signal; the first that a step writes decides."""
_MOST_CHARACTERS = 60
_LIMITS = {"context_full": "max_prompt_tokens", "length": "max_tokens"}
"""By how a response ended, the field that may be too small."""


def no_signal_of_sets(sets: Sequence[StoredSet], rows: RowTable | None = None) -> Iterator[str]:
    """Yield a line about sets, of which `rows` are the rows of all."""
    writers = {
        name: step.name for one in sets for step in one.steps for name in step.operator.writes()
    }
    decisive = next((name for name in DECISIVE if name in writers), None)
    if decisive is None or not any(one.parts for one in sets):
        return
    rows = rows or joined_rows([stored_rows(one) for one in sets])
    causes = _causes(rows, decisive)
    cause = max(_CAUSES, key=lambda each: causes[each])
    # Where each prompt has one response and no step compares them, nothing is amiss.
    if not causes[cause] or (cause == "alone" and decisive != "advantage"):
        return
    of_all, last = causes.total(), writers[decisive]
    some = f"in {causes[cause]:,} of {of_all:,} groups " if causes[cause] < of_all else ""
    counts = listed(value_counts(rows.table["verdict"]))
    verdicts = counts and f" ({counts})"
    why = (
        _cut_off(cause, rows.table, verdicts)
        or {
            "wrong": f"no response is correct{verdicts}{_example(sets)}",
            "right": f"every graded response is correct{verdicts}: the prompts are too easy.",
            "missing": "fewer than two responses have a reward.",
            "same": "all responses to a prompt have the same reward.",
            "unused": f"responses to a prompt differ, but {last} does not see it: see the "
            "weights and the filters before it.",
            "alone": "there is one response, which is compared with nothing: sample n: 2 or more, "
            "or sort recorded rows by prompt.",
        }[cause]
    )
    yield f"No group has a signal: {some}{why}"


def _causes(rows: RowTable, decisive: str) -> Counter[str]:
    """How many groups lack what; nothing where one has a signal."""
    table, groups = rows.table, rows.groups
    right_N, wrong_N = right_and_wrong(table["verdict"].cast(pa.string()))
    verdict_N = np.where(right_N, 1.0, np.where(wrong_N, 0.0, np.nan))
    reward_N, advantage_N = (numbers(table, name) for name in ("reward", "advantage"))
    reward_G, verdict_G = (groups.std(x, np.isfinite(x)) > 0 for x in (reward_N, verdict_N))
    signal = {"advantage": np.nan_to_num(advantage_N), "reward": reward_G, "verdict": verdict_G}
    if signal[decisive].any():
        return Counter()
    known_N = np.isfinite(reward_N) | np.isfinite(verdict_N)
    for name in rows.components:
        reasons = table[component_columns(name)[1]].cast(pa.string())
        is_missing = pc.fill_null(pc.not_equal(reasons, NOT_APPLICABLE), False)
        known_N &= ~np.asarray(is_missing) | np.isfinite(reward_N)
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
    return Counter(cause_G[sizes_G > 0].tolist())


def _cut_off(cause: str, table: pa.Table, verdicts: str) -> str:
    """That most responses which are not right were cut off, if they were."""
    is_wrong = np.invert(right_and_wrong(table["verdict"].cast(pa.string()))[0])
    ends = value_counts(table["finish_reason"].filter(pa.array(is_wrong)))
    end = max(_LIMITS, key=lambda each: ends.get(each, 0))
    n, of_all = ends.get(end, 0), sum(ends.values())
    if cause not in ("wrong", "same") or 2 * n < max(1, of_all):
        return ""
    cut = f"{n:,} of {of_all:,} responses ended by {end}{verdicts}"
    return f"{cut}: {_LIMITS[end]} may be too small."


def _example(sets: Sequence[StoredSet]) -> str:
    """With what the first response that is not right was compared, and what may be amiss."""
    names = ["extracted_answer", "reference", "response", "verdict"]
    for part in (part for one in sets for part in written_values(one)):
        if not {*names} <= part.columns.keys():
            continue
        table = pa.table({name: part.last(name) for name in names})
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
