"""Drop rows that contain a question of an evaluation set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from pydantic import Field, PositiveInt

from ..arrow_compute import pc
from ..config import Config
from ..errors import DataError, needs
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

    Texts are compared in lower case, by words: punctuation, signs such as `+`, accents and spaces
    do not count, nor do runs that more than 50 questions have. A quarter of a question's runs of
    eight words are enough. In open-r1 a single one is
    (`min_share: 0`), which drops thirty times as many of GSM8K's training questions, for phrases
    that anybody uses; open-instruct asks for half (`min_share: 0.5`). datatrove treats all numbers
    as equal (`numbers: equal`), which also finds a question with other numbers.

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
    """Whether different numbers are different words (`differ`), or all are the same (`equal`)."""

    reasons: ClassVar[Mapping[str, str]] = {
        "contaminated": "a question of an evaluation set is in the text"
    }

    def reads(self) -> Columns:
        return (self.column,)

    def drops_within_groups(self) -> bool:
        return self.column not in _OF_PROMPTS

    def cache_key_fields(self) -> Mapping[str, Any]:
        digests = {name: each.digest for name, each in self._sets().items()}
        return {**super().cache_key_fields(), "questions": digests}

    def check_files(self) -> None:
        needs("an evaluation set", "rejuice[hub]", "datasets")

    def preflight(self) -> None:
        self._sets()

    def decide(self, table: pa.Table) -> pa.Array:
        number_N, _ = self._found(table)
        return drop({"contaminated": number_N >= 0})

    def questions(self, table: pa.Table) -> pa.Array:
        """The question that is in each text, string[N], such as `aime row 3: Find ...`; null for
        none.

        Several: the one of which most is there, then the first. Rows are counted from 0.
        """
        number_N, sets = self._found(table)
        ends = np.cumsum([len(each.texts) for each in sets.values()])
        names = dict[int, str]()
        for number in np.unique(number_N[number_N >= 0]).tolist():
            at = int(np.searchsorted(ends, number, side="right"))
            (name, of), row = list(sets.items())[at], number - (int(ends[at - 1]) if at else 0)
            names[number] = f"{name} row {row}: {of.texts[row]}"
        return pa.array([names.get(number) for number in number_N.tolist()], pa.string())

    def _found(self, table: pa.Table) -> tuple[Array, dict[str, _Questions]]:
        """The number of the question in each row's text, -1 for none, and the sets."""
        # The responses to a prompt have the same text, which is compared once.
        texts = texts_of(table[self.column]).dictionary_encode()
        sets = self._sets()
        runs = _Runs.of(tuple(sets.values()), self.n, self.numbers == "equal")
        number_D = np.append(runs.find(texts.dictionary, self.min_share), -1)
        number_N: Array = number_D[np.asarray(texts.indices.fill_null(len(number_D) - 1))]
        return number_N, sets

    def _sets(self) -> dict[str, _Questions]:
        return {
            name: _questions(each if isinstance(each, EvaluationSet) else EvaluationSet(path=each))
            for name, each in self.against.items()
        }


