"""Drop rows that contain a question of an evaluation set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from ..arrow_compute import pc
from ..config import Config
from ..errors import DataError
from ..groups import Array
from ..operator import Columns, Filter, drop
from ..text.tokens import blocks, shingles, texts_of, tokens_of


class EvaluationSet(Config):
    """The questions of an evaluation."""

    path: str
    """A Parquet, JSON, JSON Lines or CSV file, or the name of a dataset on the hub."""
    column: str | None = None
    """The column of its questions. Null: the first of `question`, `problem`, `prompt`, `query`,
    `instruction`, `input` and `text` that it has."""
    config: str | None = None
    """The configuration, of a dataset on the hub."""
    split: str = "test"
    """The split, of a dataset on the hub."""


class NgramDecontaminationFilter(Filter):
    """Drop rows whose text shares runs of words with a question of an evaluation set.

    Texts are compared in lower case, by words: punctuation, accents and spaces do not count. A
    quarter of a question's runs of eight words are enough. In open-r1 a single one is
    (`min_share: 0`), which drops thirty times as many of GSM8K's training questions, for phrases
    that anybody uses; open-instruct asks for half (`min_share: 0.5`). datatrove takes all numbers
    for one (`numbers: equal`), by which a question with other numbers is found as well.

    `rejuice explain` and the page say which question it is.

    Raises:
        DataError: a set cannot be read, or has no column of questions.
    """

    against: dict[str, EvaluationSet | str] = Field(min_length=1)
    """The evaluation sets, each by a name that is yours: a path or the name of a dataset on the
    hub, or `{path: FILE, column: problem}`."""
    column: str = "prompt"
    """What is compared, a column of strings or chats."""
    n: PositiveInt = 8
    """Words in a run. A shorter question is found only where it is the whole text."""
    min_share: float = Field(0.25, ge=0, le=1)
    """Share of the runs of a question that must be in the text; 0: one is enough."""
    numbers: Literal["differ", "equal"] = "differ"
    """Whether different numbers are different words (`differ`), or all numbers one (`equal`)."""

    reasons: ClassVar[Mapping[str, str]] = {
        "contaminated": "a question of an evaluation set is in the text",
    }

    def reads(self) -> Columns:
        return (self.column,)

    def drops_within_groups(self) -> bool:
        return self.column.startswith("response")

    def cache_key_fields(self) -> Mapping[str, Any]:
        digests = {name: each.digest for name, each in self._sets().items()}
        return {**super().cache_key_fields(), "questions": digests}

    def preflight(self) -> None:
        self._sets()

    def decide(self, table: pa.Table) -> pa.Array:
        return drop({"contaminated": self.questions(table).is_valid()})

    def questions(self, table: pa.Table) -> pa.Array:
        """The question that is in each text, such as `aime row 3: Find ...`; null for none.

        Of several, it is that of which most is there, then the first. Rows are counted from 0.

        Returns:
            string[N].
        """
        # The responses to a prompt have the same text, which is compared once.
        texts = texts_of(table[self.column]).dictionary_encode()
        sets = self._sets()
        index = _Runs.of(tuple(sets.values()), self.n, self.numbers == "equal")
        numbers = index.find(texts.dictionary, self.min_share)
        names = (
            f"{name} row {row}" for name, each in sets.items() for row in range(len(each.texts))
        )
        every = zip(names, chain.from_iterable(each.texts for each in sets.values()), strict=True)
        wanted = set(numbers.tolist())
        shown = {at: f"{name}: {text}" for at, (name, text) in enumerate(every) if at in wanted}
        found = pa.array([shown.get(number) for number in numbers.tolist()], pa.string())
        return found.take(texts.indices)

    def _sets(self) -> dict[str, _Questions]:
        return {
            name: _questions(each if isinstance(each, EvaluationSet) else EvaluationSet(path=each))
            for name, each in self.against.items()
        }


def found_in(texts: pa.ChunkedArray, questions: pa.ChunkedArray) -> Array:
    """Return which questions are in one of some texts, by the defaults of the filter.

    Args:
        texts: strings or chats.
        questions: strings or chats.

    Returns:
        int64[Q], their numbers, ascending.
    """
    fields = NgramDecontaminationFilter.model_fields
    sets = (_Questions(texts_of(questions).fill_null("")),)
    index = _Runs.of(sets, fields["n"].default, numbers_equal=False)
    distinct = pc.unique(texts_of(texts))
    _, question_P, _ = index.shared(distinct, fields["min_share"].default)
    return np.unique(question_P)


# --- Runs of words that are in a question ---------------------------------------------


class _Questions:
    """The questions of a set; equal to another by their texts.

    Attributes:
        texts: large_string[N].
        digest: of them.
    """

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self.digest = sha256("\0".join(texts.to_pylist()).encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Questions) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class _Runs(NamedTuple):
    """The runs of words of Q questions."""

    runs_K: Array  # uint64[K], sorted; a run is there once for each question that has it
    question_K: Array  # int64[K], the question
    sizes_Q: Array  # int64[Q], how many different runs a question has
    n: int
    numbers_equal: bool

    @staticmethod
    @lru_cache(maxsize=4)
    def of(sets: tuple[_Questions, ...], n: int, numbers_equal: bool) -> _Runs:
        """Index the questions of some sets, numbered one set after the other."""
        texts = pa.concat_arrays([each.texts for each in sets])
        question_K, runs_K = np.unique(_run_hashes(texts, n, numbers_equal), axis=1)
        order = np.lexsort((question_K, runs_K))
        sizes_Q = np.bincount(question_K.astype(np.int64), minlength=len(texts))
        return _Runs(runs_K[order], question_K[order].astype(np.int64), sizes_Q, n, numbers_equal)

    def find(self, texts: pa.Array, min_share: float) -> Array:
        """Return the number of the question of which most is in each text, int64[N]; -1: none."""
        text_P, question_P, share_P = self.shared(texts, min_share)
        # The best of a text comes first.
        order = np.lexsort((question_P, -share_P, text_P))
        text_B, best = np.unique(text_P[order], return_index=True)
        question_N = np.full(len(texts), -1)
        question_N[text_B] = question_P[order][best]
        return question_N

    def shared(self, texts: pa.Array, min_share: float) -> tuple[Array, Array, Array]:
        """Return texts and questions that are in them: int64[P] each, and float64[P], the share."""
        text_M, runs_M = _run_hashes(texts, self.n, self.numbers_equal)
        first_M = np.searchsorted(self.runs_K, runs_M, side="left")
        counts_M = np.searchsorted(self.runs_K, runs_M, side="right") - first_M
        # A pair for each run of a text and each question that has it.
        ends_M = np.cumsum(counts_M)
        places = np.arange(ends_M[-1] if len(ends_M) else 0)
        places = places - np.repeat(ends_M - counts_M - first_M, counts_M)
        texts_P = np.repeat(text_M.astype(np.int64), counts_M)
        # A run that a text has twice counts once.
        pairs = np.unique(np.stack([texts_P, self.question_K[places], places]), axis=1)[:2]
        (text_P, question_P), shared_P = np.unique(pairs, axis=1, return_counts=True)
        share_P = shared_P / self.sizes_Q[question_P]
        enough_P = share_P >= min_share
        return text_P[enough_P], question_P[enough_P], share_P[enough_P]


def _run_hashes(texts: pa.Array, n: int, numbers_equal: bool) -> Array:
    """Return the runs of n words of texts: uint64[2, M], the text and the run's hash."""
    found, start = [np.zeros((2, 0), np.uint64)], 0
    for text in blocks(_comparable(texts, numbers_equal)):
        words = tokens_of(text, marks=False)
        runs = shingles(words, n)
        sizes_N = np.diff(runs.offsets_N1)
        rows_T = np.repeat(np.arange(start, start + len(sizes_N)), sizes_N)
        # A text without a word has one run, of nothing.
        has_words_T = np.repeat(np.diff(words.offsets_N1) > 0, sizes_N)
        found.append(np.stack([rows_T.astype(np.uint64), runs.hashes_T])[:, has_words_T])
        start += len(sizes_N)
    return np.concatenate(found, axis=1)


