"""The policy's judgements of its own answers, joined to the responses that they judge.

    task      response_id  prompt_id  extracted_answer  judged_response_id  judgement  judged_right
    generate  a            p          7                                                0.5
    generate  b            p          7                                                0.5 as a
    generate  c            p          8                                                null
    verify    d            q                            a                   Yes
    verify    e            q                            a                   No
    verify    f            q                            a                   null

b has the same answer as a, c is not judged, and f is malformed.

Verification rows are separate groups and may be in another chunk than the response that they judge.
So the operators that need judgements have dataset scope, and keep only `digest` of each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from .arrow_compute import pc
from .columns import of_task
from .groups import Array, group_starts, hash_each, scoped_keys
from .operator import Columns

Mode = Literal["answer", "response"]

JUDGED_COLUMN: Mapping[Mode, str] = {"response": "response", "answer": "extracted_answer"}
"""The column with the text that is judged in each mode."""

_OTHER, _GENERATED, _NO, _YES = range(4)


def read(mode: Mode) -> Columns:
    ids = ("prompt_id", "task", "response_id", "judged_response_id")
    return (*ids, "judgement", *(JUDGED_COLUMN[text] for text in _texts(mode)))


def _texts(mode: Mode) -> tuple[Mode, ...]:
    return ("response", "answer") if mode == "response" else ("answer",)


def digest(table: pa.Table, mode: Mode) -> pa.Table:
    """The digest of whole groups, row by row: 17 bytes each, 25 with `mode: response`.

    Returns:
        `role`: a generated response, a judgement Yes, a judgement No, or none of these.
        `about`: hash of the row's own id or, for a judgement, of the id of the judged response.
        `answer`, and with `mode: response` also `response`: a hash of the text and of the prompt.
        `starts`: whether the row is the first of its group.
    """
    generated_N, judging_N = of_task(table, "generate"), of_task(table, "verify")
    # A judgement that is neither Yes nor No is malformed and does not count.
    yes_N, no_N = (judging_N & _equal(table["judgement"], word) for word in ("Yes", "No"))
    role_N = np.select([generated_N, no_N, yes_N], [_GENERATED, _NO, _YES], _OTHER)
    own, judged = (table[name].cast(pa.string()) for name in ("response_id", "judged_response_id"))
    ids = pc.if_else(pa.array(generated_N), own, judged)
    columns = {
        "role": pa.array(role_N, pa.int8()),
        "about": pa.array(hash_each(ids), pa.uint64(), mask=np.asarray(ids.is_null())),
    }
    for name in _texts(mode):
        texts = same_text(table[JUDGED_COLUMN[name]])
        usable_N = np.asarray(pc.fill_null(pc.not_equal(texts, ""), False)) & generated_N
        keys_N = scoped_keys(hash_each(texts), table["prompt_id"])
        columns[name] = pa.array(keys_N, pa.uint64(), mask=~usable_N)
    return pa.table({**columns, "starts": group_starts(table)})


def generated(digests: pa.Table) -> Array:
    generated_N: Array = np.asarray(digests["role"]) == _GENERATED
    return generated_N


class Judged(NamedTuple):
    """The well-formed judgements of each response."""

    count_N: Array  # how many there are, int64[N]
    yes_N: Array  # how many of them are Yes, int64[N]

    def right_N(self, prior: float = 0.0, none: float = np.nan) -> Array:
        """The share of Yes after adding `prior` judgements of each kind, float64[N]; `none` where
        there is no judgement at all."""
        count_N = self.count_N + 2 * prior
        share_N = np.full(len(count_N), none)
        np.divide(self.yes_N + prior, count_N, out=share_N, where=count_N > 0)
        return share_N


def judged(digests: pa.Table) -> Judged:
    """The judgements of each response.

    A response without its own takes those of the responses to its prompt with the same text (with
    `mode: response`), then those of the responses with the same answer. Rows that are not of `task:
    generate` have none.
    """
    generated_N, role_N = generated(digests), np.asarray(digests["role"])
    ids_N, named_N = _keys(digests["about"])
    judging_N = named_N & ((role_N == _YES) | (role_N == _NO))
    wanted_N = named_N & generated_N
    own_N2 = np.zeros((len(role_N), 2), np.int64)
    ballots_M2 = np.stack((np.ones(judging_N.sum(), np.int64), role_N[judging_N] == _YES), axis=1)
    own_N2[wanted_N] = _sums(ids_N[judging_N], ballots_M2, ids_N[wanted_N])
    found_N2 = own_N2.copy()
    for name in (text for text in _texts("response") if text in digests.column_names):
        keys_N, usable_N = _keys(digests[name])
        known_N = usable_N & (own_N2[:, 0] > 0)
        wanted_N = usable_N & (found_N2[:, 0] == 0)
        found_N2[wanted_N] = _sums(keys_N[known_N], own_N2[known_N], keys_N[wanted_N])
    return Judged(found_N2[:, 0], found_N2[:, 1])


def _sums(keys_M: Array, values_M2: Array, wanted_K: Array) -> Array:
    """Sums of the values of each wanted key, int64[K, 2]; 0 where it has none."""
    if len(keys_M) == 0:
        return np.zeros((len(wanted_K), 2), np.int64)
    keys_G, codes_M = np.unique(keys_M, return_inverse=True)
    columns = [np.bincount(codes_M, each_M) for each_M in values_M2.T]
    sums_G2 = np.stack(columns, axis=1).astype(np.int64)
    at_K = np.minimum(np.searchsorted(keys_G, wanted_K), len(keys_G) - 1)
    return np.where((keys_G[at_K] == wanted_K)[:, None], sums_G2[at_K], 0)


def _keys(column: pa.ChunkedArray) -> tuple[Array, Array]:
    return np.asarray(pc.fill_null(column, 0)), np.asarray(column.is_valid())


def _equal(column: pa.ChunkedArray, word: str) -> Array:
    return np.asarray(pc.fill_null(pc.equal(column.cast(pa.string()), word), False))


def same_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts with normalised white space, string[N], so that they differ only in their words."""
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.replace_substring_regex(texts, r"\s+", " ")
