"""Datasets that a recipe describes instead of asking for them: they are written when missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ...operators.config import Config

_ONLY = {"levels": ("arithmetic", "trajectories"), "trajectories": ("trajectories",)}
"""The types that have a field which others lack."""


class GeneratedDataset(Config):
    """A dataset that is generated. Those of `arithmetic` are options of `rejuice data`, too."""

    type: Literal["arithmetic", "code", "lookup", "trajectories"]
    """What its rows are. `arithmetic`: worded arithmetic problems with their solutions. `code`:
    programming problems with their tests and eight recorded responses. `lookup`: questions for an
    agent that searches and calculates, each with 13 documents of its own.
    `trajectories`: what simulated agents with a calculator did with the same problems, for
    `agent_rollout_mapper` with the engine `recorded`."""
    prompts: PositiveInt = 200
    """Number of problems or questions."""
    split: Literal["train", "validation", "test"] = "train"
    """No two splits share a problem or a question."""
    levels: tuple[Literal[1, 2, 3, 4], ...] = Field((1, 2, 3), min_length=1)
    """Numbers of steps that a problem may take; of `arithmetic` and `trajectories` only."""
    seed: NonNegativeInt = 0
    """Each seed gives other problems or questions."""
    trajectories: PositiveInt = 8
    """How many of each problem, with that type."""

    @model_validator(mode="after")
    def _has_its_fields(self) -> Self:
        for name, types in _ONLY.items():
            # A resolved recipe names every field, with its default.
            is_set = getattr(self, name) != type(self).model_fields[name].default
            if is_set and self.type not in types:
                raise ValueError(f"a dataset of type {self.type} has no {name}")
        return self

    def first_rows(self, path: Path) -> pa.Table:
        """The first rows that `write` would write to a path.

        Raises:
            RejuiceError: as `write`, but it does not count the problems that there are.
        """
        from ..demo.code_rows import first_code_problems
        from ..demo.lookup_rows import first_lookups
        from ..demo.recorded import check_format, first_prompts

        check_format(path)
        if self.type == "code":
            return first_code_problems(**self._options())
        if self.type == "lookup":
            return first_lookups(**self._options())
        return first_prompts(**self._options("trajectories"))

    def write(self, path: Path) -> None:
        """Write the dataset.

        Raises:
            RejuiceError: the path has no known format, or there are fewer problems.
        """
        from ..demo.agents import write_trajectories
        from ..demo.code_rows import write_code_problems
        from ..demo.lookup_rows import write_lookups
        from ..demo.recorded import write_prompts

        writers = {
            "arithmetic": write_prompts,
            "code": write_code_problems,
            "lookup": write_lookups,
            "trajectories": write_trajectories,
        }
        writers[self.type](path, **self._options())

    def _options(self, *left_out: str) -> dict[str, Any]:
        """The fields of its type, but for some."""
        missing = [name for name, types in _ONLY.items() if self.type not in types]
        return self.model_dump(exclude={"type", *missing, *left_out})
