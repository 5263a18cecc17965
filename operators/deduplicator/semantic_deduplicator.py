"""Keep one of texts that mean the same, by their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import flat, is_list, numbers
from ..errors import DataError, needs
from ..groups import Array
from ..operator import Columns
from ..text.embedding import EmbeddingFields, usable_texts
from ..text.tokens import texts_of
from .text_deduplicator import TextDeduplicator, take_rows

# --- Which vectors are near one that stays ---------------------------------------------

_BLOCK = 2048  # vectors that are compared with those that stay at once
_EXACT = 1 << 15  # up to so many vectors, each is compared with each that stays
_PROBES = 24  # clusters that are searched, of 2 sqrt(M)
_ROUNDING = 1e-5  # what rounding to half precision may take from the cosine of equal texts


class Vectors:
    """Vectors of N rows in parts, such as mapped record batches, which are never joined; of
    large_binary, float16 of one length each, null where there is none."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        sizes = pc.unique(pc.binary_length(column)).drop_null().to_pylist()
        if len(sizes) > 1:
            found = f"embeddings have {min(sizes) // 2} to {max(sizes) // 2} numbers"
            raise DataError(found, "give embeddings of one model")
        self.dimensions = sizes[0] // 2 if sizes else 1
        self._place_N = np.cumsum(np.asarray(column.is_valid())) - 1  # of rows that have one
        self._parts = list[Array]()
        for chunk in column.chunks:
            if n := len(chunk) - chunk.null_count:  # Those of null rows take no bytes.
                _, offsets, data = chunk.buffers()
                rows = slice(chunk.offset, chunk.offset + len(chunk) + 1)
                ends = np.frombuffer(offsets, np.int64)[rows]
                raw = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
                self._parts.append(raw.view(np.float16).reshape(n, -1))

    def take(self, rows: Array) -> Array:
        """float32[R, D] of unit norm."""
        taken = np.empty((len(rows), self.dimensions), np.float32)
        take_rows(self._parts, self._place_N[rows], taken)
        taken /= np.linalg.norm(taken, axis=1, keepdims=True)
        return taken


def near_kept(vectors: Vectors, rows_M: Array, threshold: float) -> Array:
    """Which rows, the most wanted first, are near one before them that itself stays, bool[M].

    Up to 32,768 rows are compared exactly. More are compared with those of the nearest clusters
    (faiss, an inverted file), by which a few near ones are missed.
    """
    near = threshold - _ROUNDING
    kept = _Exact() if len(rows_M) <= _EXACT else _Clustered(vectors, rows_M)
    dropped_M = np.zeros(len(rows_M), bool)
    for at in range(0, len(rows_M), _BLOCK):
        rows_B = rows_M[at : at + _BLOCK]
        block_BD = vectors.take(rows_B)
        dropped_B = kept.best(block_BD) >= near
        near_BB = np.tril(block_BD @ block_BD.T >= near, -1)
        # One after the other: whether a row stays depends on whether the earlier ones do.
        for row in np.flatnonzero(near_BB.any(axis=1) & ~dropped_B):
            dropped_B[row] = (near_BB[row, :row] & ~dropped_B[:row]).any()
        kept.add(block_BD[~dropped_B], rows_B[~dropped_B])
        dropped_M[at : at + _BLOCK] = dropped_B
    return dropped_M


class _Exact:
    def __init__(self) -> None:
        self._parts: list[Array] = []

    def best(self, block_BD: Array) -> Array:
        """The highest cosine of each with one that stays, float32[B]; -1 without any."""
        best_B = np.full(len(block_BD), -1, np.float32)
        for part in self._parts:
            np.maximum(best_B, (block_BD @ part.T).max(axis=1, initial=-1), out=best_B)
        return best_B

    def add(self, vectors: Array, rows: Array) -> None:
        self._parts.append(vectors)


