"""What of a recipe is code, or makes code run: what is to be trusted before a stranger's is used.

custom_operator_paths                     Python files, which are imported
python_file_mapper, python_lambda_mapper  operators of Data-Juicer that run what they are given
trust_remote_code                         the code in the folder of a model
mcp                                       a tool: a program that is started, or a server
vllm: python                              the interpreter of an engine
ray_address                               a cluster: Ray unpickles what it answers
train.verl                                settings of verl, some of which name code
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...operators import RecipeError
from .head import found_file
from .read import read_document
from .stored_operator import SERVED, serves_tools

_HERE = ("auto", "local")
_RUNS_PYTHON = ("python_file_mapper", "python_lambda_mapper")


class RecipeCode(NamedTuple):
    """The code that recipes name.

    Attributes:
        recipes: their files.
        files: Python files, or folders of them, that they name; absolute.
        named: what is code in them, for a message, such as `custom_operator_paths`.
        others: what else of the run folder makes code run, such as its checkpoints.
    """

    recipes: tuple[Path, ...]
    files: tuple[Path, ...]
    named: tuple[str, ...]
    others: tuple[str, ...] = ()


def code_of(recipes: Iterable[Path]) -> RecipeCode:
    """The code that some recipes name; nothing of it is run.

    Raises:
        RecipeError: a recipe cannot be read.
    """
    paths = tuple(dict.fromkeys(recipes))
    files, named = dict[Path, None](), dict[str, None]()
    for path in paths:
        document = read_document(path).value
        files |= dict.fromkeys(_files(path, document))
        named |= dict.fromkeys(_named(document))
    return RecipeCode(paths, tuple(files), tuple(named))


def _files(path: Path, document: Mapping[str, Any]) -> Iterator[Path]:
    value = document.get("custom_operator_paths") or ()
    files = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, str) for each in files):
        right = "make it a list of paths"
        raise RecipeError(f"'custom_operator_paths' is {value!r}", right, where=str(path))
    for each in files:
        yield found_file(path.parent, Path(each))
    for name, fields in _entries(document.get("process")):
        if name == "python_file_mapper" and isinstance(file := fields.get("file_path"), str):
            yield Path(file).absolute()


def _named(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("custom_operator_paths"):
        yield "custom_operator_paths"
    if (document.get("ray_address") or "auto") not in _HERE:
        yield "ray_address"
    train = document.get("train")
    if isinstance(train, Mapping) and train.get("verl"):
        yield "train.verl"
    yield from (name for name, _ in _entries(document.get("process")) if name in _RUNS_PYTHON)
    yield from _nested(document)


def _entries(process: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in process if isinstance(process, list) else ():
        for name, fields in entry.items() if isinstance(entry, Mapping) else [(entry, None)]:
            yield str(name), fields if isinstance(fields, Mapping) else {}


def _nested(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """What makes code run wherever it stands, in fields of fields, too."""
    seen = set() if seen is None else seen
    if not isinstance(value, Mapping | list) or id(value) in seen:
        return  # An anchor of YAML may stand in many places: each is looked at once.
    seen.add(id(value))
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        if key == "trust_remote_code" and each:
            yield "trust_remote_code"
        elif key == "vllm" and isinstance(each, Mapping) and each.get("python"):
            yield "vllm: python"
        elif key == "tools" and serves_tools({"tools": each}):
            yield f"the tool {SERVED}"
        yield from _nested(each, seen)
