"""Texts as unit vectors, and the similarities within groups of responses.

    responses ──embedder──> float32[N, D], unit norm ──group_grams──> cosines [groups, M, M]

There are two backends. `hashed_ngram` counts words and pairs of words: it needs no weights, is
very cheap and compares wording, not meaning. `sentence_transformers` runs any model of that
library.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ..compute import pc
from ..errors import OperatorError, RecipeError
from ..groups import Array, Groups
from .tokens import Text, blocks, shingles, tokens_of

Embedder = Callable[[Sequence[str]], Array]
"""From N texts to float32[N, D] of unit norm. A text's vector depends on that text alone."""

Backend = Literal["hashed_ngram", "sentence_transformers"]
EmbeddingDtype = Literal["float32", "bfloat16"]


def checked_backend(backend: Backend, model: str | None) -> None:
    """Refuse a backend without its model, and a model that would not be used.

    Raises:
        ValueError: the two fields do not fit together.
    """
    if backend == "sentence_transformers" and model is None:
        raise ValueError("backend sentence_transformers needs model, a name or a folder")
    if backend == "hashed_ngram" and model is not None:
        raise ValueError("model is only for backend sentence_transformers")


def embedder(
    backend: Backend,
    model: str | None = None,
    dtype: EmbeddingDtype = "float32",
    device: str | None = None,
) -> Embedder:
    """The embedder of a configuration; one per process, so that the model stays loaded.

    Args:
        backend: `hashed_ngram` or `sentence_transformers`.
        model: name or folder of a sentence-transformers model.
        dtype: data type of the model.
        device: such as `cpu` or `cuda:0`; None leaves the choice to the library.

    Raises:
        RecipeError: the library or the model is missing.
    """
    if backend == "hashed_ngram" or model is None:
        return hashed_ngram
    with _loading:  # Otherwise each worker thread would load the model.
        return _loaded(model, dtype, device)


class GroupGrams(NamedTuple):
    """Cosines within groups that have the same number M of texts.

    Attributes:
        rows_BM: int64, the row of each text; one line per group.
        grams_BMM: float64, cosine similarities between the texts of the group.
    """

    rows_BM: Array
    grams_BMM: Array


_BLOCK_ROWS = 8192


def group_grams(
    texts: pa.Array, groups: Groups, used_N: Array, embed: Embedder
) -> Iterator[GroupGrams]:
    """Cosines of the texts of each group, for all groups of a size at once.

    Args:
        texts: strings of N rows.
        groups: which rows belong together.
        used_N: bool, the rows that take part; none of them null.
        embed: makes vectors of texts.

    Raises:
        OperatorError: a vector is zero or not finite.
    """
    rows_R = np.flatnonzero(used_N)
    sizes_G = groups.sum(used_N)
    sizes_G = sizes_G[sizes_G > 0]
    ends_G = np.cumsum(sizes_G)
    block_G = (ends_G - 1) // _BLOCK_ROWS
    for block in np.unique(block_G):
        inside = np.flatnonzero(block_G == block)
        first, last = ends_G[inside[0]] - sizes_G[inside[0]], ends_G[inside[-1]]
        vectors = _unit(embed(texts.take(pa.array(rows_R[first:last])).to_pylist()))
        starts, sizes = (ends_G - sizes_G)[inside], sizes_G[inside]
        for size in np.unique(sizes):
            places_BM = starts[sizes == size][:, None] + np.arange(size)
            own = vectors[places_BM - first]
            yield GroupGrams(rows_R[places_BM], own @ own.transpose(0, 2, 1))


def _unit(vectors: Array) -> Array:
    wide = vectors.astype(np.float64)
    norms = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    # A model that overflows is broken; its nan must not be taken for a lack of diversity.
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise OperatorError(
            "the embedding of a response is zero or not finite",
            "use another model, or dtype float32",
        )
    wide /= norms
    return wide


def usable_texts(texts: pa.Array) -> Array:
    """Which texts are neither null nor blank, bool[N]."""
    return np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False))


DIMENSIONS = 1024


def hashed_ngram(texts: Sequence[str]) -> Array:
    """Embed texts by their words and pairs of neighbouring words, float32[N, DIMENSIONS].

    Each word and pair is hashed to one dimension and a sign, so that unrelated texts have cosine
    0 on average, with a standard deviation of 0.03 (Weinberger et al., Feature hashing for large
    scale multitask learning, https://arxiv.org/abs/0902.2206). Counts enter as their square
    roots. There is no inverse document frequency, which would make a vector depend on the other
    texts in the chunk.
    T tokens give 2 T - 1 features, an odd number, so they never cancel to the zero vector.

    Example:
        >>> vectors = hashed_ngram(["the answer is 4", "The answer is 4", "no idea"])
        >>> (vectors[:2] @ vectors.T > 0.9).tolist()
        [[True, True, False], [True, True, False]]
    """
    parts = [_hashed_block(text) for text in blocks(pa.array(texts, pa.large_string()))]
    return np.concatenate(parts) if parts else np.zeros((0, DIMENSIONS), np.float32)


