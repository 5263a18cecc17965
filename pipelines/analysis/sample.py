"""Run a recipe on some of its prompts, beside its own export."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from ...operators import DataError
from ...operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ...operators.sampling.rollout import RolloutMapper
from ..dataset.arrow_files import write_arrow
from ..dataset.write import default_cache
from ..dataset.written import mark_written, written_columns
from ..engine import runner as engine
from ..engine.progress import Progress
from ..engine.report import Report
from ..recipe.read import load
from ..recipe.recipe import Recipe


def run_on_some(
    recipe: Recipe,
    overrides: Mapping[str, str],
    prompts: int,
    *,
    progress: Progress,
    warn: Callable[[str], object],
) -> Report:
    """Run a recipe on a seeded sample of its dataset; what it samples is reused by a whole run.

    The export goes into a folder `preview` beside the recipe's own, of which nothing is touched.

    Args:
        recipe: that samples.
        overrides: with which it was read.
        prompts: rows of the dataset.
        progress: where progress is shown.
        warn: called with each warning.

    Raises:
        DataError: it samples nothing.
        RejuiceError: as `engine.run`.
    """
    sampling = (RolloutMapper, RecordedRolloutMapper)
    if not any(isinstance(step.operator, sampling) for step in recipe.steps):
        raise DataError("no step of the recipe samples responses", "run the recipe")
    head = recipe.head
    for path in head.write_missing(*head.dataset_spec.paths, *recipe.recordings()):
        progress.tell(f"{path} did not exist: it was written, as generated_datasets says")
    table = recipe.opened().table()
    if table.num_rows > prompts:
        rows = np.sort(np.random.default_rng(0).choice(table.num_rows, prompts, replace=False))
        table = table.take(pa.array(rows))
    table = table.cast(mark_written(table.schema, written_columns(head.dataset_spec)))
    folder = head.export_path.parent / "preview" / head.export_path.stem
    folder.mkdir(parents=True, exist_ok=True)
    write_arrow(folder / "prompts.arrow", table)
    export = folder / "curated.parquet"
    paths = {"dataset_path": str(folder / "prompts.arrow"), "export_path": str(export)}
    cache = default_cache(head.export_path)  # Where a whole run looks for what was sampled.
    some = load(recipe.path, {**overrides, **paths})
    return engine.run(some, cache=cache, progress=progress, warn=warn, overwrite=True)
