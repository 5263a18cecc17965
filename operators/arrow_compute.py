"""`pyarrow.compute`, loaded by the first call of one of its functions.

Use it as `from ..arrow_compute import pc`. To import `pyarrow.compute` is to wrap 300 functions, a
ninth of the work of `rejuice check`, which calls none.
"""

from __future__ import annotations

from typing import Any


class _Compute:
    def __getattr__(self, name: str) -> Any:
        import pyarrow.compute

        value = getattr(pyarrow.compute, name)
        setattr(self, name, value)  # So that it is asked for once.
        return value


pc: Any = _Compute()
