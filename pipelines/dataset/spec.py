"""What is read as one dataset: which files, how many rows of each, and which columns."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa
import xxhash

from ...operators import DataError
from ...operators.columns import beginnings, column_of, find_path, is_list
from ...operators.errors import needs, shortened, shown, suggest
from ...operators.json_text import parse_json
from .files import (
    PART,
    PART_SUFFIX,
    RUN_SUFFIX,
    SUFFIXES,
    check_finished,
    exports_in_parts,
    is_folder,
    suffix_of,
    written,
)
from .remote import AnyPath, RemotePath

# --- Which columns of the files of a dataset are read, and what they are called -------

SUFFIX = "__dj__suffix__"
"""The column that tells from what kind of file a row comes."""


class Selection(NamedTuple):
    """Columns of files, and the names that they get."""

    # pairs of the name in the files, or a path such as `response.body.choices`, and the name that
    # it gets; None: all, as they are
    names: tuple[tuple[str, str], ...] | None = None
    with_suffix: bool = False  # whether the rows get the column `SUFFIX`, where a file has none

    @property
    def columns(self) -> list[str] | None:
        return None if self.names is None else self.columns_of(new for _, new in self.names)

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """What files are asked for to get these columns: of a path all in which it may begin."""
        if self.names is None:
            return list(names)
        old = {new: old for old, new in self.names}
        return list(
            dict.fromkeys(each for name in names for each in beginnings(old.get(name, name)))
        )

    def of(self, table: pa.Table, suffix: str) -> pa.Table:
        """The selected columns of a table of a file, those of them that it has."""
        if self.names is not None:
            found = {}
            for path, name in self.names:
                values = find_path(table, path)
                if values is not None:
                    found[_field_at(table.schema, path).with_name(name)] = values
            if found:
                table = pa.table(list(found.values()), schema=pa.schema(list(found)))
            else:  # A table without columns would have no rows.
                table = pa.table({self.names[0][1]: pa.nulls(table.num_rows)})
        if self.with_suffix and SUFFIX not in table.column_names:
            table = table.append_column(SUFFIX, pa.repeat(suffix, table.num_rows))
        return table

    def schema(self, schema: pa.Schema, suffix: str) -> pa.Schema:
        return self.of(schema.empty_table(), suffix).schema if len(schema) else schema

    def renamed(self, names: Iterable[str]) -> list[str]:
        if self.names is None:
            return list(names)
        new = dict(self.names)
        return [new[name] for name in names if name in new]

    def missing(self, table: pa.Table) -> list[str]:
        """The selected columns, as files call them, that a table of a file lacks."""
        return [path for path, _ in self.names or () if find_path(table, path) is None]


def _field_at(fields: Iterable[pa.Field], path: str) -> pa.Field:
    """The field of a schema at a path that it has, with its metadata."""
    there = {field.name: field for field in fields}
    name = column_of(path, there)
    assert name is not None
    return _within(there[name], path[len(name) + 1 :])


def _within(field: pa.Field, path: str) -> pa.Field:
    kind = field.type
    if not path or pa.types.is_null(kind):
        return field
    if is_list(kind):
        return pa.field(field.name, pa.list_(_within(kind.value_field, path)))
    return _field_at(kind, path)


def not_there(path: str, columns: Collection[str], dataset: object) -> DataError:
    right = suggest(path, columns) or f"there are: {', '.join(sorted(columns))}"
    column = column_of(path, columns)
    if column is not None:
        right = f"name a field of column '{column}'"
    return DataError(f"{dataset} has no column '{path}', which `columns` selects", right)


# --- Patterns such as `data/**/*.parquet`: which files they match, also in object stores ---
#
# As in a folder, names that begin with `_` or `.` are left out, and so are the folders of runs. A
# part of the pattern that begins, or ends, in the same way matches them, such as `.cache` or
# `*.run`.

_WILD = frozenset("*?[")
_ANY_FOLDERS = "**"

_Parts: TypeAlias = tuple[str, ...]
"""The parts of a pattern that are still to be matched, one for each name of a path."""


def is_pattern(path: AnyPath) -> bool:
    """Whether a path has wildcards; one that exists under that very name has none."""
    return _has_wildcards(path) and not path.exists()


def folder_of(pattern: AnyPath) -> AnyPath:
    """The folder that is searched: the part of a pattern before its first wildcard."""
    above = pattern
    while _has_wildcards(above) and above.parent != above:  # Of a bucket it is itself.
        above = above.parent
    return above


def files_that_match(pattern: AnyPath) -> Iterator[AnyPath]:
    """The files that match a pattern, in no order. Each folder is listed once.

    `**` is any number of folders; it follows no links. At the end of a pattern it is all files.
    """
    above = folder_of(pattern)
    check_finished(above)
    return _search(above, {_names(pattern, above)})


def _search(folder: AnyPath, left: Collection[_Parts]) -> Iterator[AnyPath]:
    kinds = _listed(folder)
    for export in exports_in_parts(folder, kinds):
        if any(_after(left, export.name)):
            check_finished(export)
    for name, kind in kinds.items():
        below = _after(left, name, linked=kind == "link")
        if kind == "file" and () in below:
            yield folder / name
        further = set(filter(None, below))
        if kind in ("folder", "link") and further:
            yield from _search(folder / name, further)


def _listed(folder: AnyPath) -> dict[str, str]:
    """What is in a folder: `file`, `folder` or `link` to one, by name.

    A link to nothing is a file, which whoever reads it finds missing.
    """
    if isinstance(folder, RemotePath):
        return {name: "folder" if below else "file" for name, below in folder.listing().items()}
    try:
        with os.scandir(folder) as found:
            return {each.name: _kind(each) for each in found}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(
            f"{folder} cannot be listed: {error.strerror}",
            "make it readable, or give a pattern that does not search it",
        ) from None


def _kind(found: os.DirEntry[str]) -> str:
    with suppress(OSError):  # A link to itself, or to where nothing may be looked up.
        if found.is_dir():
            return "link" if found.is_symlink() else "folder"
        if found.is_file() or (found.is_symlink() and not Path(found).exists()):
            return "file"
    return "other"


def _after(left: Collection[_Parts], name: str, *, linked: bool = False) -> set[_Parts]:
    """What is left of a pattern below a file or folder of that name; of all of it, `()`."""
    found, waiting = set[_Parts](), list(left)
    while waiting:
        parts = waiting.pop()
        if not parts:
            continue
        if parts[0] == _ANY_FOLDERS:
            waiting.append(parts[1:] or ("*",))
            if _fits(name, "*") and not linked:
                found.add(parts)
        elif _fits(name, parts[0]):
            found.add(parts[1:])
    return found


def _fits(name: str, part: str) -> bool:
    if name.startswith(("_", ".")) and part[0] != name[0]:
        return False
    if name.endswith(RUN_SUFFIX) and not part.endswith(RUN_SUFFIX):
        return False
    return fnmatchcase(name, part)


def _names(path: AnyPath, above: Any) -> _Parts:
    return path.relative_to(above).parts


def _has_wildcards(path: AnyPath) -> bool:
    return not _WILD.isdisjoint(path.key if isinstance(path, RemotePath) else str(path))


# --- What is read as one dataset: its parts, and the files of each -------------------

_STATE, _SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` of Hugging Face's datasets writes beside the rows."""
_NO_ROWS = (_SPLITS, "dataset_info.json", "dataset_infos.json", "config.json")
"""Files of a dataset that say something about it, which `datasets` leaves out, too."""


