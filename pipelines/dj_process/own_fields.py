"""Each use of an operator in a recipe has its own fields, and no others.

Data-Juicer merges each use of an operator into the one before: a field that the second use leaves
out has the value of the first, and a mapping has the keys of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from ...operators import RejuiceError
from ..recipe.read import option_value, set_field
from ..recipe.steps import FILES, with_files
from .ours import ProcessEntry, has_ours, operator_of
from .stop import stop


def update_op_process(
    merge: Callable[..., Any], cfg: Any, parser: Any, used_ops: set[str] | None = None
) -> Any:
    """`update_op_process`, which keeps the fields of each entry of `process` apart."""
    process = list(cfg.process or ())
    names = {name for entry in process for name in entry}
    if len(names) == len(process) and not has_ours(process):
        return merge(cfg, parser, used_ops)  # It changes nothing there.
    # For no entry at all, it makes one of each operator: the defaults, the environment's fields
    # and those of the command line.
    cfg.process = []
    cfg = merge(cfg, parser, used_ops)
    filled = {name: fields or {} for entry in cfg.process for name, fields in entry.items()}
    try:
        files = [Path(file) for file in cfg.get(FILES) or ()]
        cfg.process = [_entry(entry, filled, parser.args, files) for entry in process]
    except RejuiceError as error:
        stop(error)
    return cfg


def _entry(
    entry: ProcessEntry,
    filled: Mapping[str, ProcessEntry],
    words: Sequence[str],
    files: Sequence[Path],
) -> ProcessEntry:
    """An entry of `process` with all of its fields."""
    name, given = next(iter(entry.items()))
    own = deepcopy(dict(given or {}))
    whole = dict[str, str]()
    for (field, *inner), text in _options(name, words):
        if not inner:
            own.pop(field, None)  # The parser has read and checked it.
            whole[field] = text
            continue
        if field in whole:
            own.setdefault(field, option_value(f"{name}.{field}", whole[field]))
        set_field(own, [field, *inner], option_value(".".join([name, field, *inner]), text))
    whole_entry = {**deepcopy(filled.get(name, {})), **own}
    kind = operator_of(name)
    if kind is not None and not whole_entry.get(FILES):
        whole_entry = {**whole_entry, **with_files(kind, own, files)}
    return {name: whole_entry}


def _options(name: str, words: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """The fields of an operator that the command line sets, and what it sets them to."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(f"--{name}."):
            option, equals, text = word.partition("=")
            yield option.split(".")[1:], text if equals else following
