"""A scalar reward model of transformers, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from ..cache_key import file_state
from ..errors import EngineError, first_line, needs
from ..groups import Array
from .embedding import Batching, TextBatch, of_fixed_shape, of_similar_length

# Otherwise a folder with code of its own would have the terminal asked about it.
_LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_UNLIMITED = 1 << 30  # tokens; a tokenizer has 10**30 for no limit


class RewardModel:
    """A folder of `AutoModelForSequenceClassification` in float32, on a GPU where there is one.

    On a CPU a text has the same outputs in any batch, to the bit, on one machine: see
    `of_fixed_shape`. On a GPU texts are batched by length, and the last bits of an output depend on
    the texts in its batch. Texts are padded on the right, and padding is masked.
    """

    def __init__(self, folder: Path) -> None:
        self.facts = facts_of(folder)
        import torch
        from transformers import AutoModelForSequenceClassification

        try:
            with _quiet():
                model, info = AutoModelForSequenceClassification.from_pretrained(
                    folder, dtype=torch.float32, output_loading_info=True, **_LOCAL
                )
        except Exception as error:  # Of many kinds, some of them of other libraries.
            raise _does_not_load(folder, error) from error
        if info["missing_keys"]:
            # transformers makes them up: a policy would give random rewards.
            missing = ", ".join(sorted(info["missing_keys"])[:3])
            raise _no_classifier(folder, self.facts, f"no weights of {missing}")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._batching: Batching = of_fixed_shape if self._device == "cpu" else of_similar_length
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._pads = model.config.get_text_config().pad_token_id is not None
        self._lock = Lock()  # torch uses all cores for one thread.

    def outputs_of(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Array]]:
        """The outputs of texts of at most `facts.longest` tokens, not activated, float32[B, K], by
        batches with their places among the texts."""
        lengths_N = np.array([len(ids) for ids in texts], np.int64)
        for batch in self._batching(lengths_N, self.facts.longest):
            with self._lock:
                found_BK = self._forward(batch, texts)
            yield batch.rows, found_BK

    def _forward(self, batch: TextBatch, texts: Sequence[Sequence[int]]) -> Array:
        import torch

        rows = [texts[row] for row in batch.rows + batch.rows[:1] * batch.copies]
        ids_BT = torch.full((len(rows), batch.length), self._padding(rows), dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for row, ids in enumerate(rows):
            ids_BT[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
            mask_BT[row, : len(ids)] = 1
        ids_BT, mask_BT = ids_BT.to(self._device), mask_BT.to(self._device)
        with torch.inference_mode():
            made = self._model(input_ids=ids_BT, attention_mask=mask_BT).logits
        outputs_BK: Array = made.float().cpu().numpy()[: len(batch.rows)]
        return outputs_BK

    def _padding(self, rows: Sequence[Sequence[int]]) -> int:
        """The id that fills texts up; the last other one is where the output is taken."""
        config = self._model.config.get_text_config()
        if self._pads:
            return int(config.pad_token_id)
        # Without one, transformers takes texts one by one: any id that is in none of them will do.
        used = {token for ids in rows for token in ids}
        config.pad_token_id = next(each for each in range(config.vocab_size) if each not in used)
        return int(config.pad_token_id)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing a bar, and from warning of what is an error here."""
    from transformers.utils import logging

    drew, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if drew:
            logging.enable_progress_bar()


# --- What a folder's own files say ----------------------------------------------------


class ModelFacts(NamedTuple):
    outputs: int
    longest: int  # text, in tokens
    labels: tuple[str, ...] = ()  # the names of the outputs, if they have names
    lacks_head: str = ""  # the classes of the weights, where none of them is of a classifier

    def output(self, folder: Path, label: int | None) -> int:
        """Which output is the reward; an EngineError if there is no such one, or several and no
        label."""
        which = 0 if label is None and self.outputs == 1 else label
        if which is not None and which < self.outputs:
            return which
        if self.lacks_head:  # Their number is a default.
            raise _no_classifier(folder, self, "no layer that gives a reward")
        named = ", ".join(f"{at} {name}" for at, name in enumerate(self.labels[:_MOST_NAMED]))
        count = f"{self.outputs} output{'s' if self.outputs > 1 else ''}"
        found = f"the reward model '{folder}' has {count}{': ' if named else ''}{named}"
        if which is None:
            right = f"set label to the one that is the reward, 0 to {self.outputs - 1}"
            raise EngineError(found, right)
        right = "count from 0" if self.outputs > 1 else "leave label out"
        raise EngineError(f"label is {which}, and {found}", right)


def _no_classifier(folder: Path, facts: ModelFacts, lacks: str) -> EngineError:
    own = f", a {facts.lacks_head} by its config.json," if facts.lacks_head else ""
    found = f"the folder '{folder}'{own} has {lacks}"
    return EngineError(found, f"name one of a model for sequence classification, ...{_HEAD}")


def facts_of(folder: Path) -> ModelFacts:
    """What the configuration of a folder says; no weights are read."""
    check_reward_model(folder)
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder, **_LOCAL)
    except (OSError, ValueError) as error:
        raise _does_not_load(folder, error) from error
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    # The configuration counts the positions that some models, such as RoBERTa's, cannot use.
    with suppress(OSError, ValueError, AttributeError):
        limits.append(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get(_LIMIT))
    longest = min([_UNLIMITED, *(int(each) for each in limits if each)])
    names = {int(at): str(name) for at, name in (config.id2label or {}).items()}
    labels = tuple(name for _, name in sorted(names.items()))
    plain = all(name == f"LABEL_{at}" for at, name in enumerate(labels))
    classes = config.architectures or [_HEAD]
    lacks_head = "" if any(_HEAD in name for name in classes) else ", ".join(classes)
    return ModelFacts(int(config.num_labels), longest, () if plain else labels, lacks_head)


def check_reward_model(folder: Path) -> None:
    """Check for a folder, and for what loads the reward model in it."""
    needs("a reward model in a folder", "rejuice[policy]", "torch", "transformers")
    check_is_folder(folder)


def check_is_folder(folder: Path, of: str = "a reward model") -> None:
    if not folder.is_dir():
        raise EngineError(f"there is no folder '{folder}'", f"name one with {of}")


def state_of(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.glob("*")) if file.suffix in _SUFFIXES)
    return {file.name: file_state(file) for file in files if file.is_file()}


_HEAD = "ForSequenceClassification"
_MOST_NAMED = 8  # outputs, in a message
_LIMIT = "model_max_length"
_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".jinja", ".model", ".txt"})


def _does_not_load(folder: Path, error: Exception) -> EngineError:
    found = f"the reward model '{folder}' does not load: {first_line(error).rstrip('.')}"
    return EngineError(found, "name a folder that save_pretrained wrote")


# --- One of each in a process, so that it stays loaded --------------------------------

_loading = Lock()


def shared_reward_model(folder: Path) -> RewardModel:
    """The model of a folder, which stays loaded until another one is, or `release`."""
    with _loading:  # Otherwise each thread would load it.
        return _loaded(folder)


def release() -> None:
    with _loading:
        _loaded.cache_clear()


@lru_cache(maxsize=1)
def _loaded(folder: Path) -> RewardModel:
    return RewardModel(folder)
