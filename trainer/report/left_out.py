"""Rows of datasets that became no prompt of a run: a line for each set, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
    if split != _TRAIN and reasons.pop(_REPEATED, 0):
        repeated = decisions.filter(pc.equal(decisions["reason"], _REPEATED))["row_id"]
        counts = Counter[str](prompts["prompt_id"].to_pylist() + repeated.to_pylist())
        n = _responses(folder / f"{split}.parquet")
        yield repeats_line(split, counts, n, f"{rows:,}")
    if reasons:
        listed = ", ".join(f"{reason} {n:,}" for reason, n in reasons.most_common())
        stage = "training" if split == _TRAIN else _shown(split)
        yield f"dropped before {stage}: {reasons.total():,} of {rows:,} rows ({listed})"


def repeats_line(split: str, counts: Mapping[str, int], n: int, rows: str) -> str:
    """What to do about a validation set in which prompts repeat.

    The number of responses that it is made for is known where every prompt is there as often: AIME's
    sets for verl have each 32 times.

    Args:
        split: the name of its files.
        counts: how often each prompt is there.
        n: how many responses each prompt gets.
        rows: of how many rows, as text.

    Example:
        >>> repeats_line("validation", {"a": 2, "b": 2}, 1, "the first 4")
        'validation: 2 of the first 4 rows repeat an earlier prompt and are left out; set validation_n: 2 to get 2 responses to each prompt instead of 1'
    """  # noqa: E501
    repeated = sum(counts.values()) - len(counts)
    found = f"{repeated:,} of {rows} rows repeat an earlier prompt and are left out"
    name = split.removeprefix(f"{ONE_SET}-")
    field, of = ("validation_n", "") if name == ONE_SET else ("n", f" of train.validation.{name}")
    times = set(counts.values())
    often = min(times) if len(times) == 1 else 1
    if often in (1, n):
        advice = f"{field}{of} says how many responses each prompt gets, which is {n}"
    else:
        advice = f"set {field}: {often}{of} to get {often} responses to each prompt instead of {n}"
    return f"{_shown(split)}: {found}; {advice}"


def _kept(folder: Path, split: str) -> pa.Table | None:
    """The rows that are left of a dataset; of a replayed one they are responses."""
    replayed = folder / "replay.arrow"
    path = replayed if split == _TRAIN and replayed.is_file() else folder / f"{split}.arrow"
    return feather.read_table(path, memory_map=True) if path.is_file() else None


def _shown(split: str) -> str:
    """The set of `validation-aime.parquet` is `validation aime`."""
    return split.replace("-", " ", 1)


def _responses(path: Path) -> int:
    """How many responses each prompt of a set gets."""
    found = pq.ParquetFile(path)
    if RESPONSES not in found.schema_arrow.names:
        return 1
    return int(found.read(columns=[RESPONSES])[RESPONSES][0].as_py())
