"""One line where no group of a run has a signal: the likeliest cause, with an example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...operators import RejuiceError
from ...operators.visible import visible
from ..dataset.remote import AnyPath
from ..engine.frame import Frame
from ..engine.report import Report
from .listed import listed
from .no_signal import GradedPart, NoSignal, may_lack_signal, no_signal, no_signal_of_funnel
from .open import open_stored
from .stored import StoredSet

_MOST_CHARACTERS = 60


def no_signal_of_report(report: Report, path: AnyPath) -> Iterator[str]:
    """A line about a run where none of its groups has a signal; else nothing.

    Args:
        report: of the run.
        path: its export, or where else `open_stored` finds it.
    """
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
    """A line about sets of which it is on file what steps did; else nothing.

    Raises:
        RejuiceError: files are gone or damaged.
    """
    parts = ((one, part) for one in sets for part in range(one.parts))
    found = no_signal(GradedPart.of(one.applied(part)) for one, part in parts)
    if found is not None:
        yield no_signal_line(found)


def no_signal_line(found: NoSignal) -> str:
    """The line: what is the same, why, and what helps."""
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
    """A text of whomever in one short line; of a long solution, the end has the answer."""
    line = " ".join(text.split())
    if len(line) > _MOST_CHARACTERS:
        most = _MOST_CHARACTERS - 3
        line = f"...{line[-most:]}" if from_end else f"{line[:most]}..."
    return f"'{visible(line, one_line=True)}'"
