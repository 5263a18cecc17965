"""Options of multiple choice, in the layouts of public datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import xxhash

from .columns import as_text, listed_answers

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Options(NamedTuple):
    """Labels and texts of options; labels are the texts where the dataset has none."""

    labels: list[str]
    texts: list[str]

    @classmethod
    def of(cls, cell: Any) -> Options | None:
        """Of a list of texts or of {label, text}, {text: [...], label: [...]} or {A: ..., B: ...};
        None where a cell is something else, or empty."""
        cell = listed_answers(cell) if isinstance(cell, str) else cell
        if isinstance(cell, Mapping):
            texts = cell.get("text") or cell.get("choices")
            labels, texts = (cell.get("label") or texts, texts) if texts else (cell, cell.values())
        elif isinstance(cell, list) and all(isinstance(each, Mapping) for each in cell):
            labels, texts = ([each.get(name) for each in cell] for name in ("label", "text"))
        else:
            labels = texts = cell if isinstance(cell, list) else []
        pairs = [pair for pair in zip(labels, texts, strict=False) if pair[1] not in (None, "")]
        if not 0 < len(pairs) <= len(_LETTERS) or any(isinstance(t, list | dict) for _, t in pairs):
            return None
        return cls([str(label) for label, _ in pairs], [str(text).strip() for _, text in pairs])

    def reference(self, named: Any, first: int) -> str:
        """The letter and the text of the option that a number, label, letter or text names, or the
        only 1 in labels that are a list; empty where it names none."""
        letters, name = list(_LETTERS[: len(self.texts)]), "1" if isinstance(named, list) else named
        at = int(named) - first if str(named).isdecimal() else -1
        if isinstance(name, str):
            letter = name.strip("() .").upper()
            known = ((self.labels, name), (letters, letter), (self.texts, name))
            at = next((each.index(n) for each, n in known if each.count(n) == 1), at)
        if not 0 <= at < len(letters):
            return ""
        text = self.texts[at]
        return as_text([letters[at], *([] if text.upper() in letters else [text])])

    def shown(self) -> str:
        lines = (f"{letter}. {text}" for letter, text in zip(_LETTERS, self.texts, strict=False))
        return "\n".join(lines)

    def drawn(self, labels: list[Any] | None = None) -> Options:
        """In an order that depends on nothing but the texts; with these labels."""
        salt = "\n".join(sorted(self.texts))
        order = [xxhash.xxh3_64_hexdigest((text + salt).encode()) for text in self.texts]
        rows = sorted(zip(order, map(str, labels or self.labels), self.texts, strict=False))
        return Options([label for _, label, _ in rows], [text for *_, text in rows])