class _Clustered:
    def __init__(self, vectors: Vectors, rows_M: Array) -> None:
        needs(f"comparing more than {_EXACT:,} texts", "rejuice[semantic]", "faiss")
        import faiss

        self._vectors, self._rows = vectors, list[Array]()
        lists = 2 * int(np.sqrt(len(rows_M)))
        drawn = np.random.default_rng(0).choice(rows_M, min(len(rows_M), 40 * lists), replace=False)
        # With several threads, sums and so the clusters would differ by their number.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            self._quantizer = faiss.IndexFlatIP(vectors.dimensions)
            self._index = faiss.IndexIVFScalarQuantizer(
                self._quantizer, vectors.dimensions, lists, faiss.ScalarQuantizer.QT_fp16,
                faiss.METRIC_INNER_PRODUCT, False,
            )  # fmt: skip
            self._index.cp.niter = 8
            self._index.cp.spherical = True
            self._index.train(vectors.take(np.sort(drawn)))
        finally:
            faiss.omp_set_num_threads(threads)
        self._index.nprobe = _PROBES

    def best(self, block_BD: Array) -> Array:
        best_B = np.full(len(block_BD), -1, np.float32)
        if self._index.ntotal:
            _, nearest_B1 = self._index.search(block_BD, 1)
            found = np.flatnonzero(nearest_B1[:, 0] >= 0)
            rows = np.concatenate(self._rows)[nearest_B1[found, 0]]
            # faiss has them in half precision, and not of unit norm.
            best_B[found] = (block_BD[found] * self._vectors.take(rows)).sum(axis=1)
        return best_B

    def add(self, vectors: Array, rows: Array) -> None:
        self._index.add(vectors)
        self._rows.append(rows)


# --- Keep one of texts that mean the same ----------------------------------------------


