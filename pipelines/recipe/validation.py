"""A validation set of the `train:` section: held-out prompts, and how they are sampled."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ...operators.config import Config

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class ValidationSet(Config):
    """Held-out prompts, and how they are sampled; a path alone is a set with all defaults."""

    path: Path
    """The held-out prompts, with the columns of `dataset_path` or with `overrides`."""
    max_samples: PositiveInt | None = None
    """At most so many of its prompts, drawn once; verl's `val_max_samples`. Null: all."""
    n: PositiveInt = 1
    """Responses to each prompt."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """The temperature of sampling. 0: greedy. Null: that of training."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """The nucleus of sampling. Null: that of training."""
    overrides: dict[str, dict[str, Any]] = Field({})
    """Fields that steps before sampling have for this set instead of their own, by step: for other
    columns, such as `prompt_template_mapper: {question: problem}`."""

    @model_validator(mode="before")
    @classmethod
    def _of_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, (str, Path)) else value

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.temperature == 0 and self.n > 1:
            raise ValueError("temperature: 0 always gives the same response: it needs n: 1")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        fields = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"anyOf": [{"type": "string", "format": "path"}, fields]}


def check_names(names: Iterable[str]) -> None:
    """Check that names of sets can be parts of the names of files and of metrics.

    Raises:
        ValueError: one cannot.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"validation set '{name}' has a name that is no file name: use letters, digits, "
                "- and _"
            )
