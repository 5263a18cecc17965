"""What the values that a step wrote rest on: `evidence(step, rows)`.

    math_verify_mapper            found_by, found_at                            texts
    judges (ScoringMapper)        raw_answer, raw_failure                       texts
    diversity_reward_mapper       nearest_response_id, nearest_cosine, mean_cosine
    deduplicators                 repeats                                       an id
    ngram_decontamination_filter  question, such as `aime row 3: Find ...`      a text

Nothing is sampled or sent. It is no method of operators: their code is part of the keys of results,
and evidence changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.columns import flat
from ...operators.deduplicator.exact_deduplicator import ExactDeduplicator
from ...operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from ...operators.filter.ngram_decontamination_filter import NgramDecontaminationFilter
from ...operators.groups import Array, Groups
from ...operators.mapper.diversity_reward_mapper import DiversityRewardMapper
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.text.embedding import group_grams, usable_texts
from ...operators.text.minhash import PERMUTATIONS, jaccard
from ...operators.text.tokens import texts_of
from ...operators.verifier.answer import FoundAnswer, find_answer
from ..engine.steps import AppliedStep
from ..recipe.steps import Step
from .stored import IDS

if TYPE_CHECKING:
    from ...operators.servers.judged_mapper import RawAnswer


def answer_evidence(table: pa.Table) -> dict[str, pa.Array]:
    """`found_by`, rules joined by commas, and `found_at`, such as `120:122`; texts."""
    responses = table["response"].cast(pa.string()).to_pylist()
    found = [FoundAnswer(None) if text is None else find_answer(text) for text in responses]
    places = [None if each.start is None else f"{each.start}:{each.end}" for each in found]
    return {
        "found_by": pa.array([", ".join(each.found_by) or None for each in found], pa.string()),
        "found_at": pa.array(places, pa.string()),
    }


@runtime_checkable
class _KeepsRawAnswers(Protocol):
    """A `ScoringMapper`, whose module is not imported here: it loads a client of servers."""

    def raw_answers(self, table: pa.Table) -> Sequence[RawAnswer | None]: ...


def judge_evidence(operator: _KeepsRawAnswers, table: pa.Table) -> dict[str, pa.Array]:
    """`raw_answer` where there is a score, else `raw_failure`: the malformed answer, or the message
    of a request that got none. Both are null where the cache of the judge does not have them."""
    found = [(each and each.text, each and each.reason) for each in operator.raw_answers(table)]
    return {
        "raw_answer": pa.array([x if why is None else None for x, why in found], pa.string()),
        "raw_failure": pa.array([None if why is None else x for x, why in found], pa.string()),
    }


def diversity_evidence(operator: DiversityRewardMapper, table: pa.Table) -> dict[str, pa.Array]:
    """`nearest_response_id`, `nearest_cosine` and `mean_cosine`, to the others of the group that
    have a text. A closed gate withholds the reward, not the cosines."""
    if operator.backend != "hashed_ngram":
        return {}  # No model is loaded to look at a run.
    groups, n = Groups.of(table), table.num_rows
    texts = texts_of(table[operator.column])
    used_N = usable_texts(texts)
    used_N &= (groups.sum(used_N) > 1)[groups.codes_N]
    near_N = np.full(n, -1)
    best_N, mean_N = np.full(n, np.nan), np.full(n, np.nan)
    for rows_BM, grams_BMM in group_grams(texts, groups, used_N, operator.embedder()):
        size = rows_BM.shape[1]
        own = np.arange(size)
        others_BMM = grams_BMM.copy()
        others_BMM[:, own, own] = -np.inf
        best_BM = others_BMM.argmax(axis=2)
        near_N[rows_BM] = np.take_along_axis(rows_BM, best_BM, axis=1)
        best_N[rows_BM] = others_BMM.max(axis=2)
        sums_BM = grams_BMM.sum(axis=2) - grams_BMM[:, own, own]
        mean_N[rows_BM] = sums_BM / (size - 1)
    absent_N = near_N < 0
    ids = table["response_id"].cast(pa.string()).combine_chunks()
    return {
        "nearest_response_id": ids.take(pa.array(near_N, mask=absent_N)),
        "nearest_cosine": pa.array(np.round(best_N, 12), mask=absent_N),
        "mean_cosine": pa.array(np.round(mean_N, 12), mask=absent_N),
    }


_MOST_PAIRS = 4_000_000
"""Pairs of texts that are compared, at most; they take about a second."""


def repeat_evidence(
    operator: ExactDeduplicator | MinhashDeduplicator, table: pa.Table, reasons: Any
) -> dict[str, pa.Array]:
    """`repeats`: the `response_id` of the row that stayed, or the `prompt_id` of the prompt.

    Of several, it is the most similar one, and of those the first. The table has rows as the step
    had them, in order and in whole groups.
    """
    name = "response_id" if operator.unit == "response" else "prompt_id"
    digest = operator.digest(table)
    compared_N = np.asarray(digest["key"].is_valid())
    dropped_N = np.asarray(pc.is_valid(reasons))
    kept_N = operator.as_first(_kept_instead(operator, digest, compared_N, dropped_N), digest)
    ids = flat(table[name].cast(pa.string()))
    return {"repeats": ids.take(pa.array(kept_N, mask=kept_N < 0))}


def _kept_instead(
    operator: ExactDeduplicator | MinhashDeduplicator,
    digest: pa.Table,
    compared_N: Array,
    dropped_N: Array,
) -> Array:
    """int64[N]: the row that stayed, -1 where there is none."""
    keys_N = np.asarray(pc.fill_null(digest["key"], 0))
    rows = np.flatnonzero(compared_N)
    order = rows[np.argsort(keys_N[rows], kind="stable")]
    found_N, left = np.full(len(keys_N), -1), _MOST_PAIRS
    packed = digest["signature"].to_pylist() if isinstance(operator, MinhashDeduplicator) else ()
    values = b"".join(each or bytes(PERMUTATIONS) for each in packed)
    signatures = np.frombuffer(values, np.uint8).reshape(-1, PERMUTATIONS)
    for same in np.split(order, np.flatnonzero(np.diff(keys_N[order])) + 1):
        dropped, kept = same[dropped_N[same]], same[~dropped_N[same]]
        left -= len(dropped) * len(kept)
        for row in dropped if left >= 0 else ():
            earlier = kept[kept < row]
            if not len(earlier):
                continue
            if not isinstance(operator, MinhashDeduplicator):
                found_N[row] = earlier[0]  # Of equal texts the first stays, and no other.
                continue
            similar = jaccard(signatures[np.full(len(earlier), row)], signatures[earlier])
            if similar.max() >= operator.threshold:
                found_N[row] = earlier[similar.argmax()]
    return found_N


_EVIDENCE: Mapping[type, Callable[[Any, pa.Table, Any], Mapping[str, pa.Array]]] = {
    MathVerifyMapper: lambda _, table, reasons: answer_evidence(table),
    _KeepsRawAnswers: lambda operator, table, _: judge_evidence(operator, table),
    DiversityRewardMapper: lambda operator, table, _: diversity_evidence(operator, table),
    ExactDeduplicator: repeat_evidence,
    MinhashDeduplicator: repeat_evidence,
    NgramDecontaminationFilter: lambda own, table, _: {"question": own.questions(table)},
}


def evidence(step: Step, table: pa.Table, reasons: Any) -> Mapping[str, pa.Array]:
    for kind, found in _EVIDENCE.items():
        if isinstance(step.operator, kind):
            return found(step.operator, table, reasons)
    return {}


def evidence_of_rows(parts: Sequence[AppliedStep], rows: Sequence[Array]) -> Mapping[str, pa.Array]:
    """The evidence of some rows that a step had, those of each part after another.

    The rows are those that the step is about, ascending, with whatever they are compared with.
    """
    step = parts[0].step
    # A question of an evaluation set may be in a row of any kind.
    ids = [] if isinstance(step.operator, NgramDecontaminationFilter) else ["response_id"]
    needed = {*ids, *step.operator.reads()}
    there = all(needed <= {*each.before.column_names} for each in parts)
    if not there or not isinstance(step.operator, tuple(_EVIDENCE)):
        return {}
    tables, reasons = list[pa.Table](), list[pa.Array]()
    for each, own in zip(parts, rows, strict=True):
        tables.append(seen_by(each, own))
        why = each.result.change.reasons
        none = pa.nulls(len(own), pa.string())
        reasons.append(none if why is None else flat(why).take(pa.array(own)).cast(pa.string()))
    table = pa.concat_tables(tables, promote_options="permissive")
    return evidence(step, table, pa.concat_arrays(reasons)) if table.num_rows else {}


def seen_by(applied: AppliedStep, rows: Array) -> pa.Table:
    """The ids of some rows that a step had, and what it reads."""
    names = [name for name in IDS if name in applied.before.column_names]
    wanted = dict.fromkeys((*names, *applied.step.operator.reads()))
    return applied.before.select(wanted).take(pa.array(rows))