class SemanticDeduplicator(EmbeddingFields, TextDeduplicator):
    """Drop responses, or prompts, whose embedding is near that of one that stays.

    Two texts repeat each other if the cosine of their embeddings is at least `threshold`. `keep`
    says which stays: the first, the longest, or that with the highest value in a column. A row is
    dropped only for one that stays, never through a chain of rows that each differ a little. Nulls
    and blank texts are not compared and stay.

    Up to 32,768 texts are compared each with each; more by clusters, with faiss
    (`pip install 'rejuice[semantic]'`). Until all are decided, two bytes for each dimension are
    kept on disk, and those of texts that stay in memory.

    Source: Abbas et al., SemDeDup, 2023, https://arxiv.org/abs/2303.09540.

    Raises:
        RecipeError: the model or a library is missing.
        DataError: stored vectors differ in length, or one is zero or not finite.
    """

    unit: Literal["response", "prompt"] = "response"
    """What repeats: `response` drops rows; `prompt` drops all rows of a prompt that means what
    another one does, and leaves the responses within a prompt alone."""
    threshold: float = Field(0.95, gt=0, le=1)
    """Smallest cosine of texts that mean the same; it depends on the model."""
    keep: Literal["first", "longest", "highest"] = "first"
    """Which of several stays; of equal ones the first."""
    by: str | None = None
    """For `keep: highest`, the column of numbers, such as `reward`; rows without one come last."""
    vectors: str | None = None
    """A column with the embeddings, lists of numbers. Without it, set `backend:
    sentence_transformers` and `model`."""

    depends_on: ClassVar[tuple[str, ...]] = (
        "faiss-cpu", "sentence-transformers", "torch", "transformers",
    )  # fmt: skip
    reasons: ClassVar[Mapping[str, str]] = {
        "same_meaning": "a response that stays means the same",
        "same_meaning_prompt": "a prompt that stays means the same",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.keep == "highest") != (self.by is not None):
            raise ValueError("keep highest needs by, the column of numbers, and nothing else does")
        if (self.vectors is None) == (self.model is None):
            raise ValueError("give model, with backend: sentence_transformers, or vectors")
        return self

    def reads(self) -> Columns:
        return (*super().reads(), *filter(None, (self.by, self.vectors)))

    def digest(self, table: pa.Table) -> pa.Table:
        """Vector, key and order of each row: only rows with the same key are compared."""
        texts = texts_of(table[self.column or self.unit])
        compared_N = usable_texts(texts)
        if self.vectors is not None:
            compared_N &= np.asarray(table[self.vectors].is_valid())
        keys = self.keys(table, np.zeros(len(texts), np.uint64), compared_N)
        compared_N = np.asarray(keys["key"].is_valid())
        columns = {
            "vector": _packed(self._embedded(table, texts, compared_N), compared_N),
            "order": pa.array(self._order(table, texts)),
        }
        return pa.table(keys | columns)

    def _embedded(self, table: pa.Table, texts: pa.Array, compared_N: Array) -> Array:
        """float16[R, D] of unit norm, for the rows that are compared."""
        rows = pa.array(np.flatnonzero(compared_N))
        if not len(rows):
            return np.zeros((0, 1), np.float16)
        right = "correct it, or make it null"
        if self.vectors is not None:
            found = _stored(table, self.vectors, rows)
        else:
            found = self.embedder()(texts.take(rows).to_pylist()).astype(np.float64)
            right = "use another model, or dtype float32"
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > 0)).all():
            raise DataError("an embedding is zero or not finite", right)
        unit: Array = (found / norms).astype(np.float16)
        return unit

    def _order(self, table: pa.Table, texts: pa.Array) -> Array:
        """What decides which row stays, the lowest first, float64[N]."""
        if self.by is not None:
            return np.nan_to_num(-numbers(table, self.by), nan=np.inf)
        if self.keep == "longest":
            return -np.asarray(pc.utf8_length(texts).fill_null(0), np.float64)
        return np.zeros(len(texts))

    def decide(self, table: pa.Table) -> pa.Array:
        order_N, vectors = np.asarray(table["order"]), Vectors(table["vector"])

        def find(rows: Array, keys_M: Array) -> Array:
            # Those with the same key together, in each the most wanted first.
            order = np.lexsort((rows, order_N[rows], keys_M))
            starts = np.flatnonzero(np.diff(keys_M[order])) + 1
            dropped_M = np.zeros(len(rows), bool)
            for own in np.split(order, starts):
                if len(own) > 1:
                    dropped_M[own] = near_kept(vectors, rows[own], self.threshold)
            return dropped_M

        return self.repeats(table, "same_meaning", find)


def _packed(vectors: Array, has_N: Array) -> pa.Array:
    """As bytes, large_binary[N]; null where there is none."""
    ends_N1 = np.concatenate([[0], np.cumsum(has_N)]) * vectors.shape[1] * vectors.itemsize
    valid = pa.py_buffer(np.packbits(has_N, bitorder="little"))
    ends, values = pa.py_buffer(ends_N1), pa.py_buffer(np.ascontiguousarray(vectors))
    return pa.Array.from_buffers(pa.large_binary(), len(has_N), [valid, ends, values])


def _stored(table: pa.Table, name: str, rows: pa.Array) -> Array:
    """The vectors of some rows, float64[R, D]."""
    lists = flat(table[name])
    kind = lists.type
    if pa.types.is_fixed_size_list(kind):
        lists = lists.cast(pa.large_list(kind.value_type))
    item = lists.type.value_type if is_list(lists.type) else pa.null()
    if not (pa.types.is_floating(item) or pa.types.is_integer(item)):
        found = f"column '{name}' is {kind}"
        raise DataError(found, "give a column of embeddings, which are lists of numbers")
    lists = lists.take(rows)
    sizes = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(sizes) > 1:
        found = f"vectors of column '{name}' have {min(sizes)} to {max(sizes)} numbers"
        raise DataError(found, "give embeddings of one model")
    values: Array = lists.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values.reshape(len(rows), sizes[0])
