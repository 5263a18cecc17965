"""What the policy thinks of its answers: its judgements, joined to the responses they are about.

    task      response_id  prompt_id  answer  judged_response_id  judgement  judged_right
    generate  a            p          7                                      0.5
    generate  b            p          7                                      0.5   as a: same answer
    generate  c            p          8                                      null  not judged
    verify    d            q                  a                   Yes
    verify    e            q                  a                   No
    verify    f            q                  a                   null             malformed

Verification rows are groups of their own and may be in another chunk than what they judge. So the
operators that need this are of dataset scope, and keep of each row only what `digest` gives.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import of_task
from .deduplicator.units import group_starts, scoped_keys
from .groups import Array, Groups, hash_each
from .operator import Columns

Mode = Literal["answer", "response"]

_TEXTS = ("response", "answer")
_OTHER, _GENERATED, _NO, _YES = range(4)


def read(mode: Mode) -> Columns:
    """Columns that `digest` needs."""
    columns = ("prompt_id", "task", "response_id", "answer", "judged_response_id", "judgement")
    return columns if mode == "answer" else (*columns, mode)


def digest(table: pa.Table, mode: Mode) -> pa.Table:
    """What is kept of whole groups, one row for each row: 17 bytes, 25 with `mode: response`.

    Returns:
        `role`: generated, judged to be right, judged to be wrong, or none of these.
        `about`: hash of the row's own id or, of a judgement, of the judged response's.
        `answer`, and with `mode: response` also `response`: a hash of the text and of the prompt.
        `starts`: the row is the first of its group.
    """
    generated_N, judging_N = of_task(table, "generate"), of_task(table, "verify")
    # A judgement that is neither is malformed, and says nothing about the answer.
    yes_N, no_N = (judging_N & _equal(table["judgement"], word) for word in ("Yes", "No"))
    role_N = np.select([generated_N, no_N, yes_N], [_GENERATED, _NO, _YES], _OTHER)
    own, judged = (table[name].cast(pa.string()) for name in ("response_id", "judged_response_id"))
    ids = pc.if_else(pa.array(generated_N), own, judged)
    columns = {
        "role": pa.array(role_N, pa.int8()),
        "about": pa.array(hash_each(ids), pa.uint64(), mask=np.asarray(ids.is_null())),
    }
    for name in _TEXTS if mode == "response" else ("answer",):
        texts = same_text(table[name])
        usable_N = np.asarray(pc.fill_null(pc.not_equal(texts, ""), False)) & generated_N
        keys_N = scoped_keys(hash_each(texts), table["prompt_id"])
        columns[name] = pa.array(keys_N, pa.uint64(), mask=~usable_N)
    return pa.table({**columns, "starts": group_starts(table)})


def generated(digests: pa.Table) -> Array:
    """Which rows are responses of `task: generate`, bool[N]."""
    generated_N: Array = np.asarray(digests["role"]) == _GENERATED
    return generated_N


def judged_right(digests: pa.Table) -> Array:
    """The share of Yes among the well-formed judgements of each response, float64[N].

    A response without one takes the mean over the judged ones of its prompt that have the same
    text of what was judged, then over those that have the same answer. nan: nothing is known, or
    the row is no response of `task: generate`.

    Args:
        digests: what `digest` gives, of all rows.
    """
    generated_N, role_N = generated(digests), np.asarray(digests["role"])
    ids_N, named_N = _keys(digests["about"])
    judging_N = named_N & ((role_N == _YES) | (role_N == _NO))
    wanted_N = named_N & generated_N
    own_N = np.full(len(role_N), np.nan)
    own_N[wanted_N] = _means(ids_N[judging_N], role_N[judging_N] == _YES, ids_N[wanted_N])
    right_N, judged_N = own_N.copy(), ~np.isnan(own_N)
    for name in (text for text in _TEXTS if text in digests.column_names):
        keys_N, usable_N = _keys(digests[name])
        known_N = usable_N & judged_N
        wanted_N = usable_N & np.isnan(right_N)
        right_N[wanted_N] = _means(keys_N[known_N], own_N[known_N], keys_N[wanted_N])
    return right_N


def _means(keys_M: Array, values_M: Array, wanted_K: Array) -> Array:
    """Mean of the values that stand under each wanted key, float64[K]; nan where none does."""
    if len(keys_M) == 0:
        return np.full(len(wanted_K), np.nan)
    order_M = np.argsort(keys_M, kind="stable")
    keys_M = keys_M[order_M]
    groups = Groups.of_column(pa.array(keys_M))
    keys_G, mean_G = keys_M[groups.starts_G], groups.mean(values_M[order_M])
    at_K = np.minimum(np.searchsorted(keys_G, wanted_K), len(keys_G) - 1)
    return np.where(keys_G[at_K] == wanted_K, mean_G[at_K], np.nan)


def _keys(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Keys, uint64[N], and which of them there are, bool[N]."""
    return np.asarray(pc.fill_null(column, 0)), np.asarray(column.is_valid())


def _equal(column: pa.ChunkedArray, word: str) -> Array:
    return np.asarray(pc.fill_null(pc.equal(column.cast(pa.string()), word), False))


def same_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that are the same wherever they differ in white space only, string[N]."""
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.replace_substring_regex(texts, r"\s+", " ")
