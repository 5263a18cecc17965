"""Grade a second time, by another verifier, to measure the noise of the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..arrow_compute import pc
from ..columns import flat
from ..groups import uniform_N
from ..operator import Change, Columns, Operator, Scope
from ..verifier import Slug, check_reference
from ..verifier.fractions_and_decimals import refusal
from ..verifier.pool import shared_pool
from ..workers import usable_cores

_GRADED = ("correct", "wrong_answer")
_Graded = tuple[str, str, str]  # response, answer, reference


class VerdictRecheckMapper(Operator):
    r"""Write `recheck`: the verdict of another verifier, math-verify alone, on a response.

    `verdict` stays unchanged. `correct` and `wrong_answer` responses are graded again, or a random
    `share` of them; `recheck` is `correct`, `wrong_answer`, `timeout` or `verifier_error`. It is
    null if the response is not graded again: it is not in the share, has another verdict or none,
    lacks response, answer or reference, or its answer exceeds the limits of what is read as
    mathematics.

    math-verify finds the answer in the whole response, parses it and compares it by its own rules.
    It shares no code with `math_verify_mapper`, so that errors common to both tiers of that mapper
    show up. A response that consists only of an answer is put between dollar signs, because
    math-verify would not read it as mathematics otherwise.

    A disagreement means that one of the two is wrong, not which. math-verify is known to

    - round to six decimal places: 1/2^99 equals 1/2^98;
    - take the number after the word answer: 3 in `42 is the answer, reached in 3 steps`;
    - take one value of several, such as 42 in `42 or 43`, and the value of a bound or a negation,
      such as 4 in `at least 4` or `not 4`;
    - equate A and a, and a pair `(1, 2)` and a list;
    - support no units, no numbers in words (`three`, `1.45 million`), no `6.02e23`, no bases;
    - read `$50\%$` as 50, and distinguish `x <= 2` from its interval and degrees from radians.

    It takes about 1.5 ms for a response of a few hundred characters; `share` limits how many.

    The notes count `rechecked`, and among these `agree`, `disagree` (`right_to_wrong`,
    `wrong_to_right`) and `recheck_failed`, for which math-verify gave no verdict.
    """

    share: float = Field(1.0, gt=0, le=1)
    """Share of the responses to grade again, chosen at random."""
    timeout: float = Field(5.0, gt=0)
    """Seconds of processor time for one response; a verification that takes longer is killed."""
    seed: int = 0
    """Another seed gives another choice."""

    scope: ClassVar[Scope] = Scope.GROUP  # For the random numbers.
    depends_on: ClassVar[tuple[str, ...]] = ("math-verify", "latex2sympy2_extended", "sympy")

    def reads(self) -> Columns:
        return ("prompt_id", "response", "extracted_answer", "reference", "verdict")

    def writes(self) -> Columns:
        return ("recheck",)

    def apply(self, table: pa.Table) -> Change:
        verdicts, *texts = (
            flat(table[name].cast(pa.string()))
            for name in ("verdict", "response", "extracted_answer", "reference")
        )
        chosen_N = np.asarray(pc.is_in(verdicts, pa.array(_GRADED)))
        for text in texts:
            chosen_N = chosen_N & np.asarray(text.is_valid())
        if self.share < 1:
            chosen_N = chosen_N & (uniform_N(table, seed=self.seed, salt=self.name()) < self.share)
        rows = pa.array(np.flatnonzero(chosen_N))
        values = zip(*(text.take(rows).to_pylist() for text in texts), strict=True)
        slugs = pa.array(self._recheck(list(values)), pa.string())
        recheck = slugs.take(pa.array(np.cumsum(chosen_N) - 1, mask=~chosen_N))
        return Change({"recheck": recheck}, notes=_notes(verdicts, recheck))

    def _recheck(self, graded: Sequence[_Graded]) -> list[Slug | None]:
        """The verdict of math-verify on each, None if it is not checked."""
        distinct = dict.fromkeys(graded)
        found: dict[_Graded, Slug] = dict.fromkeys(
            (each for each in distinct if check_reference(each[2])), "verifier_error"
        )
        # The limits apply to the answer, not to the whole response.
        gradable = [each for each in distinct if each not in found and not refusal(each[1])]
        pairs = [
            (f"${answer}$" if response.strip() == answer else response, reference)
            for response, answer, reference in gradable
        ]
        if pairs:
            workers = usable_cores()
            outcomes = shared_pool(workers).run(
                pairs, timeout=self.timeout, workers=workers, rule="math_verify"
            )
            found |= zip(gradable, (outcome.slug for outcome in outcomes), strict=True)
        return [found.get(each) for each in graded]


def _notes(verdicts: pa.Array, recheck: pa.Array) -> dict[str, float]:
    pairs = Counter(zip(verdicts.to_pylist(), recheck.to_pylist(), strict=True))
    rechecked = len(recheck) - recheck.null_count
    to_wrong = pairs["correct", "wrong_answer"]
    to_right = pairs["wrong_answer", "correct"]
    agree = sum(pairs[slug, slug] for slug in _GRADED)
    notes = {
        "rechecked": rechecked,
        "agree": agree,
        "disagree": to_wrong + to_right,
        "right_to_wrong": to_wrong,
        "wrong_to_right": to_right,
        "recheck_failed": rechecked - agree - to_wrong - to_right,
    }
    return {name: float(number) for name, number in notes.items()}
