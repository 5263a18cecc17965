"""A recipe: settings and steps, read from YAML or made in Python."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml
from pydantic_core import to_jsonable_python
from typing_extensions import Self
from yaml import YAMLError as YAMLError

from ...operators import Operator, RecipeError
from ...operators.config import check_integer, check_text
from ...operators.errors import first_line, shortened, shown, suggest
from ...operators.logs import know_named
from ...operators.registry import find, load_files
from ...operators.sampling.rollout import RolloutMapper
from ..data_juicer.settings import KEYS
from ..data_juicer.steps import ForeignOperator
from ..dataset.in_memory import ACCEPTED, as_table
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, RemotePath
from ..dataset.spec import SUFFIX, DatasetSpec
from ..notebook import quiet_libraries
from .head import Head, check_keys, checked_head, position
from .steps import (
    FILES,
    REWARD_FUNCTION,
    build_operator,
    number_steps,
    of_files,
    operator_on_file,
    split_entry,
    step_names,
    with_function_file,
)
from .steps import Step as Step

_NOWHERE = Path("nowhere.arrow")

RECIPES = (".yaml", ".yml")
"""The suffixes of recipes."""


@dataclass(frozen=True, init=False, repr=False)
class Recipe:
    """Settings and steps.

        Recipe([PassRateFilter(min=0.1), "grpo_advantage_mapper"], dataset="rollouts.parquet")

    `rejuice.pipelines.load` reads one from a YAML file.
    """

    path: Path  # the file it came from, or its name
    head: Head  # its settings
    steps: tuple[Step, ...]  # its operators, in order
    for_data_juicer: Mapping[str, Any]  # settings that only `dj-process` obeys
    from_file: bool = False  # whether it was read from a file, which `path` is
    table: pa.Table | None = None  # the dataset, if it is a table in memory
    has_export: bool = True  # whether the curated dataset is written to a file

    def __init__(
        self,
        process: Sequence[Operator | str | Mapping[str, Any]],
        dataset: Any,
        *,
        export_path: Path | str | None = None,
        name: str = "Recipe",
        **settings: Any,
    ) -> None:
        """Make a recipe in Python, with the checks and the messages of one in YAML.

        Args:
            process: the steps: operators or, as in YAML, names and `{name: fields}`.
            dataset: paths, or rows in memory: a `pyarrow.Table`, a DataFrame of pandas (its index
                becomes a column if it has a name) or polars, a `datasets.Dataset`, a list of dicts,
                or anything else with an Arrow stream (`__arrow_c_stream__`).
            export_path: where the curated dataset is written; None: it is only returned.
            name: what messages call the recipe.
            settings: other keys of a recipe's head, such as `np`.

        Raises:
            RecipeError: an unknown or wrong setting, operator or field, or a dataset of another
                type; one line.
        """
        path = Path(name)
        quiet_libraries()
        try:
            table = as_table(dataset)
        except RecipeError as error:
            raise error.at(name) from None
        if table is None and not isinstance(dataset, Path | str | list | tuple):
            found = f"dataset is a {type(dataset).__name__}"
            raise RecipeError(found, f"give {ACCEPTED}", where=name)
        for key in settings.keys() & {"dataset_path", "process"}:
            right = "give it as `dataset`" if key == "dataset_path" else "give it once"
            raise RecipeError(f"unknown key {shown(key)}", right, where=name)
        document = {
            "dataset_path": _NOWHERE if table is not None else dataset,
            "export_path": _NOWHERE if export_path is None else export_path,
            **settings,
        }
        head = checked_head(path, document, {}, ())
        if not process:
            raise RecipeError("'process' is empty", "make it a list of operators", where=name)
        places = [f"{name}, step {number}" for number in range(1, len(process) + 1)]
        entries = [
            each if isinstance(each, Operator) else split_entry(each, place)
            for place, each in zip(places, process, strict=True)
        ]
        steps = number_steps(_operators(path, head, places, entries, settings))
        if table is not None and SUFFIX not in table.column_names:
            for step in of_files(steps):
                found = f"a table is of no file, and has no column '{SUFFIX}'"
                where = f"{name}, step {step.number} {step.name}"
                raise RecipeError(found, "give the path of a dataset", where=where)
        theirs = _of_data_juicer(document)
        vars(self).update(path=path, head=head, steps=steps, for_data_juicer=theirs)
        vars(self).update(table=table, has_export=export_path is not None)

    def __repr__(self) -> str:
        # Not the table, which may have any number of rows.
        rows = None if self.table is None else self.table.num_rows
        dataset = str(self.head.dataset_spec) if rows is None else f"a table of {rows:,} rows"
        return f"<{self.path}: {dataset} -> {', '.join(step.name for step in self.steps)}>"

    def replace(self, **changes: Any) -> Self:
        """This recipe with other attributes."""
        recipe = copy(self)
        vars(recipe).update(changes)
        return recipe

    def offline(self) -> Self:
        """The recipe of `rejuice run`: without the steps that are `on: train`.

        Raises:
            RecipeError: it has no other.
        """
        return self._without("train")

    def in_training(self) -> Self:
        """The recipe of `rejuice train`: without the steps that are `on: run`.

        Raises:
            RecipeError: it has no other.
        """
        return self._without("run")

    def _without(self, place: str) -> Self:
        kept = [step for step in self.steps if step.operator.on != place]
        if len(kept) == len(self.steps):
            return self
        if not kept:
            found, right = f"every step is `on: {place}`", "leave `on` out of one of them"
            raise RecipeError(found, right, where=str(self.path))
        return self.replace(steps=tuple(step._replace(number=n) for n, step in enumerate(kept, 1)))

    def dataset_spec(self) -> DatasetSpec:
        """What it reads as its dataset."""
        spec = self.head.dataset_spec
        return spec.with_suffix() if of_files(self.steps) else spec

    def opened(self, cache: AnyPath | None = None, *, verify: bool = False) -> Dataset:
        """Its dataset, of which nothing is read yet."""
        spec = self.dataset_spec()
        spec = spec if cache is None else dataclasses.replace(spec, cache=cache)
        return Dataset(spec, workers=self.head.np, verify=verify)

    def line_of(self, step: Step) -> str:
        """`recipe.yaml, line 12`: where a step begins."""
        return position(self.path, step.line)

    def where(self, step: Step) -> str:
        """`recipe.yaml, line 12, step 3 pass_rate_filter`: where a message about a step points."""
        return f"{self.line_of(step)}, step {step.number} {step.name}"

    def recordings(self) -> list[Path]:
        """The files whose responses are returned instead of sampled."""
        return [
            Path(path)
            for step in self.steps
            if isinstance(step.operator, RolloutMapper) and step.operator.engine == "recorded"
            if (path := step.operator.recorded.path) is not None
        ]

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default written out, ready for YAML."""
        head = self.head.model_dump(mode="json")
        return {**head, **self.for_data_juicer, "process": _process(self.steps)}

    def absolute(self) -> dict[str, Any]:
        """`resolved()` with absolute paths, for a file that is read in any working directory.

        The steps are as they were, because their fields are part of cache keys.
        """
        return {**self.resolved(), **to_jsonable_python(_absolute(self.head.model_dump()))}

    def part(self, steps: Sequence[Step], head: Mapping[str, Any]) -> dict[str, Any]:
        """Some steps, as they are or changed, as a recipe with this head, ready for YAML.

        What decides what the steps are, and what the export keeps, is copied where `head` lacks it.
        """
        every = {**self.head.model_dump(mode="json"), **head}
        kept = {key for key in ("keep_stats_in_res_ds", "keep_hashes_in_res_ds") if every[key]}
        wanted = {"text_keys", "custom_operator_paths", *kept, *head}
        top = {key: value for key, value in every.items() if key in wanted}
        return {**top, "process": _process(steps)}

    def to_yaml(self) -> str:
        """The recipe as YAML, every default written out; `load` reads the same recipe from it.

        Raises:
            RecipeError: YAML cannot hold it: the dataset is a table, there is no `export_path`, or
                an operator is neither installed nor in a file of `custom_operator_paths`.
        """
        where = str(self.path)
        if self.table is not None:
            found, right = "the dataset is a table", "write it to a file and give its path"
            raise RecipeError(found, right, where=where)
        if not self.has_export:
            raise RecipeError("there is no export_path", "give one: YAML needs it", where=where)
        custom = load_files(self.head.custom_operator_paths)
        for step in self.steps:
            kind = type(step.operator)
            known = kind if issubclass(kind, ForeignOperator) else find(kind.name(), custom)
            file = _file(kind)  # Its class may have been loaded once more.
            if known is not kind and not (known and file and _file(known) == file):
                found = f"{kind.__name__} is only defined in this Python process"
                right = "put it into a file and name that in custom_operator_paths"
                raise RecipeError(found, right, where=self.where(step))
            for named in getattr(step.operator, FILES, ()):
                if named.absolute() not in self.head.custom_operator_paths:
                    found = f"only this step has {named} in {FILES}"
                    right = f"give it in {FILES} of the recipe, too"
                    raise RecipeError(found, right, where=self.where(step))
        return dump(self.resolved())


