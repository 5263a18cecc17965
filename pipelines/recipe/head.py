"""The head of a recipe: its settings, checked, with one line for each mistake."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import pyarrow as pa
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PlainValidator,
    PositiveInt,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_serializer,
)

from ...operators import RecipeError
from ...operators.config import Config
from ...operators.errors import hint, shown, suggest
from ..data_juicer import settings
from ..dataset.files import SUFFIXES
from ..dataset.read import parse_mixture
from ..dataset.remote import AnyPath, PathField, dumped_path, to_path
from ..dataset.spec import DatasetPart, DatasetSpec, HubDataset, Selection
from ..dataset.write import default_cache, exported
from .train import Section, Train

if TYPE_CHECKING:
    from ..demo.problems import DemoOptions

# --- Generated ------------------------------------------------------------------------
# Datasets that a recipe describes instead of asking for them: they are written when missing.

_ONLY = {
    "levels": ("arithmetic", "mixed", "numbers", "trajectories"),
    "trajectories": ("trajectories",),
}
"""The types that have a field which others lack."""


class GeneratedDataset(Section):
    """A dataset that is generated. Those of `arithmetic` are options of `rejuice data`, too."""

    type: Literal["arithmetic", "code", "lookup", "mixed", "numbers", "trajectories"]
    """What its rows are. `arithmetic`: worded arithmetic problems with their solutions. `code`:
    programming problems with their tests and eight recorded responses. `lookup`: questions for an
    agent that searches and calculates, each with 13 documents of its own. `mixed`: arithmetic, code
    and solutions to be judged in turn, distinguished by `data_source`, with recorded responses.
    `numbers`: the larger of two numbers, sums and differences, for small language models.
    `trajectories`: what simulated agents with a calculator did with the same problems, for
    `agent_rollout_mapper` with the engine `recorded`."""
    prompts: PositiveInt = 200
    """Number of problems or questions."""
    split: Literal["train", "validation", "test"] = "train"
    """No two splits share a problem or a question."""
    levels: tuple[Literal[1, 2, 3, 4], ...] = Field((1, 2, 3), min_length=1)
    """Numbers of steps that a problem may take; of `numbers`, the larger of two (1), a sum or
    difference up to 20 (2), up to 99 (3), two of them (4); not of `code` and `lookup`."""
    seed: NonNegativeInt = 0
    """Each seed gives other problems or questions."""
    trajectories: PositiveInt = 8
    """How many of each problem, with that type."""

    def _faults(self) -> Iterator[str]:
        for name, types in _ONLY.items():
            # A resolved recipe names every field, with its default.
            is_set = getattr(self, name) != type(self).model_fields[name].default
            if is_set and self.type not in types:
                yield f"a dataset of type {self.type} has no {name}"

    def first_rows(self, path: Path) -> pa.Table:
        """The first rows that `write` would write to a path."""
        from ..demo.datasets import check_format, first_rows

        check_format(path)
        # Trajectories begin with the same problems, and take long to play.
        name = "arithmetic" if self.type == "trajectories" else self.type
        return first_rows(name, self._demo_options())

    def write(self, path: Path) -> None:
        from ..demo.datasets import write_dataset

        write_dataset(path, self.type, self._demo_options())

    def _demo_options(self) -> DemoOptions:
        from ..demo.problems import DemoOptions

        return DemoOptions(self.prompts, self.split, self.levels, self.seed, self.trajectories)


# --- `dataset_path`, `dataset` and `columns` of a recipe: what is read as its dataset ---

DatasetPath = AnyPath | HubDataset
_MIXTURE = re.compile(r"\d*\.?\d+\s+\S|\S+\.(?:jsonl?|parquet|gz|zst)\s+\S")
"""`0.5 a.jsonl 0.5 b.jsonl`, with or without the weights."""
_NO_STORE = re.compile(r"(oss|https?):/", re.IGNORECASE)
"""Places that Arrow, which reads datasets and writes exports, does not open."""
_LOCAL = {"type", "path", "weight", "source", "split"}


def dataset_paths(value: Any) -> DatasetPath | tuple[DatasetPath, ...]:
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("it is an empty list; give a path")
        return tuple(_path(each) for each in value)
    if isinstance(value, str) and _MIXTURE.match(value) and not to_path(value).exists():
        # Data-Juicer reads one file of `2 a.jsonl`.
        paths = tuple(map(_path, parse_mixture(value)))
        return paths if len(paths) != 1 else paths[0]
    return _path(value)


def _path(value: Any) -> DatasetPath:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError("a path is empty; give a path")
    if isinstance(value, str):
        if _NO_STORE.match(value):
            right = "give a path on disk, or s3://BUCKET/..., or run this recipe with dj-process"
            raise ValueError(f"{shown(value)} is in no store that rejuice reads or writes; {right}")
        return HubDataset.parse(value) if value.startswith("hf://") else to_path(value)
    if isinstance(value, HubDataset | AnyPath):
        return value
    raise ValueError(f"{shown(value)} is no path; give one, or a list of them")


def _export_path(value: Any) -> AnyPath:
    path = None if isinstance(value, list | tuple) else _path(value)
    if not isinstance(path, AnyPath):
        raise ValueError(f"{shown(value)} is no path that a run writes; give one file or folder")
    return path


class DatasetConfig(Section):
    """A dataset of a `dataset` block, by Data-Juicer's names."""

    type: Literal["local", "remote"]
    path: str = Field(min_length=1)
    weight: NonNegativeFloat | None = None
    source: str | None = None
    name: str | None = None
    split: str | None = None
    limit: int | None = None
    data_files: str | None = None
    data_dir: str | None = None

    def _faults(self) -> Iterator[str]:
        if self.type == "remote" and self.source != "huggingface":
            right = "give huggingface, or a path such as s3://… as dataset_path"
            yield f"the source of a remote dataset is {shown(self.source)}; {right}"
        theirs = sorted(self.model_fields_set - _LOCAL) if self.type == "local" else []
        yield from (f"{name} is of a remote dataset, and this is local" for name in theirs)

    @property
    def part(self) -> DatasetPart:
        weight = 1.0 if self.weight is None else self.weight
        if self.type == "local":
            return DatasetPart(to_path(self.path), weight, self.split)
        options = (self.split, self.limit, self.data_files, self.data_dir)
        return DatasetPart(HubDataset(self.path, self.name, *options), weight)


