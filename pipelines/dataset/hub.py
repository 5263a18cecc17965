"""Datasets of the Hugging Face hub: downloaded once, to a file that recipes read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

import xxhash

from ...operators import DataError
from ...operators.errors import suggest
from .files import written
from .remote import AnyPath

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
        """The dataset of `hf://datasets/openai/gsm8k?config=main&split=train`.

        Raises:
            ValueError: it is none, or has an unknown option.
        """
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
        """The Parquet file of its rows, which is downloaded where it is missing.

        Raises:
            DataError: it cannot be downloaded.
        """
        key = xxhash.xxh3_64_hexdigest(json.dumps(asdict(self)).encode())
        path = cache / f"hub-{key}.parquet"
        if not path.exists():
            download(self, path)
        return path


def download(dataset: HubDataset, path: AnyPath) -> int:
    """Write a split of a dataset to a Parquet or JSON Lines file.

    Returns:
        The number of rows.

    Raises:
        DataError: there is no such dataset, configuration or split, its files cannot be read, or
            the format is unknown.
    """
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
    """The split as a `datasets.Dataset`."""
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
