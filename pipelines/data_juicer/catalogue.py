"""Data-Juicer's operators by name: the class, its kind and its fields.

The first look-up imports Data-Juicer, which takes seconds: recipes that have none of its operators
do without, and without the extra `data-juicer`, too.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from ...operators import RecipeError
from ...operators.errors import suggest

KINDS = ("mapper", "filter", "deduplicator", "selector")
"""Kinds that `rejuice run` can run: each of their rows comes from one row."""
BASE = "data_juicer.ops.base_op"
"""The module of the classes that all operators inherit from."""
_COLUMN = re.compile(r"\bsamples?(?:\[|\.get\()(.+?)[\],)]")
_HELPER = re.compile(r"(Fields\.(stats|context)|HashKeys|StatsKeys)\b")
EXTRA = "pip install 'rejuice[data-juicer]'"


def is_installed() -> bool:
    """Whether there is Data-Juicer; it is not imported."""
    return find_spec("data_juicer") is not None


def not_installed(name: str, known: Iterable[str]) -> RecipeError:
    found = f"rejuice has no operator '{name}', and those of Data-Juicer are not installed"
    near = suggest(name, known)
    return RecipeError(found, f"{near} or, for one of Data-Juicer's, {EXTRA}".removeprefix(" or, "))


class ForeignField(NamedTuple):
    name: str
    hint: Any  # its type; None: any value
    default: Any  # `inspect.Parameter.empty`: the field is required

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def type(self) -> str:
        """Its type for a reader, without the names of modules."""
        if self.hint is None:
            return "any"
        return re.sub(r"\b(jsonargparse\.)?typing\.", "", inspect.formatannotation(self.hint))


class ForeignKind(NamedTuple):
    kind: str  # `mapper`, `filter` and so on
    cls: type[Any]
    fields: dict[str, ForeignField]  # its own, then those of its bases

    @property
    def needs_ray(self) -> bool:
        # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_with_ray.py::test_operators_for_ray_are_known_by_their_class
        return "default" not in self.cls._supported_exec_modes

    @property
    def writes_statistics(self) -> bool:
        """Whether it computes statistics of each row, by which it decides."""
        from data_juicer.ops import NON_STATS_FILTERS

        return self.kind == "filter" and self.cls not in NON_STATS_FILTERS.modules.values()

    @property
    def source(self) -> str:
        """That of the class and of its bases; empty where it is not on disk."""
        bases = [base for base in self.cls.__mro__[:-1] if base.__module__ != BASE]
        with suppress(OSError, TypeError):  # A class of a console.
            return "\n".join(inspect.getsource(base) for base in bases)
        return ""

    @property
    def reads_only_text(self) -> bool:
        """Whether the text is the only column that its source names."""
        columns = set(_COLUMN.findall(self.source))
        return {name for name in columns if not _HELPER.match(name)} == {"self.text_key"}

    @property
    def keeps_columns(self) -> bool:
        """Whether a table has the same columns after it, as far as that is known."""
        return self.reads_only_text if self.kind == "mapper" else self.kind in KINDS

    def meanings(self) -> dict[str, str]:
        """What the docstrings of the class and of its bases say about the fields."""
        from docstring_parser import DocstringStyle, parse

        found: dict[str, str] = {}
        for base in self.cls.__mro__:
            text = getattr(vars(base).get("__init__"), "__doc__", None)
            for each in parse(inspect.cleandoc(text or ""), DocstringStyle.REST).params:
                found.setdefault(each.arg_name, " ".join((each.description or "").split()))
        return found


@cache
def find(name: str) -> ForeignKind | None:
    """An operator of Data-Juicer or of a plug-in for it; None where there is none of that name."""
    cls = registered().get(name)
    if cls is None:
        return None
    # Its folder tells, or else its base class: some deduplicators for Ray inherit from `Filter`.
    folder = cls.__module__.removeprefix("data_juicer.ops.").partition(".")[0]
    bases = [base.__name__.lower() for base in cls.__mro__ if base.__module__ == BASE]
    return ForeignKind(folder if folder in KINDS else bases[0], cls, _fields(cls))


def get(name: str) -> ForeignKind:
    found = find(name)
    if found is None:
        raise RecipeError(f"Data-Juicer has no operator '{name}'", suggest(name, names()))
    if found.kind not in KINDS:
        raise RecipeError(
            f"it is of Data-Juicer's kind {found.kind}, whose rows come from several rows each",
            "run this recipe with dj-process",
        )
    return found


def names() -> list[str]:
    """Operators that can be steps; none where Data-Juicer is not installed."""
    found = {name: find(name) for name in registered()}
    return sorted(name for name, each in found.items() if each and each.kind in KINDS)


def registered() -> dict[str, type[Any]]:
    """The classes of Data-Juicer's operators and of those of plug-ins, by name, without ours."""
    if not is_installed():
        return {}
    from loguru import logger

    logger.disable("data_juicer")  # It would log what it imports.
    try:
        from data_juicer.ops import OPERATORS
    except ImportError as error:
        raise RecipeError(f"Data-Juicer cannot be imported: {error}", EXTRA) from error
    return {name: cls for name, cls in OPERATORS.modules.items() if _is_theirs(name, cls)}


def _is_theirs(name: str, cls: type[Any]) -> bool:
    top, *inner = cls.__module__.split(".")
    # Its own are in a file of their name in a folder of their kind; what fuses operators is not.
    is_own = len(inner) > 2 and inner[-1] == name
    return (is_own or top != "data_juicer") and not hasattr(cls, "operator_class")


def _fields(cls: type[Any]) -> dict[str, ForeignField]:
    found: dict[str, ForeignField] = {}
    own = cls.__init__
    for base in cls.__mro__[:-1]:
        init = vars(base).get("__init__")
        parameters = [] if init is None else list(inspect.signature(init).parameters.values())[1:]
        hints = {} if init is None else _hints(init)
        for each in parameters:
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                # What a base class requires, the class itself may give it.
                default = each.default if init is own or each.default is not each.empty else None
                field = ForeignField(each.name, hints.get(each.name), default)
                found.setdefault(each.name, field)
        # private: py-data-juicer==1.6.1, tests/pipelines/data_juicer/test_steps.py::test_fields_are_those_that_data_juicer_checks
        for name, (hint, default) in vars(base).get("_BASE_PARAMS", {}).items():
            found.setdefault(name, ForeignField(name, hint, default))
    return found


def _hints(init: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(init, include_extras=True)
    except Exception:  # A name that only a type checker imports.
        return {}