def found_in(texts: pa.ChunkedArray, questions: pa.ChunkedArray) -> int:
    """How many of some prompts are in one of some texts, strings or chats: word for word, or
    nearly.

    Nearly is half of its runs of eight words, with the same numbers and signs: problems that differ
    in these are others, and many end alike. Runs that a quarter of the prompts have, and at least
    three, are those of a template.
    """
    text_N, question_M = (_spaced(pc.unique(texts_of(each))) for each in (texts, questions))
    new_M = question_M.filter(pc.invert(pc.is_in(question_M, text_N)))
    most = min(_MOST_QUESTIONS, max(2, len(questions) // 4))
    runs = _Runs.of((_Questions(new_M),), 8, numbers_equal=False, most=most)
    text_P, question_P, _ = runs.shared(text_N, 0.5)
    number_P = runs.number_Q[question_P]
    near = {
        question
        for text, question in zip(text_P.tolist(), number_P.tolist(), strict=True)
        if _formula(new_M[question].as_py()) in _formula(text_N[text].as_py())
    }
    return len(question_M) - len(new_M) + len(near)


_FORMULA = re.compile(r"\d+(?:[.,]\d+)*|[+*/=<>^]|-(?=[\s(-]*\d)")


def _spaced(texts: pa.Array) -> pa.Array:
    """Different texts, with single spaces for whatever is between words."""
    spaced = pc.replace_substring_regex(texts.fill_null(""), r"\s+", " ")
    return pc.unique(pc.utf8_trim_whitespace(spaced))


def _formula(text: str) -> str:
    """The numbers and signs of a text, in their order, with a space before and after each."""
    return " ".join(["", *_FORMULA.findall(text), ""])


# --- Runs of words that are in a question ---------------------------------------------


class _Questions:
    """The questions of a set; equal to another by their texts."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self.digest = sha256("\0".join(texts.to_pylist()).encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Questions) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


_MOST_QUESTIONS = 50
"""A run that more questions have is no sign of one: it is how such questions are put."""


class _Runs(NamedTuple):
    """The runs of words of Q different questions."""

    run_U: Array  # uint64[U], sorted
    starts_U1: Array  # int64[U + 1]; run u is in the questions from starts[u] to starts[u + 1]
    question_K: Array  # int64[K], ascending for each run
    sizes_Q: Array  # int64[Q], how many runs a question has
    number_Q: Array  # int64[Q], its number among those of all sets, one set after the other
    n: int
    numbers_equal: bool

    @staticmethod
    @lru_cache(maxsize=4)
    def of(
        sets: tuple[_Questions, ...], n: int, numbers_equal: bool, most: int = _MOST_QUESTIONS
    ) -> _Runs:
        """Runs of more than `most` questions are left out."""
        texts = pa.concat_arrays([each.texts for each in sets])
        texts = _same_words(_comparable(texts, numbers_equal)).dictionary_encode()
        # Of a question that is there several times, the first.
        _, number_Q = np.unique(np.asarray(texts.indices), return_index=True)
        parts = [
            np.unique(np.stack([runs_M, text_M]), axis=1)
            for text_M, runs_M in _run_hashes(texts.dictionary, n)
        ]
        run_K, question_K = np.concatenate([np.zeros((2, 0), np.uint64), *parts], axis=1)
        order = np.lexsort((question_K, run_K))
        run_U, counts_U = np.unique(run_K, return_counts=True)
        used_U = counts_U <= most
        question_K = question_K[order][np.repeat(used_U, counts_U)].astype(np.int64)
        starts_U1 = np.concatenate([[0], np.cumsum(counts_U[used_U])])
        sizes_Q = np.bincount(question_K, minlength=len(number_Q))
        return _Runs(run_U[used_U], starts_U1, question_K, sizes_Q, number_Q, n, numbers_equal)

    def find(self, texts: pa.Array, min_share: float) -> Array:
        """The number of the question of which most is in each text, int64[N]; -1: none."""
        text_P, question_P, share_P = self.shared(texts, min_share)
        # The best of a text comes first.
        order = np.lexsort((question_P, -share_P, text_P))
        text_B, best = np.unique(text_P[order], return_index=True)
        number_N = np.full(len(texts), -1)
        number_N[text_B] = self.number_Q[question_P[order][best]]
        return number_N

    def shared(self, texts: pa.Array, min_share: float) -> tuple[Array, Array, Array]:
        """Texts and questions that are in them, int64[P] each, and the share, float64[P]."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        if len(self.run_U):
            for text_M, run_M in _run_hashes(_comparable(texts, self.numbers_equal), self.n):
                found.append(self._shared(text_M.astype(np.int64), run_M, min_share))
        text_P, question_P, share_P = map(np.concatenate, zip(*found, strict=True))
        return text_P, question_P, share_P

    def _shared(self, text_M: Array, run_M: Array, min_share: float) -> tuple[Array, Array, Array]:
        at_M = np.minimum(np.searchsorted(self.run_U, run_M), len(self.run_U) - 1)
        hit_M = self.run_U[at_M] == run_M
        # A run that a text has twice counts once.
        codes_H = np.unique(text_M[hit_M] * len(self.run_U) + at_M[hit_M])
        text_H, at_H = np.divmod(codes_H, len(self.run_U))
        # A pair for each run of a text and each question that has it.
        counts_H = self.starts_U1[at_H + 1] - self.starts_U1[at_H]
        ends_H = np.cumsum(counts_H)
        places = np.arange(counts_H.sum()) - np.repeat(ends_H - counts_H, counts_H)
        question = self.question_K[places + np.repeat(self.starts_U1[at_H], counts_H)]
        codes = np.repeat(text_H, counts_H) * len(self.sizes_Q) + question
        codes_P, shared_P = np.unique(codes, return_counts=True)
        text_P, question_P = np.divmod(codes_P, len(self.sizes_Q))
        share_P = shared_P / self.sizes_Q[question_P]
        enough_P = share_P >= min_share
        return text_P[enough_P], question_P[enough_P], share_P[enough_P]


def _run_hashes(texts: pa.Array, n: int) -> Iterator[tuple[Array, Array]]:
    """The runs of n words of blocks of texts: uint64[M] each, the text and the run's hash."""
    start = 0
    for text in blocks(texts):
        words = tokens_of(text, marks=False)
        runs = shingles(words, n)
        sizes_N = np.diff(runs.offsets_N1)
        rows_T = np.repeat(np.arange(start, start + len(sizes_N), dtype=np.uint64), sizes_N)
        # A text without a word has one run, of nothing.
        has_words_T = np.repeat(np.diff(words.offsets_N1) > 0, sizes_N)
        yield rows_T[has_words_T], runs.hashes_T[has_words_T]
        start += len(sizes_N)


_WORD = re.compile(r"[^\W_]+")
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
Each of them counts as a word."""


def _comparable(texts: pa.Array, numbers_equal: bool) -> pa.Array:
    """Texts whose words are those of `tokens_of`, which takes ASCII alone for letters. Its capitals
    and punctuation are left to `tokens_of`."""
    if numbers_equal:
        texts = pc.replace_substring_regex(texts, r"\d+(?:[.,]\d+)*", "0")
    others = pc.invert(pc.string_is_ascii(texts)).fill_null(False)
    if not pc.any(others).as_py():
        return texts
    plain = pc.utf8_normalize(pc.utf8_lower(texts.filter(others)), form="NFKD")
    plain = pc.replace_substring_regex(plain, r"\pM+", "")
    words = [" ".join(map(_ascii_word, _WORD.findall(text))) for text in plain.to_pylist()]
    return pc.replace_with_mask(texts, others, pa.array(words, texts.type))


def _same_words(texts: pa.Array) -> pa.Array:
    """Comparable texts that are equal where they have the same words in the same order."""
    lower = pc.ascii_lower(texts)
    spaced = pc.replace_substring_regex(lower, r"[\x00-\x2f\x3a-\x60\x7b-\x7f]+", " ")
    return pc.ascii_trim_whitespace(spaced)


def _ascii_word(word: str) -> str:
    """A word of letters beyond ASCII as one of ASCII letters and digits."""
    if word.isascii() or _WITHOUT_SPACES.search(word):
        return word
    return f"w{xxhash.xxh3_64_hexdigest(word.encode())}"


# --- Evaluation sets ------------------------------------------------------------------

_OF_PROMPTS = ("question", "problem", "prompt", "query", "instruction", "input")
_NAMES = (*_OF_PROMPTS, "text")
_FORMATS = {"parquet": "parquet", "json": "json", "jsonl": "json", "csv": "csv"}


def _questions(of: EvaluationSet) -> _Questions:
    try:
        found = os.stat(of.path)
    except OSError:
        return _read(of, None)
    return _read(of, (found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=64)
def _read(of: EvaluationSet, state: tuple[int, int] | None) -> _Questions:
    """By its `state`, a file that has changed is read again."""
    needs("an evaluation set", "rejuice[hub]", "datasets")
    import datasets

    # `a.jsonl`, `a.jsonl.gz`; the name of a dataset on the hub may have a dot, too.
    suffixes = (each for each in Path(of.path.lower()).name.split(".")[1:] if each in _FORMATS)
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
    try:
        return _Questions(texts_of(rows.data.table[name]).fill_null(""))
    except DataError as error:
        found = f"the evaluation set '{of.path}', column {name}: {error.found}"
        raise DataError(found, error.right) from None


_RIGHT = "give a Parquet, JSON, JSON Lines or CSV file, or the name of a dataset on the hub"
