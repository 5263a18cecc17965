"""A step of a stored recipe whose code is not run: its name, its fields and what it wrote.

Its class is in a file that the recipe names, or in a package that is not installed. To look at what
it did takes none of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import ConfigDict

from ...operators import ALL, Change, Columns, Operator, OperatorError, build

SERVED = "mcp"
"""The tool that a server has: to say what the policy can call, it is started or connected to."""
_NAME = re.compile(r"[A-Za-z_]\w*")


class StoredOperator(Operator):
    """An operator of which only what is on file is known."""

    model_config = ConfigDict(extra="allow")

    stored_name: ClassVar[str]
    samples: ClassVar[bool] = False
    """Whether it is an installed operator that samples, with tools or flows that are not."""
    written: ClassVar[Columns] = ()
    """The columns that it has written in a run, as far as they are known."""

    @classmethod
    def name(cls) -> str:
        """The name in the recipe."""
        return cls.stored_name

    def with_written(self, columns: Sequence[str]) -> StoredOperator:
        """This operator, with the columns that it has written in a run."""
        kind = _kind(self.name(), self.samples, tuple(columns))
        return build(kind, self.model_extra or {})

    def reads(self) -> Columns:
        return ALL

    def writes(self) -> Columns:
        return self.written

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        from ...operators.agents.explained import holds_turns, turn_lines

        turns = (row or {}).get("turns")
        return turn_lines(turns) if turns is not None and holds_turns(turns) else {}

    def cache_key_fields(self) -> Mapping[str, Any]:
        raise self._not_run()

    def apply(self, table: pa.Table) -> Change:
        raise self._not_run()

    def _not_run(self) -> OperatorError:
        return OperatorError(f"the code of {self.name()} is not run to look at what it did")


def stored_operator(
    name: str, fields: Mapping[str, Any], *, samples: bool = False
) -> StoredOperator | None:
    """The operator of a stored step; None where no operator can have this name."""
    return build(_kind(name, samples, ()), fields) if _NAME.fullmatch(name) else None


@cache
def _kind(name: str, samples: bool, written: Columns) -> type[StoredOperator]:
    types = {
        "stored_name": "ClassVar[str]",
        "samples": "ClassVar[bool]",
        "written": "ClassVar[Columns]",
    }
    values = {"stored_name": name, "samples": samples, "written": written}
    return type(
        "Stored", (StoredOperator,), {"__module__": __name__, "__annotations__": types, **values}
    )


def serves_tools(fields: Mapping[str, Any]) -> bool:
    """Whether a step has a tool of a server."""
    tools = fields.get("tools")
    entries = tools if isinstance(tools, list | tuple) else ()
    return any(each == SERVED or (isinstance(each, dict) and SERVED in each) for each in entries)