class DatasetPart(NamedTuple):
    # a file, a folder of files, a pattern such as `data/*.parquet`, or one of the hub
    path: AnyPath | HubDataset
    weight: float = 1.0  # the share of rows that are taken, where the dataset has a limit of them
    split: str | None = None  # which files of a folder are read; None: what the dataset says

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class DatasetSpec:
    parts: tuple[DatasetPart, ...]  # read one after another
    # which files of a folder or pattern are read; empty: all that can be
    suffixes: tuple[str, ...] = ()
    # which columns are read, and what they are called
    selection: Selection = field(default=Selection())
    # rows that are taken in all, by the weights of the parts; None: all rows
    max_rows: int | None = None
    repeats: bool = False  # whether a file may be in several parts
    split: str | None = None  # of the parts that say no other
    # the folder in which downloads and hashes of content are kept; None: nowhere
    cache: AnyPath | None = field(default=None, compare=False)

    @classmethod
    def of(cls, dataset: AnyPath | DatasetSpec) -> DatasetSpec:
        return dataset if isinstance(dataset, DatasetSpec) else cls((DatasetPart(dataset),))

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    @property
    def paths(self) -> list[AnyPath]:
        """The paths of its parts, without those of the hub."""
        return [part.path for part in self.parts if not isinstance(part.path, HubDataset)]

    def files(self, part: DatasetPart) -> list[AnyPath]:
        """The files of one of its parts; that of a dataset of the hub is downloaded first."""
        if not isinstance(part.path, HubDataset):
            return files_of(part.path, self.suffixes, part.split or self.split)
        if self.cache is None:
            raise DataError(f"{part} is no file", "download it by `rejuice data download`")
        return [replace(part.path, split=part.path.split or self.split).file(self.cache)]

    def exists(self) -> bool:
        """Whether there is something to read, as far as is known without asking the hub."""
        return all(
            any(True for _ in files_that_match(path)) if is_pattern(path) else path.exists()
            for path in self.paths
        )

    def with_suffix(self) -> DatasetSpec:
        """The same, where each row says from what kind of file it is."""
        return replace(self, selection=self.selection._replace(with_suffix=True))

    def clashes(self, export: AnyPath) -> bool:
        """Whether an export would be read with the dataset, or would replace a part of it."""
        return any(_clash(path, export.resolve()) for path in self.paths)


