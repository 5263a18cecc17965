"""Options of multiple choice, in the layouts of public datasets."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from .columns import as_text, at_path

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LABELLED = re.compile(r"\(?([A-Z])[).:]\s*(.+)", re.DOTALL)


class Options(NamedTuple):
    """Texts of options, in their order; labels only where the dataset gives them."""

    texts: list[str]
    labels: list[str]

    @classmethod
    def of(cls, cell: Any) -> Options | None:
        """A list of texts or of {label, text}, {text: [...], label: [...]} or {A: ..., B: ...}, also
        as JSON; None where it is something else, or empty."""
        if isinstance(cell, str):
            cell = _decoded(cell)
        if isinstance(cell, Mapping):
            texts, labels = (cell.get(name) or cell.get(f"{name}s") for name in ("text", "label"))
            if isinstance(texts := texts or cell.get("choices"), list):
                pairs = list(zip(labels or [None] * len(texts), texts, strict=False))
            else:
                pairs = list(cell.items())
        elif isinstance(cell, list):
            pairs = [
                (each.get("label"), each.get("text")) if isinstance(each, Mapping) else (None, each)
                for each in cell
            ]
        else:
            return None
        pairs = [(label, text) for label, text in pairs if text not in (None, "")]
        are_texts = all(isinstance(text, str | int | float) for _, text in pairs)
        if not (are_texts and 0 < len(pairs) <= len(_LETTERS)):
            return None
        found = [_LABELLED.fullmatch(str(text)) for _, text in pairs]
        if "".join(each[1] if each else " " for each in found) == _LETTERS[: len(found)]:
            return cls([each[2].strip() for each in found if each], [])
        labels = [str(label) for label, _ in pairs if label is not None]
        return cls([str(text).strip() for _, text in pairs], labels)

    def reference(self, named: str, first: int, *, is_number: bool) -> str:
        """The letter and the text of the option that a label, letter, text or number names; empty
        where it names none. Texts are not compared where the dataset has numbers."""
        letter, texts = named.strip("() .").upper(), [] if is_number else self.texts
        at = int(named) - first if named.isdecimal() else -1
        if named in self.labels:
            at = self.labels.index(named)
        elif len(letter) == 1 and letter in _LETTERS[: len(self.texts)]:
            at = _LETTERS.index(letter)
        elif texts.count(named) == 1:
            at = texts.index(named)
        if not 0 <= at < len(self.texts):
            return ""
        text = self.texts[at]
        return as_text([_LETTERS[at], *([] if text.upper() in _LETTERS else [text])])

    def shown(self) -> str:
        lines = (f"{letter}. {text}" for letter, text in zip(_LETTERS, self.texts, strict=False))
        return "\n".join(lines)

    def drawn(self) -> Options:
        """In an order that depends on nothing but the texts, by which they are then named."""
        salt = "\n".join(sorted(self.texts))
        texts = sorted(self.texts, key=lambda text: xxhash.xxh3_64_intdigest((text + salt).encode()))
        return Options(texts, texts)


def options_in(table: pa.Table, paths: Sequence[str]) -> list[Options | None]:
    """Of each row, in one column or with a column for each."""
    columns = [at_path(table, path).to_pylist() for path in paths]
    cells = columns[0] if len(paths) == 1 else map(list, zip(*columns, strict=True))
    return list(map(Options.of, cells))


def marked(several: Sequence[Options | None], marks: Sequence[Any]) -> list[str]:
    """The texts that are marked by a 1 among 0; empty where it is not one."""
    found = list[str]()
    for options, of_row in zip(several, marks, strict=True):
        texts = options.texts if options else []
        right = [text for text, mark in zip(texts, of_row or [], strict=False) if mark == 1]
        found.append(right[0] if len(right) == 1 else "")
    return found


def _decoded(text: str) -> Any:
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(text.strip())
    return None
