"""Keep one of texts that mean the same, by their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import flat, is_list, numbers
from ..errors import DataError, RecipeError
from ..groups import Array, group_starts, scoped_keys
from ..operator import Columns, Filter, Kind, Scope, drop
from ..text.embedding import EmbeddingFields, usable_texts
from ..text.tokens import texts_of
from .compared_units import ComparedUnit, Within, checked_unit, repeats, shard

# --- Which vectors are near one that stays ---------------------------------------------

_BLOCK = 2048
"""Vectors that are compared with those that stay at once."""
_EXACT = 1 << 15
"""Up to so many vectors, each is compared with each that stays."""
_PROBES = 24
"""Clusters that are searched, of 2 sqrt(M)."""


def near_kept(vectors_MD: Array, threshold: float) -> Array:
    """Return which vectors are near an earlier one that itself stays, bool[M].

    Up to 32,768 vectors are compared exactly. More are compared with those of the nearest clusters
    (faiss, an inverted file), by which a few near ones are missed; what is found is exact up to
    rounding to half precision.

    Args:
        vectors_MD: float16[M, D] of unit norm, the most wanted first.
        threshold: smallest cosine of near ones.

    Raises:
        RecipeError: there are more, and faiss is not installed.
    """
    kept = _Exact() if len(vectors_MD) <= _EXACT else _Clustered(vectors_MD)
    dropped_M = np.zeros(len(vectors_MD), bool)
    for at in range(0, len(vectors_MD), _BLOCK):
        block_BD = vectors_MD[at : at + _BLOCK].astype(np.float32)
        dropped_B = kept.best(block_BD) >= threshold
        near_BB = np.tril(block_BD @ block_BD.T >= threshold, -1)
        # One after the other: whether a row stays depends on whether the earlier ones do.
        for row in np.flatnonzero(near_BB.any(axis=1) & ~dropped_B):
            dropped_B[row] = (near_BB[row, :row] & ~dropped_B[:row]).any()
        kept.add(block_BD[~dropped_B])
        dropped_M[at : at + _BLOCK] = dropped_B
    return dropped_M


class _Exact:
    """Vectors that stay, each of which is compared."""

    def __init__(self) -> None:
        self._parts: list[Array] = []

    def best(self, block_BD: Array) -> Array:
        """Return the highest cosine of each with one that stays, float32[B]; -1 without any."""
        best_B = np.full(len(block_BD), -1, np.float32)
        for part in self._parts:
            np.maximum(best_B, (block_BD @ part.T).max(axis=1, initial=-1), out=best_B)
        return best_B

    def add(self, vectors: Array) -> None:
        self._parts.append(vectors)


class _Clustered:
    """Vectors that stay, by cluster."""

    def __init__(self, vectors_MD: Array) -> None:
        try:
            import faiss
        except ImportError as error:
            found = (
                f"more than {_EXACT} texts are compared by faiss, which does not import: {error}"
            )
            raise RecipeError(found, "pip install 'rejuice[semantic]'") from error
        m, d = vectors_MD.shape
        lists = 2 * int(np.sqrt(m))
        drawn = np.random.default_rng(0).choice(m, min(m, 40 * lists), replace=False)
        # With several threads, sums and so the clusters would differ by their number.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            self._quantizer = faiss.IndexFlatIP(d)
            half = faiss.ScalarQuantizer.QT_fp16
            inner = faiss.METRIC_INNER_PRODUCT
            self._index = faiss.IndexIVFScalarQuantizer(self._quantizer, d, lists, half, inner)
            self._index.by_residual = False
            self._index.cp.niter = 8
            self._index.cp.spherical = True
            self._index.train(vectors_MD[np.sort(drawn)].astype(np.float32))
        finally:
            faiss.omp_set_num_threads(threads)
        self._index.nprobe = _PROBES

    def best(self, block_BD: Array) -> Array:
        """Return the highest cosine of each with one that stays; at most 0 without any."""
        if not self._index.ntotal:
            return np.zeros(len(block_BD), np.float32)
        cosine_B1, _ = self._index.search(block_BD, 1)
        best_B: Array = cosine_B1[:, 0]
        return best_B

    def add(self, vectors: Array) -> None:
        self._index.add(vectors)


# --- Keep one of texts that mean the same ----------------------------------------------


class SemanticDeduplicator(EmbeddingFields, Filter):
    """Drop responses, or prompts, whose embedding is near that of one that stays.

    Two texts repeat each other if the cosine of their embeddings is at least `threshold`. `keep`
    says which stays: the first, the longest, or that with the highest value in a column. A row is
    dropped only for one that stays, never through a chain of rows that each differ a little. Nulls
    and blank texts are not compared and stay.

    Up to 32,768 texts are compared each with each; more by clusters, with faiss
    (`pip install 'rejuice[semantic]'`). Until all are decided, two bytes for each dimension are
    kept on disk and in memory: 0.8 GB for a million texts of 384.

    Source: Abbas et al., SemDeDup, 2023, https://arxiv.org/abs/2303.09540.

    Raises:
        RecipeError: the model or a library is missing.
        DataError: stored vectors differ in length, or one is zero or not finite.
    """

    unit: ComparedUnit = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt that means what
    another one does, and leaves the responses within a prompt alone."""
    column: str | None = None
    """The column to compare, of strings or of messages; by default `response` or `prompt`, as
    `unit` says. For prompts, the first row of each prompt is compared."""
    within: Within | None = None
    """Compare a response with those to the same prompt (`prompt`, the default) or with those to
    all prompts (`all`). Prompts are always compared with all others."""
    threshold: float = Field(0.95, gt=0, le=1)
    """Smallest cosine of texts that mean the same; it depends on the model."""
    keep: Literal["first", "longest", "highest"] = "first"
    """Which of several stays; of equal ones the first."""
    by: str | None = None
    """For `keep: highest`, the column of numbers, such as `reward`; rows without one come last."""
    vectors: str | None = None
    """A column with the embeddings, lists of numbers; then no model is needed."""

    kind: ClassVar[Kind] = Kind.DEDUPLICATOR
    scope: ClassVar[Scope] = Scope.DATASET
    depends_on: ClassVar[tuple[str, ...]] = (
        "faiss-cpu", "sentence-transformers", "torch", "transformers",
    )  # fmt: skip
    reasons: ClassVar[Mapping[str, str]] = {
        "same_meaning": "a response that stays means the same",
        "same_meaning_prompt": "a prompt that stays means the same",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        checked_unit(self.unit, self.column, self.within)
        if (self.keep == "highest") != (self.by is not None):
            raise ValueError("keep highest needs by, the column of numbers, and nothing else does")
        if self.vectors is not None and self.model is not None:
            raise ValueError("vectors are embeddings already: leave out model")
        return self

    def reads(self) -> Columns:
        alone = self.unit == "response" and self.within == "all"
        named = (self.column or self.unit, self.by, self.vectors)
        return (*(() if alone else ("prompt_id",)), *filter(None, named))

    def drops_within_groups(self) -> bool:
        return self.unit == "response"

    def digest(self, table: pa.Table) -> pa.Table:
        """Vector, key and order of each row: only rows with the same key are compared."""
        texts = texts_of(table[self.column or self.unit])
        compared_N = usable_texts(texts)
        if self.vectors is not None:
            compared_N &= np.asarray(table[self.vectors].is_valid())
        keys_N = np.zeros(len(texts), np.uint64)
        if self.unit == "response" and self.within != "all":
            keys_N = scoped_keys(keys_N, table["prompt_id"])
        columns: dict[str, Any] = {
            "key": pa.array(keys_N, mask=~compared_N),
            "vector": self._embedded(table, texts, compared_N),
            "order": pa.array(self._order(table, texts)),
        }
        if self.unit == "prompt":
            columns["starts"] = group_starts(table)
        return pa.table(columns)

    def _embedded(self, table: pa.Table, texts: pa.Array, compared_N: Array) -> pa.Array:
        """Return float16 vectors of unit norm as bytes, null where nothing is compared."""
        rows = pa.array(np.flatnonzero(compared_N))
        if self.vectors is not None:
            found = _stored(table, self.vectors, rows)
        elif len(rows):
            found = self.embedder()(texts.take(rows).to_pylist())
        else:
            found = np.zeros((0, 1), np.float32)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > 0)).all():
            raise DataError("an embedding is zero or not finite", "correct it, or make it null")
        unit = (found / norms).astype(np.float16)
        place_N = np.full(len(texts), -1)
        place_N[compared_N] = np.arange(len(rows))
        raw = pa.array([each.tobytes() for each in unit], pa.binary())
        return raw.take(pa.array(place_N, mask=~compared_N))

    def _order(self, table: pa.Table, texts: pa.Array) -> Array:
        """Return what decides which row stays, the lowest first, float64[N]."""
        if self.by is not None:
            return np.nan_to_num(-numbers(table, self.by), nan=np.inf)
        if self.keep == "longest":
            return -np.asarray(pc.utf8_length(texts).fill_null(0), np.float64)
        return np.zeros(len(texts))

    def shard(self, digest: pa.Table) -> Array:
        return shard(digest, self.unit)

    def decide(self, table: pa.Table) -> pa.Array:
        keys_N = np.asarray(pc.fill_null(table["key"], 0))
        order_N, vectors = np.asarray(table["order"]), flat(table["vector"])

        def find(rows: Array) -> Array:
            # Those with the same key together, in each the most wanted first.
            order = np.lexsort((rows, order_N[rows], keys_N[rows]))
            starts = np.flatnonzero(np.diff(keys_N[rows[order]])) + 1
            dropped_M = np.zeros(len(rows), bool)
            for own in np.split(order, starts):
                if len(own) > 1:
                    dropped_M[own] = near_kept(_matrix(vectors, rows[own]), self.threshold)
            return dropped_M

        slug = "same_meaning" if self.unit == "response" else "same_meaning_prompt"
        return drop({slug: repeats(table, self.unit, find)})


def _stored(table: pa.Table, name: str, rows: pa.Array) -> Array:
    """Return the vectors of some rows, float32[R, D].

    Raises:
        DataError: they are no lists of numbers, or differ in length.
    """
    lists = flat(table[name])
    if pa.types.is_fixed_size_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    if not is_list(lists.type):
        found = f"column '{name}' is {lists.type}"
        raise DataError(found, "give a column of embeddings, which are lists of numbers")
    lists = lists.take(rows)
    sizes = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(sizes) > 1:
        found = f"vectors of column '{name}' have {min(sizes)} to {max(sizes)} numbers"
        raise DataError(found, "give embeddings of one model")
    values: Array = lists.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
    return values.reshape(len(rows), sizes[0] if sizes else 1)


def _matrix(vectors: pa.Array, rows: Array) -> Array:
    """Return float16[R, D] of some vectors, which are kept as bytes."""
    taken = vectors.take(pa.array(rows))
    raw = b"".join(taken.to_pylist())
    if len(raw) % len(rows):
        raise DataError("vectors differ in length", "give embeddings of one model")
    return np.frombuffer(raw, np.float16).reshape(len(rows), -1)
