"""Texts as vectors of a sentence-transformers model."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import xxhash

from ..groups import Array
from .embedding_batches import Batching, TextBatch, of_fixed_shape, of_similar_length
from .sentence_model import (
    BY_ITS_OWN_FILES,
    EmbeddingDtype,
    ModelOptions,
    default_prompt,
    load_model,
    prompt_length,
)

_UNLIMITED = 1 << 30  # tokens; transformers has 10**30 for no limit, which tokenizers refuse


class SentenceEmbedder:
    """A sentence-transformers model as an embedder, for many threads.

    Equal texts are embedded once, and vectors are cached by text. Texts of threads that wait for
    the model go through it together.

    On a CPU a text has the same vector in any batch, to the bit, on one machine: see
    `of_fixed_shape`. On other devices texts are batched by length, without filling, and the last
    bits of a vector depend on the texts in its batch.

    Args:
        model: name or folder.
        dtype: data type of the model; bfloat16 is twice as fast on processors that support it.
        device: None leaves the choice to the library.
        options: how it is loaded.

    Attributes:
        batching: how texts are put into batches.
        text_tokens: tokens of the texts that went through the model.
        computed_tokens: tokens that the model has computed for them, with padding and copies.

    Raises:
        RecipeError: the library or the model is missing, or it is not what its files describe.
    """

    CACHE_BYTES = 256 << 20

    def __init__(
        self,
        model: str,
        dtype: EmbeddingDtype = "float32",
        device: str | None = None,
        options: ModelOptions = BY_ITS_OWN_FILES,
    ) -> None:
        self._model = load_model(model, dtype, device, options)
        self._prompt = default_prompt(self._model) if options.prompt is None else options.prompt
        self._prompt_length = prompt_length(self._model, self._prompt)
        on_cpu = self._model.device.type == "cpu"
        self.batching: Batching = of_fixed_shape if on_cpu else of_similar_length
        self.text_tokens = self.computed_tokens = 0
        self._cache: OrderedDict[bytes, Array] = OrderedDict()
        # Neither the cache nor a tokenizer is thread-safe; torch uses all cores for one thread.
        self._lock = Lock()
        self._waiting: deque[_WaitingTexts] = deque()

    def __call__(self, texts: Sequence[str]) -> Array:
        """float32[N, D], unit norm."""
        own = _WaitingTexts(texts, Future())
        self._waiting.append(own)
        with self._lock:
            if not own.vectors.done():
                self._embed_waiting()
        return own.vectors.result()

    @property
    def useful_share(self) -> float:
        """Tokens of texts, as a share of those that the model has computed."""
        return self.text_tokens / self.computed_tokens if self.computed_tokens else 1.0

    def _embed_waiting(self) -> None:
        """Embed what all threads wait for, in one go."""
        calls = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            vectors = self._vectors([text for call in calls for text in call.texts])
        except BaseException as error:
            for call in calls:
                call.vectors.set_exception(error)
            return
        ends = np.cumsum([len(call.texts) for call in calls])
        for call, part in zip(calls, np.split(vectors, ends[:-1]), strict=True):
            call.vectors.set_result(part)

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
        longest = min(self._model.max_seq_length or _UNLIMITED, _UNLIMITED)
        prompted = [self._prompt + text for text in texts] if self._prompt else texts
        tokens = tokenizer(prompted, truncation=True, max_length=longest)["input_ids"]
        lengths_N = np.array([len(ids) for ids in tokens], np.int64)
        # Results stay on the device until all batches are under way.
        made = [
            (batch, self._forward(batch, tokens)) for batch in self.batching(lengths_N, longest)
        ]
        vectors = np.empty((len(texts), made[0][1].shape[1]), np.float32)
        for batch, found in made:
            vectors[batch.rows] = found.cpu().numpy()
            self.computed_tokens += batch.tokens
        self.text_tokens += int(lengths_N.sum())
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

    def _keep(self, vectors: dict[bytes, Array]) -> None:
        for key, vector in vectors.items():
            if key not in self._cache:
                self._cache[key] = vector.copy()  # a slice would keep its whole batch in memory
            self._cache.move_to_end(key)
            if len(self._cache) * vector.nbytes > self.CACHE_BYTES:
                self._cache.popitem(last=False)


class _WaitingTexts(NamedTuple):
    """The texts of one call, and what becomes of them."""

    texts: Sequence[str]
    vectors: Future[Array]
