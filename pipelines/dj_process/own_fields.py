"""Each use of an operator in a recipe has its own fields, and no others.

Data-Juicer merges each use of an operator into the one before: a field that the second use leaves
out has the value of the first, and a mapping has the keys of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any

from data_juicer.ops.base_op import OPERATORS

from ..recipe.read import set_field
from ..recipe.yaml_text import parse

ProcessEntry = dict[str, Any]
"""An entry of `process`: an operator's name and its fields."""


def give_each_use_its_fields() -> None:
    """Let Data-Juicer's configuration keep the fields of each entry of `process` apart."""
    from data_juicer.config import config

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
    merge = config.update_op_process
    if hasattr(merge, "__wrapped__"):
        return  # It was replaced when the first parser was made.

    @wraps(merge)
    def update(cfg: Any, parser: Any, used_ops: set[str] | None = None) -> Any:
        process = list(cfg.process or ())
        if _is_ours_or_repeated(process):
            # For no entry at all, it makes one of each operator: the defaults, the environment's
            # fields and those of the command line.
            cfg.process = []
            cfg = merge(cfg, parser, used_ops)
            filled = {name: fields or {} for entry in cfg.process for name, fields in entry.items()}
            cfg.process = [_entry(entry, filled, parser.args) for entry in process]
        else:
            cfg = merge(cfg, parser, used_ops)
        return cfg

    config.update_op_process = update


def _is_ours_or_repeated(process: Sequence[ProcessEntry]) -> bool:
    """Whether the recipe is one that Data-Juicer's own merging would change."""
    names = [next(iter(entry)) for entry in process]
    ours = any(hasattr(OPERATORS.modules.get(name), "operator_class") for name in names)
    return ours or len(set(names)) < len(names)


def _entry(
    entry: ProcessEntry, filled: Mapping[str, ProcessEntry], words: Sequence[str]
) -> ProcessEntry:
    """An entry of `process` with all of its fields."""
    name, given = next(iter(entry.items()))
    own = deepcopy(dict(given or {}))
    for path, text in _options(name, words):
        if len(path) == 1:
            own.pop(path[0], None)  # The parser has read and checked it.
        else:
            set_field(own, path, parse(text))
    return {name: {**deepcopy(filled.get(name, {})), **own}}


def _options(name: str, words: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """The fields of an operator that the command line sets, and what it sets them to."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(f"--{name}."):
            option, equals, text = word.partition("=")
            yield option.split(".")[1:], text if equals else following
