"""What a recipe configures: frozen models whose fields are documented by the docstrings below them.

Pydantic can read these docstrings itself (`use_attribute_docstrings`), but does so whenever a class
is defined: a fifth of the processor time of `rejuice check`, which shows none of them. Here they
are read when they are asked for.
"""

from __future__ import annotations

import ast
import errno
import inspect
import math
import os
import re
from abc import ABC
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, Tag, field_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Config(BaseModel):
    """Base of operators, of their options and of a recipe's sections."""

    # JSON has neither inf nor nan: in the cache key and in the recipe of a run they would be null.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @field_validator("*")
    @classmethod
    def _check_value(cls, value: Any) -> Any:
        check_value(value)
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            key = cls.model_fields[name].alias or name
            if key in properties:
                properties[key].setdefault("description", text)
        return schema


def check_value(value: Any) -> None:
    """Refuse what cannot be written to a file, and a path that cannot be opened."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, Path):
        _check_path(value)
    elif isinstance(value, int):
        check_integer(value, bits=64)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            check_value(key)
            check_value(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            check_value(each)


def check_text(text: str) -> None:
    """Refuse what UTF-8 cannot express: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise ValueError(f"it has {half}, half of a surrogate pair; remove it") from None


def check_integer(number: int, bits: int = 1023) -> None:
    """By default, no more bits than a number has that a float can be near."""
    if number.bit_length() > bits:
        raise ValueError(f"the number has more than {bits:,} bits; give a smaller one")


def _check_path(path: Path) -> None:
    """Whether there is something at the path or not."""
    text = str(path)
    check_text(text)
    if "\0" in text:
        raise ValueError("a path has no NUL character; remove it")
    try:
        os.stat(text)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise ValueError(f"{os.strerror(error.errno).lower()}; give another path") from None


def deciding_fields(config: Config) -> dict[str, Any]:
    """As JSON, without the fields named in `excluded_from_cache_key` of the config, and of configs
    within it."""
    return config.model_dump(mode="json", exclude=_excluded(config))


def _excluded(value: Any) -> dict[Any, Any]:
    whole, parts = dict[Any, Any](), dict[Any, Any]()
    match value:
        case Config():
            whole = dict.fromkeys(getattr(value, "excluded_from_cache_key", ()), True)
            names = type(value).model_fields.keys() - whole.keys()
            parts = {name: getattr(value, name) for name in names}
        case Mapping():
            parts = dict(value)
        case tuple():
            parts = dict(enumerate(value))
        case _:
            return {}
    return whole | {name: inner for name, part in parts.items() if (inner := _excluded(part))}


def field_docs(model: type[BaseModel]) -> Mapping[str, str]:
    """The docstring of each field that has one; none for a class whose source is in no file.

    A field that a subclass gives another default, and no docstring, has that of its base.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        # Not remembered where the source cannot be read: the next attempt may find it.
        with suppress(OSError, TypeError, SyntaxError):  # Made at run time, or in a notebook.
            found |= _own_docs(base)
    return {name: found[name] for name in model.model_fields if found.get(name)}


@cache
def _own_docs(model: type) -> dict[str, str]:
    """Raises where the source of the class is in no file."""
    if not issubclass(model, BaseModel) or model is BaseModel:
        return {}
    (node,) = ast.parse(dedent(inspect.getsource(model))).body
    found = {}
    for pair in pairwise(node.body if isinstance(node, ast.ClassDef) else []):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found


# --- Classes that recipes name --------------------------------------------------------


class Named(Config, ABC):
    """Base of the classes that distributions and files add to recipes, each under its name."""

    noun: ClassVar[str]
    """What such a class is, for messages; entry points are in the group `rejuice.<noun>s`."""

    @classmethod
    def name(cls) -> str:
        """The recipe key: the class name in snake case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


# --- Numbers that change with the progress of training --------------------------------


class WeightSchedule(Config):
    """A weight that changes with the progress of training."""

    model_config = ConfigDict(serialize_by_alias=True)

    from_: FiniteFloat = Field(alias="from")
    """Weight at the start."""
    to: FiniteFloat
    """Weight at the end."""
    kind: Literal["linear", "cosine"] = "linear"
    """Linear, or slow at both ends as half a cosine."""

    def at(self, progress: float) -> float:
        """The weight at `progress` in [0, 1], exactly `from` and `to` at the ends."""
        cosine = self.kind == "cosine"
        share = (1 - math.cos(math.pi * progress)) / 2 if cosine else progress
        return (1 - share) * self.from_ + share * self.to


def _weight_tag(weight: Any) -> str:
    # Discriminated explicitly, so that an error is about the intended kind of weight.
    return "schedule" if isinstance(weight, (Mapping, WeightSchedule)) else "number"


Weight = Annotated[
    Annotated[FiniteFloat, Tag("number")] | Annotated[WeightSchedule, Tag("schedule")],
    Discriminator(_weight_tag),
]


def weight_at(weight: Weight, progress: float) -> float:
    return weight.at(progress) if isinstance(weight, WeightSchedule) else float(weight)
