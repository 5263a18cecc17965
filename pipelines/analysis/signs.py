"""The signs of reward hacking of a stored run.

stored run ──sign_rows──> numbers of rows ──sign_tests──> p-values ──holm──> alarms
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ...operators.columns import is_text, right_and_wrong
from ...operators.compute import pc
from ...operators.groups import Array, Groups, hash_each, mix
from ...operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from ...operators.text.tokens import Tokens, blocks, shingles, texts_of, tokens_of
from ..engine.frame import Frame
from .figures import column_values, component_advantages
from .rows import RowTable, row_table, stored_rows
from .sign_tests import SignResult, SignRows, signs_of, with_alarms
from .stored import Stored, StoredSet

# --- Sign rows ------------------------------------------------------------------------
# What the signs of reward hacking need of the rows of stored runs, of a sample of their groups.

MOST_GROUPS = 2_000
"""Groups of a set, or of all sets of a kind, that are looked at: a seeded sample of whole ones."""
NGRAM = 8
"""Words of the response in a row that count as an echo where the prompt has them, too."""
_VERIFICATION = "verification"
_COLUMNS = ("right", "advantages", "lengths", "boxes", "echo")


def sign_rows(sets: Sequence[StoredSet], name: str, seed: int) -> SignRows:
    """What the signs need of the rows of sets, of `MOST_GROUPS` groups at most."""
    pieces: list[_SetPiece] = []
    for each in sets:
        salt = xxhash.xxh3_64_intdigest(each.name.encode(), seed & 0xFFFFFFFFFFFFFFFF)
        for base, rows in _parts(each):
            piece = _piece(each, base, rows, salt, _limit(pieces))
            if len(piece.ids):
                pieces.append(piece)
    limit = _limit(pieces)
    return _joined(name, [piece.below(limit) for piece in pieces])


class _SetPiece(NamedTuple):
    """Rows of some groups of a part; axes _N and, one value for each group, _G."""

    ids: pa.Array
    codes_N: Array
    hashes_G: Array
    step: int
    verdicts: pa.Array
    columns: Mapping[str, Array]
    components: Mapping[str, Array]
    parts: Mapping[str, Array]

    def below(self, limit: int) -> _SetPiece:
        """The groups whose hash is `limit` or less."""
        kept_G = self.hashes_G <= limit
        kept_N = kept_G[self.codes_N]

        def of(columns: Mapping[str, Array]) -> dict[str, Array]:
            return {name: values_N[kept_N] for name, values_N in columns.items()}

        return self._replace(
            ids=self.ids.filter(pa.array(kept_N)),
            codes_N=(np.cumsum(kept_G) - 1)[self.codes_N[kept_N]],
            hashes_G=self.hashes_G[kept_G],
            verdicts=self.verdicts.filter(pa.array(kept_N)),
            columns=of(self.columns),
            components=of(self.components),
            parts=of(self.parts),
        )


def _parts(one: StoredSet) -> Iterator[tuple[Frame, RowTable]]:
    """Rows as sampled, and what became of these: not of those that a step added."""
    if one.parts == 1 or one.incomplete:
        yield _sampled(one.base(0), stored_rows(one))
        return
    for part in range(one.parts):
        base = one.base(part)
        yield _sampled(base, row_table(base, one.applied(part)))


def _sampled(base: Frame, rows: RowTable) -> tuple[Frame, RowTable]:
    if rows.table.num_rows == base.num_rows:
        return base, rows
    table = rows.table.slice(0, base.num_rows)
    return base, RowTable(table, Groups.of(table), rows.components)


def _limit(pieces: Sequence[_SetPiece]) -> int:
    """The hash of the last group that belongs to the sample."""
    hashes = [piece.hashes_G for piece in pieces]
    if sum(map(len, hashes)) <= MOST_GROUPS:
        return 0xFFFFFFFFFFFFFFFF
    return int(np.sort(np.concatenate(hashes))[MOST_GROUPS - 1])


def _piece(one: StoredSet, base: Frame, rows: RowTable, salt: int, limit: int) -> _SetPiece:
    """What is needed of the groups of a part whose hash is at most `limit`."""
    table, groups = rows.table, rows.groups
    hashes_G = hash_each(table["prompt_id"].take(pa.array(groups.starts_G)), seed=salt)
    if table["prompt_id"].null_count:  # Groups without an id have their own numbers.
        hashes_G = mix(hashes_G + np.arange(len(hashes_G), dtype=np.uint64))
    within = np.sort(hashes_G)[:MOST_GROUPS][-1:]
    kept_G = hashes_G <= min(limit, int(within[0]) if len(within) else 0)
    at_N = np.flatnonzero(kept_G[groups.codes_N])
    codes_N = (np.cumsum(kept_G) - 1)[groups.codes_N[at_N]]
    advantages_N = np.where(rows.kept_N, column_values(table, "advantage"), np.nan)
    characters_N, boxes_N, echo_N = _of_texts(base, at_N, codes_N)
    lengths_N = np.array(pc.fill_null(table["tokens"].cast(pa.float64()), np.nan))[at_N]
    if rows.unit == "characters":
        lengths_N = characters_N
    verdicts, right_N = _verdicts(one, table)
    columns = {
        "right": right_N[at_N],
        "advantages": advantages_N[at_N],
        "lengths": lengths_N,
        "boxes": boxes_N,
        "echo": echo_N,
    }
    return _SetPiece(
        table["response_id"].combine_chunks().take(pa.array(at_N)),
        codes_N,
        hashes_G[kept_G],
        one.training_step or 0,
        verdicts.take(pa.array(at_N)),
        columns,
        {name: column_values(table, f"reward_{name}")[at_N] for name in rows.components},
        {name: values_N[at_N] for name, values_N in component_advantages(rows).items()},
    )


def _verdicts(one: StoredSet, table: pa.Table) -> tuple[pa.Array, Array]:
    """A word for each row, and 1 right, 0 wrong, NaN ungraded; judgements by their reward."""
    words = table["verdict"].combine_chunks().cast(pa.string())
    right_N, wrong_N = right_and_wrong(table["verdict"])
    found_N = np.where(right_N, 1.0, np.where(wrong_N, 0.0, np.nan))
    judges = [
        each.operator for each in one.steps if isinstance(each.operator, JudgementRewardMapper)
    ]
    if judges and f"reward_{_VERIFICATION}" in table.column_names:
        reward_N = column_values(table, f"reward_{_VERIFICATION}")
        judged_N = np.isfinite(reward_N)
        right_N = reward_N == judges[-1].right
        found_N = np.where(judged_N, right_N, found_N)
        judged = pa.array(np.where(right_N, "judged right", "judged wrong"))
        words = pc.if_else(pa.array(judged_N), judged, words)
    return pc.fill_null(words, ""), found_N


def _of_texts(base: Frame, at_N: Array, codes_N: Array) -> tuple[Array, Array, Array]:
    """Characters of each response, whether it has two boxes, and its share that is an echo."""
    nothing = np.full(len(at_N), np.nan)
    if "response" not in base.column_names or not is_text(base.schema.field("response").type):
        return nothing, nothing, nothing
    names = [name for name in ("prompt", "response") if name in base.column_names]
    table = base.select(names).take(pa.array(at_N))
    response = texts_of(table["response"])
    known_N = np.asarray(response.is_valid())
    characters = pc.utf8_length(response).cast(pa.float64())
    characters_N = np.array(pc.fill_null(characters, np.nan))
    boxes = pc.fill_null(pc.count_substring(response, "\\boxed"), 0)
    boxes_N = np.where(known_N, np.asarray(boxes) > 1, np.nan)
    if "prompt" not in names:
        return characters_N, boxes_N, nothing
    first_G = np.flatnonzero(np.diff(codes_N, prepend=-1))
    prompts = texts_of(table["prompt"].take(pa.array(first_G)))
    echo_N = np.where(known_N, echoes(prompts, response, codes_N), np.nan)
    return characters_N, boxes_N, echo_N


def echoes(prompts: pa.Array, responses: pa.Array, codes_N: Array) -> Array:
    """The share of each response's runs of 8 words that its prompt has, too, float64[N].

    A word is a token of `operators/text/tokens.py`. A text of fewer words is one run.
    """
    own = [keys for keys, _ in _keys(prompts, np.arange(len(prompts)))]
    known = np.unique(np.concatenate(own)) if own else np.zeros(0, np.uint64)
    shares = [np.zeros(0)]
    for keys, offsets_N1 in _keys(responses, codes_N):
        hits = np.concatenate([[0], np.cumsum(np.isin(keys, known))])
        shares.append(np.diff(hits[offsets_N1]) / np.diff(offsets_N1))
    return np.concatenate(shares)


def _keys(texts: pa.Array, codes_N: Array) -> Iterator[Tokens]:
    """Runs of words, different for different prompts, block by block."""
    start = 0
    for block in blocks(texts):
        runs = shingles(tokens_of(block), NGRAM)
        sizes_N = np.diff(runs.offsets_N1)
        codes = codes_N[start : start + len(sizes_N)].astype(np.uint64)
        start += len(sizes_N)
        yield Tokens(
            mix(runs.hashes_T + mix(np.repeat(codes + np.uint64(1), sizes_N))), runs.offsets_N1
        )


def _joined(name: str, pieces: Sequence[_SetPiece]) -> SignRows:
    sizes = [len(piece.ids) for piece in pieces]
    firsts = np.cumsum([0, *(len(piece.hashes_G) for piece in pieces)])
    words = pa.chunked_array([piece.verdicts for piece in pieces], pa.string())
    codes = words.combine_chunks().dictionary_encode().indices

    def joined(arrays: Sequence[Array]) -> Array:
        return np.concatenate([np.zeros(0), *arrays])

    def of(columns: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        names = dict.fromkeys(each for piece in columns for each in piece)
        pairs = list(zip(columns, sizes, strict=True))
        return {
            each: joined([piece.get(each, np.full(size, np.nan)) for piece, size in pairs])
            for each in names
        }

    columns = of([piece.columns for piece in pieces])
    right_N, advantages_N, lengths_N, boxes_N, echo_N = (
        columns.get(each, np.zeros(0)) for each in _COLUMNS
    )
    groups = [piece.codes_N + first for piece, first in zip(pieces, firsts, strict=False)]
    return SignRows(
        name,
        [each for piece in pieces for each in piece.ids.to_pylist()],
        np.repeat(np.array([piece.step for piece in pieces], np.int64), sizes),
        joined(groups).astype(np.int64),
        np.asarray(codes).astype(np.int64),
        right_N,
        advantages_N,
        lengths_N,
        of([piece.components for piece in pieces]),
        of([piece.parts for piece in pieces]),
        boxes_N,
        echo_N,
    )


# --- The signs of reward hacking of a stored run --------------------------------------

_VALIDATION = re.compile(r"rejuice/validation/[^/]+/mean@\d+")
_VALIDATION_OF_VERL = re.compile(r"val-core/.*/(?:acc|reward)/mean@\d+")


def audit_signs(stored: Stored, seed: int) -> tuple[SignResult, ...]:
    """The signs of reward hacking of a stored run; alarms are corrected over all of them.

    The answers of all steps of a training run are taken as one set, and so are its judgements.

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
