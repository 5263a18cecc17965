"""Print the signs of reward hacking of a stored run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ...operators import DataError
from .sign_tests import ALPHA, SignResult

_HEADING = "signs        "
_INDENT = " " * len(_HEADING)


def sign_lines(signs: Sequence[SignResult]) -> Iterator[str]:
    """The p-values of each set, what was found, and at which false alarm rate.

    Args:
        signs: of a stored run, corrected.
    """
    sets = dict.fromkeys(each.set for each in signs)
    start = _HEADING
    for name in sets:
        of_set = [each for each in signs if each.set == name]
        tested = ", ".join(_p_value(each) for each in of_set if each.p is not None)
        of = f"{_visible(name)}: " if name and len(sets) > 1 else ""
        yield f"{start}{of}{tested or 'none could be computed'}"
        start = _INDENT
        yield from _reasons(of_set)
    m = sum(each.p is not None for each in signs)
    for each in signs:
        if each.alarm:
            of = f" in {_visible(each.set)}" if len(sets) > 1 else ""
            effect = f"effect {each.effect:.2f}"
            yield f"{_INDENT}* {_visible(each.name)}{of}: {effect}; rows: add --rows {_slug(each)}"
    if m:
        found = "found" if any(each.alarm for each in signs) else "nothing found"
        yield (
            f"{_INDENT}{found} at a family-wise false alarm rate of {ALPHA:.0%} (Holm over {m}): "
            f"of clean runs, at most 1 in {round(1 / ALPHA)} has an alarm"
        )


def sign_row_lines(signs: Sequence[SignResult], name: str) -> Iterator[str]:
    """The rows behind a sign, as JSON lines, those that add most to it first.

    Args:
        signs: of a stored run.
        name: of a sign, such as `format_without_accuracy` or `format without accuracy`.

    Raises:
        DataError: there is no such sign.
    """
    known = dict.fromkeys(map(_slug, signs))
    wanted = name.replace(" ", "_")
    if wanted not in known:
        raise DataError(f"--rows {_visible(name)}", f"write one of {', '.join(known)}")
    for each in signs:
        if _slug(each) == wanted:
            for row in each.rows:
                yield json.dumps({"response_id": row, "sign": each.name, "set": each.set})


def _p_value(sign: SignResult) -> str:
    assert sign.p is not None
    text = f"{sign.p:.4f}" if sign.p < 0.01 else f"{sign.p:.2f}"
    return f"{_visible(sign.name)} {text}{' *' if sign.alarm else ''}"


def _reasons(signs: Sequence[SignResult]) -> Iterator[str]:
    without = [f"{_visible(each.name)}: {each.reason}" for each in signs if each.p is None]
    if without:
        yield f"{_INDENT}no p-value of {', '.join(without)}"
    for each in signs:
        if each.p is not None and each.reason:
            yield f"{_INDENT}{_visible(each.name)}: {each.reason}"


def _slug(sign: SignResult) -> str:
    return _visible(sign.name).replace(" ", "_")


def _visible(text: str) -> str:
    """A name as it is, or with what a terminal would not print as escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]
