"""The dataset of `dj-process`, in a recipe of ours, as `rejuice run` reads it.

Data-Juicer's loader reads JSON by pandas or by Arrow's parser, which round numbers and move values
(`dataset/json_lines.py`), and takes types from the first block of a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import xxhash

from ...operators import DataError
from ..dataset.arrow_files import FORMAT
from ..dataset.arrow_types import without_empty
from ..dataset.files import written
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, to_path
from ..dataset.schemas import conform
from ..dataset.spec import DatasetPart, DatasetSpec, files_of
from ..recipe.dataset_block import selection
from ..recipe.head import dotted

_CHUNK_ROWS = 65_536
_OF_THEIR_LOADER = ("load_dataset_kwargs", "decrypt_after_reading")


def is_read_here(strategy: Any) -> bool:
    """Whether what one of Data-Juicer's strategies would load is read by `load_data`.

    What `rejuice run` does not read, such as CSV, or what a recipe asks of Data-Juicer's loader
    alone, is not.
    """
    from data_juicer.core.data.load_strategy import DefaultLocalDataLoadStrategy

    settings = strategy.cfg
    if not isinstance(strategy, DefaultLocalDataLoadStrategy):
        return False
    if any(getattr(settings, name, None) for name in _OF_THEIR_LOADER):
        return False
    try:
        return bool(files_of(*_files(strategy)))
    except DataError:
        return False


def load_data(strategy: Any, num_proc: int = 1, **_: Any) -> Any:
    """What `DefaultLocalDataLoadStrategy.load_data` gives, with the columns that are selected."""
    from data_juicer.format.formatter import unify_format

    settings = strategy.cfg
    path, suffixes = _files(strategy)
    selected = selection(getattr(settings, "columns", None))
    spec = DatasetSpec((DatasetPart(path),), suffixes, selected)
    if any("suffix_filter" in entry for entry in getattr(settings, "process", None) or ()):
        spec = spec.with_suffix()
    to_parquet = str(getattr(settings, "export_path", "")).endswith(".parquet")
    found = _mapped(Dataset(spec), to_parquet=to_parquet)
    return unify_format(found, settings.text_keys, num_proc, settings)


def _files(strategy: Any) -> tuple[AnyPath, tuple[str, ...]]:
    """The path that a strategy reads, and the suffixes of files there."""
    suffixes = getattr(strategy.cfg, "suffixes", None) or ()
    return to_path(strategy.ds_config["path"]), dotted(suffixes)


def _mapped(dataset: Dataset, *, to_parquet: bool) -> Any:
    """A dataset of Hugging Face's, whose rows are mapped from a file in its cache.

    Args:
        dataset: to be read.
        to_parquet: its rows are exported so, in which there are no objects without fields.
    """
    import datasets

    cache = Path(datasets.config.HF_DATASETS_CACHE) / "rejuice"
    made_of = json.dumps([FORMAT, dataset.fingerprint, dataset.spec.selection, to_parquet])
    key = xxhash.xxh3_64_hexdigest(made_of.encode())
    path = cache / f"{key}.arrow"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        chunks = TemporaryDirectory(prefix=key, dir=cache)  # of this process alone
        source = dataset.chunks(Path(chunks.name), chunk_rows=_CHUNK_ROWS, group_by=())
        fields = [
            field.with_type(without_empty(field.type)) if to_parquet else field
            for field in source.schema
        ]
        schema = pa.schema(fields)
        with (
            written(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_stream(sink, schema) as stream,
        ):
            for chunk in range(len(source.rows)):
                stream.write_table(conform(source.chunk(chunk), schema))
        chunks.cleanup()
    return datasets.Dataset.from_file(str(path))