def files_of(
    path: AnyPath, suffixes: Sequence[str] = (), split: str | None = None
) -> list[AnyPath]:
    """The files of a file, a folder or a pattern, by name; where a split is given, those of it.

    A folder is not searched further down, unless only folders in it have files, or files of the
    split, and these are named after splits; `**` in a pattern is.
    """
    known = suffixes or SUFFIXES
    files = _found(path, known, split)
    if tables := [file for file in files if _is_table(file)]:
        right = f"{_conversion(tables)}; or leave it out by a pattern, such as `*.jsonl`"
        raise SplitError(f"{tables[0]} is not read, as others of {path} are", right)
    return files


def lines_about_files(spec: DatasetSpec) -> Iterator[str]:
    """A line for each pattern that reads several splits."""
    for path, _, split in spec.parts:
        if split or spec.split or isinstance(path, HubDataset) or not is_pattern(path):
            continue
        found = sorted(_by_split(folder_of(path), files_of(path, spec.suffixes)))
        if len(found) > 1:
            yield f"{path} reads the splits {', '.join(found)}: say `split` if you mean one"


def _found(path: AnyPath, known: Sequence[str], split: str | None) -> list[AnyPath]:
    """The files that are read, and tables beside them, which would have to be converted."""
    if is_pattern(path):
        matches = sorted(files_that_match(path))
        if not matches:
            _check_place(path)
            raise DataError(f"no file matches {path}", "correct the pattern in dataset_path")
        files = _readable(matches, known, f"no file that matches {path} is a dataset file")
        return files if split is None else _of_split(folder_of(path), files, split)
    if not path.exists():
        _check_place(path)
        check_finished(path)
        raise DataError(f"{path} does not exist", "set dataset_path to a file or a folder of files")
    if path.is_dir():
        check_finished(path)
        if (path / _STATE).exists():
            return _saved(path, split)
        there = path.iterdir() if (path / _SPLITS).exists() else ()
        if saved := {each.name: [each] for each in there if (each / _STATE).exists()}:
            return _saved(_chosen(path, saved, split)[0])
        return _of_split(path, _in_folder(path, known, split), split)
    files = _readable([path], known, f"{path} is not a dataset file")
    has_split = split is not None and _split_of((path.name,))[0] is not None
    return _of_split(path.parent, files, split) if has_split else files


