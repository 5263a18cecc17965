"""Calls of many threads, counts and the plan for GPUs; the models themselves: test_sentence_model.py."""

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_embedder import save_embedder

from rejuice.operators.text import embedding
from rejuice.operators.text.embedding import SentenceEmbedder, of_fixed_shape, of_similar_length


class _Announced(deque):
    """Says when something was added."""

    def __init__(self):
        self.added = threading.Semaphore(0)

    def append(self, item):
        super().append(item)
        self.added.release()


@pytest.fixture
def embed(monkeypatch):
    """An embedder whose vector of a text is its number; `embed.passes` has what went through it."""

    def encode(texts):
        embed.passes.append(texts)
        return np.array([[float(text)] for text in texts], np.float32)

    device = SimpleNamespace(type="cpu")
    model = SimpleNamespace(device=device, default_prompt_name=None, prompts={})
    monkeypatch.setattr(embedding, "load_model", lambda *_: model)
    embed = SentenceEmbedder("folder")
    embed.passes, embed._encode, embed._waiting = [], encode, _Announced()
    return embed


def wait_together(embed, pool, calls):
    """Make calls while the model is busy, and let it go once all of them wait."""
    with embed._lock:
        futures = [pool.submit(embed, call) for call in calls]
        for _ in calls:
            assert embed._waiting.added.acquire(timeout=30)
    return futures


def test_texts_of_threads_that_wait_go_through_the_model_together(embed):
    with ThreadPoolExecutor(4) as pool:
        calls = [["1", "2"], ["3"], [], ["2", "4"]]
        found = [f.result() for f in wait_together(embed, pool, calls)]
    assert [vectors.ravel().tolist() for vectors in found[:2]] == [[1, 2], [3]]
    assert found[3].ravel().tolist() == [2, 4]
    assert len(found[2]) == 0
    assert len(embed.passes) == 1
    assert sorted(embed.passes[0]) == ["1", "2", "3", "4"]


def test_an_error_reaches_every_thread_and_the_next_call_works(embed):
    with ThreadPoolExecutor(2) as pool:
        first, second = wait_together(embed, pool, [["1"], ["not a number"]])
        for future in (first, second):
            with pytest.raises(ValueError, match="not a number"):
                future.result()
    assert embed(["5"]).tolist() == [[5]]


@pytest.mark.slow
def test_the_tokens_of_texts_and_those_that_the_model_computes_are_counted(tmp_path):
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    embed = SentenceEmbedder(save_embedder(tmp_path / "gte"), "float32", "cpu")
    assert embed.batching is of_fixed_shape
    texts = ["x" * n for n in (9, 19, 20, 21, 50)]  # each is followed by the EOS token
    first = embed(texts)
    assert (embed.text_tokens, embed.computed_tokens) == (124, 8 * (16 + 32 + 64))
    assert embed.useful_share == 124 / 896
    embed(texts)  # found in the cache
    assert embed.computed_tokens == 896

    embed._cache.clear()
    embed.batching = of_similar_length
    embed.text_tokens = embed.computed_tokens = 0
    assert np.abs(embed(texts) - first).max() < 1e-4
    assert (embed.text_tokens, embed.computed_tokens) == (124, 51 + 3 * 22 + 10)
