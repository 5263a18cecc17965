"""Which code of run folders the user trusts, and how a recipe is read without it.

    ~/.local/state/rejuice/trusted/<hash>    one file for each piece of code of a folder

The hash is of the folder and a Python file's path and content, or a field of a recipe that makes
code run: what is moved or edited is not trusted any more, and the recipe that a run keeps of each
step is, where its code is that of the run. It is kept outside of the run folder, which is whoever's
who made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os import environ
from pathlib import Path
from typing import Any, NamedTuple

from ...operators import RecipeError
from ...operators.cache_key import imported_names
from ..dataset.files import RUN_SUFFIX
from .head import found_file
from .recipe import Recipe, load, load_without_code, read_document
from .steps import REWARD_FUNCTION, SERVED, StoredOperator, function_file, serves_tools

# --- Code -----------------------------------------------------------------------------
# What of a recipe is code, or makes code run: what is to be trusted before a stranger's is used.
#
# custom_operator_paths                     Python files, which are imported
# python_file_mapper, python_lambda_mapper  operators of Data-Juicer that run what they are given
# reward_function_mapper                    a function of a Python file or of any package
# trust_remote_code                         the code in the folder of a model
# mcp                                       a tool: a program that is started, or a server
# vllm: python                              the interpreter of an engine
# ray_address                               a cluster: Ray unpickles what it answers
# train.verl                                settings of verl, some of which name code

_HERE = ("auto", "local")
_RUNS_PYTHON = ("python_file_mapper", "python_lambda_mapper", REWARD_FUNCTION)


class RecipeCode(NamedTuple):
    """The code that recipes name."""

    fields: tuple[str, ...]  # what makes code run in them, with its value
    files: tuple[Path, ...]  # Python files, or folders of them, that they name; absolute
    named: tuple[str, ...]  # what is code in them, for a message, such as `custom_operator_paths`
    # what else of the run folder makes code run, such as its checkpoints
    others: tuple[str, ...] = ()


def code_of(recipes: Iterable[Path]) -> RecipeCode:
    """The code that some recipes name; nothing of it is run."""
    files, fields = dict[Path, None](), dict[str, str]()
    for path in dict.fromkeys(recipes):
        document = read_document(path).value
        files |= dict.fromkeys(_files(path, document))
        for name, found in _fields(document):
            fields[repr((name, found))] = name
    return RecipeCode(tuple(fields), tuple(files), tuple(dict.fromkeys(fields.values())))


def _files(path: Path, document: Mapping[str, Any]) -> Iterator[Path]:
    value = document.get("custom_operator_paths") or ()
    files = value if isinstance(value, list | tuple) else [value]
    for each in files:
        if not isinstance(each, str):
            found = f"'custom_operator_paths' is {value!r}"
            raise RecipeError(found, "make it a list of paths", where=str(path))
        yield found_file(path.parent, Path(each))
    for name, fields in _entries(document.get("process")):
        if name == "python_file_mapper" and isinstance(file := fields.get("file_path"), str):
            yield Path(file).absolute()
        elif file := function_file(name, fields, path.parent):
            yield file


def _fields(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what makes code run, with its value; that of files is their content."""
    if document.get("custom_operator_paths"):
        yield "custom_operator_paths", None
    if (address := document.get("ray_address") or "auto") not in _HERE:
        yield "ray_address", address
    train = document.get("train")
    if isinstance(train, Mapping) and train.get("verl"):
        yield "train.verl", train["verl"]
    for entry in _entries(document.get("process")):
        if entry[0] in _RUNS_PYTHON:
            yield entry
    yield from _nested(document)