def _in_folder(folder: AnyPath, known: Sequence[str], split: str | None) -> list[AnyPath]:
    # The list of the parts of an export begins with `_`, as those of others do.
    visible = [file for file in folder.iterdir() if not file.name.startswith(("_", "."))]
    inside = _rows(visible, known)
    if inside and (_by_split(folder, inside) or not (split or _by_split(folder, visible))):
        return inside
    below = list(_search(folder, [(_ANY_FOLDERS,)]))
    found = {file: _split_of(_names(file, folder)) for file in _rows(below, known)}
    above = {"/".join((str(folder), *parts)) for its, parts in found.values() if its}
    if len(above) > 1:
        there = f"{folder} has several datasets: {shortened(', '.join(sorted(above)))}"
        raise SplitError(there, "let dataset_path be one of these folders")
    others = [file for file, (its, _) in found.items() if not its]
    if above and others and split is None:
        there = f"{folder} has files of splits, and {others[0]}, which is of none"
        raise SplitError(there, f"say `split`, or let dataset_path be a pattern: {folder}/**")
    if above:
        return [file for file, (its, _) in found.items() if its]
    return inside or _readable(visible, known, f"{folder} holds no dataset file")


_TEXTS = "dtype=str, keep_default_na=False"  # 007 is no 7, and n/a is what it says.
_TABLES = {
    **dict.fromkeys((".csv", ".csv.gz"), ("pandas", f"read_csv(f, {_TEXTS})")),
    **dict.fromkeys((".tsv", ".tsv.gz"), ("pandas", f'read_csv(f, sep="\\t", {_TEXTS})')),
    ".xlsx": ("pandas and openpyxl", f"read_excel(f, {_TEXTS})"),
    ".xls": ("pandas and xlrd", f"read_excel(f, {_TEXTS})"),
}
"""What reads a file `f` of another kind: packages, and a call of the first."""
_READ_BY = _TABLES | {
    ".tar": ("datasets", 'load_dataset("webdataset", data_files=f, split="train")'),
    ".txt": ("pandas", 'DataFrame({"question": [*map(str.strip, open(f, encoding="utf-8"))]})'),
}
_ENDS = re.compile(r"(?:\.(?:jsonl?|ndjson|parquet|arrow|gz|zst|csv|tsv|xlsx?))+", re.IGNORECASE)


def _rows(files: Sequence[AnyPath], known: Sequence[str]) -> list[AnyPath]:
    """Those of some files that are read, and tables beside them that are not there in both ways."""
    read = [each for each in files if suffix_of(each) in known and each.name not in _NO_ROWS]
    same = {_ENDS.sub("", str(file)) for file in read}
    tables = filter(_is_table, files if read and known == SUFFIXES else ())
    return sorted([*read, *(file for file in tables if _ENDS.sub("", str(file)) not in same)])


def _is_table(file: AnyPath) -> bool:
    return file.name.lower().endswith(tuple(_TABLES))


def _readable(files: Sequence[AnyPath], known: Sequence[str], wrong: str) -> list[AnyPath]:
    """As `_rows`; a DataError, which begins with `wrong`, if none is read."""
    if found := _rows(files, known):
        return found
    right = f"one of {', '.join(known)} is needed; unpack or convert it"
    raise DataError(wrong, _conversion(files) or right)


def _conversion(files: Sequence[AnyPath]) -> str:
    """A command that converts all files of the first kind that is there; empty if none is."""
    for suffix, (packages, call) in _READ_BY.items():
        if given := sorted(str(file) for file in files if file.name.lower().endswith(suffix)):
            each = f'[d.{call}.to_parquet(f + ".parquet") for f in {json.dumps(given)}]'
            code = f"import {packages.split()[0]} as d; {each}"
            those = "it" if len(given) == 1 else "them"
            command = f"python -c {shlex.quote(code)}"
            return f"convert {those}, with {packages}: `{command}`, and read the .parquet"
    return ""


