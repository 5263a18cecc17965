"""Texts as unit vectors, and the similarities within groups of responses.

    responses ──embedder──> float32[N, D], unit norm ──group_grams──> cosines [groups, M, M]

There are two backends. `hashed_ngram` counts words and pairs of words: it needs no weights, is
very cheap and compares wording, not meaning. `sentence_transformers` runs any model of that
library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import model_validator
from typing_extensions import Self

from ..compute import pc
from ..config import Config
from ..errors import OperatorError
from ..groups import Array, Groups
from .sentence_embedder import SentenceEmbedder
from .sentence_model import (
    BY_ITS_OWN_FILES,
    AttentionKind,
    EmbeddingDtype,
    ModelOptions,
    PoolingMode,
)
from .tokens import Text, blocks, shingles, tokens_of

Embedder = Callable[[Sequence[str]], Array]
"""From N texts to float32[N, D] of unit norm. A text's vector depends on that text alone, on a GPU
up to rounding."""

Backend = Literal["hashed_ngram", "sentence_transformers"]


class EmbeddingFields(Config):
    """The fields of operators that embed responses."""

    backend: Backend = "hashed_ngram"
    """`hashed_ngram` compares wording and needs no weights; `sentence_transformers` runs `model`
    and compares meaning. What they compute is on different scales."""
    model: str | None = None
    """Name or folder of a sentence-transformers model."""
    dtype: EmbeddingDtype = "float32"
    """Data type of the model; `bfloat16` is twice as fast on processors that support it."""
    device: str | None = None
    """Device of the model, such as `cpu` or `cuda:0`; by default the library chooses."""
    attention: AttentionKind | None = None
    """Which tokens of a text see which: `bidirectional` or `causal`. By default as `is_causal` in
    the model's config.json says. The model is checked against it when it is loaded. Required for a
    model that comes with a class of its own, which `trust_remote_code` would run."""
    pooling: PoolingMode | None = None
    """How the vectors of tokens become one; by default as the model's pooling module says."""
    append_eos: bool = False
    """End each text with the EOS token, also where the tokenizer does not. Done without it where
    tokenizer_config.json has `add_eos_token: true`."""
    prompt: str | None = None
    """Text put before each response; by default the default prompt of the model, if it has one."""
    trust_remote_code: bool = False
    """Run the code that comes with the model."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.backend == "sentence_transformers" and self.model is None:
            raise ValueError("backend sentence_transformers needs model, a name or a folder")
        if self.backend == "hashed_ngram" and self.model is not None:
            raise ValueError("model is only for backend sentence_transformers")
        if self.backend == "hashed_ngram" and self._options() != BY_ITS_OWN_FILES:
            names = ", ".join(ModelOptions._fields)
            raise ValueError(f"the fields {names} are only for backend sentence_transformers")
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        # Fields at their defaults are left out, so that results of versions without them are found.
        defaults = BY_ITS_OWN_FILES._asdict()
        fields = self.model_dump(mode="json")
        return {k: v for k, v in fields.items() if k not in defaults or v != defaults[k]}

    def embedder(self) -> Embedder:
        """The embedder of these fields; one per process, so that the model stays loaded.

        Raises:
            RecipeError: the library or the model is missing, or it is not what its files describe.
        """
        return embedder(self.backend, self.model, self.dtype, self.device, self._options())

    def _options(self) -> ModelOptions:
        return ModelOptions(**{name: getattr(self, name) for name in ModelOptions._fields})


def embedder(
    backend: Backend,
    model: str | None = None,
    dtype: EmbeddingDtype = "float32",
    device: str | None = None,
    options: ModelOptions = BY_ITS_OWN_FILES,
) -> Embedder:
    """The embedder of a configuration; one per process, so that the model stays loaded.

    Args:
        backend: `hashed_ngram` or `sentence_transformers`.
        model: name or folder of a sentence-transformers model.
        dtype: data type of the model.
        device: such as `cpu` or `cuda:0`; None leaves the choice to the library.
        options: how the model is loaded.

    Raises:
        RecipeError: the library or the model is missing, or it is not what its files describe.
    """
    if backend == "hashed_ngram" or model is None:
        return hashed_ngram
    with _loading:  # Otherwise each worker thread would load the model.
        return _loaded(model, dtype, device, options)


_loading = Lock()


@lru_cache(maxsize=4)
def _loaded(
    model: str, dtype: EmbeddingDtype, device: str | None, options: ModelOptions
) -> SentenceEmbedder:
    return SentenceEmbedder(model, dtype, device, options)


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
