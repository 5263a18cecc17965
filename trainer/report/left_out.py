"""Rows of datasets that became no prompt of a run: a line for each set, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ...pipelines.recipe.train import ONE_SET
from ..held_out import RESPONSES

_TRAIN, _ENDING = "train", "-decisions.parquet"
_REPEATED = "repeated_prompt"


def left_out_lines(folder: Path) -> Iterator[str]:
    """Which rows were left out as the prompts of a run were made; nothing where none was.

    Args:
        folder: of the run.

    Example:
        >>> list(left_out_lines(Path("outputs/try")))
        ['dropped before training: 1 of 20 rows (prompt_too_long 1)']
    """
    for path in sorted((folder / "prompts").glob(f"*{_ENDING}")):
        with suppress(OSError, pa.ArrowInvalid):  # Whatever is damaged: a report is of what is not.
            yield from _of_set(path.parent, path.name.removesuffix(_ENDING))


def _of_set(folder: Path, split: str) -> Iterator[str]:
    decisions, prompts = pq.read_table(folder / f"{split}{_ENDING}"), _kept(folder, split)
    if not decisions.num_rows or prompts is None:
        return
    rows = prompts.num_rows + decisions.num_rows
    reasons = Counter[str](decisions["reason"].to_pylist())
    if split != _TRAIN and (repeated := reasons.pop(_REPEATED, 0)):
        found = f"{repeated:,} of {rows:,} rows repeat an earlier prompt and are left out"
        yield f"{_shown(split)}: {found}; {_advice(folder, split, prompts, decisions)}"
    if reasons:
        listed = ", ".join(f"{reason} {n:,}" for reason, n in reasons.most_common())
        stage = "training" if split == _TRAIN else _shown(split)
        yield f"dropped before {stage}: {reasons.total():,} of {rows:,} rows ({listed})"


def _kept(folder: Path, split: str) -> pa.Table | None:
    """The rows that are left of a dataset; of a replayed one they are responses."""
    replayed = folder / "replay.arrow"
    path = replayed if split == _TRAIN and replayed.is_file() else folder / f"{split}.arrow"
    return feather.read_table(path, memory_map=True) if path.is_file() else None


def _shown(split: str) -> str:
    """The set of `validation-aime.parquet` is `validation aime`."""
    return split.replace("-", " ", 1)


def _advice(folder: Path, split: str, prompts: pa.Table, decisions: pa.Table) -> str:
    """How to get the responses that a dataset with each prompt several times is made for.

    The number is known where every prompt is there as often: AIME's sets for verl have each 32
    times.
    """
    repeated = decisions.filter(pc.equal(decisions["reason"], _REPEATED))
    counts = Counter[str](repeated["row_id"].to_pylist())
    times = {counts[name] + 1 for name in prompts["prompt_id"].to_pylist()}
    often = min(times) if len(times) == 1 else 1
    n = _responses(folder / f"{split}.parquet")
    name = split.removeprefix(f"{ONE_SET}-")
    field, of = ("validation_n", "") if name == ONE_SET else ("n", f" of train.validation.{name}")
    if often in (1, n):
        return f"{field}{of} says how many responses each prompt gets, which is {n}"
    return f"set {field}: {often}{of} to get {often} responses to each prompt instead of {n}"


def _responses(path: Path) -> int:
    """How many responses each prompt of a set gets."""
    found = pq.ParquetFile(path)
    if RESPONSES not in found.schema_arrow.names:
        return 1
    return int(found.read(columns=[RESPONSES])[RESPONSES][0].as_py())