def _check_place(path: AnyPath) -> None:
    if isinstance(path, RemotePath):
        path.check_bucket()


def _saved(folder: AnyPath, split: str | None = None) -> list[AnyPath]:
    """The files of a folder that `datasets.Dataset.save_to_disk` has written, in their order."""
    try:
        state = parse_json((folder / _STATE).read_text("utf-8"))
        files = [folder / str(file["filename"]) for file in state["_data_files"]]
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{folder / _STATE} is damaged", "save the dataset again") from None
    for file in files:
        if not file.is_file():
            found = f"{folder / _STATE} names {shown(file.name)}, which is no file there"
            raise DataError(found, "save the dataset again")
    own = state.get("_split")
    return _chosen(folder, {str(own): files}, split) if split and own else files


# --- Splits: which files of a folder are of one, by their names, as `datasets` has it ---

_SHARD = re.compile(r"(\w+(?:\.\w+)*)-\d{5}-of-\d{5}")
_BETWEEN_WORDS = re.compile(r"[-._ 0-9]+|(?<=[a-z])(?=[A-Z])")
_OF_FILES = re.compile(r"(?:data)?(?:set|split)?$")
"""How `trainset` ends, and `TestData`, which `datasets` takes for other words."""
_SPLIT_OF_WORD = {  # `datasets.data_files.SPLIT_KEYWORDS`, which takes a second to import
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


class SplitError(DataError):
    """It is not known which files of a folder are read."""

    def without_option(self) -> DataError:
        """The same for what reads no `split`."""
        return DataError(self.found, "let the path name its files, such as FOLDER/train-*.jsonl")


def _split_of(names: _Parts) -> tuple[str | None, _Parts]:
    """The split that the path of a file tells of, such as `train` of `gsm8k/data/train-1.json` or
    `train_sft` of `train_sft-00000-of-00001.parquet`, and the folders above what tells of it."""
    for depth, name in enumerate(names):
        for word in _BETWEEN_WORDS.split(name):
            if its := _SPLIT_OF_WORD.get(_OF_FILES.sub("", word.lower(), count=1)):
                shard = _SHARD.match(name)
                return (shard[1] if shard else its), names[:depth]
    return None, names[:-1]


def _by_split(folder: AnyPath, files: Iterable[AnyPath]) -> dict[str, list[AnyPath]]:
    found = defaultdict[str, list[AnyPath]](list)
    for file in files:
        if name := _split_of(_names(file, folder))[0]:
            found[name].append(file)
    return found


def _of_split(folder: AnyPath, files: Sequence[AnyPath], split: str | None) -> list[AnyPath]:
    found = _by_split(folder, files)
    return list(files) if split is None and len(found) < 2 else _chosen(folder, found, split)


def _chosen(
    folder: AnyPath, found: Mapping[str, list[AnyPath]], split: str | None
) -> list[AnyPath]:
    for name in (split, _SPLIT_OF_WORD.get(split or "")):
        if name is not None and name in found:
            return found[name]
    names = shortened(", ".join(sorted(found)))
    if split is not None:
        right = f"there are: {names}" if found else "leave out `split`"
        raise SplitError(f"{folder} has no split {shown(split)}", right)
    first = min(found, key=lambda name: (not name.startswith("train"), name))
    right = f"say `split: {first}` in the recipe, or name its files, such as {found[first][0]}"
    raise SplitError(f"{folder} has the splits {names}", right)


def _clash(path: AnyPath, export: AnyPath) -> bool:
    if not is_pattern(path):
        above = path.resolve()
        return export == above or above in export.parents or export in above.parents
    # Files may be looked for in a folder of other things, such as the working directory.
    pattern = path.resolve()
    above = folder_of(pattern)
    if export == above or export in above.parents:
        return True
    file = export / f"{PART}-00000{PART_SUFFIX}" if is_folder(export) else export
    left: Collection[_Parts] = {_names(pattern, above)} if above in file.parents else ()
    for name in _names(file, above) if left else ():
        left = _after(left, name)
    return () in left


# --- Datasets of the Hugging Face hub: downloaded once, to a file that recipes read ---

SCHEME = "hf://datasets/"


@dataclass(frozen=True)
class HubDataset:
    """A split of a dataset on the hub; a recipe may write it `hf://datasets/NAME?split=test`."""

    name: str  # such as `openai/gsm8k`, or a folder of data files
    config: str | None = None  # its configuration, where it has several
    split: str | None = None  # null: the only one
    limit: int | None = None  # at most so many of its first rows
    data_files: str | None = None  # those of its files that are read, where not all are
    data_dir: str | None = None  # the folder of the dataset in which they are

    def __str__(self) -> str:
        options = {key: value for key, value in asdict(self).items() if value is not None}
        name = options.pop("name")
        return f"{SCHEME}{name}?{urlencode(options, safe='/*')}" if options else f"{SCHEME}{name}"

    @classmethod
    def parse(cls, text: str) -> HubDataset:
        name, _, query = text.removeprefix(SCHEME).partition("?")
        if not text.startswith(SCHEME) or not name.strip("/") or name.count("/") > 1:
            raise ValueError(f"write it as {SCHEME}OWNER/NAME?split=train")
        options: dict[str, Any] = dict(parse_qsl(query))
        known = [field.name for field in fields(cls) if field.name != "name"]
        for key in options:
            if key not in known:
                near = suggest(key, known) or f"there are: {', '.join(known)}"
                raise ValueError(f"{text} has an unknown option '{key}'; {near}")
        if "limit" in options:
            options["limit"] = int(options["limit"])
        return cls(name, **options)

    def file(self, cache: AnyPath) -> AnyPath:
        key = xxhash.xxh3_64_hexdigest(json.dumps(asdict(self)).encode())
        path = cache / f"hub-{key}.parquet"
        if not path.exists():
            download(self, path)
        return path


def download(dataset: HubDataset, path: AnyPath) -> int:
    """Write a split of a dataset to a Parquet or JSON Lines file: the number of its rows."""
    if path.suffix not in (".parquet", ".jsonl"):
        raise DataError(f"{path} has no known format", "end it in .parquet or .jsonl")
    rows = _load(dataset)
    if not len(rows):
        found = f"split {dataset.split or rows.split} of '{dataset.name}' has no row"
        raise DataError(found, "give another --split")
    with written(path) as file:
        (rows.to_parquet if path.suffix == ".parquet" else rows.to_json)(str(file))
    return len(rows)


def _load(dataset: HubDataset) -> Any:
    needs("reading a dataset of the hub", "rejuice[hub]", "datasets")
    from datasets import DatasetDict, load_dataset
    from datasets.exceptions import DatasetsError

    name, config = dataset.name, dataset.config
    if name == "pandas":  # Not a dataset but a format of `datasets`; some versions unpickle it.
        raise DataError("'pandas' reads pickles, which may run code", "give Parquet files")
    files = {"data_files": dataset.data_files, "data_dir": dataset.data_dir}
    given = {key: value for key, value in files.items() if value is not None}
    try:
        rows = load_dataset(name, config, split=dataset.split, **given)
    except StopIteration:  # What `datasets` raises of JSON Lines without a line.
        raise DataError(f"cannot load '{name}'", "its files have no row") from None
    except (DatasetsError, ValueError, OSError, RuntimeError) as error:
        # Of a file that is damaged, `datasets` only says that something happened, and because of
        # what. A RuntimeError is about what it does not support, such as a script of the dataset.
        cause = (isinstance(error, DatasetsError) and error.__cause__) or error
        message = " ".join(str(cause).split()) or type(cause).__name__
        raise DataError(f"cannot load '{name}'", message) from None
    if isinstance(rows, DatasetDict):
        if len(rows) > 1:
            raise DataError(f"'{name}' has the splits {', '.join(rows)}", "name one as split")
        (rows,) = rows.values()
    return rows if dataset.limit is None else rows.select(range(min(dataset.limit, len(rows))))
