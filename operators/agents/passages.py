"""Passages of text that searches find, where they come from, and how a policy sees them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

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

    Raises:
        ValueError: it is something else.

    Example:
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

    Example:
        >>> shown([Passage("Tea", "It is hot.")], 1, None)
        'Tea: It is hot.'
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
    """The passages of a file: one in each line or row, blank lines aside.

    Raises:
        OSError, ValueError, pa.ArrowInvalid: it cannot be read.
    """
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
