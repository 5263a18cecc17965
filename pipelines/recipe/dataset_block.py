"""`dataset_path`, `dataset` and `columns` of a recipe: what is read as its dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from ...operators.errors import shown, suggest
from ..dataset.hub import HubDataset
from ..dataset.mixture import parse_mixture
from ..dataset.remote import AnyPath, to_path
from ..dataset.selection import Selection
from ..dataset.spec import DatasetPart

DatasetPath = AnyPath | HubDataset
_MIXTURE = re.compile(r"\d*\.?\d+\s+\S|\S+\.(?:jsonl?|parquet|gz|zst)\s+\S")
"""`0.5 a.jsonl 0.5 b.jsonl`, with or without the weights."""
_LOCAL = ("type", "path", "weight", "source")
_REMOTE = ("type", "source", "path", "name", "split", "limit", "data_files", "data_dir", "weight")
_BLOCK = ("configs", "max_sample_num")


def dataset_paths(value: Any) -> DatasetPath | tuple[DatasetPath, ...]:
    """The path, or the paths, that `dataset_path` names.

    Raises:
        ValueError: it names none.
    """
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
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("a path is empty; give a path")
        return HubDataset.parse(value) if value.startswith("hf://") else to_path(value)
    if isinstance(value, HubDataset | AnyPath):
        return value
    raise ValueError(f"{shown(value)} is no path; give one, or a list of them")


def checked_block(value: Any) -> dict[str, Any]:
    """A `dataset` block in Data-Juicer's form, its local paths as paths.

    Raises:
        ValueError: it is not in that form, or asks for what is not read here.
    """
    if not isinstance(value, Mapping):
        raise ValueError("it is no mapping; write `dataset: {configs: [{type: local, path: …}]}`")
    _check_keys(value, _BLOCK)
    configs, most = value.get("configs"), value.get("max_sample_num")
    if not isinstance(configs, Sequence) or isinstance(configs, str) or not configs:
        raise ValueError("configs is no list of datasets; give one or more")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most <= 0):
        raise ValueError(f"max_sample_num is {shown(most)}; give a positive integer")
    checked = [_checked_config(each, number) for number, each in enumerate(configs, 1)]
    if len({each["type"] for each in checked}) > 1:
        raise ValueError("it mixes local and remote datasets; name the one of the hub alone")
    if checked[0]["type"] == "remote" and len(checked) > 1:
        raise ValueError("it has several remote datasets; give one, or several by dataset_path")
    if most is not None and not sum(_weight(each) for each in checked):
        raise ValueError("all weights are 0; give one that is not")
    found = {"configs": checked}
    return found if most is None else {**found, "max_sample_num": most}


def _checked_config(value: Any, number: int) -> dict[str, Any]:
    where = f"dataset {number}"
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is no mapping; write {{type: local, path: …}}")
    kind, path, source = value.get("type"), value.get("path"), value.get("source")
    if not isinstance(path, (str, Path)) or not str(path):
        raise ValueError(f"{where} has no path; give one")
    weight = value.get("weight")
    if weight is not None and (not isinstance(weight, int | float) or not 0 <= weight < inf):
        raise ValueError(
            f"the weight of {where} is {shown(weight)}; give a number that is not negative"
        )
    if kind == "local":
        _check_keys(value, _LOCAL, where)
        on_disk = to_path(str(path))  # The path of a store is text, as it is in YAML.
        return {**value, "path": on_disk if isinstance(on_disk, Path) else str(path)}
    if kind != "remote":
        raise ValueError(f"the type of {where} is {shown(kind)}; give local or remote")
    if source != "huggingface":
        right = "give huggingface, or a path such as s3://… as dataset_path"
        raise ValueError(f"the source of {where} is {shown(source)}; {right}")
    _check_keys(value, _REMOTE, where)
    return dict(value)


def _check_keys(found: Mapping[str, Any], known: Sequence[str], where: str = "it") -> None:
    for key in found:
        if key not in known:
            right = suggest(str(key), known) or f"there are: {', '.join(known)}"
            raise ValueError(f"{where} has an unknown key '{key}'; {right}")


def parts(
    paths: DatasetPath | tuple[DatasetPath, ...] | None, block: Mapping[str, Any] | None
) -> tuple[DatasetPart, ...]:
    """The parts of the dataset that `dataset_path`, or else the block, describes."""
    if paths is not None:
        several = paths if isinstance(paths, tuple) else (paths,)
        return tuple(DatasetPart(path) for path in several)
    return tuple(_part(each) for each in (block or {}).get("configs", ()))


def _part(config: Mapping[str, Any]) -> DatasetPart:
    if config["type"] == "local":
        return DatasetPart(to_path(config["path"]), _weight(config))
    options = {key: config.get(key) for key in ("split", "limit", "data_files", "data_dir")}
    of_hub = HubDataset(str(config["path"]), config.get("name"), **options)
    return DatasetPart(of_hub, _weight(config))


def _weight(config: Mapping[str, Any]) -> float:
    weight = config.get("weight")
    return 1.0 if weight is None else float(weight)


def selection(columns: Mapping[str, str] | Sequence[str] | None) -> Selection:
    """Which columns `columns` selects, and what it calls them.

    Raises:
        ValueError: it selects none, or gives two the same name.
    """
    if columns is None:
        return Selection()
    if not columns:
        raise ValueError("it selects no column; name one, or leave it out")
    pairs = columns.items() if isinstance(columns, Mapping) else zip(columns, columns, strict=True)
    names = tuple((old, new) for old, new in pairs)
    seen = set[str]()
    for _, new in names:
        if new in seen:
            raise ValueError(f"two columns are called '{new}'; rename one")
        seen.add(new)
    return Selection(names)
