"""Reward a response for its quality, by rules: no server and no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from math import isqrt
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import flat
from ..errors import DataError
from ..groups import Array
from ..operator import Columns, Mapper, drop
from ..servers.verdict import LEAST, MOST, WRITTEN, quality_columns
from ..text.embedding import usable_texts
from ..text.equations import arithmetic
from ..text.tokens import texts_of

_WORD = re.compile(r"[^ \t\n]+")
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
    a field for each dimension, and `quality_score` contains s. A blank response has all scores 1.

    The defaults suit worked solutions of ten to a few hundred words with many numbers.
    """

    dimensions: tuple[Dimension, ...] = ("length", "repetition", "special_characters", "arithmetic")
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
    reasons: ClassVar[Mapping[str, str]] = {"no_response": "the response is null"}

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
        usable_N, scores = usable_texts(texts), self._scores(texts)
        chosen = {
            str(name): np.where(usable_N, scores[name], float(LEAST)) for name in self.dimensions
        }
        return quality_columns(chosen, drop({"no_response": flat(texts.is_null())}))

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


# --- Statistics of texts as in Data-Juicer's filters; the numbers are equal -----------


class Statistics(NamedTuple):
    words_N: Array
    repetition_N: Array
    special_N: Array


def statistics(texts: pa.Array, n: int) -> Statistics:
    rows = [_statistics(text or "", n) for text in texts.to_pylist()]
    return Statistics(*np.array(rows, np.float64).reshape(-1, 3).T)


def _statistics(text: str, n: int) -> tuple[int, float, float]:
    """The words of `words_num_filter` before it discards those without a letter: in `12 + 5 = 17`
    it finds none, and here there are 5. Then `char_rep_ratio` of `character_repetition_filter`, and
    `special_char_ratio` of `special_characters_filter`, 0 in an empty text."""
    special = len(text) - sum(map(len, ordinary_runs().findall(text)))
    return len(_WORD.findall(text)), _repetition(text, n), special / max(len(text), 1)


def _repetition(text: str, n: int) -> float:
    """With d distinct n-grams of n characters, of which r occur more than once: the occurrences of
    the min(floor(sqrt(d)), r) most frequent ones, divided by all; 0 if there is no n-gram."""
    count = max(len(text) - n + 1, 0)
    grams = Counter([text[at : at + n] for at in range(count)])
    often = sorted((each for each in grams.values() if each > 1), reverse=True)
    return sum(often[: isqrt(len(grams))]) / max(count, 1)


# --- The special characters of Data-Juicer, as code points ----------------------------
# They are the members of `data_juicer.ops.common.SPECIAL_CHARACTERS` (py-data-juicer 1.6.1, with
# emoji 2.2.0) that are single characters: ASCII punctuation, digits and white space, further
# punctuation and symbols, emoji. They are listed as ranges, because importing that module takes
# seconds.

_RANGES = """
9-d 20-40 5b-60 7b-7e 81-85 91-93 95-99 9c-9d a1-ab ad-b4 b7-bf d7 f7-f8 131 26a 2ba-2bc 2c8
2cc 2d0 2d8 2da 2dc 3c0 413 60c 647 66a 66c 6e9 93e 940 947 94d 97d 9be e51 2002-2003 2005
2008-200b 2010-2011 2013-2016 2018-201a 201c-2020 2022 2024 2026 202f-2030 2032-2033
2039-203a 203c 203f 2043-2044 2049 20a8 20aa 20ac 2103 2122 2139 2190-2199 21a9-21aa 21d3
2206 2208 2212 221a 221e-221f 223c 2248 2256 2264-2265 2295 22c5 231a-231b 2328 23cf
23e9-23f3 23f8-23fa 24c2 2550 25a0 25aa-25ac 25b2 25b4 25b6-25b7 25ba-25bc 25c0 25c6 25cf
25e6 25fb-25fe 2600-2606 260e 2611 2614-2615 2618 261b 261d 2620 2622-2623 2626 262a
262e-262f 2638-263b 2640 2642 2648-2653 265f-2661 2663 2665-2666 2668 266b 267b 267e-267f
2692-2697 2699 269b-269c 26a0-26a1 26a7 26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8
26ce-26cf 26d1 26d3-26d4 26e9-26ea 26f0-26f5 26f7-26fa 26fd 2702 2705 2708-270d 270f
2712-2714 2716 271d 2721 2726 2728 2731 2733-2734 2744 2747 274c 274e 2753-2757 2763-2764
2795-2797 27a1 27a4 27a9 27b0 27bf 2800 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3000-3002
300a-300d 3010-3011 3030 303d 309c 30b7 30c3-30c4 30f3 30fb-30fc 3297 3299 4e00 4e0a 58eb
fd3e-fd3f feff ff01 ff08-ff09 ff0c ff0e ff11 ff1a-ff1b ff1f ff3e ff5e fffc-fffd 1f004 1f0cf
1f170-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f201-1f202 1f21a 1f22f 1f232-1f23a 1f250-1f251
1f300-1f321 1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0 1f3f3-1f3f5 1f3f7-1f4fd
1f4ff-1f53d 1f549-1f54e 1f550-1f567 1f56f-1f570 1f573-1f57a 1f587 1f58a-1f58d 1f590
1f595-1f596 1f5a4-1f5a5 1f5a8 1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1
1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f 1f680-1f6c5 1f6cb-1f6d2 1f6d5-1f6d7 1f6dc-1f6e5 1f6e9
1f6eb-1f6ec 1f6f0 1f6f3-1f6fc 1f7e0-1f7eb 1f7f0 1f90c-1f93a 1f93c-1f945 1f947-1f9ff
1fa70-1fa7c 1fa80-1fa88 1fa90-1fabd 1fabf-1fac5 1face-1fadb 1fae0-1fae8 1faf0-1faf8
"""


@cache
def ordinary_runs() -> re.Pattern[str]:
    ends = (part.partition("-") for part in _RANGES.split())
    ranges = (rf"\U{int(low, 16):08x}-\U{int(high or low, 16):08x}" for low, _, high in ends)
    return re.compile(f"[^{''.join(ranges)}]+")