def _entries(process: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in process if isinstance(process, list) else ():
        for name, fields in entry.items() if isinstance(entry, Mapping) else [(entry, None)]:
            yield str(name), fields if isinstance(fields, Mapping) else {}


def _nested(value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield what makes code run wherever it stands, in fields of fields, too."""
    seen = set() if seen is None else seen
    if not isinstance(value, Mapping | list) or id(value) in seen:
        return  # An anchor of YAML may stand in many places: each is looked at once.
    seen.add(id(value))
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        if key == "trust_remote_code" and each:
            yield "trust_remote_code", value
        elif key == "vllm" and isinstance(each, Mapping) and each.get("python"):
            yield "vllm: python", each["python"]
        elif key == "tools" and serves_tools({"tools": each}):
            yield f"the tool {SERVED}", each
        yield from _nested(each, seen)


# --- What the user trusts -------------------------------------------------------------

_this_process: set[str] = set()
"""What is trusted until the process ends, and is in no file."""


def run_folder_of(recipe: Path) -> Path | None:
    """The folder of the run that a recipe is in; None: it is in none, so it is the user's own.

    Of an export it is `curated.run`, of training the folder with its prompts.
    """
    for path in (recipe.absolute(), recipe.resolve()):
        for parent in path.parents:
            if parent.suffix == RUN_SUFFIX:
                return parent
        for parent in path.parents[:4]:  # RUN/recipe.yaml to RUN/steps/000012/verify/recipe.yaml
            has_steps = any(each.name.isdecimal() for each in (parent / "steps").glob("*"))
            is_run = has_steps and (parent / "recipe.yaml").is_file()
            if is_run or (parent / "prompts" / "train.parquet").exists():
                return parent
    return None


def read_stored(path: Path, folder: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """The recipe of a run, with the operators of its own files only where the user trusts them."""
    recipe = load_without_code(path, overrides)
    if not any(isinstance(step.operator, StoredOperator) for step in recipe.steps):
        return recipe
    code = code_of([path])
    return load(path, overrides) if code.named and is_trusted(folder, code) else recipe


def read_to_show(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """A recipe that the user names by its path: its own files are imported, but those of a run."""
    folder = run_folder_of(path)
    return load(path, overrides) if folder is None else read_stored(path, folder, overrides)


def is_trusted(folder: Path, code: RecipeCode) -> bool:
    """Whether the user trusts all this code, as it is now, in this folder."""
    # One after the other: where a field of a recipe is not trusted, no file that it names is read.
    keys = _keys(folder, code)
    return all(key in _this_process or (_folder() / key).is_file() for key in keys)


def trust(folder: Path, code: RecipeCode, *, remember: bool = True) -> None:
    """Note that the user trusts this code, as it is now, in this folder."""
    keys = set(_keys(folder, code))
    _this_process.update(keys)
    if remember:
        with suppress(OSError):  # Then the next process asks again.
            _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            for key in keys:
                (_folder() / key).write_text(f"{folder.resolve()}\n", "utf-8", "surrogateescape")


def _folder() -> Path:
    return Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "rejuice/trusted"


def _keys(folder: Path, code: RecipeCode) -> Iterator[str]:
    for field in (*code.fields, *code.others):
        yield _key([str(folder.resolve()), field])
    for path in (file for each in code.files for file in _python_files(each)):
        content = path.read_bytes() if path.is_file() else b""  # Neither a device nor a pipe.
        digest = hashlib.sha256(content).hexdigest()
        yield _key([str(folder.resolve()), str(path.resolve()), digest])


def _key(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _python_files(path: Path) -> list[Path]:
    """A file and those beside it, which it may import, or those of a folder."""
    beside = path if path.is_dir() else path.parent
    return with_imports({path, *beside.glob("*.py")} - {beside}, beside)


def with_imports(files: Iterable[Path], folder: Path) -> list[Path]:
    """Return Python files, and those of a folder that they import: modules, and whole packages."""
    found = set(files)
    unread, names = sorted(found), set[str]()
    while unread:
        file = unread.pop()
        imported = imported_names(file) if file.is_file() else ()
        for name in {each.partition(".")[0] for each in imported} - names:
            names.add(name)
            module = folder / f"{name}.py"
            of_name = {*([module] if module.is_file() else []), *(folder / name).rglob("*.py")}
            unread += sorted(of_name - found)
            found |= of_name
    return sorted(found)
