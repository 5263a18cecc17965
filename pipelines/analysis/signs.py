"""The signs of reward hacking of a stored run.

stored run ──sign_rows──> numbers of rows ──sign_tests──> p-values ──holm──> alarms
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from .sign_rows import sign_rows
from .sign_tests import SignResult, signs_of, with_alarms
from .stored import Stored

_VALIDATION = re.compile(r"rejuice/validation/[^/]+/mean@\d+")
_VALIDATION_OF_VERL = re.compile(r"val-core/.*/(?:acc|reward)/mean@\d+")


def audit_signs(stored: Stored, seed: int) -> tuple[SignResult, ...]:
    """The signs of reward hacking of a stored run; alarms are corrected over all of them.

    The answers of all steps of a training run are taken as one set, and so are its judgements.

    Args:
        stored: an export, a training run or a step.
        seed: of the sample of groups and of the permutations.

    Raises:
        RejuiceError: the files of the run are damaged.

    Example:
        >>> signs = audit_signs(open_stored(Path("outputs/quickstart/curated.parquet")), seed=0)
        >>> [each.name for each in signs if each.alarm]
        ['length pays', 'diversity without accuracy']
    """
    found: list[SignResult] = []
    validation = _validation(stored.points)
    for kind in ("answers", "judgements"):
        sets = [each for each in stored.sets if each.kind == kind]
        if sets:
            name = sets[0].name if len(sets) == 1 else kind
            found += signs_of(sign_rows(sets, name, seed), seed, validation)
    return with_alarms(found)


def _validation(points: Sequence[Mapping[str, float]]) -> list[tuple[int, float]]:
    """Steps and accuracies on held-out prompts, the mean of all sets."""
    found = []
    for point in points:
        for pattern in (_VALIDATION, _VALIDATION_OF_VERL):
            values = [value for name, value in point.items() if pattern.fullmatch(name)]
            if values:
                found.append((int(point["step"]), float(np.mean(values))))
                break
    return found
