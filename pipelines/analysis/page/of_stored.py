"""The page of a stored run: every set of it, with the texts that steps wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.frame import Frame
from ...engine.report import StepReport
from ...recipe.steps import Step
from ..funnel import TRAINING, set_funnel
from ..rows import BY_TRAINING, row_table, stored_rows
from ..sign_tests import SignResult
from ..signs import audit_signs
from ..stored import Stored, StoredSet
from .content import PageCurves, PageData, PageSet, PageStep
from .evidence import evidence_of
from .of_rows import page_set
from .written import WrittenValues


def page_of_stored(stored: Stored) -> PageData:
    """The page of a stored run.

    Raises:
        RejuiceError: its files are damaged.
    """
    funnel = None if stored.report is None else stored.report.steps
    sets = tuple(_set(one, funnel) for one in stored.sets)
    text = stored.recipe.read_text("utf-8") if stored.recipe.is_file() else ""
    curves = (PageCurves("", stored.points),) if stored.points else ()
    signs = tuple(map(_sign, audit_signs(stored, seed=0)))
    return PageData(stored.title, sets, curves=curves, signs=signs, recipe=text)


def _sign(sign: SignResult) -> Mapping[str, Any]:
    effect = None if math.isnan(sign.effect) else sign.effect
    return {**sign._asdict(), "effect": effect, "rows": list(sign.rows)}


def _set(one: StoredSet, funnel: Sequence[StepReport] | None) -> PageSet:
    if one.incomplete:
        base = Frame.of(one.final())
        values, rows = [WrittenValues(base)], row_table(base, [])
        steps: tuple[Step, ...] = ()
        evidence = None
        banner = f"Only rows that are left are here, without their way: {one.incomplete}. "
    else:
        parts = [(one.base(part), list(one.applied(part))) for part in range(one.parts)]
        values = [WrittenValues.of(base, applied) for base, applied in parts]
        rows, steps, banner = stored_rows(one), one.steps, ""
        evidence = evidence_of([applied for _, applied in parts], values, rows)
        if funnel is None:
            funnel = set_funnel(rows, [applied for _, applied in parts])
    found = page_set(
        one.name,
        values,
        rows,
        steps,
        funnel or (),
        kind=one.kind,
        step=one.training_step,
        banner=banner,
        evidence=evidence,
    )
    own = [step for step in funnel or () if step.step == TRAINING]
    if not own:
        return found
    last = PageStep(BY_TRAINING, TRAINING, (), dict.fromkeys(own[0].dropped, "training's own"))
    return found._replace(steps=(*found.steps, last))