def _absolute(value: Any) -> Any:
    if isinstance(value, Path | RemotePath):
        return str(value.resolve())
    if isinstance(value, Mapping):
        return {_absolute(key): _absolute(each) for key, each in value.items()}
    return [_absolute(each) for each in value] if isinstance(value, (list, tuple)) else value


def _file(kind: type[Operator]) -> str | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return str(Path(file).resolve()) if file else None


def _of_data_juicer(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key in KEYS}


def _operators(
    path: Path,
    head: Head,
    places: Sequence[str],
    entries: Iterable[Operator | tuple[str, dict[str, Any]]],
    document: Mapping[str, Any],
    *,
    with_code: bool = True,
) -> Iterator[Operator]:
    custom = load_files(head.custom_operator_paths) if with_code else {}
    for place, entry in zip(places, entries, strict=True):
        if isinstance(entry, Operator):
            yield entry
            continue
        kind, fields = entry
        try:
            if kind == REWARD_FUNCTION:
                fields = with_function_file(kind, fields, path.parent)
            if with_code:
                yield build_operator(kind, fields, custom, head, document)
            else:
                yield operator_on_file(kind, fields, head, document)
        except RecipeError as error:
            raise error.at(f"{place} {shortened(kind)}") from None


def _process(steps: Sequence[Step]) -> list[dict[str, Any]]:
    # Files of tools and flows are at the head, for all steps.
    return [{s.operator.name(): s.operator.model_dump(mode="json", exclude={FILES})} for s in steps]


