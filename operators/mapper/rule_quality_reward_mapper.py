"""Reward a response for its quality, by rules: no server and no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import flat
from ..errors import DataError
from ..groups import Array
from ..operator import Columns, Mapper, drop
from ..servers.verdict import LEAST, MOST, WRITTEN, quality_columns
from ..text.equations import arithmetic
from ..text.statistics import statistics
from ..text.tokens import texts_of

Share = Annotated[float, Field(ge=0, le=1)]
Dimension = Literal["length", "repetition", "special_characters", "arithmetic"]


class RuleQualityRewardMapper(Mapper):
    """Write `reward_quality`: the quality of a response by simple statistics of its text.

    Each dimension has a score from 1 to 5:

    - `length`: words separated by white space, as Data-Juicer's `words_num_filter` splits them. 5
      between the two bounds in `words`; proportionally less below the first, and falling to 1 at
      twice the second.
    - `repetition`: the share of repeated n-grams of characters, `char_rep_ratio` of Data-Juicer's
      `character_repetition_filter`. 5 up to the first share in `repetition`, then falling linearly
      to 1 at the second.
    - `special_characters`: their share, `special_char_ratio` of Data-Juicer's
      `special_characters_filter`, which counts digits and white space as special. Scored in the
      same way.
    - `arithmetic`: statements such as `12 + 5 = 17`, evaluated exactly. 1 + 4 times the share of
      true ones; 3 if there are none. Data-Juicer has no such operator.

    With s the mean of the scores / 5, in [0.2, 1], the reward is

        reward_quality = (s - 0.2) / 0.8 - 0.5

    in [-0.5, 0.5], as in `llm_quality_reward_mapper`. `quality` contains the scores, a struct with
    a field for each dimension, and `quality_score` contains s.

    The defaults suit worked solutions of ten to a few hundred words with many numbers.
    """

    dimensions: tuple[Dimension, ...] = (
        "length",
        "repetition",
        "special_characters",
        "arithmetic",
    )
    """What is scored."""
    words: tuple[PositiveInt, PositiveInt] = (10, 300)
    """Fewest and most words with the full score for `length`."""
    repetition: tuple[Share, Share] = (0.2, 0.5)
    """Highest share with the full score for `repetition`, and lowest share with the lowest score.
    The second is the most that Data-Juicer's filter keeps."""
    special_characters: tuple[Share, Share] = (0.7, 0.9)
    """The same for `special_characters`. Data-Juicer's filter keeps at most 0.25, which every
    worked calculation exceeds."""
    ngram: PositiveInt = 10
    """Characters of an n-gram, for `repetition`."""

    gil_bound: ClassVar[bool] = True
    retryable: ClassVar[frozenset[str] | None] = frozenset()
    reasons: ClassVar[Mapping[str, str]] = {"empty_response": "the response is null or blank"}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.words[0] > self.words[1]:
            raise ValueError(f"words: {self.words[0]} is more than {self.words[1]}")
        for name in ("repetition", "special_characters"):
            full, none = getattr(self, name)
            if full >= none:
                raise ValueError(f"{name}: {full} is not below {none}")
        if not self.dimensions:
            raise ValueError("dimensions: name at least one")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ValueError("a dimension is listed twice")
        return self

    def reads(self) -> Columns:
        return ("response",)

    def writes(self) -> Columns:
        return WRITTEN

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        kind = table["response"].type
        if pa.types.is_nested(kind):
            raise DataError(f"column 'response' is {kind}, not text", "give strings")
        texts = texts_of(table["response"])
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
        scores = self._scores(texts)
        chosen = {str(name): scores[name] for name in self.dimensions}
        return quality_columns(chosen, drop({"empty_response": flat(blank)}))

    def _scores(self, texts: pa.Array) -> dict[str, Array]:
        found = statistics(texts, self.ngram)
        fewest, most = self.words
        scores = {
            "length": np.minimum(
                LEAST + (MOST - LEAST) * found.words_N / fewest,
                _falling(found.words_N, most, 2 * most),
            ),
            "repetition": _falling(found.repetition_N, *self.repetition),
            "special_characters": _falling(found.special_N, *self.special_characters),
        }
        if "arithmetic" in self.dimensions:
            scores["arithmetic"] = _arithmetic(texts)
        return scores


def _falling(values_N: Array, full: float, none: float) -> Array:
    """5 up to `full`, then falling linearly to 1 at `none`, float64[N]."""
    share_N = np.clip((none - values_N) / (none - full), 0.0, 1.0)
    score_N: Array = LEAST + (MOST - LEAST) * share_N
    return score_N


def _arithmetic(texts: pa.Array) -> Array:
    found = [arithmetic(text or "") for text in texts.to_pylist()]
    made_N, false_N = np.array(found, np.float64).reshape(-1, 2).T
    true_N = (made_N - false_N) / np.maximum(made_N, 1)
    score_N: Array = np.where(made_N > 0, LEAST + (MOST - LEAST) * true_N, (LEAST + MOST) / 2)
    return score_N
