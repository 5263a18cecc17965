"""Datasets that a recipe describes instead of asking for them: they are written when missing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt

from ...operators.config import Config


class GeneratedDataset(Config):
    """A dataset that is generated; the fields are the options of `rejuice data`."""

    type: Literal["arithmetic"]
    """What its rows are: worded arithmetic problems with their solutions."""
    prompts: PositiveInt = 200
    """Number of problems."""
    split: Literal["train", "validation", "test"] = "train"
    """No two splits share a problem."""
    levels: tuple[Literal[1, 2, 3, 4], ...] = Field((1, 2, 3), min_length=1)
    """Numbers of steps that a problem may take."""
    seed: NonNegativeInt = 0
    """Each seed gives other problems."""

    def first_rows(self, path: Path) -> pa.Table:
        """The first rows that `write` would write to a path.

        Raises:
            RejuiceError: as `write`, but it does not count the problems that there are.
        """
        from ..demo.recorded import check_format, first_prompts

        check_format(path)
        return first_prompts(**self.model_dump(exclude={"type"}))

    def write(self, path: Path) -> None:
        """Write the dataset.

        Raises:
            RejuiceError: the path has no known format, or there are fewer problems.
        """
        from ..demo.recorded import write_prompts

        write_prompts(path, **self.model_dump(exclude={"type"}))