# --- Read a recipe: YAML into operators. Each mistake is reported in one line ---------


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe and build its operators. This imports the files of operators that it names.

    Raises:
        RecipeError: anything wrong with the file, an operator's name or a field; one line.
    """
    return _load(path, overrides or {}, with_code=True)


def load_without_code(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe to look at a stored run: no file that it names is imported.

    Operators of such files are `StoredOperator`s: their names and fields, which are not checked.
    """
    return _load(path, overrides or {}, with_code=False)


def _load(path: Path, overrides: Mapping[str, str], *, with_code: bool) -> Recipe:
    read = read_document(path)
    document: dict[str, Any] = dict(read.value)
    check_keys(path, document, read.lines)
    process = document.pop("process", None)
    if not isinstance(process, list) or not process:
        found = "empty" if process == [] else shown(process) if process is not None else "missing"
        where = position(path, read.lines.get("process"))
        raise RecipeError(f"'process' is {found}", "make it a list of operators", where=where)
    lines, places, kinds, fields = list[int](), list[str](), list[str](), list[dict[str, Any]]()
    for at, entry in enumerate(process):
        lines.append(read.lines[f"process.{at}"])
        places.append(position(path, lines[at], f"step {at + 1}"))
        kind, own = split_entry(entry, places[at])
        kinds.append(kind)
        fields.append(own)
    _override(document, dict(zip(step_names(kinds), fields, strict=True)), overrides)
    know_named([document, fields])
    head = checked_head(path, document, read.lines, overrides)
    entries = zip(kinds, fields, strict=True)
    operators = _operators(path, head, places, entries, document, with_code=with_code)
    steps = number_steps(operators, lines)
    recipe = Recipe.__new__(Recipe)
    vars(recipe).update(path=path, head=head, steps=steps, from_file=True)
    vars(recipe).update(for_data_juicer=_of_data_juicer(document))
    return recipe


def read_document(path: Path) -> Document:
    """The YAML of a recipe, of which nothing is checked but that it is a mapping."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")
        document = parse_document(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist", "give the path of a recipe") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}", "give a YAML file") from None
    except YAMLError as error:
        raise _not_yaml(error, path) from None
    if not isinstance(document.value, dict):
        found = "empty" if document.value is None else shown(document.value)
        found = f"a recipe is a mapping, this is {found}"
        raise RecipeError(found, "start with dataset_path:", where=str(path))
    return document


def _override(
    document: dict[str, Any], fields: Mapping[str, dict[str, Any]], overrides: Mapping[str, str]
) -> None:
    for key, text in overrides.items():
        value = option_value(key, text)
        step, *path = key.split(".")
        if not path:
            document[key] = value
        elif step == "train":
            set_field(document, [step, *path], value)
        elif step in fields:
            set_field(fields[step], path, value)
        else:
            near = suggest(step, fields) or f"its steps are: {', '.join(fields)}"
            raise RecipeError(f"no step '{step}' in the recipe", near, where=f"--{key}")


def option_value(key: str, text: str) -> Any:
    try:
        return parse(text) if text else text
    except YAMLError:
        found = f"{shown(text)} is not YAML"
        raise RecipeError(found, "quote the value", where=f"--{key}") from None


def set_field(fields: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a field, or a field of a field; what an anchor shares with other steps stays as it is."""
    field, *rest = path
    if rest:
        inner = fields.get(field)
        fields[field] = dict(inner) if isinstance(inner, Mapping) else {}
        set_field(fields[field], rest, value)
    else:
        fields[field] = value


