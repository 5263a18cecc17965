"""Runs of Data-Juicer in this process: a recipe in a folder, its rows and its audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

# Without caches, monitor processes and worker processes: a run takes a second.
_HEAD = {"np": 1, "skip_op_error": False, "open_monitor": False, "use_cache": False}


def write_recipe(
    folder: Path, process: Sequence[Mapping[str, Any]], table: pa.Table, **head: Any
) -> Path:
    """A recipe over a table, both written to a folder; it exports to `out/curated.parquet`."""
    pq.write_table(table, folder / "data.parquet")
    document = {
        **_HEAD,
        "dataset_path": str(folder / "data.parquet"),
        "export_path": str(folder / "out" / "curated.parquet"),
        "ds_cache_dir": str(folder / "cache"),
        **head,
        "process": list(process),
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def execute(recipe: Path, *arguments: str) -> pa.Table:
    """Run a recipe as a script would: Data-Juicer's configuration, then its executor."""
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    settings = init_configs(["--config", str(recipe), *arguments])
    DefaultExecutor(settings).run()
    return exported(recipe.parent)


def exported(folder: Path) -> pa.Table:
    """What a run has exported, without the columns that Data-Juicer keeps for itself."""
    table = pq.read_table(folder / "out" / "curated.parquet")
    return table.drop_columns([name for name in table.column_names if name.startswith("__dj__")])


def audit_log(folder: Path) -> dict[str, bytes]:
    """The files of the audit log by name."""
    run = folder / "out" / "curated.run"
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in sorted(run.rglob("decisions.parquet"))
    }