class DatasetBlock(Section):
    """Several datasets with weights, or one of the hub."""

    configs: tuple[DatasetConfig, ...] = Field(min_length=1)
    max_sample_num: PositiveInt | None = None

    def _faults(self) -> Iterator[str]:
        types = [each.type for each in self.configs]
        if "remote" in types and len(types) > 1:
            yield "a remote dataset is not alone; give that one, or several by dataset_path"
        if self.max_sample_num is not None and not any(each.part.weight for each in self.configs):
            yield "all weights are 0; give one that is not"


def parts(
    paths: DatasetPath | tuple[DatasetPath, ...] | None, block: DatasetBlock | None
) -> tuple[DatasetPart, ...]:
    """The parts of the dataset that `dataset_path`, or else the block, describes."""
    if paths is None:
        return tuple(each.part for each in block.configs) if block else ()
    return tuple(map(DatasetPart, paths if isinstance(paths, tuple) else (paths,)))


def selection(columns: Mapping[str, str] | Sequence[str] | None) -> Selection:
    if columns is None:
        return Selection()
    if not columns:
        raise ValueError("it selects no column; name one, or leave it out")
    names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    new_names = [*(names.values() if isinstance(columns, Mapping) else columns)]
    for new in new_names:
        if new_names.count(new) > 1:
            raise ValueError(f"two columns are called '{new}'; rename one")
    return Selection(tuple(names.items()))


# --- The head of a recipe: its settings, checked, with one line for each mistake ------

_ANY_OBJECT = {"additionalProperties": True, "type": "object"}
_BLOCK_SCHEMA = {"anyOf": [_ANY_OBJECT, {"type": "null"}], "title": "Dataset"}
_PATHS_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]
}


def _dumped_block(block: DatasetBlock | None, info: SerializationInfo) -> Any:
    """The block as it was written, its local paths as paths where the dump is not for YAML."""
    if block is None:
        return None
    found = block.model_dump(mode="json", exclude_unset=True)
    for each in found["configs"] if info.mode == "python" else ():
        each["path"] = to_path(each["path"]) if each["type"] == "local" else each["path"]
    return found


def _dumped_paths(value: Any, info: SerializationInfo) -> Any:
    """Texts, but for paths on disk where the dump is not for YAML: they are made absolute."""
    if isinstance(value, tuple):
        return [_dumped_paths(each, info) for each in value]
    return None if value is None else dumped_path(value, info)