# --- YAML text to values, and back: the same values as `dj-process` reads ------------
#
# PyYAML, and not ruamel.yaml, which reads `yes`, `010`, `1:30` or `n: 8` otherwise: Data-Juicer
# reads the same file by jsonargparse, that is by PyYAML's YAML 1.1 with two changes, made here:
# `1e-6` is a number, and a date is text. A test compares the two readers value by value.

_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_FLOATS = re.compile(
    r"""^(?:
     [-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9_]+(?:[eE][-+][0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN)
    )$""",
    re.VERBOSE,
)


class Document(NamedTuple):
    """A YAML document with the lines, from 1, that messages name."""

    value: Any  # what it holds
    lines: Mapping[str, int]  # of each key, by its path: `KEY.KEY`; of an item of a list, `KEY.0`


def parse(text: str) -> Any:
    """The value of a YAML document of names and literals."""
    return parse_document(text).value


def parse_document(text: str) -> Document:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        # Built first: that also puts the keys of `<<: *anchor` among those of their mapping.
        # A list that is an item of itself is refused there.
        value = None if root is None else loader.construct_object(root, deep=True)
    except RecursionError:
        raise YAMLError("its values are nested too deeply") from None
    except (ValueError, OverflowError) as error:  # Such as "\UFFFFFFFF", which is no character.
        raise YAMLError(str(error)) from None
    return Document(value, dict(_lines(root)))


def dump(document: Mapping[str, Any]) -> str:
    """A document as YAML text, its keys in their order, that `parse` reads back as it is."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False)


def _not_yaml(error: YAMLError, path: Path) -> RecipeError:
    mark, problem = None, first_line(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark, problem = error.problem_mark, str(error.problem)
    found, right = f"not YAML ({problem})", "fix the line"
    if tag := re.search(r"constructor for the tag '([^']+)'", problem):
        found = f"tag '{tag[1]}' is not allowed"
        right = "a recipe holds names and values, never code"
    return RecipeError(found, right, where=position(path, mark.line + 1 if mark else None))


def _lines(node: yaml.Node | None, above: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{above}{key.value}", key.start_mark.line + 1
            yield from _lines(value, f"{above}{key.value}.")
    elif isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            yield f"{above}{at}", item.start_mark.line + 1


class _Loader(yaml.SafeLoader):
    """Names and literals only; a key that is given twice is an error."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node, which is one that a file and a number of the machine can hold."""
        try:
            found = super().construct_object(node, deep)
            if isinstance(found, str):
                check_text(found)
            elif isinstance(found, int):
                check_integer(found)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            # What is no number, and is tagged as one: PyYAML raises whatever comes of it.
            problem = f"{shown(node.value)} is not of the type {node.tag.rpartition(':')[2]}"
            problem += f": {error}" if type(error) is ValueError else ""
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
        return found


class _Dumper(yaml.SafeDumper):
    """Quotes each text that a reader of YAML could take for something else."""


def _unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            continue  # `<<: *anchor`: its keys may be given again.
        key: Hashable = loader.construct_object(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            problem = "a key is a list or a mapping"
        elif key in seen:
            problem = f"key '{key}' is given twice"
        else:
            seen.add(key)
            continue
        raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
    return loader.construct_mapping(node, deep=True)


_NOT_JSON = ("binary", "omap", "pairs", "set", "timestamp")
_Loader.yaml_constructors = {
    tag: make
    for tag, make in yaml.SafeLoader.yaml_constructors.items()
    if not str(tag).endswith(_NOT_JSON)
}
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_keys)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag not in (_FLOAT, _TIMESTAMP)]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_FLOAT, _FLOATS, list("-+0123456789."))
# The dumper keeps PyYAML's forms beside these: what any of the two would not read as text is
# quoted.
_Dumper.add_implicit_resolver(_FLOAT, _FLOATS, list("-+0123456789."))
