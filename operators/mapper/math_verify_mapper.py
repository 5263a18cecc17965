"""Grade mathematical answers against their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import continued
from ..columns import alternatives, at_path, columns_of, component
from ..errors import DataError
from ..operator import Columns, Mapper, drop

if TYPE_CHECKING:
    from ..verifier import AnswerType

AnswerTypeName = Literal[
    "number", "expression", "choice", "boolean", "date", "time", "percent", "money", "quantity",
    "json", "list", "text",
]  # fmt: skip


class MathVerifyMapper(Mapper):
    """Write the verdict on each response, its extracted answer, and the accuracy component.

    Accuracy is `right` for `correct`, `wrong` for `wrong_answer` and `no_answer`. It is missing if
    the response could not be graded:

    - `timeout`, `verifier_error`: the verifier did not finish or failed. With `on_timeout: wrong`
      a timeout is `wrong` instead.
    - `no_reference`, `bad_reference`: the reference is null, or cannot be graded against; the
      verdict is `verifier_error`.
    - `no_response`: the response is null, for example because it is not sampled yet; the verdict
      is null. An empty response is graded, as `no_answer`.

    With `worked_out: false`, the notes count the right answers that are `not_worked_out`: a policy
    that is rewarded for those may learn to repeat the question.
    """

    timeout: float = Field(5.0, gt=0)
    """Seconds of processor time for one answer; a verification that takes longer is killed.

    It may take ten times as long by the wall, so that load makes no timeouts."""
    right: float = Field(1.0, allow_inf_nan=False)
    """Accuracy of a correct response."""
    wrong: float = Field(0.0, allow_inf_nan=False)
    """Accuracy of a wrong response, and of one without an answer."""
    on_timeout: Literal["missing", "wrong"] = "missing"
    """Accuracy of a response whose verification timed out.

    A policy may learn to avoid `wrong` by answers whose verification never finishes. Choose `wrong`
    if references are plain numbers: an answer that times out against one is hardly ever right."""

    worked_out: bool = True
    """Whether an answer has to be worked out: a numeral, where the reference is one.

    A fraction in lowest terms, scientific notation and a unit are. A reference that is another
    constant, such as 2√3, asks for a closed form of about its length, and no answer may have a sum,
    integral or other operation that its reference does not have. With false, an equal value is
    enough, and a policy may put the formula of the question into its box."""

    answer_type: AnswerTypeName | None = None
    """The type of all references: docs/verifier.md says how each is found and compared. A reference
    that is of another type is `bad_reference`. `text` takes all, `list` also a list of several
    answers, which are then one. Null: the type that a reference shows by itself."""

    answer_type_column: str | None = None
    """A column, or with dots a field of one, with the type for each row. Null: there is none; where
    it is null, `answer_type` counts."""

    tolerance: float | None = Field(None, gt=0, allow_inf_nan=False)
    """How far a number, quantity, percentage or amount of money may be from the reference, as a
    share of it: 0.01 is 1%. With it, a reference `12.5 ± 0.5` is a range. Null: as far as rounding
    goes, which is next to nothing."""

    ordered_lists: bool = False
    """Whether the order of a list counts, as of `red, green, blue`."""

    response_prefix: str | None = None
    """What the prompt ends with and a response continues, such as the `<think>` of DeepSeek-R1's
    chat template. Null: what the template in the folder of the policy ends with, in a recipe that
    samples; else nothing."""

    depends_on: ClassVar[tuple[str, ...]] = ("math-verify", "latex2sympy2_extended", "sympy")
    gil_bound: ClassVar[bool] = True
    retryable: ClassVar[frozenset[str] | None] = frozenset({"timeout", "verifier_error"})
    missing: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null",
        "no_reference": "the reference is null",
        "bad_reference": "the reference cannot be graded against",
        "timeout": "the verification took longer than `timeout`",
        "verifier_error": "the verifier failed on the response",
    }
    """Why the accuracy may be missing."""
    # A vote without references needs the answers only.
    not_failures: ClassVar[frozenset[str]] = frozenset({"no_reference"})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.wrong >= self.right:
            raise ValueError(f"wrong {self.wrong} is not below right {self.right}")
        return self

    def reads(self) -> Columns:
        return ("response", "reference", *columns_of(self.paths()))

    def paths(self) -> Columns:
        return () if self.answer_type_column is None else (self.answer_type_column,)

    def writes(self) -> Columns:
        return ("verdict", "extracted_answer", "reward_accuracy", "reward_accuracy_missing")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        from ..verifier import verify_batch

        # References of a dataset may be numbers.
        responses, references = (
            table[name].cast(pa.string()) for name in ("response", "reference")
        )
        types = self.types_of(table)
        ungradable = _ungradable(responses, references, types)
        # The answer is extracted even if there is no reference to compare it with.
        references = pc.if_else(ungradable.is_null(), references, pa.scalar(None, pa.string()))
        verdicts = verify_batch(
            continued(self.response_prefix, responses.to_pylist()),
            references.to_pylist(),
            answer_types=types,
            **self.conventions(),
        )
        null_N = np.asarray(responses.is_null())
        slugs = pa.array([verdict.verdict for verdict in verdicts], pa.string(), mask=null_N)
        answers = pa.array([verdict.answer for verdict in verdicts], pa.string(), mask=null_N)
        failures = ["verifier_error", *(["timeout"] if self.on_timeout == "missing" else [])]
        failed = pc.is_in(slugs, pa.array(failures))
        no_verdict = pc.if_else(failed, slugs, pa.scalar(None, pa.string()))
        correct_N = np.asarray(pc.fill_null(pc.equal(slugs, "correct"), False))
        values_N = np.where(correct_N, self.right, self.wrong)
        accuracy = component("accuracy", values_N, pc.coalesce(ungradable, no_verdict))
        return {"verdict": slugs, "extracted_answer": answers, **accuracy}

    def given_type(self) -> AnswerType | None:
        """The type of all references, as far as no column has another one."""
        if self.answer_type is None:
            return None
        from ..verifier import AnswerType

        return AnswerType(self.answer_type)

    def types_of(self, table: pa.Table) -> Sequence[AnswerType | None]:
        """The type that each reference is given; None where it shows it by itself. A DataError if
        `answer_type_column` is not there, or has a value that is no type."""
        for_all = self.given_type()
        if self.answer_type_column is None:
            return [for_all] * table.num_rows
        from ..verifier import AnswerType

        names = at_path(table, self.answer_type_column).cast(pa.string()).to_pylist()
        known: dict[str | None, AnswerType | None] = {each.value: each for each in AnswerType}
        known[None] = for_all
        for row, name in enumerate(names):
            if name not in known:
                found = f"row {row + 1}: column '{self.answer_type_column}' is {name!r}"
                raise DataError(found, f"a type is one of {', '.join(AnswerType)}, or null")
        return [known[name] for name in names]

    def conventions(self) -> dict[str, Any]:
        """The arguments of `verify_batch`."""
        return self.model_dump(include={"timeout", "worked_out", "tolerance", "ordered_lists"})

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        from ..verifier.worked_out import is_worked_out

        if self.worked_out:
            return {}
        right = pc.fill_null(pc.equal(columns["verdict"], "correct"), False)
        answers = columns["extracted_answer"].filter(right).to_pylist()
        references = table["reference"].cast(pa.string()).filter(right).to_pylist()
        pairs = zip(answers, references, strict=True)
        found = sum(
            not any(is_worked_out(answer, each) for each in alternatives(reference))
            for answer, reference in pairs
            if answer
        )
        return {"not_worked_out": found} if found else {}


def _ungradable(
    responses: pa.ChunkedArray, references: pa.ChunkedArray, types: Sequence[AnswerType | None]
) -> pa.Array:
    """Why a row cannot be graded at all, null where it can."""
    from ..verifier import check_references

    pairs = list(zip(references.to_pylist(), types, strict=True))
    distinct = list(dict.fromkeys(pairs))
    texts, given = [text for text, _ in distinct], [each for _, each in distinct]
    reasons = dict(zip(distinct, check_references(texts, answer_types=given), strict=True))
    masks = {
        "no_response": responses.is_null(),
        "no_reference": references.is_null(),
        "bad_reference": pa.array([reasons[pair] is not None for pair in pairs], pa.bool_()),
    }
    return drop(masks)