def _comparable(texts: pa.Array, numbers_equal: bool) -> pa.Array:
    """Return texts of which what is not ASCII is in lower case, without accents and punctuation.

    Capitals and punctuation of ASCII are left to `tokens_of`.
    """
    if numbers_equal:
        texts = pc.replace_substring_regex(texts, r"\d+(?:[.,]\d+)*", "0")
    others = pc.invert(pc.string_is_ascii(texts)).fill_null(False)
    if not pc.any(others).as_py():
        return texts
    plain = pc.utf8_normalize(pc.utf8_lower(texts.filter(others)), form="NFKD")
    plain = pc.replace_substring_regex(plain, r"\pM+", "")
    plain = pc.replace_substring_regex(plain, r"[^\pL\pN\x00-\x7f]+", " ")
    return pc.replace_with_mask(texts, others, plain)


# --- Evaluation sets ------------------------------------------------------------------

_NAMES = ("question", "problem", "prompt", "query", "instruction", "input", "text")
_FORMATS = {"parquet": "parquet", "json": "json", "jsonl": "json", "csv": "csv"}


def _questions(of: EvaluationSet) -> _Questions:
    """Return the questions of a set; of a file that has changed, the new ones.

    Raises:
        DataError: it cannot be read.
    """
    try:
        state = os.stat(of.path)
    except OSError:
        return _read(of, None)
    return _read(of, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=64)
def _read(of: EvaluationSet, state: tuple[int, int] | None) -> _Questions:
    import datasets

    # `a.jsonl`, `a.jsonl.gz`; the name of a dataset on the hub may have a dot, too.
    suffixes = (each for each in Path(of.path).name.split(".")[1:] if each in _FORMATS)
    kind = next(suffixes, None)
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        if kind is None:
            rows = datasets.load_dataset(of.path, of.config, split=of.split)
        else:
            rows = datasets.load_dataset(_FORMATS[kind], data_files=of.path, split="train")
    except Exception as error:  # Of the library, its formats, the network or the disk.
        why = " ".join(str(error.__cause__ or error).split())
        raise DataError(f"cannot read the evaluation set '{of.path}': {why}", _RIGHT) from None
    finally:
        if shown:
            datasets.enable_progress_bars()
    known = [of.column] if of.column else _NAMES
    name = next((each for each in known if each in rows.column_names), None)
    if name is None:
        found = f"the evaluation set '{of.path}' has no column {' or '.join(known)}"
        raise DataError(found, f"give `column`, one of {', '.join(rows.column_names)}")
    return _Questions(texts_of(rows.data.table[name]).fill_null(""))


_RIGHT = "give a Parquet, JSON, JSON Lines or CSV file, or the name of a dataset on the hub"