class Head(Config):
    """The head of a recipe: its top-level settings, without the steps."""

    project_name: str = "rejuice"
    """Name of the project, for reports."""
    dataset_path: Annotated[
        DatasetPath | tuple[DatasetPath, ...] | None,
        PlainValidator(dataset_paths),
        PlainSerializer(_dumped_paths),
        WithJsonSchema(_PATHS_SCHEMA),
    ] = None
    """A .jsonl, .json, .parquet or .arrow file, .jsonl.gz or .jsonl.zst, a folder of such files, a
    pattern such as data/*.parquet, a list of these, or one of the hub such as
    hf://datasets/openai/gsm8k?config=main&split=train."""
    dataset: Annotated[
        DatasetBlock | None,
        BeforeValidator(lambda block: block or None),
        PlainSerializer(_dumped_block),
        WithJsonSchema(_BLOCK_SCHEMA),
    ] = None
    """Instead of `dataset_path`, as Data-Juicer writes it: several datasets with weights, or one of
    the hub."""
    split: str | None = Field(None, min_length=1)
    """Which files of a folder are read that has those of several splits, or which split of a
    dataset of the hub: `train` is files such as train-00000-of-00001.parquet or train/a.jsonl."""
    columns: dict[str, str] | tuple[str, ...] | None = None
    """The columns of the dataset that are read: a list, or a mapping of each to its new name.
    Null: all."""
    export_path: Annotated[PathField, BeforeValidator(_export_path)]
    """The file to write: .parquet (exact), .arrow or .jsonl; or, without a suffix, a folder of
    Parquet files."""
    max_rows_per_file: int = Field(1_000_000, ge=1)
    """The most rows of each file of an export that is a folder. No group is split over two files;
    only a larger group makes a larger file."""
    np: int = Field(1, ge=1, le=65_536)
    """Workers: threads, and processes for steps that hold the GIL."""
    text_keys: str | tuple[str, ...] = Field("text", min_length=1)
    """The text column of Data-Juicer's operators, of the dataset or of an earlier step; of several,
    the first."""
    suffixes: str | tuple[str, ...] = ()
    """Which files of `dataset_path` are read, such as `jsonl`; by default all that can be."""
    executor_type: Literal["default", "ray", "ray_partitioned"] = "default"
    """Where it runs: on this machine, or on Ray. For `rejuice run`, `ray_partitioned` is `ray`."""
    ray_address: str = "auto"
    """The Ray cluster, as HOST:PORT. `local`: Ray is started on this machine, and stopped at the
    end. `auto`: the cluster of the environment variable RAY_ADDRESS, else one that runs on this
    machine, else, in `rejuice run`, as `local`."""
    custom_operator_paths: tuple[Path, ...] = ()
    """Python files, or folders of them, that define operators, tools or flows; relative to the
    recipe's folder or, where it has none of that name, to the working directory, which is where
    `dj-process` looks."""
    keep_stats_in_res_ds: bool = False
    """Whether the export has `__dj__stats__` and `__dj__meta__`, the statistics and tags that
    Data-Juicer's operators have written."""
    keep_hashes_in_res_ds: bool = False
    """Whether the export has the hashes that Data-Juicer's deduplicators have compared."""
    generated_datasets: dict[Path, GeneratedDataset] = Field(default_factory=dict)
    """Datasets that are written where their file does not exist; a file that exists is read."""
    train: Train | None = None
    """How `rejuice train` trains; nothing else reads it."""

    @property
    def dataset_spec(self) -> DatasetSpec:
        """What is read as the dataset."""
        block = None if self.dataset_path is not None else self.dataset
        return DatasetSpec(
            parts(self.dataset_path, block),
            suffixes=dotted(self.suffixes),
            selection=selection(self.columns),
            max_rows=None if block is None else block.max_sample_num,
            repeats=block is not None,
            split=self.split,
            cache=default_cache(self.export_path),
        )

    @property
    def text_key(self) -> str:
        return self.text_keys if isinstance(self.text_keys, str) else self.text_keys[0]

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what Data-Juicer's parser refuses or does not know where it is null."""
        found: dict[str, Any] = dump(self)
        optional = ("dataset_path", "dataset", "columns", "split")
        return {key: v for key, v in found.items() if key not in optional or v is not None}

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, value: Any) -> Any:
        selection(value)
        return value

    @field_validator("suffixes")
    @classmethod
    def _check_suffixes(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for suffix in dotted(value):
            if suffix not in SUFFIXES:
                raise ValueError(f"'{suffix}' is not one of {', '.join(SUFFIXES)}")
        return value

    def exported(self, names: Iterable[str]) -> list[str]:
        """Those of some columns that an export has: helper columns only where they are kept."""
        return exported(
            names, keep_stats=self.keep_stats_in_res_ds, keep_hashes=self.keep_hashes_in_res_ds
        )

    def generated_part(self) -> tuple[Path, GeneratedDataset] | None:
        """The first part of the dataset that is missing and is generated."""
        return next(self._missing(self.dataset_spec.paths), None)

    def generated(self, path: AnyPath | None) -> GeneratedDataset | None:
        """How a file is generated; None where it exists, or where the recipe does not say."""
        return next((each for _, each in self._missing([path])), None)

    def write_missing(self, *paths: AnyPath | None) -> list[Path]:
        """Write those of some files that do not exist and are generated; returns them."""
        written = list[Path]()
        for path, dataset in self._missing(paths):
            dataset.write(path)
            written.append(path)
        return written

    def _missing(self, paths: Iterable[Any]) -> Iterator[tuple[Path, GeneratedDataset]]:
        found = {name.resolve(): each for name, each in self.generated_datasets.items()}
        for path in paths:
            if isinstance(path, Path) and not path.exists() and path.resolve() in found:
                yield path, found[path.resolve()]


def dotted(suffixes: str | Sequence[str]) -> tuple[str, ...]:
    """Suffixes of files in lower case and with a dot, as Data-Juicer takes them."""
    given = (suffixes,) if isinstance(suffixes, str) else suffixes
    return tuple(f".{suffix.lower().removeprefix('.')}" for suffix in given)


def position(path: Path, line: int | None, place: str = "") -> str:
    """`recipe.yaml, line 12, step 3`: what is known of where an error is, for a message."""
    known = (str(path), f"line {line}" if line is not None else "", place)
    return ", ".join(filter(None, known))


def check_keys(path: Path, document: Mapping[str, Any], lines: Mapping[str, int]) -> None:
    """Check the names of the top-level keys, before one that is misspelled counts as missing."""
    known = (*Head.model_fields, "process", *sorted(settings.KEYS))
    for key in document:
        if isinstance(key, str) and key not in known:
            where = position(path, lines.get(key))
            raise RecipeError(f"unknown key {shown(key)}", suggest(key, known), where=where)


def checked_head(
    path: Path,
    document: Mapping[str, Any],
    lines: Mapping[str, int],
    overrides: Collection[str],
) -> Head:
    check_keys(path, document, lines)
    # Data-Juicer, too, reads `dataset` only where there is no `dataset_path`.
    second = "dataset" if document.get("dataset_path") else "dataset_path"
    if document.get("dataset"):
        document = {key: value for key, value in document.items() if key != second}
    elif "dataset_path" not in document:
        raise RecipeError("'dataset_path' is missing", "add `dataset_path: …`", where=str(path))
    theirs = settings.KEYS & document.keys()
    for key, found, right in settings.refusals(document) if theirs else ():
        raise RecipeError(found, right, where=_place(path, [key], lines, overrides))
    ours = {key: value for key, value in document.items() if key not in settings.KEYS}
    try:
        head = Head.model_validate(ours)
    except ValidationError as error:
        raise _head_error(path, error, lines, overrides) from None
    files = tuple(found_file(path.parent, file) for file in head.custom_operator_paths)
    return head.model_copy(update={"custom_operator_paths": files})


def found_file(folder: Path, file: Path) -> Path:
    """The absolute path of a file that a recipe in `folder` names."""
    beside = (folder / file).absolute()
    return beside if beside.exists() or not file.exists() else file.absolute()


def _place(
    path: Path, keys: Sequence[str], lines: Mapping[str, int], overrides: Collection[str]
) -> str:
    """Where a value of the first of some keys is that is known: `recipe.yaml, line 12`, `--np`."""
    given = [f"--{key}" for key in keys if key in overrides]
    line = next((lines[key] for key in keys if key in lines), None)
    return given[0] if given else position(path, line)


def _head_error(
    path: Path, error: ValidationError, lines: Mapping[str, int], overrides: Collection[str]
) -> RecipeError:
    """One line from what pydantic reports of a key of the head, or of a section of it."""
    first = error.errors(include_url=False)[0]
    parts, kind = list(map(str, first["loc"])), first["type"]
    keys = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
    where = _place(path, keys, lines, overrides)
    names, section = _named(first["loc"])
    key = ".".join(names)
    if kind == "missing":
        return RecipeError(f"'{key}' is missing", f"add `{key}: …`", where=where)
    if kind == "extra_forbidden":
        elsewhere = hint(names[-1]) if names[:-1] == ["train"] else ""
        near = elsewhere or suggest(names[-1], section.model_fields)
        return RecipeError(f"unknown key {shown(key)}", near, where=where)
    if kind == "value_error":  # The keys of a section contradict each other, for one.
        return RecipeError(first["msg"].removeprefix("Value error, "), where=f"{where}, {key}")
    return RecipeError(f"'{key}' is {shown(first['input'])}", first["msg"].lower(), where=where)


def _named(place: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel]]:
    """The names of a key and of the sections that it is in, and the innermost of these."""
    names, rest = list[str](), list(place)
    section: type[BaseModel] = Head
    while rest:
        names.append(str(rest.pop(0)))
        field = section.model_fields.get(names[-1])
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = [kind for kind in kinds if isinstance(kind, type(BaseModel))]
        if field is None or not inner or not rest:
            break
        if get_origin(field.annotation) in (dict, tuple):  # The next one is the user's, or a place.
            names.append(str(rest.pop(0)))
        section = inner[0]
    return names, section
