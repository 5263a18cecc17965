"""What the values that a step wrote rest on: `evidence(step, rows)`.

    math_verify_mapper       found_by, found_at                            texts
    judges (JudgedMapper)    raw_answer, raw_failure                       texts
    diversity_reward_mapper  nearest_response_id, nearest_cosine, mean_cosine
    deduplicators            repeats                                       an id

Nothing is sampled or sent. It is no method of operators: their code is part of the keys of results,
and evidence changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...operators import ResumableOperator
from ...operators.groups import Array
from ..engine.frame import Frame
from ..engine.steps import AppliedStep
from ..recipe.steps import Step

_IDS = ("response_id", "prompt_id")


def evidence(
    step: Step, table: pa.Table, reasons: Any = None, *, models: bool = False
) -> Mapping[str, pa.Array]:
    """The evidence of a step, by name, one value for each row; empty where a step has none.

    Args:
        step: which has seen the rows.
        table: rows as the step had them, in order and in whole groups: the ids and what it reads.
        reasons: string[N], why the step dropped each row; None: it dropped none.
        models: whether an embedding model may be loaded, which takes seconds.

    Raises:
        RejuiceError: a model that is needed cannot be loaded.

    Example:
        >>> evidence(verify, pa.table({"response": ["so it is 42"], "reference": ["42"]}))
        {'found_by': ['last_number'], 'found_at': ['9:11']}
    """
    from ...operators.mapper.diversity_reward_mapper import DiversityRewardMapper
    from ...operators.mapper.math_verify_mapper import MathVerifyMapper

    operator = step.operator
    if isinstance(operator, MathVerifyMapper):
        from .found import answer_evidence

        return answer_evidence(operator, table)
    if isinstance(operator, DiversityRewardMapper):
        from .nearest import diversity_evidence

        cheap = operator.backend == "hashed_ngram"
        return diversity_evidence(operator, table) if cheap or models else {}
    if isinstance(operator, ResumableOperator):
        return _of_judge(operator, table)
    return {} if reasons is None else _of_deduplicator(operator, table, reasons)


def has_evidence(step: Step, frame: Frame) -> bool:
    """Whether a step may have any on such rows: the ids are there, and all that it reads."""
    names = {"response_id", *step.operator.reads()}
    return names <= {*frame.column_names} and _kind(step)


def seen_by(applied: AppliedStep, rows: Array) -> pa.Table:
    """Some of the rows that a step had, for `evidence`: the ids, and what the step reads.

    Args:
        applied: the step.
        rows: int64[M], of whole groups, ascending.
    """
    names = [name for name in _IDS if name in applied.before.column_names]
    wanted = dict.fromkeys((*names, *applied.step.operator.reads()))
    return applied.before.select(wanted).take(pa.array(rows))


def _kind(step: Step) -> bool:
    """Whether the operator is of a class that has evidence."""
    classes = {
        "MathVerifyMapper",
        "DiversityRewardMapper",
        "JudgedMapper",
        "ExactDeduplicator",
        "MinhashDeduplicator",
    }
    return any(base.__name__ in classes for base in type(step.operator).__mro__)


def _of_judge(operator: ResumableOperator, table: pa.Table) -> Mapping[str, pa.Array]:
    from ...operators.servers.judged_mapper import JudgedMapper

    if not isinstance(operator, JudgedMapper):
        return {}
    from .judged import judge_evidence

    return judge_evidence(operator, table)


def _of_deduplicator(operator: Any, table: pa.Table, reasons: Any) -> Mapping[str, pa.Array]:
    from ...operators.deduplicator.exact_deduplicator import ExactDeduplicator
    from ...operators.deduplicator.minhash_deduplicator import MinhashDeduplicator

    if not isinstance(operator, ExactDeduplicator | MinhashDeduplicator):
        return {}
    from .repeated import repeat_evidence

    return repeat_evidence(operator, table, reasons)
