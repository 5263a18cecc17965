"""Search by keywords in documents of the task itself, or of a file."""

from __future__ import annotations

import asyncio
import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ...cache_key import file_state
from ...errors import EngineError, RecipeError, needs
from ...operator import Columns
from ..tool import Tool, ToolError

# --- Passages that searches find, and how a policy sees them --------------------------

NOTHING_FOUND = "nothing was found"
_TEXTS = ("text", "contents", "content")
_LONGEST_LINE = 1 << 26  # characters
SUFFIXES = (".jsonl", ".parquet", ".txt")
"""Names of files of passages end so; JSON Lines and text may be compressed, such as `.jsonl.gz`."""


class Passage(NamedTuple):
    """A text to search in, and its title, which may be empty."""

    title: str
    text: str


def passage_of(value: Any) -> Passage:
    """A passage from a text, or from an object with `text`, `contents` or `content`, and `title`.

    >>> passage_of({"title": "Tea", "text": "It is hot."})
    Passage(title='Tea', text='It is hot.')
    """
    if isinstance(value, str):
        return Passage("", value)
    if isinstance(value, dict):
        name = next((name for name in _TEXTS if name in value), None)
        if name is None:
            names = ", ".join(map(str, value))
            raise ValueError(f"a document has no text, but the fields {names:.200}")
        return Passage(str(value.get("title") or ""), str(value[name] or ""))
    raise ValueError(f"a document is neither a text nor an object with `text`: {value!r:.80}")


def shown(passages: Sequence[Passage], k: int, longest: int | None) -> str:
    """Passages as a policy sees them: numbered where there may be several.

    >>> print(shown([Passage("Tea", "It is hot."), Passage("", "Ice is cold.")], 2, 6))
    [1] Tea: It is  […]
    [2] Ice is […]
    """
    lines = [_line(passage, longest) for passage in passages[:k]]
    if not lines:
        return NOTHING_FOUND
    return lines[0] if k == 1 else "\n".join(f"[{n}] {line}" for n, line in enumerate(lines, 1))


def _line(passage: Passage, longest: int | None) -> str:
    title, text = passage.title.strip(), passage.text.strip()
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]} […]"
    return f"{title}: {text}" if title else text


def passages_in(file: Path) -> Iterator[Passage]:
    """The passages of a file: one in each line or row, blank lines aside."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(file).iter_batches():
            yield from map(passage_of, batch.to_pylist())
        return
    is_json = ".jsonl" in file.suffixes
    with pa.input_stream(file) as stream, io.TextIOWrapper(stream, "utf-8") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), ""), 1):
            if len(line) == _LONGEST_LINE:
                raise ValueError(f"line {number} has more than {_LONGEST_LINE:,} characters")
            if line.isspace():
                continue
            try:
                yield passage_of(orjson.loads(line) if is_json else line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


# --- Search by keywords ---------------------------------------------------------------

_WORD = re.compile(r"\w+")


class Search(Tool):
    """Search documents by keywords."""

    documents: str | None = None
    """Column with the documents of each prompt: a list of texts, or of structs with `text` and
    perhaps `title`."""
    path: Path | None = None
    """File with the documents of all prompts instead: JSON Lines or Parquet with `text` and perhaps
    `title`, or a text file with a document in each line. It is indexed in memory at the first
    call."""
    k: PositiveInt = 3
    """Most documents that a search shows."""
    longest: PositiveInt | None = 1000
    """Longest text of a document, in characters; what is beyond it is cut off, with a visible
    marker. Null: no limit but the flow's `max_observation`."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset({"path"})
    is_local: ClassVar[bool] = True
    code: ClassVar[str | None] = "1"

    @model_validator(mode="after")
    def _has_documents(self) -> Self:
        if (self.documents is None) == (self.path is None):
            raise ValueError("search needs either `documents`, a column, or `path`, a file")
        return self

    async def call(
        self,
        query: Annotated[str, Field(description="keywords to search for")],
        *,
        task: Mapping[str, Any],
    ) -> str:
        """The best documents, the best first; those that are equally good in their own order."""
        words = _words(query)
        if not words:
            raise ValueError("the query has no words")
        if self.path is not None:
            index = await asyncio.to_thread(_index_of_file, self.path)
        else:
            index = _index_of_task(_passages(task[self.documents or ""]))
        found = index.best(words, self.k) if index else []
        return shown(found, self.k, self.longest)

    def reads(self) -> Columns:
        return () if self.documents is None else (self.documents,)

    def check(self) -> None:
        needs("the tool 'search'", "rejuice[agents]", "bm25s")
        if self.path is None:
            return
        if not any(suffix in SUFFIXES for suffix in self.path.suffixes):
            raise RecipeError(f"search: path is '{self.path}'", f"use {', '.join(SUFFIXES)}")
        try:
            next(passages_in(self.path), None)
        except (OSError, ValueError) as error:
            raise RecipeError(f"search: '{self.path}' cannot be read: {error}") from None

    def cache_key_fields(self) -> Mapping[str, Any]:
        # The file itself, wherever it is.
        state = file_state(self.path) if self.path is not None and self.path.is_file() else None
        return {**super().cache_key_fields(), "file": state}


class _WordIndex:
    """Documents by their words, with BM25 in Lucene's form (https://doi.org/10.1561/1500000019)."""

    def __init__(self, passages: tuple[Passage, ...], words: list[list[str]]) -> None:
        import bm25s

        self._passages = passages
        self._scorer = bm25s.BM25()
        self._scorer.index(words, show_progress=False)

    def best(self, words: list[str], k: int) -> list[Passage]:
        """The k passages with the highest scores above 0."""
        scores_N = self._scorer.get_scores(words)
        # bm25s's own choice among equal scores depends on how many documents there are.
        order = np.argsort(-scores_N, kind="stable")[:k]
        return [self._passages[at] for at in order if scores_N[at] > 0]


def _index_of(passages: tuple[Passage, ...]) -> _WordIndex | None:
    """None where there is no word."""
    words = [_words(f"{passage.title} {passage.text}") for passage in passages]
    return _WordIndex(passages, words) if any(words) else None


# All trajectories of a prompt search in the same documents.
_index_of_task = lru_cache(maxsize=64)(_index_of)
_indexing = threading.Lock()


def _index_of_file(file: Path) -> _WordIndex | None:
    stat = file.stat()
    with _indexing:  # Many calls may come before the first one is done.
        return _index_of_version(file, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _index_of_version(file: Path, *_: int) -> _WordIndex | None:
    try:
        return _index_of(tuple(passages_in(file)))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise EngineError(f"search: '{file}' cannot be read: {error}") from None


def _passages(column: Any) -> tuple[Passage, ...]:
    if column is None:
        return ()
    try:
        return tuple(passage_of(each) for each in column if each is not None)
    except (TypeError, ValueError) as error:
        raise ToolError(str(error)) from None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
