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
import xxhash
from pydantic import model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..config import Config
from ..errors import OperatorError, RecipeError, first_line, needs
from ..groups import Array, Groups
from .tokens import Text, blocks, shingles, tokens_of

# --- Which texts go through an embedding model together, and how far they are padded ---
# Both plans take the lengths of texts in tokens, and nothing else.


class TextBatch(NamedTuple):
    rows: list[int]  # their places among the texts of the call
    length: int  # in tokens, to which each is padded
    copies: int = 0  # of the first text, which fill the batch up


Batching = Callable[[Array, int], Iterator[TextBatch]]
"""From the lengths of N texts and the longest length that the model takes, to batches."""

TOKEN_BUDGET = 16_384
_LEAST_SHARE = 0.75
_FIXED_ROWS, _FIXED_TOKENS = 8, 512


def of_fixed_shape(lengths_N: Array, longest: int) -> Iterator[TextBatch]:
    """Batches in which the arithmetic for a text does not depend on the other texts.

    A text is padded to a length that depends only on its own (16, 32, .., 128, 192, ..), and the
    batches of a length are all filled up to the same number of rows: 8, or as few as have 512
    tokens together, which keep a processor busy. So a text meets the same shapes in any company.
    """
    padded_N = np.array([min(_padded(length), longest) for length in lengths_N.tolist()])
    for length in np.unique(padded_N).tolist():
        of_each = max(1, min(_FIXED_ROWS, _FIXED_TOKENS // length))
        rows = np.flatnonzero(padded_N == length).tolist()
        for start in range(0, len(rows), of_each):
            batch = rows[start : start + of_each]
            yield TextBatch(batch, length, of_each - len(batch))


def _padded(length: int) -> int:
    step = 16 if length <= 128 else 64 if length <= 512 else 256
    return -(-length // step) * step


def of_similar_length(lengths_N: Array, longest: int) -> Iterator[TextBatch]:
    """Batches of texts of similar length, padded to the longest of them and not filled up.

    The longest text comes first, so that what is out of memory is known at once. A batch ends at
    `TOKEN_BUDGET` tokens, and before a text that would be padded by more than a third of its
    length: a launch more costs less than that.

    >>> [batch.rows for batch in of_similar_length(np.array([9, 100, 10, 90]), 512)]
    [[1, 3], [2, 0]]
    """
    order = np.argsort(-lengths_N, kind="stable").tolist()
    rows, length = list[int](), 0
    for row in order:
        own = min(int(lengths_N[row]), longest)
        if rows and (own < _LEAST_SHARE * length or (len(rows) + 1) * length > TOKEN_BUDGET):
            yield TextBatch(rows, length)
            rows = []
        length = length if rows else own
        rows.append(row)
    if rows:
        yield TextBatch(rows, length)


# --- Sentence model -------------------------------------------------------------------
# Loads sentence-transformers models, and checks that they are what their own files describe.

EmbeddingDtype = Literal["float32", "bfloat16"]
PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
AttentionKind = Literal["bidirectional", "causal"]


def load_model(options: EmbeddingFields) -> Any:
    """A `SentenceTransformer` in evaluation mode; a RecipeError if the library or the model is
    missing, or the model is not the one that its files or the options describe."""
    _check_installed()
    import torch
    from sentence_transformers import SentenceTransformer

    is_causal = {"is_causal": options.attention == "causal"} if options.attention else {}
    try:
        loaded = SentenceTransformer(
            options.model,
            device=options.device,
            trust_remote_code=options.trust_remote_code,
            model_kwargs={"dtype": getattr(torch, options.dtype)},
            config_kwargs=is_causal,
        ).eval()
    except Exception as error:  # Code that comes with a model raises anything.
        if not (options.trust_remote_code or isinstance(error, OSError | ValueError)):
            raise
        raise _does_not_load(error, options) from error
    if is_causal and loaded.transformers_model is not None:
        # transformers drops `config_kwargs` whose names are not in the model's config.json.
        loaded.transformers_model.config.update(is_causal)
    if options.pooling is not None:
        _set_pooling(loaded, options)
    _end_with_eos(loaded, options)
    _check_class(loaded, options)
    return loaded


def _check_installed() -> None:
    needs("backend sentence_transformers", "rejuice[embed]", "torch", "sentence_transformers")


def _does_not_load(error: Exception, options: EmbeddingFields) -> RecipeError:
    found = f"embedding model '{options.model}' does not load: {first_line(error).rstrip('.')}"
    right = (
        "set model to a folder or to the name of a sentence-transformers model that is "
        "downloaded or can be"
    )
    if options.trust_remote_code and not isinstance(error, OSError):
        right = "its own code may need another version of transformers; trust_remote_code: false"
    elif "trust_remote_code" in str(error):
        right = "it runs only with code of its own: read it, then set trust_remote_code: true"
    return RecipeError(found, right)


def _set_pooling(loaded: Any, options: EmbeddingFields) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    for place, module in enumerate(loaded):
        if isinstance(module, Pooling):
            dimension, include_prompt = module.embedding_dimension, module.include_prompt
            loaded[place] = Pooling(dimension, options.pooling, include_prompt)
            return
    found = f"embedding model '{options.model}' has no pooling module"
    would = f"which pooling: {options.pooling} would change"
    raise RecipeError(f"{found}, {would}", "leave pooling out")


def _end_with_eos(loaded: Any, options: EmbeddingFields) -> None:
    """Append the EOS token where it is wanted and the tokenizer does not do it by itself:
    transformers ignores `add_eos_token` of a tokenizer_config.json that has a tokenizer.json beside
    it."""
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    tokenizer = loaded.tokenizer
    name = getattr(tokenizer, "name_or_path", "")
    stated = bool(name) and get_tokenizer_config(name).get("add_eos_token") is True
    if not (stated or options.append_eos):
        return
    ids, eos = tokenizer(_PROBE)["input_ids"], tokenizer.eos_token_id
    if eos is not None and ids[-1] == eos:
        return
    tokenizer.add_eos_token = True
    if eos is None or tokenizer(_PROBE)["input_ids"] != [*ids, eos]:
        raise RecipeError(
            f"the tokenizer of embedding model '{options.model}' cannot append an EOS token",
            "set append_eos: false, or trust_remote_code: true if it has code of its own",
        )


_PROBE = "one two three four five six"


def _check_class(loaded: Any, options: EmbeddingFields) -> None:
    """Refuse a class of transformers in place of the one that comes with the model, unless it is
    known which tokens see which: the former attends as `is_causal` says."""
    transformer = loaded.transformers_model
    config, kind = getattr(transformer, "config", None), type(transformer)
    own = (getattr(config, "auto_map", None) or {}).get("AutoModel")
    is_known = options.attention is not None or getattr(config, "is_causal", None) is False
    if own and not is_known and kind.__module__.startswith("transformers."):
        raise RecipeError(
            f"embedding model '{options.model}' was loaded as {kind.__name__} of transformers, "
            f"which may differ from {str(own).split('--')[-1]}, the class that comes with it",
            "set attention to what its card says, bidirectional or causal, or trust_remote_code: "
            "true after reading its code",
        )


# --- Texts as vectors of a sentence-transformers model --------------------------------

_UNLIMITED = 1 << 30  # tokens; transformers has 10**30 for no limit, which tokenizers refuse


class SentenceEmbedder:
    """A sentence-transformers model as an embedder, for many threads.

    Equal texts are embedded once, and vectors are cached by text. On a CPU a text has the same
    vector in any batch, to the bit, on one machine: see `of_fixed_shape`. On other devices texts
    are batched by length, without filling, and the last bits of a vector depend on its batch.
    """

    CACHE_BYTES = 256 << 20

    def __init__(self, options: EmbeddingFields) -> None:
        self._model = load_model(options)
        own = self._model.prompts.get(self._model.default_prompt_name)
        self._prompt: str = (own or "") if options.prompt is None else options.prompt
        self._prompt_length = self._left_out()
        on_cpu = self._model.device.type == "cpu"
        self.batching: Batching = of_fixed_shape if on_cpu else of_similar_length
        self._cache = dict[bytes, Array]()
        # Neither the cache nor a tokenizer is thread-safe; torch uses all cores for one thread.
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> Array:
        """float32[N, D], unit norm."""
        keys = [xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        with self._lock:
            known = {key: self._cache[key] for key in wanted if key in self._cache}
            if fresh := [key for key in wanted if key not in known]:
                vectors = self._encode([wanted[key] for key in fresh])
                # A slice would keep its whole batch in memory.
                known |= {key: each.copy() for key, each in zip(fresh, vectors, strict=True)}
            self._cache |= known
            for vector in known.values():
                if len(self._cache) * vector.nbytes > self.CACHE_BYTES:
                    del self._cache[next(iter(self._cache))]  # The oldest one.
        if not texts:
            return np.zeros((0, self._model.get_embedding_dimension() or 0), np.float32)
        return np.stack([known[key] for key in keys])

    def _left_out(self) -> int | None:
        """Tokens of the prompt that the model's pooling leaves out; None: it leaves out none."""
        modules = self._model
        if not self._prompt or all(getattr(each, "include_prompt", True) for each in modules):
            return None
        length: int | None = modules[0].preprocess(["x"], prompt=self._prompt).get("prompt_length")
        return length

    def _encode(self, texts: list[str]) -> Array:
        tokenizer = self._model.tokenizer
        longest = min(self._model.max_seq_length or _UNLIMITED, _UNLIMITED)
        prompted = [self._prompt + text for text in texts] if self._prompt else texts
        tokens = tokenizer(prompted, truncation=True, max_length=longest)["input_ids"]
        lengths_N = np.array([len(ids) for ids in tokens], np.int64)
        # Results stay on the device until all batches are under way.
        batches = self.batching(lengths_N, longest)
        made = [(batch, self._forward(batch, tokens)) for batch in batches]
        vectors = np.empty((len(texts), made[0][1].shape[1]), np.float32)
        for batch, found in made:
            vectors[batch.rows] = found.cpu().numpy()
        return vectors

    def _forward(self, batch: TextBatch, tokens: Sequence[list[int]]) -> Any:
        """Unit vectors of a batch's texts, on the device."""
        from torch import inference_mode
        from torch.nn.functional import normalize

        rows = batch.rows + batch.rows[:1] * batch.copies
        features = self._model.tokenizer.pad(
            {"input_ids": [tokens[row] for row in rows]},
            padding="max_length",
            max_length=batch.length,
            return_tensors="pt",
        )
        features = dict(features.to(self._model.device))
        if self._prompt_length is not None:
            features["prompt_length"] = self._prompt_length
        with inference_mode():
            made = self._model(features)["sentence_embedding"]
            return normalize(made.float(), dim=1)[: len(batch.rows)]


# --- Texts as unit vectors, and the similarities within groups of responses -----------

Embedder = Callable[[Sequence[str]], Array]
"""From N texts to float32[N, D] of unit norm. A text's vector depends on that text alone, on a GPU
up to rounding."""

Backend = Literal["hashed_ngram", "sentence_transformers"]


class EmbeddingFields(Config):
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
    the model's config.json says. Required for a model that comes with a class of its own, which
    `trust_remote_code` would run."""
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
        if self.backend == "hashed_ngram" and any(map(self._is_given, _OF_MODELS)):
            names = ", ".join(_OF_MODELS)
            raise ValueError(f"the fields {names} are only for backend sentence_transformers")
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        # Fields at their defaults are left out, so that results of versions without them are found.
        fields = self.model_dump(mode="json")
        return {k: v for k, v in fields.items() if k not in _OF_MODELS or self._is_given(k)}

    def _is_given(self, name: str) -> bool:
        return bool(getattr(self, name) != EmbeddingFields.model_fields[name].default)

    def check_files(self) -> None:
        if self.backend == "sentence_transformers":
            _check_installed()

    def embedder(self) -> Embedder:
        """One per process, so that the model stays loaded; errors are those of `load_model`."""
        if self.backend == "hashed_ngram":
            return hashed_ngram
        with _loading:  # Otherwise each worker thread would load the model.
            own = {name: getattr(self, name) for name in EmbeddingFields.model_fields}
            return _loaded(EmbeddingFields(**own))


_OF_MODELS = ("attention", "pooling", "append_eos", "prompt", "trust_remote_code")
_loading = Lock()


@lru_cache(maxsize=4)
def _loaded(options: EmbeddingFields) -> SentenceEmbedder:
    return SentenceEmbedder(options)


_BLOCK_ROWS = 8192


def group_grams(
    texts: pa.Array, groups: Groups, used_N: Array, embed: Embedder
) -> Iterator[tuple[Array, Array]]:
    """For all groups with M texts at once, the row of each text, int64[B, M], and the cosines of
    those of a group, float64[B, M, M]; an OperatorError where a vector is zero or not finite."""
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
            yield rows_R[places_BM], own @ own.transpose(0, 2, 1)


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
    0 on average, with a standard deviation of 0.03 (https://arxiv.org/abs/0902.2206). Counts enter
    as their square roots. An inverse document frequency would make a vector depend on other texts.
    T tokens give 2 T - 1 features, an odd number, so they never cancel to the zero vector.

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
