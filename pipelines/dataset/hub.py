"""Download a dataset of the Hugging Face hub to a file that recipes read."""

from __future__ import annotations

from pathlib import Path

from ...operators import DataError
from .files import temporary_path


def download(name: str, path: Path, *, config: str | None, split: str) -> int:
    """Write a split of a dataset to a Parquet or JSON Lines file.

    Args:
        name: of the dataset on the hub, such as `openai/gsm8k`, or a folder of data files.
        path: the file to write: `.parquet` or `.jsonl`.
        config: its configuration, where it has several.
        split: such as `train`.

    Returns:
        The number of rows.

    Raises:
        DataError: there is no such dataset, configuration or split, or the format is unknown.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise DataError(f"{path} has no known format", "end it in .parquet or .jsonl")
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        dataset = load_dataset(name, config, split=split)
    except (DatasetNotFoundError, ValueError, OSError) as error:
        message = " ".join(str(error).split())
        raise DataError(f"cannot load '{name}'", message) from None
    if not len(dataset):
        raise DataError(f"split {split} of '{name}' has no row", "give another --split")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    write = dataset.to_parquet if path.suffix == ".parquet" else dataset.to_json
    try:
        write(str(temporary))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return len(dataset)