def _hashed_block(text: Text) -> Array:
    tokens = tokens_of(text)
    words, pairs = shingles(tokens, 1), shingles(tokens, 2)
    n = len(text.offsets_N1) - 1
    words_row = np.repeat(np.arange(n), np.diff(words.offsets_N1))
    pairs_row = np.repeat(np.arange(n), np.diff(pairs.offsets_N1))
    # A text of one word has no pair; its only shingle is the word again, which is left out.
    paired = np.diff(tokens.offsets_N1)[pairs_row] > 1
    rows = np.concatenate([words_row, pairs_row[paired]])
    hashes = np.concatenate([words.hashes_T, pairs.hashes_T[paired]])
    places = rows * DIMENSIONS + (hashes >> np.uint64(54)).astype(np.int64)
    signs = np.where(hashes & np.uint64(1), 1.0, -1.0)
    counts = np.bincount(places, signs, n * DIMENSIONS).reshape(n, DIMENSIONS)
    sizes = np.abs(counts)
    vectors: Array = np.sign(counts) * np.sqrt(sizes / sizes.sum(axis=1, keepdims=True))
    return vectors.astype(np.float32, copy=False)


_loading = Lock()


@lru_cache(maxsize=4)
def _loaded(model: str, dtype: EmbeddingDtype, device: str | None) -> Embedder:
    return SentenceEmbedder(model, dtype, device)


class SentenceEmbedder:
    """A sentence-transformers model that gives a text the same vector in any batch.

    Libraries pad a batch to its longest text, and the padded length changes the last bits of
    every vector in it. Here a text is padded to a length that depends only on its own (16, 32, ..,
    128, 192, ..), and every batch is filled up to the same number of texts. So the arithmetic for a
    text does not depend on the other texts; on one machine the result is bit-identical. Equal texts
    are embedded once, and vectors are cached by text.

    Args:
        model: name or folder.
        dtype: data type of the model; bfloat16 is twice as fast on processors that support it.
        device: None leaves the choice to the library.

    Raises:
        RecipeError: the library or the model is missing.
    """

    CACHE_BYTES = 256 << 20

    def __init__(
        self, model: str, dtype: EmbeddingDtype = "float32", device: str | None = None
    ) -> None:
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise RecipeError(
                f"backend sentence_transformers does not import: {error}",
                "pip install 'rejuice[embed]'",
            ) from error
        try:
            self._model = SentenceTransformer(
                model, device=device, model_kwargs={"dtype": getattr(torch, dtype)}
            ).eval()
        except (OSError, ValueError) as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise RecipeError(
                f"embedding model '{model}' does not load: {reason}",
                "set model to a folder or to the name of a sentence-transformers model that is "
                "downloaded or can be",
            ) from error
        # A CPU is saturated by few texts, and small batches need less filling up.
        self._batch = 8 if self._model.device.type == "cpu" else 64
        self._torch: Any = torch
        self._cache: OrderedDict[bytes, Array] = OrderedDict()
        # Neither the cache nor a tokenizer is thread-safe; torch uses all cores for one thread.
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> Array:
        """float32[N, D], unit norm."""
        with self._lock:
            return self._vectors(texts)

    def _vectors(self, texts: Sequence[str]) -> Array:
        keys = [xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        known = {key: self._cache[key] for key in wanted if key in self._cache}
        fresh = [key for key in wanted if key not in known]
        if fresh:
            vectors = self._encode([wanted[key] for key in fresh])
            known.update(zip(fresh, vectors, strict=True))
        self._keep(known)
        if not texts:
            return np.zeros((0, self._model.get_embedding_dimension() or 0), np.float32)
        return np.stack([known[key] for key in keys])

    def _encode(self, texts: list[str]) -> Array:
        tokenizer = self._model.tokenizer
        longest = self._model.max_seq_length or tokenizer.model_max_length
        tokens = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        lengths = np.array([min(_padded(len(ids)), longest) for ids in tokens])
        vectors: Array | None = None
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length).tolist()
            for start in range(0, len(rows), self._batch):
                batch = rows[start : start + self._batch]
                full = batch + batch[:1] * (self._batch - len(batch))
                made = self._forward([tokens[row] for row in full], length)[: len(batch)]
                if vectors is None:
                    vectors = np.empty((len(texts), made.shape[1]), np.float32)
                vectors[batch] = made
        assert vectors is not None
        return vectors

    def _forward(self, tokens: list[list[int]], length: int) -> Array:
        batch = self._model.tokenizer.pad(
            {"input_ids": tokens}, padding="max_length", max_length=length, return_tensors="pt"
        )
        with self._torch.inference_mode():
            made = self._model(dict(batch.to(self._model.device)))["sentence_embedding"].float()
            made = self._torch.nn.functional.normalize(made, dim=1)
        return np.asarray(made.cpu().numpy(), np.float32)

    def _keep(self, vectors: dict[bytes, Array]) -> None:
        for key, vector in vectors.items():
            if key not in self._cache:
                self._cache[key] = vector.copy()  # a slice would keep its whole batch in memory
            self._cache.move_to_end(key)
            if len(self._cache) * vector.nbytes > self.CACHE_BYTES:
                self._cache.popitem(last=False)


def _padded(length: int) -> int:
    step = 16 if length <= 128 else 64 if length <= 512 else 256
    return -(-length // step) * step
